"""``AsyncOnly``: what a client answers to a ``with`` that lacks its ``async``.

Producer, Consumer and Admin inherit it. Type checkers don't see its methods, so that they find the
mistake before it runs. It must not do anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient.errors import a_or_an


class AsyncOnly:
    """A client that is entered with ``async with``."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self) -> Any:
            raise TypeError(f"`async with` is needed for {a_or_an(type(self).__name__)}")

        def __exit__(self, *error: object) -> None:
            """Is never called, but ``with`` looks for it before it enters."""
