"""Commits as they are asked for, and what becomes of them: calls, wishes, errors. Sans-IO.

``commit_queue`` is the one writer of all of it. A *call* is one commit that somebody asked for; a
*wish* is the offset that shall be committed of one partition, and the calls that wait for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kclient.errors import CommitFailed, KafkaError, RequestTimedOut
from kclient.group.offset_requests import is_unknown, some_of, united

if TYPE_CHECKING:
    from kclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

HINT: Final = (
    "whoever has the partition reads on from the last commit before it: commit in on_revoked, and "
    "take less time between two polls than max_poll_interval"
)
_TAKEN: Final = "the partition was taken from this consumer"
_FOREIGN: Final = "not assigned to this consumer at the time of the call"
_FOREIGN_HINT: Final = (
    "commit only what consumer.assignment has: another partition is another member's, or nobody's, "
    "and whoever has it reads on from the last commit before"
)


class Call(Generic[T]):
    """One commit that was asked for.

    Args:
        token: The caller's, handed back when it is done.
        begun: When it was asked for.
        deadline: When it must have an outcome.

    Attributes:
        token, begun, deadline: The same.
        number: In the order of the calls.
        done: It has an outcome.
        error: Why it failed; None if it didn't. Of meaning once it is done.
        open: The wishes that it waits for.
        failed: Partitions that were refused, with the errors.
        taken: Partitions that aren't ours any more, with the error that said so, if one did.
        foreign: Partitions that weren't ours when it was asked for.
    """

    __slots__ = (
        "begun",
        "deadline",
        "done",
        "error",
        "failed",
        "foreign",
        "number",
        "open",
        "taken",
        "token",
    )

    def __init__(self, token: T, begun: float, deadline: float) -> None:
        self.token = token
        self.begun = begun
        self.deadline = deadline
        self.number = -1
        self.done = False
        self.error: KafkaError | None = None
        self.open: dict[TopicPartition, Wish[T]] = {}
        self.failed: dict[TopicPartition, KafkaError] = {}
        self.taken: dict[TopicPartition, KafkaError | None] = {}
        self.foreign: list[TopicPartition] = []

    @property
    def spoilt(self) -> bool:
        """It fails, whatever becomes of what is open."""
        return bool(self.failed or self.taken or self.foreign)

    def finish(self, group_id: str) -> None:
        """Nothing is open any more: make the one outcome out of those of the partitions."""
        self.done = True
        if self.taken or self.foreign:
            self.error = self._commit_failed(group_id)
        elif self.failed:
            self.error = united(self.failed, group_id)

    def _commit_failed(self, group_id: str) -> CommitFailed:
        taken = [*self.foreign, *self.taken]
        cause = next((error for error in self.taken.values() if error is not None), None)
        why = _TAKEN if self.taken else _FOREIGN
        error = CommitFailed(
            f"offsets of {some_of(taken)} were not committed by group {group_id}: "
            + (str(cause) if cause is not None else why),
            partitions=taken,
            topic_partition=taken[0] if len(taken) == 1 else None,
            hint=HINT if self.taken else _FOREIGN_HINT,
        )
        error.__cause__ = cause
        if self.foreign and self.taken:
            error.add_note(f"{some_of(self.foreign)}: {_FOREIGN}")
        if self.failed:
            error.add_note(f"others failed, too: {united(self.failed, group_id)}")
        return error

    def too_late(self, group_id: str, now: float, obstacle: str, *, sent: bool) -> RequestTimedOut:
        """The error of what is open, as its time is up.

        Args:
            group_id: The group.
            now: The time.
            obstacle: Why nothing could be sent, if that is so.
            sent: Something of it is under way.
        """
        last = next((w.error for w in self.open.values() if w.error is not None), None)
        text = f"commit of {some_of(list(self.open))} by group {group_id} did not succeed in "
        text += f"{now - self.begun:.1f} s" + (", and may still do" if sent else "")
        why = f"last: {last}" if last is not None else obstacle
        late = RequestTimedOut(f"{text}; {why}" if why else text)
        late.__cause__ = last
        return late


class Wish(Generic[T]):
    """An offset to be committed.

    Attributes:
        offset: It.
        topic_id: Of the topic that it was read from, empty where brokers have no ids; None for an
            offset that was not read here.
        calls: Who waits for it, in the order of the calls.
        failures: How often it was sent in vain.
        retry_at: When it may be sent.
        error: Why it failed last.
        unknown_since: Since when the coordinator says that there is no such partition.
        forgotten: The partition was taken away while it was under way.
    """

    __slots__ = (
        "calls",
        "error",
        "failures",
        "forgotten",
        "offset",
        "retry_at",
        "topic_id",
        "unknown_since",
    )

    def __init__(self, offset: OffsetAndMetadata, topic_id: bytes | None = None) -> None:
        self.offset = offset
        self.topic_id = topic_id
        self.calls: dict[Call[T], None] = {}
        self.failures = 0
        self.retry_at = -math.inf
        self.error: KafkaError | None = None
        self.unknown_since = math.inf
        self.forgotten = False

    def failed(self, error: KafkaError, now: float, again: float) -> None:
        """It was sent in vain at ``now``, and may be sent ``again``."""
        self.error = error
        self.failures += 1
        self.retry_at = again
        self.unknown_since = min(self.unknown_since, now) if is_unknown(error) else math.inf

    def fared_like(self, other: Wish[T]) -> None:
        """It takes the place of ``other``, and goes on waiting where that was."""
        self.error, self.failures = other.error, other.failures
        self.retry_at, self.unknown_since = other.retry_at, other.unknown_since
