"""``async for`` over a consumer: makes the iterator for ``Consumer.__aiter__``.

It hands out what ``handed_over.handout`` holds, so that ``poll``, ``seek`` and the others can take
back what was not handed over yet. How long the loop was held is read from ``time.monotonic``, once
per record: that is a matter of real time, and half as dear as the client's clock.
"""

from __future__ import annotations

from time import monotonic
from types import BuiltinFunctionType
from typing import TYPE_CHECKING

from kclient.clock import work_clock
from kclient.record import IMPLEMENTATION

if TYPE_CHECKING:
    from kclient.consumer.poller import Poller

if TYPE_CHECKING or IMPLEMENTATION != "cython":
    from kclient.consumer.steps import Handout, RecordIterator, Step
else:
    from kclient.consumer._steps_c import Handout, RecordIterator, Step

__all__ = ["TURN", "Handout", "RecordIterator", "Step", "records_of"]

TURN = 0.005
"""Seconds after which the loop gets a turn."""


def records_of(poller: Poller, *, converts: bool) -> RecordIterator:
    """A new iterator; ``converts``: the consumer has deserializers."""
    clock = work_clock(monotonic)
    real = isinstance(clock, BuiltinFunctionType)  # nobody has put another in its place
    return RecordIterator(poller, converts=converts, clock=clock, real=real, turn=TURN)
