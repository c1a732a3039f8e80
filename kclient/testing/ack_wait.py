"""A produce with ``acks=all`` that waits until all in sync have what it wrote.

Made by ``handlers/produce.py``; one listener per log and one timer, no task. Kafka's
``DelayedProduce``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kclient.error_codes import ErrorCode
from kclient.testing.deferred import Deferred
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


class AckWait(Generic[T]):
    """Answers when every partition has its outcome, or after ``seconds``.

    Args:
        waiting: The partitions.
        seconds: The request's timeout.
        respond: Makes the response.

    Attributes:
        answer: Where the response arrives; cancelling it lets go of timer and listeners.
    """

    def __init__(
        self, waiting: Sequence[Waiting], seconds: float, respond: Callable[[], T]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._waiting = waiting
        self._respond = respond
        self._timer = self._loop.call_later(seconds, self._late)
        self.answer: Deferred[T] = Deferred(self._abandon)
        for one in waiting:
            one.replica.log.listen(self._look)

    def _look(self, _: int) -> None:
        """Answers leave in a later callback: a connection that got one serves its next request."""
        if self._soon is None and not self.answer.done and all_settled(self._waiting):
            self._soon = self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        self.answer.complete(self._respond())

    def _late(self) -> None:
        for one in self._waiting:
            if not one.look():
                one.settle(ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def _abandon(self) -> None:
        self._timer.cancel()
        if self._soon is not None:
            self._soon.cancel()
        for one in self._waiting:
            one.replica.log.unlisten(self._look)
