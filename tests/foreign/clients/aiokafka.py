"""aiokafka: records out and in, groups and its admin client, each feature in a loop of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.foreign.clients.aiokafka_admin import PLAYED as ADMIN
from tests.foreign.clients.aiokafka_help import (
    consuming,
    played,
    producing,
    read,
    refusal,
    take,
    until,
    write,
)
from tests.foreign.clients.aiokafka_transactions import PLAYED as TRANSACTIONS
from tests.foreign.scene import FIRST_TIME, PATIENCE, Feature, Scene, by_name, equal, play, true
from tests.interop.peers.sample import CODECS, samples

_PARTITIONS = 3


@played
async def produce_records(scene: Scene) -> object:
    """Nulls, empty bytes, headers of all kinds."""
    topic = scene.topic("records", _PARTITIONS)
    wanted = [
        one
        for one in samples(_PARTITIONS)
        if (one.key, one.value) != (None, None) and all(v is not None for _, v in one.headers)
    ]
    async with producing(scene, linger_ms=20) as made:
        sent = [
            await made.send(
                topic,
                one.value,
                key=one.key,
                partition=one.partition,
                timestamp_ms=one.timestamp,
                headers=list(one.headers),
            )
            for one in wanted
        ]
        reported = [await one for one in sent]
    found = await read(scene, topic, len(wanted), _PARTITIONS)
    for partition in range(_PARTITIONS):
        mine = [one for one in wanted if one.partition == partition]
        equal(
            [one.offset for one in reported if one.partition == partition], list(range(len(mine)))
        )
        equal(
            [
                (m.key, m.value, tuple(m.headers), m.timestamp)
                for m in found
                if m.partition == partition
            ],
            [(s.key, s.value, s.headers, s.timestamp) for s in mine],
        )
    return len(found)


@played
async def produce_codecs(scene: Scene) -> object:
    """All five."""
    for codec in CODECS:
        topic = scene.topic(f"codec-{codec}")
        values = [b"%d" % n * 100 for n in range(200)]
        kind = None if codec == "none" else codec
        await write(scene, topic, values, compression_type=kind, linger_ms=50)
        equal([m.value for m in await read(scene, topic, 200)], values, codec)
    return list(CODECS)


@played
async def produce_idempotent(scene: Scene) -> object:
    """Small batches, several in flight."""
    topic = scene.topic("idempotent")
    values = [b"%d" % n for n in range(1000)]
    offsets = await write(scene, topic, values, enable_idempotence=True, max_batch_size=500)
    equal(offsets, list(range(1000)))
    equal([m.value for m in await read(scene, topic, 1000)], values)
    return len(offsets)


@played
async def produce_acks(scene: Scene) -> object:
    """Unacknowledged, by the leader, by all."""
    for acks in (0, 1, "all"):
        topic = scene.topic("acks")
        await write(scene, topic, [b"a", b"b", b"c"], acks=acks)
        equal([m.value for m in await read(scene, topic, 3)], [b"a", b"b", b"c"])
    return "0, 1, all"


@played
async def produce_large(scene: Scene) -> object:
    """Records of nearly 1 MB."""
    topic = scene.topic("large")
    values = [bytes([n]) * 1_000_000 for n in range(5)]
    await write(scene, topic, values)
    found = await read(scene, topic, 5)
    true([m.value for m in found] == values, "the records came back as they were")
    return [len(m.value) for m in found]


@played
async def produce_refuse(scene: Scene) -> object:
    """Too large for the topic; a partition that isn't there."""
    topic = scene.topic("refuse", max_message_bytes=1000)
    large = await refusal(write(scene, topic, [b"x" * 5000]), KafkaError)
    missing = await refusal(
        write(scene, topic, [b"x"], partition=7), KafkaError, AssertionError, ValueError
    )
    good = await write(scene, topic, [b"fits"])
    equal(type(large).__name__, "MessageSizeTooLargeError")
    return {"partition": type(missing).__name__, "good": good}


@played
async def produce_auto_create(scene: Scene) -> object:
    """The first record makes the topic."""
    topic = scene.name("auto")
    async with producing(scene) as made:
        await asyncio.wait_for(made.send_and_wait(topic, b"first"), PATIENCE)
    return [m.value.decode() for m in await read(scene, topic, 1)]


@played
async def consume_assign(scene: Scene) -> object:
    """Both isolation levels; a partition that rests."""
    topic = scene.topic("assign", 2)
    for partition in (0, 1):
        await write(scene, topic, [b"%d" % n for n in range(10)], partition=partition)
    for level in ("read_uncommitted", "read_committed"):
        equal(len(await read(scene, topic, 20, 2, isolation_level=level)), 20, level)
    zero, one = aiokafka.TopicPartition(topic, 0), aiokafka.TopicPartition(topic, 1)
    async with consuming(scene) as reader:
        reader.assign([zero, one])
        reader.seek(zero, 4)
        reader.seek(one, 0)
        reader.pause(one)
        found = await take(reader, 6)
        equal([(m.partition, m.offset) for m in found], [(0, n) for n in range(4, 10)])
        reader.resume(one)
        found = await take(reader, 10)
        equal([(m.partition, m.offset) for m in found], [(1, n) for n in range(10)])
        seen = [await reader.position(zero), await reader.position(one), reader.highwater(one)]
    equal(seen, [10, 10, 10])
    return seen


@played
async def consume_seek(scene: Scene) -> object:
    """To an offset, by time, to both ends."""
    topic = scene.topic("seek")
    await write(scene, topic, [b"%d" % n for n in range(10)], first_time=FIRST_TIME)
    where = aiokafka.TopicPartition(topic, 0)
    seen = {}
    async with consuming(scene) as reader:
        reader.assign([where])
        await reader.seek_to_beginning(where)
        seen["beginning"] = (await take(reader, 1))[0].offset
        reader.seek(where, 7)
        seen["offset"] = (await take(reader, 1))[0].offset
        found = (await reader.offsets_for_times({where: FIRST_TIME + 3500}))[where]
        reader.seek(where, found.offset)
        seen["time"] = (await take(reader, 1))[0].offset
        await reader.seek_to_end(where)
        seen["end"] = await reader.position(where)
        await write(scene, topic, [b"last"])
        seen["next"] = (await take(reader, 1))[0].offset
    equal(seen, {"beginning": 0, "offset": 7, "time": 4, "end": 10, "next": 10})
    return seen


@played
async def consume_reset(scene: Scene) -> object:
    """Where to go from an offset that isn't there."""
    topic = scene.topic("reset")
    await write(scene, topic, [b"0", b"1", b"2"])
    where = aiokafka.TopicPartition(topic, 0)
    first = await read(scene, topic, 1, start=100, auto_offset_reset="earliest")
    async with consuming(scene, auto_offset_reset="none") as reader:
        reader.assign([where])
        reader.seek(where, 100)
        none = await refusal(take(reader, 1), KafkaError)
    async with consuming(scene, auto_offset_reset="latest") as reader:
        reader.assign([where])
        reader.seek(where, 100)
        await until(lambda: _ask(reader, where, 3), "the position at the end")
    equal(first[0].offset, 0)
    return {"earliest": 0, "latest": 3, "none": type(none).__name__}


async def _ask(reader: Any, where: Any, expected: int) -> bool:
    await reader.getmany(timeout_ms=50)
    return bool(await reader.position(where) == expected)


@played
async def offsets_list(scene: Scene) -> object:
    """Both ends and by time."""
    topic = scene.topic("offsets")
    await write(scene, topic, [b"%d" % n for n in range(10)], first_time=FIRST_TIME)
    where = aiokafka.TopicPartition(topic, 0)
    async with consuming(scene) as reader:
        seen = {
            "beginning": (await reader.beginning_offsets([where]))[where],
            "end": (await reader.end_offsets([where]))[where],
            "time": list((await reader.offsets_for_times({where: FIRST_TIME + 3500}))[where]),
            "late": (await reader.offsets_for_times({where: FIRST_TIME + 10**6}))[where],
        }
    equal([seen["beginning"], seen["end"], seen["time"][0], seen["late"]], [0, 10, 4, None])
    return seen


@played
async def groups_commit(scene: Scene) -> object:
    """The second member goes on where the first one committed."""
    topic, group = scene.topic("commit"), scene.name("group")
    await write(scene, topic, [b"%d" % n for n in range(20)])
    where = aiokafka.TopicPartition(topic, 0)
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    async with consuming(scene, topic, **settings) as first:
        equal([int(m.value) for m in await take(first, 8)], list(range(8)))
        equal(await first.committed(where), None, "committed before")
        await first.commit({where: (8, "halfway")})
        equal(await first.committed(where), 8)
    async with consuming(scene, topic, **settings) as second:
        equal([int(m.value) for m in await take(second, 12)], list(range(8, 20)))
    return "8"


class Member(aiokafka.ConsumerRebalanceListener):
    """A consumer of a group, read by a task of its own until it is stopped."""

    def __init__(self, scene: Scene, group: str, topic: str, **settings: Any) -> None:
        self.values: list[int] = []
        self.steps: list[tuple[str, int]] = []
        self._held: set[int] = set()
        settings = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 10_000,
            **settings,
        }
        self._task = asyncio.create_task(self._run(scene, topic, settings))

    @property
    def partitions(self) -> set[int]:
        """What it has; the error if it failed."""
        if self._task.done():
            self._task.result()
        return self._held

    async def stop(self) -> None:
        """Leave the group."""
        self._task.cancel()
        await asyncio.wait([self._task], timeout=PATIENCE)

    async def on_partitions_revoked(self, revoked: Sequence[Any]) -> None:
        """aiokafka calls it."""
        self.steps.append(("revoked", len(revoked)))
        self._held = set()

    async def on_partitions_assigned(self, assigned: Sequence[Any]) -> None:
        """aiokafka calls it."""
        self.steps.append(("assigned", len(assigned)))
        self._held = {one.partition for one in assigned}

    async def _run(self, scene: Scene, topic: str, settings: dict[str, Any]) -> None:
        async with consuming(scene, **settings) as made:
            made.subscribe([topic], listener=self)
            while True:
                found = await made.getmany(timeout_ms=50)
                if found:
                    await made.commit()
                for records in found.values():
                    self.values.extend(int(one.value) for one in records)


def _holds(member: Member, count: int) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return len(member.partitions) == count

    return look


@played
async def groups_rebalance(scene: Scene) -> object:
    """An eager group, by range, round robin and sticky."""
    for assignor in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor):
        topic, group = scene.topic("eager", 4), scene.name("eager")
        start = functools.partial(
            Member, scene, group, topic, partition_assignment_strategy=[assignor]
        )
        first = start()
        await until(_holds(first, 4), "all partitions with the first member")
        second = start()
        await until(_holds(second, 2), "two partitions with the second")
        await until(_holds(first, 2), "two partitions with the first")
        equal(first.partitions | second.partitions, {0, 1, 2, 3})
        for p in range(4):
            await write(scene, topic, [b"%d" % (p * 10 + n) for n in range(5)], partition=p)
        everything = sorted(p * 10 + n for p in range(4) for n in range(5))

        async def whole(one: Member = first, other: Member = second) -> bool:
            return sorted(one.values + other.values) == everything  # noqa: B023

        await until(whole, "all records, once each")
        await second.stop()
        await until(_holds(first, 4), "all partitions with the first member again")
        await first.stop()
        true(("revoked", 4) in first.steps, f"all given up for a while: {first.steps}")
    return "range, roundrobin, sticky"


@played
async def groups_static(scene: Scene) -> object:
    """A member that comes back under its instance id has what it had."""
    topic, group = scene.topic("static", 4), scene.name("static")
    first = Member(scene, group, topic, group_instance_id="one")
    await until(_holds(first, 4), "all with the first member")
    second = Member(scene, group, topic, group_instance_id="two")
    await until(_holds(second, 2), "two partitions with the second")
    await until(_holds(first, 2), "two partitions with the first")
    had, steps = second.partitions, list(first.steps)
    await second.stop()
    second = Member(scene, group, topic, group_instance_id="two")
    await until(_holds(second, 2), "two partitions with the second again")
    equal(second.partitions, had)
    equal(first.steps, steps, "steps of the other member")
    await first.stop()
    await second.stop()
    return sorted(had)


@played
async def load(scene: Scene) -> object:
    """20,000 records of 100 bytes."""
    topic, count = scene.topic("load", 3), 20_000
    async with producing(scene, linger_ms=20, compression_type="lz4") as made:
        for n in range(count):
            await made.send(topic, b"%099d" % n, partition=n % 3)
        await made.flush()
    found = await read(scene, topic, count, 3)
    equal(sorted(int(m.value) for m in found), list(range(count)))
    return len(found)


PLAYED: tuple[Feature, ...] = (
    produce_records,
    produce_codecs,
    produce_idempotent,
    produce_acks,
    produce_large,
    produce_refuse,
    produce_auto_create,
    consume_assign,
    consume_seek,
    consume_reset,
    offsets_list,
    groups_commit,
    groups_rebalance,
    groups_static,
    load,
)
UNABLE = {
    "cluster.versions": "it asks for them, and doesn't tell",
    "cluster.log_dirs": "no DescribeLogDirs",
    "cluster.elect": "no ElectLeaders",
    "groups.cooperative": "no cooperative assignor",
    "groups.delete": "no DeleteGroups",
    "transactions.describe": "no ListTransactions, DescribeTransactions or DescribeProducers",
}

if __name__ == "__main__":
    play(aiokafka.__version__, by_name((*PLAYED, *ADMIN, *TRANSACTIONS)), UNABLE)
