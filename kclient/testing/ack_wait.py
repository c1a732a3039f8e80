"""A produce with ``acks=all`` that waits until all in sync have what it wrote.

Made by ``handlers/produce.py``; one listener per log and one timer, no task. Kafka's
``DelayedProduce``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kclient.error_codes import ErrorCode
from kclient.testing.outcome_wait import OutcomeWait
from kclient.testing.replica import Replica

T = TypeVar("T")


class Waiting:
    """One partition of a request.

    Args:
        replica: The leader's.
        required: The high watermark that is waited for.
        settle: Called with the outcome, once.
    """

    __slots__ = ("_epoch", "_required", "_settle", "done", "replica")

    def __init__(
        self, replica: Replica, required: int, settle: Callable[[ErrorCode], None]
    ) -> None:
        self.replica = replica
        self._required = required
        self._epoch = replica.epoch
        self._settle = settle
        self.done = False

    def look(self) -> bool:
        """Whether it has its outcome, which it takes now if there is one."""
        if self.done:
            return True
        replica = self.replica
        if replica.is_gone:
            self.settle(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif not replica.leads or replica.epoch != self._epoch:
            self.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif replica.log.high_watermark >= self._required:
            enough = replica.has_min_isr
            self.settle(ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return self.done

    def settle(self, code: ErrorCode) -> None:
        """It has its outcome."""
        self.done = True
        self._settle(code)


def all_settled(waiting: Sequence[Waiting]) -> bool:
    """Let each look, and tell whether all have their outcomes."""
    pending = [one for one in waiting if not one.look()]
    return not pending


class AckWait(OutcomeWait[T]):
    """Answers when all in sync have what was written to ``waiting``, or after ``seconds``."""

    def __init__(
        self, waiting: Sequence[Waiting], seconds: float, respond: Callable[[], T]
    ) -> None:
        super().__init__(seconds, respond)
        self._waiting = waiting
        for one in waiting:
            one.replica.log.listen(self._grown)

    def _grown(self, _: int) -> None:
        self.look()

    def is_settled(self) -> bool:
        """Whether all have their outcomes, which they take now if there are any."""
        return all_settled(self._waiting)

    def time_out(self) -> None:
        """Give up those that some in sync lack."""
        for one in self._waiting:
            if not one.look():
                one.settle(ErrorCode.REQUEST_TIMED_OUT)

    def let_go(self) -> None:
        """Listen to no log any more."""
        for one in self._waiting:
            one.replica.log.unlisten(self._grown)
