"""What deliveries need of the producer that made them; that producer, or the loop alone.

Sans-IO: the loop is asked for turns only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from kclient.producer.delivery import BatchOutcome


class DeliveryHost(Protocol):
    """What outcomes need of the producer that made them."""

    loop: asyncio.AbstractEventLoop

    def unseen_failure(self, outcome: BatchOutcome, count: int, /) -> None:
        """``count`` records of a failed batch were dropped without anyone looking."""
        ...


class LoopOnly:
    """All that is asked of the host of a batch that was written."""

    __slots__ = ("loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def unseen_failure(self, outcome: BatchOutcome, count: int, /) -> None: ...
