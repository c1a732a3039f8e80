"""``Coordinator``: the part of a broker that groups and transactions have in common.

Its state is in shards, one for each partition of an internal topic that the broker leads. A shard
is loaded from the log when it is first needed in a leader epoch, and unloaded when that epoch ends.
Requests are operations on a shard: they respond at once, or once what they append is committed, or
when a deadline is due. All of it runs in callbacks of the loop: there is no task, and one timer,
for the earliest deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kclient.error_codes import ErrorCode
from kclient.testing.image import BrokerRegistration
from kclient.testing.internal_topic import InternalTopic, partition_of
from kclient.testing.replica_manager import INTERNAL_SECONDS
from kclient.testing.responses import ApiError, PendingResult
from kclient.testing.timers import DeadlineQueue, Moment, Timer

if TYPE_CHECKING:
    from kclient.testing.broker import Broker


class Loadable(Protocol):
    """A shard."""

    epoch: int
    """The leader epoch that it was made in."""

    def load(self, batches: Iterable[bytes | bytearray], moment: Moment) -> None:
        """Load the state from the partition's log."""

    def unload(self, moment: Moment) -> None:
        """Another broker leads: requests that wait fail with NOT_COORDINATOR."""


T = TypeVar("T")
S = TypeVar("S", bound=Loadable)

_AS_SEEN = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def code_for_client(code: ErrorCode) -> ErrorCode:
    """The code that clients of a coordinator get for an error of its log, or of another broker."""
    return _AS_SEEN.get(code, code)


class Coordinator(ABC, Generic[S]):
    """The shards of one broker.

    Args:
        broker: The broker.
        topic: Has the state.

    Attributes:
        deadlines: Of all its shards.
        load_seconds: How long it takes to load a partition; until then requests get
            COORDINATOR_LOAD_IN_PROGRESS. 0, as brokers in memory have nothing to wait for; tests
            may set it.
    """

    def __init__(self, broker: Broker, topic: InternalTopic) -> None:
        self.deadlines = DeadlineQueue()
        self.load_seconds = 0.0
        self._broker = broker
        self._topic = topic
        self._shards: dict[int, S] = {}
        self._loading: dict[int, int] = {}
        self._timer = Timer(broker.call_later, lambda: self.run(self.deadlines.run))
        self._timer_at = 0.0
        self._last = 0.0
        self._outbox: list[Callable[[], None]] = []
        self._depth = 0

    @abstractmethod
    def _new_shard(self, index: int, epoch: int) -> S:
        """Make the shard of a partition, still empty."""

    @property
    def timer_is_set(self) -> bool:
        """Whether there is a deadline."""
        return self._timer.is_set

    # Called by handlers

    def find(self, key: str) -> BrokerRegistration | None:
        """The coordinator of a group or transactional id, None while there is none.

        It creates the internal topic if it is missing. Kafka then responds that there is no
        coordinator yet; here it exists at once, which saves each new cluster a wait.
        """
        self._topic.create()
        return self._topic.coordinator_of(self.partition_of(key))

    def partition_of(self, key: str) -> int:
        """The partition that a group or transactional id belongs to."""
        return partition_of(key, self._topic.partitions)

    def shard(self, key: str) -> S:
        """The shard of ``key``.

        Raises:
            ApiError: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self.shard_at(self.partition_of(key))

    def led(self) -> list[S]:
        """All shards of this broker. Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS."""
        return [self.shard_at(index) for index in self._topic.led()]

    def operate(self, key: str, operation: Callable[[S, Moment], None]) -> None:
        """Run ``operation`` on the key's shard, then send the responses that it made.

        They are sent afterwards, as a connection that gets one serves its next request at once.

        Raises:
            ApiError: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self.shard(key)
        self.run(lambda moment: operation(shard, moment))

    def later(self, reply: Callable[[T], None]) -> Callable[[T], None]:
        """Wrap ``reply``, so that it is called once the current operation has ended."""
        return lambda value: self._outbox.append(partial(reply, value))

    def ask(
        self,
        key: str,
        operation: Callable[[S, Moment, Callable[[T], None]], None],
        refuse: Callable[[ErrorCode], T],
    ) -> PendingResult[T]:
        """``operate``, with an operation that replies now or later; return its response.

        Args:
            key: The group or transactional id that selects the shard.
            operation: Takes the shard, the moment, and the function to call with the response.
            refuse: Makes the response if this broker doesn't coordinate the key, or the operation
                raises ApiError.
        """
        answer: PendingResult[T] = PendingResult()
        reply = self.later(answer.complete)
        try:
            self.operate(key, lambda shard, moment: operation(shard, moment, reply))
        except ApiError as refused:
            answer.complete(refuse(refused.code))
        return answer

    # Called by the broker

    def role_changed(self, topic: str, index: int, leads: bool, leader_epoch: int) -> None:
        """The broker leads a partition from now on, or doesn't any more."""
        if topic != self._topic.name:
            return
        shard = self._shards.get(index)
        if shard is not None and not (leads and shard.epoch == leader_epoch):
            self._unload(index)
        if leads:
            self._load(index, leader_epoch)

    def close(self) -> None:
        """Unload all shards and cancel the timer: the broker is going down."""
        for index in tuple(self._shards):
            self._unload(index)
        self._loading.clear()
        self.deadlines = DeadlineQueue()
        self._timer.cancel()

    # Shards

    def shard_at(self, index: int) -> S:
        """The shard of a partition. Raises ApiError, as ``shard`` does."""
        epoch = self._topic.leads(index)
        shard = self._shards.get(index)
        if shard is not None and shard.epoch != epoch:
            self._unload(index)
            shard = None
        if epoch is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if shard is None:
            shard = self._load(index, epoch)
        if shard is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _load(self, index: int, epoch: int) -> S | None:
        """Load a partition; None while loading takes ``load_seconds``."""
        found = self._shards.get(index)
        if found is not None:
            return found
        if self.load_seconds <= 0:
            return self._fill(index, epoch)
        if self._loading.get(index) != epoch:
            self._loading[index] = epoch

            def loaded(_: Moment) -> None:
                if self._loading.pop(index, None) == self._topic.leads(index) == epoch:
                    self._fill(index, epoch)

            at = self._moment().now + self.load_seconds
            self.run(lambda _: self.deadlines.set(("load", str(index)), at, loaded))
        return None

    def _fill(self, index: int, epoch: int) -> S:
        shard = self._shards[index] = self._new_shard(index, epoch)
        self._topic.watch(index, lambda: self._unload(index))
        self.run(lambda moment: shard.load(self._topic.read(index), moment))
        return shard

    def _unload(self, index: int) -> None:
        self._topic.unwatch(index)
        shard = self._shards.pop(index, None)
        if shard is not None:
            self.run(shard.unload)

    def append(
        self,
        index: int,
        batch: bytes,
        done: Callable[[ErrorCode, Moment], None],
        seconds: float = INTERNAL_SECONDS,
    ) -> None:
        """Append a batch to a partition; ``done`` is called as an operation of its own."""
        self._topic.append(
            index, batch, lambda code: self.run(lambda then: done(code, then)), seconds
        )

    # Time

    def _moment(self) -> Moment:
        """The current time, or outside of any loop, as in a test's set-up, the last one."""
        with contextlib.suppress(RuntimeError):
            self._last = asyncio.get_running_loop().time()
        return Moment(self._last, self._broker.wall_ms())

    def run(self, operation: Callable[[Moment], None]) -> None:
        """Run an operation on shards; after the outermost one, set the timer and respond."""
        self._depth += 1
        try:
            operation(self._moment())
        finally:  # also where it refuses its request
            self._depth -= 1
            if self._depth == 0:
                self._arm()
                outbox, self._outbox = self._outbox, []
                for send in outbox:
                    send()

    def _arm(self) -> None:
        at = self.deadlines.next_at
        if at is None:
            self._timer.cancel()
        elif not self._timer.is_set or at < self._timer_at:  # too early is fine: it sets it again
            self._timer.cancel()
            self._timer_at = at
            with contextlib.suppress(RuntimeError):
                self._timer.set(at - asyncio.get_running_loop().time())
