"""What clients raise for habits of other clients: ``with`` without ``async``, missing methods.

Type checkers see neither, so that they find the mistake before it runs. It must not do anything
else.
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


def missing_attribute(client: object, name: str) -> Any:
    """Raise the usual AttributeError, with our counterpart if another client has the name.

    The ``__getattr__`` of clients. It must not read an attribute of ``client``, which may be half
    made.
    """
    text = f"{type(client).__name__!r} object has no attribute {name!r}"
    if not name.startswith("_"):
        from kclient.foreign_methods import answer  # only errors need it

        instead = answer(type(client), name)
        if instead is not None:
            text = f"{text}: {instead}"
    raise AttributeError(text)
