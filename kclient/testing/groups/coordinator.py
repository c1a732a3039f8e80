"""``GroupCoordinator``: a broker's groups, their timer, and their deferred responses.

Made by ``Broker`` and called by the handlers of the group APIs. It keeps a ``Shard`` for each
partition of ``__consumer_offsets`` that the broker leads, loads it from the log when it is first
needed in a leader epoch, and unloads it when that epoch ends. All of it runs in callbacks of the
loop: it has no task.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kclient.error_codes import ErrorCode
from kclient.testing.broker_configs import GroupSettings
from kclient.testing.groups import records
from kclient.testing.groups.classic_group import ClassicGroup
from kclient.testing.groups.offsets_topic import OFFSETS_TOPIC, OffsetsTopic, partition_of
from kclient.testing.groups.records import Record
from kclient.testing.groups.shard import Shard
from kclient.testing.image import BrokerRegistration
from kclient.testing.responses import ApiError, PendingResult
from kclient.testing.timers import DeadlineQueue, Moment, Timer

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

T = TypeVar("T")


class GroupCoordinator:
    """Groups of one broker.

    It has one timer, for the earliest deadline, while there is any: a member's session, a join or
    sync that is awaited, a write. ``close`` and the end of the last deadline stop it.

    Attributes:
        settings: From the broker's configuration.
        deadlines: Of all its groups.
        load_seconds: How long it takes to load a partition; until then members get
            COORDINATOR_LOAD_IN_PROGRESS. 0, as brokers in memory have nothing to wait for; tests
            may set it.
    """

    def __init__(self, broker: Broker, settings: GroupSettings, rng: random.Random) -> None:
        self.settings = settings
        self.deadlines = DeadlineQueue()
        self.load_seconds = 0.0
        self._broker = broker
        self._rng = rng
        self._store = OffsetsTopic(broker)
        self._shards: dict[int, Shard] = {}
        self._loading: dict[int, int] = {}
        self._timer = Timer(broker.call_later, lambda: self._run(self.deadlines.run))
        self._timer_at = 0.0
        self._last = 0.0
        self._outbox: list[Callable[[], None]] = []
        self._depth = 0

    @property
    def timer_is_set(self) -> bool:
        """Whether there is a deadline."""
        return self._timer.is_set

    # Called by handlers

    def find(self, group_id: str) -> BrokerRegistration | None:
        """A group's coordinator, None while there is none.

        It creates the internal topic if it is missing. Kafka then responds that there is no
        coordinator yet; here it exists at once, which saves each new cluster a wait.
        """
        self._store.create_topic(self.settings)
        return self._store.coordinator_of(self._index(group_id))

    def shard(self, group_id: str) -> Shard:
        """The shard of ``group_id``.

        Raises:
            ApiError: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._shard(self._index(group_id))

    def known(self) -> list[ClassicGroup]:
        """All groups of this broker. Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS."""
        found: list[ClassicGroup] = []
        for shard in [self._shard(index) for index in self._store.led()]:
            self._run(lambda moment, shard=shard: found.extend(shard.known(moment)))  # type: ignore[misc]
        return found

    def operate(self, group_id: str, operation: Callable[[Shard, Moment], None]) -> None:
        """Run ``operation`` on the group's shard, then send the responses that it made.

        They are sent afterwards, as a connection that gets one serves its next request at once.

        Raises:
            ApiError: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self.shard(group_id)
        self._run(lambda moment: operation(shard, moment))

    def later(self, reply: Callable[[T], None]) -> Callable[[T], None]:
        """Wrap ``reply``, so that it is called once the current operation has ended."""
        return lambda value: self._outbox.append(partial(reply, value))

    def ask(
        self,
        group_id: str,
        operation: Callable[[Shard, Moment, Callable[[T], None]], None],
        refuse: Callable[[ErrorCode], T],
    ) -> PendingResult[T]:
        """``operate``, with an operation that replies now or later; return its response.

        Args:
            group_id: The group that selects the shard.
            operation: Takes the shard, the moment, and the function to call with the response.
            refuse: Makes the response if this broker doesn't coordinate the group.
        """
        answer: PendingResult[T] = PendingResult()
        reply = self.later(answer.complete)
        try:
            self.operate(group_id, lambda shard, moment: operation(shard, moment, reply))
        except ApiError as refused:
            answer.complete(refuse(refused.code))
        return answer

    # Called by the broker

    def role_changed(self, topic: str, index: int, leads: bool, leader_epoch: int) -> None:
        """The broker leads a partition from now on, or doesn't any more."""
        if topic != OFFSETS_TOPIC:
            return
        shard = self._shards.get(index)
        if shard is not None and not (leads and shard.epoch == leader_epoch):
            self._unload(index)
        if leads:
            self._load(index, leader_epoch)

    def close(self) -> None:
        """Unload all groups and cancel the timer: the broker is going down."""
        for index in tuple(self._shards):
            self._unload(index)
        self._loading.clear()
        self.deadlines = DeadlineQueue()
        self._timer.cancel()

    # Called by shards

    def new_id(self) -> str:
        """A UUID as text, drawn with the cluster's seed."""
        digits = self._rng.randbytes(16).hex()
        parts = (digits[:8], digits[8:12], f"4{digits[13:16]}", f"a{digits[17:20]}", digits[20:])
        return "-".join(parts)

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, None if it doesn't exist."""
        found = self._broker.image.topics.get(topic)
        return None if found is None else found.topic_id

    # Shards

    def _index(self, group_id: str) -> int:
        return partition_of(group_id, self.settings.partitions)

    def _shard(self, index: int) -> Shard:
        epoch = self._store.leads(index)
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

    def _load(self, index: int, epoch: int) -> Shard | None:
        """Load a partition; None while loading takes ``load_seconds``."""
        found = self._shards.get(index)
        if found is not None:
            return found
        if self.load_seconds <= 0:
            return self._fill(index, epoch)
        if self._loading.get(index) != epoch:
            self._loading[index] = epoch

            def loaded(_: Moment) -> None:
                if self._loading.pop(index, None) == self._store.leads(index) == epoch:
                    self._fill(index, epoch)

            at = self._moment().now + self.load_seconds
            self._run(lambda _: self.deadlines.set(("load", str(index)), at, loaded))
        return None

    def _fill(self, index: int, epoch: int) -> Shard:
        shard = self._shards[index] = Shard(self, partial(self._append, index), epoch)
        self._store.watch(index, lambda: self._unload(index))
        read = records.decode_batches(self._store.read(index))
        self._run(lambda moment: shard.load(read, moment))
        return shard

    def _unload(self, index: int) -> None:
        self._store.unwatch(index)
        shard = self._shards.pop(index, None)
        if shard is not None:
            self._run(shard.unload)

    def _append(
        self,
        index: int,
        written: Sequence[Record],
        moment: Moment,
        done: Callable[[ErrorCode, Moment], None],
    ) -> None:
        batch = records.encode_batch(written, moment.wall_ms)
        self._store.append(index, batch, lambda code: self._run(lambda then: done(code, then)))

    # Time

    def _moment(self) -> Moment:
        """The current time, or outside of any loop, as in a test's set-up, the last one."""
        with contextlib.suppress(RuntimeError):
            self._last = asyncio.get_running_loop().time()
        return Moment(self._last, self._broker.wall_ms())

    def _run(self, operation: Callable[[Moment], None]) -> None:
        """Run an operation on groups; after the outermost one, set the timer and send responses."""
        self._depth += 1
        try:
            operation(self._moment())
        finally:
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
