"""Sender: what sends records on to retry topics and dead-letter topics.

Any ``kclient.Producer`` without serializers is one, so that this package need not know the
producer's. What else a sender may have is asked of its class, since mocks have everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence


class Sender(Protocol):
    """What sends records to retry topics and to the dead-letter topic."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Awaitable[object]:
        """Send one record; whoever awaits the answer knows that it is in the log."""


def unfit(sender: Any, *, running: bool) -> str | None:
    """Why records can't be sent on by ``sender``, in words; None if nothing is known.

    Args:
        sender: A ``Sender``; those that don't tell are believed.
        running: Whether it must have been started.
    """
    asked = getattr(type(sender), "_unfit_to_relay", None)
    why: str | None = None if asked is None else asked(sender, running=running)
    return why
