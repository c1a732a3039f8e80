"""How a run is: the values that ``Runner.health`` gives. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.frozen import Snapshot

if TYPE_CHECKING:
    from kclient.types import TopicPartition


@dataclass(frozen=True, slots=True)
class SlowHandler(Snapshot):
    """A handler that has been at work for longer than ``max_poll_interval``.

    Attributes:
        topic_partition: Of its record.
        offset: Of its record.
        seconds: Since it was called.
    """

    topic_partition: TopicPartition
    offset: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunHealth(Snapshot):
    """One ``Consumer.run`` that is under way.

    Attributes:
        running: Handlers at work.
        in_flight: Records that were taken and aren't finished, or wait for one before them that
            isn't.
        delayed: Records that wait for a retry, or until they are due.
        paused: Partitions of which no more is taken for now, since they have their share in flight.
        handled: Records finished by a handler so far.
        failures: Calls of the handler that failed so far.
        sent_on: Records sent to a retry topic or the dead-letter topic so far.
        slow: Handlers at work for longer than ``max_poll_interval``, the longest first.
        ok: None is.
    """

    running: int
    in_flight: int
    delayed: int
    paused: int
    handled: int
    failures: int
    sent_on: int
    slow: tuple[SlowHandler, ...]

    @property
    def ok(self) -> bool:
        """No handler is slow."""
        return not self.slow
