"""``async for`` over a consumer: makes the iterator for ``Consumer.__aiter__``.

It hands out what ``handed_over.handout`` holds, so that ``poll``, ``seek`` and the others can take
back what was not handed over yet. How long the loop was held is read from ``time.monotonic``, once
per record: that is a matter of real time, and half as dear as the client's clock.
"""

from __future__ import annotations

import sys
from time import monotonic
from types import BuiltinFunctionType
from typing import TYPE_CHECKING

from kclient.record import IMPLEMENTATION
from kclient.surroundings import effort_clock

if TYPE_CHECKING:
    from kclient.consumer.poller import Poller

# From 3.12 on the interpreter runs coroutines within its own loop, and asks all others for their
# result by way of an exception: there the pure steps are the cheaper ones.
if TYPE_CHECKING or IMPLEMENTATION != "cython" or sys.version_info >= (3, 12):
    from kclient.consumer.steps import Handout, RecordIterator, Step
else:
    from kclient.consumer._steps_c import Handout, RecordIterator, Step

__all__ = ["TURN", "Handout", "RecordIterator", "Step", "records_of"]

TURN = 0.005
"""Seconds after which the loop gets a turn."""


def records_of(poller: Poller, *, converts: bool) -> RecordIterator:
    """A new iterator; ``converts``: the consumer has deserializers."""
    clock = effort_clock(monotonic)
    real = isinstance(clock, BuiltinFunctionType)  # nobody has put another in its place
    return RecordIterator(poller, converts=converts, clock=clock, real=real, turn=TURN)
