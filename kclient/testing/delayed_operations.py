"""Responses that wait for changes of logs: a produce with ``acks=all``, a fetch without data.

Made by ``handlers/produce.py`` (Kafka's ``DelayedProduce``) and ``handlers/fetch.py``;
``handlers/logs.py`` has another one. One listener per log and one timer, no task, no polling.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Response
from kclient.testing.log import PartitionLog
from kclient.testing.replica import Replica
from kclient.testing.responses import PendingResult

T = TypeVar("T")


class DelayedOperation(ABC, Generic[T]):
    """A response that is tried whenever ``look`` is called, and comes after ``seconds`` at most.

    Attributes:
        answer: Gets the response; cancelling it releases timer and listeners.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._timer = self._loop.call_later(seconds, self._attempt, True)
        self.answer: PendingResult[T] = PendingResult(self._release)

    @abstractmethod
    def _attempt(self, last: bool) -> None:
        """Complete the response if it is ready; with ``last`` in any case."""

    def look(self, _: object = None) -> None:
        """Try in a later callback, as a connection that gets a response serves its next request."""
        if self._soon is None and not self.answer.done:
            self._soon = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._soon = None
        self._attempt(False)

    def _release(self) -> None:
        """Release timer and listeners."""
        self._timer.cancel()
        if self._soon is not None:
            self._soon.cancel()


class ProducePartitionStatus:
    """One partition of a produce.

    Args:
        replica: The leader's replica.
        required: The high watermark to wait for.
        settle: Called with the outcome, once.
    """

    def __init__(
        self, replica: Replica, required: int, settle: Callable[[ErrorCode], None]
    ) -> None:
        self.replica = replica
        self._required = required
        self._epoch = replica.epoch
        self._settle = settle
        self.done = False

    def look(self) -> bool:
        """Check for an outcome; return whether there is one."""
        if self.done:
            return True
        replica = self.replica
        if replica.is_deleted:
            self.settle(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif not replica.leads or replica.epoch != self._epoch:
            self.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif replica.log.high_watermark >= self._required:
            enough = replica.has_min_isr
            self.settle(ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return self.done

    def settle(self, code: ErrorCode) -> None:
        """Set its outcome."""
        self.done = True
        self._settle(code)


def all_settled(waiting: Sequence[ProducePartitionStatus]) -> bool:
    """Check each for an outcome; return whether all have one."""
    pending = [one for one in waiting if not one.look()]
    return not pending


class DelayedProduce(DelayedOperation[T]):
    """Responds when all in sync have what was written to ``waiting``, or after ``seconds``."""

    def __init__(
        self, waiting: Sequence[ProducePartitionStatus], seconds: float, respond: Callable[[], T]
    ) -> None:
        super().__init__(seconds)
        self._waiting = waiting
        self._respond = respond
        for one in waiting:
            one.replica.log.listen(self.look)

    def _attempt(self, last: bool) -> None:
        if not all_settled(self._waiting):
            if not last:
                return
            for one in self._waiting:
                if not one.done:
                    one.settle(ErrorCode.REQUEST_TIMED_OUT)
        self.answer.complete(self._respond())

    def _release(self) -> None:
        super()._release()
        for one in self._waiting:
            one.replica.log.unlisten(self.look)


class DelayedFetch(DelayedOperation[Response]):
    """Responds when ``missing_bytes`` more can be read from ``logs``, or after ``seconds``.

    Args:
        logs: Of the fetched partitions.
        missing_bytes: Bytes that are missing to reach ``min_bytes``.
        seconds: ``max_wait``.
        read: Reads again and returns the response, or the number of bytes that are still missing;
            with True it returns the response in any case.
        eager: Read after each append: its size isn't the number of bytes that can be read.
        tail: Uncommitted records count, too, as for followers.
    """

    def __init__(
        self,
        logs: Sequence[PartitionLog],
        missing_bytes: int,
        seconds: float,
        read: Callable[[bool], Response | int],
        *,
        eager: bool,
        tail: bool = False,
    ) -> None:
        super().__init__(seconds)
        self._logs = logs
        self._missing = missing_bytes
        self._read = read
        self._eager = eager
        for log in logs:
            log.listen(self._grown, tail=tail)

    def _grown(self, size_bytes: int) -> None:
        self._missing -= size_bytes
        if self._missing <= 0 or self._eager:
            self.look()

    def _attempt(self, last: bool) -> None:
        outcome = self._read(last)
        if isinstance(outcome, int):
            self._missing = outcome
        else:
            self.answer.complete(outcome)

    def _release(self) -> None:
        super()._release()
        for log in self._logs:
            log.unlisten(self._grown)
