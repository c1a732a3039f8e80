"""``GroupCoordinator``: a broker's groups, their timer, and the answers that come later.

Made by ``Broker`` and asked by the handlers of the group APIs. It keeps a ``Shard`` for each
partition of ``__consumer_offsets`` that the broker leads, loads it from the log when it is first
needed in a leader epoch, and lets go of it when that epoch ends. All of it runs in callbacks of
the loop: it has no task.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kclient.error_codes import ErrorCode
from kclient.testing.deferred import Alarm, Deferred
from kclient.testing.groups import records
from kclient.testing.groups.classic_group import ClassicGroup
from kclient.testing.groups.deadlines import Deadlines, Moment
from kclient.testing.groups.records import Record
from kclient.testing.groups.settings import GroupSettings
from kclient.testing.groups.shard import Shard
from kclient.testing.groups.store import OFFSETS_TOPIC, GroupStore, partition_of
from kclient.testing.image import BrokerFacts
from kclient.testing.refused import Refused

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

T = TypeVar("T")


class GroupCoordinator:
    """Groups of one broker.

    It starts one timer, for the earliest deadline, while there is any: a member's session, a join
    or sync that is awaited, a write. ``close`` and the last deadline's end stop it.

    Attributes:
        settings: From the broker's configuration.
        deadlines: Of all its groups.
        load_seconds: How long it takes to take a partition over; until then members are told
            COORDINATOR_LOAD_IN_PROGRESS. 0, as brokers in memory have nothing to wait for; tests
            may set it.
    """

    def __init__(self, broker: Broker, settings: GroupSettings, rng: random.Random) -> None:
        self.settings = settings
        self.deadlines = Deadlines()
        self.load_seconds = 0.0
        self._broker = broker
        self._rng = rng
        self._store = GroupStore(broker)
        self._shards: dict[int, Shard] = {}
        self._loading: dict[int, int] = {}
        self._timer = Alarm(broker.call_later, lambda: self._run(self.deadlines.run))
        self._timer_at = 0.0
        self._last = 0.0
        self._outbox: list[Callable[[], None]] = []
        self._depth = 0

    @property
    def timer_is_set(self) -> bool:
        """Something is due sometime."""
        return self._timer.is_set

    # What handlers ask

    def find(self, group_id: str) -> BrokerFacts | None:
        """A group's coordinator, None while there is none.

        The internal topic is made if need be. Kafka then says that there is no coordinator yet;
        here it exists at once, which saves each new cluster a wait.
        """
        self._store.create_topic(self.settings)
        return self._store.coordinator_of(self._index(group_id))

    def shard(self, group_id: str) -> Shard:
        """The groups among which ``group_id`` is.

        Raises:
            Refused: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._shard(self._index(group_id))

    def known(self) -> list[ClassicGroup]:
        """All groups of this broker. Raises Refused: COORDINATOR_LOAD_IN_PROGRESS."""
        found: list[ClassicGroup] = []
        for shard in [self._shard(index) for index in self._store.led()]:
            self._run(lambda moment, shard=shard: found.extend(shard.known(moment)))  # type: ignore[misc]
        return found

    def operate(self, group_id: str, operation: Callable[[Shard, Moment], None]) -> None:
        """Let ``operation`` act on the group's shard, then send the answers that it gave.

        Answers leave afterwards, since a connection that got one serves its next request at once.

        Raises:
            Refused: NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self.shard(group_id)
        self._run(lambda moment: operation(shard, moment))

    def later(self, reply: Callable[[T], None]) -> Callable[[T], None]:
        """``reply``, called once the operation that goes on has ended."""
        return lambda value: self._outbox.append(partial(reply, value))

    def ask(
        self,
        group_id: str,
        operation: Callable[[Shard, Moment, Callable[[T], None]], None],
        refuse: Callable[[ErrorCode], T],
    ) -> Deferred[T]:
        """``operate``, with an operation that replies now or later; the answer to it.

        Args:
            group_id: Whose shard.
            operation: Takes the shard, the moment, and what to call with the answer.
            refuse: Makes the answer where the group isn't to be had here.
        """
        answer: Deferred[T] = Deferred()
        reply = self.later(answer.complete)
        try:
            self.operate(group_id, lambda shard, moment: operation(shard, moment, reply))
        except Refused as refused:
            answer.complete(refuse(refused.code))
        return answer

    # What the broker tells

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
        """Let go of all groups and of the timer: the broker is going down."""
        for index in tuple(self._shards):
            self._unload(index)
        self._loading.clear()
        self.deadlines = Deadlines()
        self._timer.cancel()

    # What shards ask

    def new_id(self) -> str:
        """A UUID, in text; from the cluster's seed."""
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
            raise Refused(ErrorCode.NOT_COORDINATOR)
        if shard is None:
            shard = self._load(index, epoch)
        if shard is None:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _load(self, index: int, epoch: int) -> Shard | None:
        """Take a partition over; None while that takes its time."""
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
        """Now, by the loop that the timer is on; a test may set up a cluster outside of any."""
        with contextlib.suppress(RuntimeError):
            self._last = asyncio.get_running_loop().time()
        return Moment(self._last, self._broker.wall_ms())

    def _run(self, operation: Callable[[Moment], None]) -> None:
        """Do something to groups; at the end arm the timer, and send answers, once."""
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
        elif not self._timer.is_set or at < self._timer_at:  # early is fine: it looks again then
            self._timer.cancel()
            self._timer_at = at
            with contextlib.suppress(RuntimeError):
                self._timer.set(at - asyncio.get_running_loop().time())
