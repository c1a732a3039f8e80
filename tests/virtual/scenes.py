"""What is cancelled, and in which state of the world: the scenes of the cancellation tests.

A scene has a cluster, one client, one call of it, and judges at the end what became of records and
positions. The states: all is well; brokers respond with errors, so that retries are in progress;
leaders move; the client is only just starting, and the first of its addresses does not respond.
"""

from __future__ import annotations

import asyncio
import enum
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ClassVar

import pyarrow
import pytest

import kclient
from kclient.admin import NewTopic
from kclient.error_codes import ErrorCode
from kclient.errors import ClientClosed, FlushFailed, InvalidConfig
from kclient.testing import Cluster
from kclient.types import OffsetSpec, TopicPartition

TOPIC = "t"
PARTITIONS = 2
ACL = kclient.AclBinding("topic", TOPIC, "User:a", "read")
RECORDS = 6
"""In each partition, before anything happens."""


AT_ONCE = 12
"""Records that are written by one call."""


class State(enum.Enum):
    """State of the world when the call is made."""

    HEALTHY = "all is well"
    RETRYING = "brokers refuse some requests, and lose a connection"
    LEADERS_MOVE = "the client's view is out of date, and changes again"
    BOOTSTRAPPING = "the client only starts, and its first address hangs"


REFUSALS = {
    "Produce": ErrorCode.NOT_ENOUGH_REPLICAS,
    "Fetch": ErrorCode.UNKNOWN_SERVER_ERROR,
    "ListOffsets": ErrorCode.LEADER_NOT_AVAILABLE,
    "InitProducerId": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "CreateTopics": ErrorCode.NOT_CONTROLLER,
    "DeleteTopics": ErrorCode.NOT_CONTROLLER,
    "CreatePartitions": ErrorCode.NOT_CONTROLLER,
}


class Scene:
    """One call of one client. ``client`` is made by ``make_client`` and started by ``set_up``."""

    starts: ClassVar[bool] = True

    def __init__(self, state: State, call: Callable[[Any], Awaitable[Any]]) -> None:
        self.cluster = Cluster(brokers=2)
        self.state = state
        self.call = call
        self.client: Any = None
        self._again: asyncio.TimerHandle | None = None
        self.ready = False
        """The client is started, and neither closed nor meant to be."""

    async def set_up(self) -> None:
        """Bring the world into its state."""
        self.cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=2)
        await self.fill()
        await asyncio.sleep(0.01)  # until brokers notice that the filling's connections are closed
        self.client = self.make_client()
        loop: Any = asyncio.get_running_loop()
        if self.state is State.BOOTSTRAPPING or not self.starts:
            if self.state is State.BOOTSTRAPPING:
                loop.network.blackhole("broker-1")
                loop.call_later(0.3, loop.network.heal, "broker-1")
        else:
            await self.client.start()
            self.ready = True
            await self.warm_up()
        if self.state is State.RETRYING:
            self.cluster.faults.close(None, times=1, broker=1, after=True)
            for api, code in REFUSALS.items():
                self.cluster.faults.error(api, code, times=2)
        if self.state is State.LEADERS_MOVE:
            self.move_leaders()
            self._again = loop.call_later(0.004, self.move_leaders)

    def move_leaders(self) -> None:
        """Make the other replica the leader, of every partition."""
        for partition in range(PARTITIONS):
            leader = self.cluster.leader(TOPIC, partition)
            self.cluster.move_leader(TOPIC, partition, 3 - leader)

    async def play(self) -> None:
        """What is cancelled."""
        if self.starts and not self.ready:
            await self.client.start()
            self.ready = True
        await self.call(self)

    async def look(self) -> None:
        """Check that the client can be used, or is closed and reports it."""
        if self.ready:
            await self.use()
            return
        try:
            await self.use()
        except ClientClosed:
            self.client = self.make_client()
            await self.client.start()
            await self.use()
        else:
            raise AssertionError("a client whose start was cancelled can be used")

    async def close(self) -> None:
        """Close within the time that it has."""
        if self._again is not None:
            self._again.cancel()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.client.close(10.0)
        assert loop.time() - began <= 1.0, f"closing took {loop.time() - began:.1f} s"

    async def fill(self) -> None:
        """Write what is there at the beginning."""

    async def warm_up(self) -> None:
        """Use the client once, so that connections are open."""

    def make_client(self) -> Any:
        """A new client."""
        raise NotImplementedError

    async def use(self) -> None:
        """Do something that shows that the client works."""
        raise NotImplementedError

    def judge(self) -> None:
        """Check what became of records and positions."""


class ProducerScene(Scene):
    """A producer. ``promised`` must be in the log at the end, ``possible`` may be; once each."""

    settings: ClassVar[dict[str, Any]] = {}
    padding: ClassVar[bytes] = b""

    def __init__(self, state: State, call: Callable[[Any], Awaitable[Any]]) -> None:
        super().__init__(state, call)
        self.promised: list[bytes] = []
        self.possible: list[bytes] = []
        self._number = 0

    def make_client(self) -> Any:
        return kclient.Producer(self.cluster.bootstrap, linger=0.001, **self.settings)

    def value(self) -> bytes:
        """The next record's; partition 0 gets them in order."""
        self._number += 1
        return b"%06d" % self._number + self.padding

    def send(self, count: int = 1) -> list[Any]:
        """Take some records, which are promised then."""
        deliveries = []
        for _ in range(count):
            value = self.value()
            deliveries.append(self.client.send(TOPIC, value, partition=0))
            self.promised.append(value)
        return deliveries

    async def warm_up(self) -> None:
        for delivery in self.send(1):
            await delivery

    async def use(self) -> None:
        value = self.value()
        self.possible.append(value)
        delivery = await self.client.enqueue(TOPIC, value, partition=0)
        self.promised.append(value)
        await delivery
        await self.client.flush()

    async def close(self) -> None:
        await super().close()
        try:
            self.client.send(TOPIC, b"late")
        except ClientClosed:
            return
        raise AssertionError("a closed producer takes records")

    def judge(self) -> None:
        values = [r.value for p in range(PARTITIONS) for r in self.cluster.records(TOPIC, p)]
        assert len(set(values)) == len(values), f"doubled: {values}"
        if "later" in self.cluster.topics:
            assert len(self.cluster.records("later")) == 1
        lost = set(self.promised) - set(values)
        assert not lost, f"lost: {lost}"
        stray = set(values) - set(self.promised) - set(self.possible)
        assert not stray, f"nobody sent: {stray}"
        assert values == sorted(values), f"out of order: {values}"


class SmallProducerScene(ProducerScene):
    """A producer whose memory is full, while the broker takes its time."""

    settings: ClassVar[dict[str, Any]] = {"buffer_memory": 2000, "batch_size": 500}
    padding = b" " * 200

    async def set_up(self) -> None:
        self.cluster.faults.delay("Produce", 0.02, times=4)
        await super().set_up()


class StartingProducerScene(ProducerScene):
    """A producer that wasn't started: the call does it."""

    starts = False


class ConsumerScene(Scene):
    """A consumer of all partitions from their beginning. ``got`` is what calls were given."""

    def __init__(self, state: State, call: Callable[[Any], Awaitable[Any]]) -> None:
        super().__init__(state, call)
        self.got: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}

    def make_client(self) -> Any:
        for offsets in self.got.values():
            offsets.clear()  # another one begins at the beginning
        return kclient.Consumer(
            self.cluster.bootstrap, TOPIC, auto_offset_reset="earliest", fetch_max_wait=0.05
        )

    async def fill(self) -> None:
        async with kclient.Producer(self.cluster.bootstrap) as producer:
            for index in range(RECORDS):
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, b"%d" % index, partition=partition)

    def take(self, records: list[Any]) -> None:
        """Records were handed over; of each partition in order, none left out, none twice."""
        for record in records:
            seen = self.got[record.partition]
            assert not seen or record.offset == seen[-1] + 1, f"{record} after {seen}"
            seen.append(record.offset)

    def sought(self, partition: int) -> None:
        """The next record of that partition may have any offset."""
        self.got[partition] = []

    async def warm_up(self) -> None:
        self.take(await self.client.poll(2, timeout=1.0))

    async def use(self) -> None:
        positions = self.client.positions()
        for partition, seen in self.got.items():
            position = positions.get(TopicPartition(TOPIC, partition))
            if seen and position is not None:
                assert position == seen[-1] + 1, f"position {position} after {seen}"
        self.client.assign(TopicPartition(TOPIC, p) for p in range(PARTITIONS))
        self.client.resume()
        for partition in range(PARTITIONS):  # where "the end" is, is found out soon: before more
            await self.client.position(TopicPartition(TOPIC, partition))
        await self.fill()
        ends = {p: self.cluster.end_offset(TOPIC, p) - 1 for p in range(PARTITIONS)}
        async with asyncio.timeout(30):
            while any(self.got[p][-1:] != [end] for p, end in ends.items()):
                self.take(await self.client.poll(timeout=1.0))

    def judge(self) -> None:
        for partition, seen in self.got.items():
            assert seen[-1] == self.cluster.end_offset(TOPIC, partition) - 1


class StartingConsumerScene(ConsumerScene):
    """A consumer that wasn't started: the call does it."""

    starts = False


class AdminScene(Scene):
    """An admin client."""

    def make_client(self) -> Any:
        return kclient.Admin(self.cluster.bootstrap)

    async def set_up(self) -> None:
        self.cluster.create_topic("doomed")
        await super().set_up()

    async def warm_up(self) -> None:
        await self.client.list_topics()

    async def use(self) -> None:
        listed = {topic.name for topic in await self.client.list_topics()}
        assert TOPIC in listed


class StartingAdminScene(AdminScene):
    """An admin client that wasn't started: the call does it."""

    starts = False


# The calls of all three


async def start(scene: Scene) -> None:
    """``start``"""
    await scene.client.start()
    scene.ready = True


async def body(scene: Scene) -> None:
    """``async with``, with something in it."""
    async with scene.client:
        scene.ready = True
        try:
            await scene.use()
        finally:
            scene.ready = False


async def close(scene: Scene) -> None:
    """``close``, with requests in flight."""
    scene.ready = False
    if isinstance(scene, ProducerScene):
        scene.possible += [scene.value()]
        scene.client.send(TOPIC, scene.possible[-1], partition=0)
        try:
            await scene.client.close(5.0)
        except FlushFailed as error:  # of a close before this one that was cancelled
            assert error.count == 1
    else:
        await scene.client.close(5.0)


# Producer


async def send(scene: ProducerScene) -> None:
    [delivery] = scene.send()
    await delivery


async def send_to_unknown_topic(scene: ProducerScene) -> None:
    """To one that comes to be a moment later."""
    create = functools.partial(scene.cluster.create_topic, "later")
    asyncio.get_running_loop().call_later(0.02, create)
    await scene.client.send("later", b"v")


async def gather(scene: ProducerScene) -> None:
    """``asyncio.gather`` cancels its deliveries: what is in no batch yet is taken back."""
    values = [scene.value() for _ in range(5)]
    scene.possible += values
    await asyncio.gather(*(scene.client.send(TOPIC, value, partition=0) for value in values))
    scene.promised += values


async def send_with_timeout(scene: ProducerScene) -> None:
    [delivery] = scene.send()
    async with asyncio.timeout(5.0):
        await delivery


async def enqueue(scene: ProducerScene) -> None:
    for _ in range(AT_ONCE):
        value = scene.value()
        scene.possible.append(value)
        await scene.client.enqueue(TOPIC, value, partition=0)
        scene.promised.append(value)


async def send_many(scene: ProducerScene) -> None:
    await scene.client.send_many(TOPIC, _outgoing(scene))


async def send_many_async(scene: ProducerScene) -> None:
    async def slowly() -> AsyncIterator[Any]:
        for record in _outgoing(scene):
            if not scene.client.metrics()["producer.requests_in_flight"]:
                await asyncio.sleep(0.0005)
            yield record

    await scene.client.send_many(TOPIC, slowly())


async def send_arrow(scene: ProducerScene) -> None:
    values = [record.value for record in _outgoing(scene)]
    await scene.client.send_arrow(
        TOPIC, pyarrow.table({"value": values, "partition": [0] * len(values)})
    )


def _outgoing(scene: ProducerScene) -> Iterator[Any]:
    for _ in range(AT_ONCE):
        value = scene.value()
        scene.possible.append(value)
        yield kclient.Outgoing(value, partition=0)


async def flush(scene: ProducerScene) -> None:
    scene.send(2)
    await scene.client.flush()


async def partitions_for(scene: Any) -> None:
    scene.cluster.create_topic("other", partitions=3)
    assert len(await scene.client.partitions_for("other")) == 3


# Consumer


async def poll(scene: ConsumerScene) -> None:
    for _ in range(4):
        scene.take(await scene.client.poll(2, timeout=1.0))


async def poll_for_nothing(scene: ConsumerScene) -> None:
    scene.client.pause()
    assert await scene.client.poll(timeout=0.02) == []


async def iterate(scene: ConsumerScene) -> None:
    left = 9
    async for record in scene.client:
        scene.take([record])
        left -= 1
        if not left:
            return


async def poll_arrow(scene: ConsumerScene) -> None:
    for _ in range(3):
        batch = await scene.client.poll_arrow(timeout=0.1)
        for row in batch.to_pylist():
            seen = scene.got[row["partition"]]
            assert not seen or row["offset"] == seen[-1] + 1
            seen.append(row["offset"])


async def seek(scene: ConsumerScene) -> None:
    scene.client.seek(TopicPartition(TOPIC, 0), 3)
    scene.sought(0)
    scene.take(await scene.client.poll(2, timeout=1.0))


async def seek_to_beginning(scene: ConsumerScene) -> None:
    scene.client.seek_to_beginning()
    scene.sought(0)
    scene.sought(1)
    scene.take(await scene.client.poll(2, timeout=1.0))


async def seek_to_end(scene: ConsumerScene) -> None:
    scene.client.seek_to_end(TopicPartition(TOPIC, 1))
    scene.sought(1)
    assert await scene.client.position(TopicPartition(TOPIC, 1)) == RECORDS


async def position(scene: ConsumerScene) -> None:
    assert await scene.client.position(TopicPartition(TOPIC, 0)) >= 0


async def beginning_offsets(scene: ConsumerScene) -> None:
    await scene.client.beginning_offsets([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])


async def end_offsets(scene: ConsumerScene) -> None:
    await scene.client.end_offsets([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])


async def offsets_for_times(scene: ConsumerScene) -> None:
    await scene.client.offsets_for_times({TopicPartition(TOPIC, p): 0 for p in range(PARTITIONS)})


async def pause_and_resume(scene: ConsumerScene) -> None:
    scene.client.pause(TopicPartition(TOPIC, 0))
    scene.take(await scene.client.poll(2, timeout=0.05))
    scene.client.resume(TopicPartition(TOPIC, 0))
    scene.take(await scene.client.poll(2, timeout=0.05))


async def assign(scene: ConsumerScene) -> None:
    scene.client.assign([TopicPartition(TOPIC, 1)])
    scene.sought(0)
    scene.take(await scene.client.poll(2, timeout=1.0))


async def commit(scene: ConsumerScene) -> None:
    try:
        await scene.client.commit()
    except InvalidConfig:
        return


# Admin


async def create_topics(scene: AdminScene) -> None:
    await scene.client.create_topics([NewTopic("new", partitions=2), NewTopic("newer")])


async def delete_topics(scene: AdminScene) -> None:
    await scene.client.delete_topics(["doomed"])


async def create_partitions(scene: AdminScene) -> None:
    await scene.client.create_partitions({"doomed": 3})


async def describe_topics(scene: AdminScene) -> None:
    await scene.client.describe_topics([TOPIC])


async def list_topics(scene: AdminScene) -> None:
    await scene.client.list_topics()


async def describe_cluster(scene: AdminScene) -> None:
    await scene.client.describe_cluster()


async def list_offsets(scene: AdminScene) -> None:
    await scene.client.list_offsets(
        {TopicPartition(TOPIC, p): OffsetSpec.LATEST for p in range(PARTITIONS)}
    )


async def alter_consumer_group_offsets(scene: AdminScene) -> None:
    await scene.client.alter_consumer_group_offsets("g", {TopicPartition(TOPIC, 0): 0})


async def end_transaction(scene: AdminScene) -> None:
    prepared = kclient.PreparedTransaction("nobody", 7, 0, 2)
    with pytest.raises(kclient.BrokerError) as refused:
        await scene.client.end_transaction(prepared, commit=False)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def refused(call: Awaitable[Any], error: type[kclient.BrokerError]) -> None:
    """Make a call that a cluster without security refuses."""
    with pytest.raises(error):
        await call


async def create_acls(scene: AdminScene) -> None:
    await refused(scene.client.create_acls([ACL]), kclient.SecurityDisabled)


async def describe_acls(scene: AdminScene) -> None:
    await refused(scene.client.describe_acls(), kclient.SecurityDisabled)


async def delete_acls(scene: AdminScene) -> None:
    await refused(scene.client.delete_acls([ACL]), kclient.SecurityDisabled)


async def alter_client_quotas(scene: AdminScene) -> None:
    quota = {kclient.QuotaEntity(user="a"): {"producer_byte_rate": 1_000_000}}
    await scene.client.alter_client_quotas(quota)


async def describe_client_quotas(scene: AdminScene) -> None:
    await scene.client.describe_client_quotas()


async def alter_user_scram_credentials(scene: AdminScene) -> None:
    upsertion = kclient.ScramUpsertion("a", "b", iterations=4_096)
    await scene.client.alter_user_scram_credentials([upsertion])


async def describe_user_scram_credentials(scene: AdminScene) -> None:
    await refused(scene.client.describe_user_scram_credentials(["a"]), kclient.ResourceNotFound)


async def create_delegation_token(scene: AdminScene) -> None:
    await refused(scene.client.create_delegation_token(), kclient.DelegationTokenRequestNotAllowed)


async def renew_delegation_token(scene: AdminScene) -> None:
    await refused(
        scene.client.renew_delegation_token("YWJj"), kclient.DelegationTokenRequestNotAllowed
    )


async def expire_delegation_token(scene: AdminScene) -> None:
    await refused(
        scene.client.expire_delegation_token("YWJj"), kclient.DelegationTokenRequestNotAllowed
    )


async def describe_delegation_tokens(scene: AdminScene) -> None:
    await refused(
        scene.client.describe_delegation_tokens(), kclient.DelegationTokenRequestNotAllowed
    )


CALLS: tuple[tuple[type[Scene], tuple[Callable[[Any], Awaitable[Any]], ...]], ...] = (
    (StartingProducerScene, (start, body)),
    (
        ProducerScene,
        (
            close,
            send,
            send_to_unknown_topic,
            gather,
            send_with_timeout,
            enqueue,
            send_many,
            send_many_async,
            send_arrow,
            flush,
            partitions_for,
        ),
    ),
    (SmallProducerScene, (enqueue, send_many, send_arrow, flush)),
    (StartingConsumerScene, (start, body)),
    (
        ConsumerScene,
        (
            close,
            poll,
            poll_for_nothing,
            iterate,
            poll_arrow,
            seek,
            seek_to_beginning,
            seek_to_end,
            position,
            beginning_offsets,
            end_offsets,
            offsets_for_times,
            pause_and_resume,
            assign,
            commit,
            partitions_for,
        ),
    ),
    (StartingAdminScene, (start, body)),
    (
        AdminScene,
        (
            close,
            create_topics,
            delete_topics,
            create_partitions,
            describe_topics,
            list_topics,
            describe_cluster,
            list_offsets,
            alter_consumer_group_offsets,
            end_transaction,
            create_acls,
            describe_acls,
            delete_acls,
            alter_client_quotas,
            describe_client_quotas,
            alter_user_scram_credentials,
            describe_user_scram_credentials,
            create_delegation_token,
            renew_delegation_token,
            expire_delegation_token,
            describe_delegation_tokens,
        ),
    ),
)
"""All that is cancelled, by the kind of scene."""
