"""``async for`` over a consumer, one record at a time. Made by ``Consumer.__aiter__``.

It hands out what ``poller.handout`` holds, so that ``poll``, ``seek`` and the others can take back
what was not handed over yet. How long the loop was held is read from ``time.monotonic``, once per
record: that is a matter of real time, and half as dear as the client's clock.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from kclient.errors import ClientClosed
from kclient.surroundings import effort_clock

if TYPE_CHECKING:
    from kclient.consumer.poller import Poller

TURN = 0.005
"""Seconds after which the loop gets a turn."""


class RecordIterator:
    """The records of one consumer, for ever; it ends when the consumer is closed.

    A step that is cancelled has taken nothing, and the next one goes on.
    """

    __slots__ = ("_converts", "_monotonic", "_poller", "_turn_at")

    def __init__(self, poller: Poller, *, converts: bool) -> None:
        """``converts``: the consumer has deserializers."""
        self._poller = poller
        self._converts = converts
        self._monotonic = effort_clock(monotonic)
        self._turn_at = self._monotonic() + TURN

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._monotonic() >= self._turn_at:
            await asyncio.sleep(0)
            self._turn_at = self._monotonic() + TURN
        poller = self._poller
        # A loop of one round at most: the cheapest way to ask an iterator for its next.
        for record in poller.handout:
            return poller.converted(record) if self._converts else record
        try:
            return await poller.next_record()
        except ClientClosed:
            raise StopAsyncIteration from None
