"""Scenes with a consumer in a group whose calls are cancelled, for the cancellation tests.

As those of ``scenes``, in states that only a member knows: a rebalance is in progress, its
coordinator moves, or does not respond for a while. Each partition's records come in order and none
is left out; again come at most those of the latest call, and only where partitions were assigned
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, ClassVar

import kclient
from kclient.error_codes import ErrorCode
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.virtual.consumer_scene import until
from tests.virtual.scenes import (
    PARTITIONS,
    TOPIC,
    ConsumerScene,
    Scene,
    body,
    close,
    poll,
    start,
)

GROUP = "audit"
SETTINGS: dict[str, Any] = {
    "group": GROUP,
    "auto_offset_reset": "earliest",
    "fetch_max_wait": 0.05,
    "session_timeout": 6.0,
    "heartbeat_interval": 0.05,
    "auto_commit_interval": 0.02,
    "retry_backoff": 0.005,
    "retry_backoff_max": 0.05,
}
FROZEN = 0.3
"""Seconds for which a coordinator does not respond."""
STUCK = 5.0
"""Seconds in which a commit without a waiter must be done."""
ALL = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]


class GroupState(enum.Enum):
    """State of the world when the call is made."""

    HEALTHY = "all is well"
    RETRYING = "coordinators refuse some requests, and lose a connection"
    REBALANCING = "another member came just now, and waits for this one"
    COORDINATOR_MOVES = "another broker leads the group, and a moment later another one again"
    COORDINATOR_FROZEN = "the coordinator says nothing for a while"
    BOOTSTRAPPING = "the client only starts, and its first address hangs"


REFUSALS = {
    "FindCoordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "JoinGroup": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS,
    "Heartbeat": ErrorCode.NOT_COORDINATOR,
    "OffsetFetch": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "OffsetCommit": ErrorCode.NOT_COORDINATOR,
    "LeaveGroup": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "Fetch": ErrorCode.UNKNOWN_SERVER_ERROR,
}


class ConsumerInGroupScene(ConsumerScene):
    """A member that has read a little.

    Attributes:
        hasty: It is closed, or unsubscribes.
        expected: What must be committed in the end, though the call for it was cancelled.
    """

    def __init__(self, state: Any, call: Callable[[Any], Awaitable[Any]]) -> None:
        super().__init__(state, call)
        self.hasty = call in (close, unsubscribe)
        self.expected: dict[TopicPartition, int] = {}
        self._peer: Any = None
        self._floor = dict.fromkeys(range(PARTITIONS), 0)
        self._assigned_anew = set(range(PARTITIONS))
        self._unread = set(range(PARTITIONS))
        """Partitions without a record since they were assigned: the last ones may come again."""

    def make_client(self) -> Any:
        self._assigned(ALL)
        self._unread = set(range(PARTITIONS))
        return kclient.Consumer(
            self.cluster.bootstrap,
            TOPIC,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            **SETTINGS,
        )

    def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned_anew.update(partition.partition for partition in partitions)

    def _revoked(self, partitions: Iterable[TopicPartition]) -> None:
        # A close or an unsubscribe doesn't wait for the user: what comes then may come too late.
        came = not self.hasty and not self.client._engine.polled_records.outstanding
        for _, partition in partitions:
            self._unread.add(partition)
            if came and self.got[partition]:  # since the latest records
                self._floor[partition] = self.got[partition][-1] + 1

    def take(self, records: list[Any]) -> None:
        """Records were handed over by one call, in order; none was left out."""
        self.take_rows([(record.partition, record.offset) for record in records])

    def take_rows(self, rows: list[tuple[int, int]]) -> None:
        """The same, by partition and offset."""
        ends = {p: seen[-1] + 1 if seen else 0 for p, seen in self.got.items()}
        for partition, offset in rows:
            self._take_one(partition, offset)
        for partition in ends.keys() - self._unread:
            self._floor[partition] = ends[partition]  # what came before this call is finished

    def _take_one(self, partition: int, offset: int) -> None:
        seen = self.got[partition]
        end = seen[-1] + 1 if seen else 0
        if partition in self._assigned_anew:
            self._assigned_anew.remove(partition)
            floor = self._floor[partition]
            assert floor <= offset <= end, f"{partition}: {offset}, {floor} to {end} may come"
        else:
            assert offset == end, f"{partition}: {offset} after {end - 1}"
        self._unread.discard(partition)
        seen.append(offset)

    async def set_up(self) -> None:
        self.cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=2)
        await self.fill()
        await asyncio.sleep(0.01)  # until brokers notice that the filling's connections are closed
        self.client = self.make_client()
        if self.starts and self.state is not GroupState.BOOTSTRAPPING:
            await self.client.start()
            self.ready = True
            await self.warm_up()
        await self._bring_about()

    async def _bring_about(self) -> None:
        loop: Any = asyncio.get_running_loop()
        match self.state:
            case GroupState.BOOTSTRAPPING:
                loop.network.blackhole("broker-1")
                loop.call_later(0.3, loop.network.heal, "broker-1")
            case GroupState.RETRYING:
                self.cluster.faults.close(None, times=1, broker=1, after=True)
                for api, code in REFUSALS.items():
                    self.cluster.faults.error(api, code, times=2)
            case GroupState.REBALANCING:
                await self._invite_peer()
            case GroupState.COORDINATOR_MOVES:
                self._move()
                self._again = loop.call_later(0.004, self._move)
            case GroupState.COORDINATOR_FROZEN:
                name = f"broker-{max(self.cluster.coordinator(GROUP), 1)}"
                loop.network.freeze(name)
                self._again = loop.call_later(FROZEN, loop.network.heal, name)

    async def _invite_peer(self) -> None:
        self._peer = kclient.Consumer(self.cluster.bootstrap, TOPIC, **SETTINGS)
        await self._peer.start()
        if self.ready:
            membership = self.client._engine.group.membership
            await until(lambda: membership.state.name != "STABLE")

    def _move(self) -> None:
        self.cluster.move_coordinator(GROUP, 1 if self.cluster.coordinator(GROUP) == 2 else 2)

    async def look(self) -> None:
        if self.expected:
            async with asyncio.timeout(STUCK):
                while True:
                    found = await self.client.committed(self.expected)
                    if {key: one and one.offset for key, one in found.items()} == self.expected:
                        break
                    await asyncio.sleep(0.01)
        await super().look()

    async def use(self) -> None:
        positions = self.client.positions()
        for partition, seen in self.got.items():
            position = positions.get(TopicPartition(TOPIC, partition))
            if seen and position is not None and partition not in self._assigned_anew:
                assert position == seen[-1] + 1, f"position {position} after {seen}"
        self.client.subscribe(TOPIC)
        self.client.resume()
        await self._see_peer_off()
        await self.fill()
        ends = {p: self.cluster.end_offset(TOPIC, p) - 1 for p in range(PARTITIONS)}
        async with asyncio.timeout(30):
            while any(self.got[p][-1:] != [end] for p, end in ends.items()):
                self.take(await self.client.poll(timeout=1.0))

    async def _see_peer_off(self) -> None:
        if self._peer is not None:
            peer, self._peer = self._peer, None
            await peer.close()

    async def close(self) -> None:
        await self._see_peer_off()
        loop: Any = asyncio.get_running_loop()
        loop.network.heal()
        await super().close()

    async def commit(self, what: Any, expected: dict[TopicPartition, int]) -> None:
        """Commit, and expect that this is committed in the end, even if the wait is cancelled."""
        self.expected = expected
        await self.client.commit(what)


class StartingConsumerInGroupScene(ConsumerInGroupScene):
    """One that wasn't started: the call does it."""

    starts: ClassVar[bool] = False


# The calls


async def poll_for_nothing(scene: ConsumerInGroupScene) -> None:
    """Everything is paused, unless it is assigned again meanwhile."""
    scene.client.pause()
    scene.take(await scene.client.poll(timeout=0.02))


async def iterate(scene: ConsumerInGroupScene) -> None:
    """A few records, each of which the next step finishes."""
    left = 4
    async for record in scene.client:
        scene.take([record])
        left -= 1
        if not left:
            return


async def poll_arrow(scene: ConsumerInGroupScene) -> None:
    """By columns, maybe none."""
    for _ in range(3):
        table = await scene.client.poll_arrow(timeout=0.1)
        scene.take_rows([(row["partition"], row["offset"]) for row in table.to_pylist()])


async def run(scene: ConsumerInGroupScene) -> None:
    """Handlers that take a moment, for a while; what one hasn't finished is handed over again."""

    async def handle(record: Any) -> None:
        await asyncio.sleep(0.001)
        scene.take([record])

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await scene.client.run(handle, concurrency=2)


async def commit(scene: ConsumerInGroupScene) -> None:
    """Commit all that was handed over."""
    known = {key: value for key, value in scene.client.positions().items() if value is not None}
    read = {key: value for key, value in known.items() if scene.got[key.partition]}
    await scene.commit(None, read)


async def commit_of_a_record(scene: ConsumerInGroupScene) -> None:
    """Commit a record that was handed over by the call before."""
    records = await scene.client.poll(2, timeout=None)
    scene.take(records)
    last = records[-1]
    await scene.commit(last, {last.topic_partition: last.offset + 1})


async def commit_of_offsets(scene: ConsumerInGroupScene) -> None:
    """With metadata, where the user will have it."""
    if not scene.client.assignment:  # it started only now
        scene.take(await scene.client.poll(2, timeout=None))
    offsets = {TopicPartition(TOPIC, p): len(scene.got[p]) for p in range(PARTITIONS)}
    values = {key: OffsetAndMetadata(offset, None, "here") for key, offset in offsets.items()}
    await scene.commit(values, offsets)


async def committed(scene: ConsumerInGroupScene) -> None:
    """Queries that need no assignment."""
    found = await scene.client.committed(ALL)
    assert found.keys() == set(ALL)


async def unsubscribe(scene: ConsumerInGroupScene) -> None:
    """Out of the group, which ``use`` joins again."""
    await scene.client.unsubscribe()
    assert scene.client.assignment == frozenset()


async def resubscribe(scene: ConsumerInGroupScene) -> None:
    """To the same, with reading before and after."""
    scene.take(await scene.client.poll(2, timeout=0.05))
    scene.client.subscribe(TOPIC)
    scene.take(await scene.client.poll(2, timeout=0.05))


GROUP_CALLS: tuple[tuple[type[Scene], tuple[Callable[[Any], Awaitable[Any]], ...]], ...] = (
    (StartingConsumerInGroupScene, (start, body)),
    (
        ConsumerInGroupScene,
        (
            close,
            poll,
            poll_for_nothing,
            iterate,
            poll_arrow,
            run,
            commit,
            commit_of_a_record,
            commit_of_offsets,
            committed,
            unsubscribe,
            resubscribe,
        ),
    ),
)
"""All that is cancelled."""
