"""A DeleteRecords that waits until the copies on all brokers that are up begin where it said.

Made by ``handlers/logs.py``; one listener per log and one timer, no task. Followers tell
where their logs begin when they fetch. Kafka's ``DelayedDeleteRecords``, with all that it doesn't
do: it looks again when a follower fetched or the high watermark moved, and at nothing else. Where
the leader is replaced, the topic is deleted or a broker dies meanwhile, only its time ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kclient.error_codes import ErrorCode
from kclient.testing.image import MetadataImage
from kclient.testing.outcome_wait import OutcomeWait
from kclient.testing.replica import Replica
from kclient.testing.replicas import Replicas

T = TypeVar("T")

UNKNOWN_WATERMARK = -1
Settle = Callable[[ErrorCode, int], None]
"""Called with a partition's outcome and its low watermark."""


def low_watermark(replica: Replica, image: MetadataImage) -> int:
    """The least start of the copies on brokers that are up; a leader's, who knows them all."""
    low = replica.log.start_offset
    for node_id, follower in replica.followers.items():
        if follower.start_offset < low:
            broker = image.brokers.get(node_id)
            if broker is not None and broker.alive:
                low = follower.start_offset
    return low


class Deleting:
    """One partition of a request.

    Args:
        replica: The leader's.
        required: The low watermark that is waited for.
        settle: Called with the outcome, once.
    """

    __slots__ = ("_settle", "done", "low", "replica", "required")

    def __init__(self, replica: Replica, required: int, low: int, settle: Settle) -> None:
        self.replica = replica
        self.required = required
        self.low = low
        self._settle = settle
        self.done = False

    def look(self, replicas: Replicas) -> None:
        """Take the outcome, if there is one now."""
        facts = self.replica.facts
        found = replicas.get(facts.topic, facts.index)
        if found is None:
            self.settle(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_WATERMARK)
        elif not found.leads:
            self.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER, UNKNOWN_WATERMARK)
        else:
            low = low_watermark(found, replicas.image)
            if low >= self.required:
                self.settle(ErrorCode.NONE, low)

    def settle(self, code: ErrorCode, low: int) -> None:
        """It has its outcome."""
        self.done = True
        self._settle(code, low)


def all_deleted(deleting: Sequence[Deleting], replicas: Replicas) -> bool:
    """Let each look, and tell whether all have their outcomes."""
    for one in deleting:
        if not one.done:
            one.look(replicas)
    return all(one.done for one in deleting)


class DeletionWait(OutcomeWait[T]):
    """Answers when the copies of ``deleting`` begin where they should, or after ``seconds``.

    Args:
        deleting: The partitions.
        replicas: Of the broker.
        seconds: The request's timeout.
        respond: Makes the response.
        watching: Where it stands while it waits: ``Hosted`` tells those of followers' fetches.
    """

    def __init__(
        self,
        deleting: Sequence[Deleting],
        replicas: Replicas,
        seconds: float,
        respond: Callable[[], T],
        watching: dict[Callable[[Replica], None], None],
    ) -> None:
        super().__init__(seconds, respond)
        self._deleting = deleting
        self._watched = {one.replica for one in deleting}
        self._replicas = replicas
        self._watching = watching
        self._listeners = [(one.replica.log, partial(self._grown, one.replica)) for one in deleting]
        watching[self._fetched] = None
        for log, listener in self._listeners:
            log.listen(listener)

    def _fetched(self, replica: Replica) -> None:
        if replica in self._watched:
            self.look()

    def _grown(self, replica: Replica, _: int) -> None:
        if replica.leads:
            self.look()

    def is_settled(self) -> bool:
        """Whether all have their outcomes, which they take now if there are any."""
        return all_deleted(self._deleting, self._replicas)

    def time_out(self) -> None:
        """Give up those that some copy keeps."""
        for one in self._deleting:
            if not one.done:
                one.settle(ErrorCode.REQUEST_TIMED_OUT, one.low)

    def let_go(self) -> None:
        """Listen to no log and no follower any more."""
        self._watching.pop(self._fetched, None)
        for log, listener in self._listeners:
            log.unlisten(listener)
