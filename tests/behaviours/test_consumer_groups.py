"""Consumers in a group, on every kind of broker: assignments, hand-overs, commits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kclient
from kclient.errors import CommitFailed
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.behaviours.reading import write

SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout": 6.0,
    "heartbeat_interval": 0.5,
    "fetch_max_wait": 0.1,
    "metadata_max_age": 2.0,
}
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class Member:
    """A consumer in the group, and the task that polls."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self.values: list[bytes] = []
        self.owned: set[TopicPartition] = set()
        self.rebalances = 0

    def came(self, partitions: Any) -> None:
        self.rebalances += 1
        self.owned |= set(partitions)

    def went(self, partitions: Any) -> None:
        self.owned -= set(partitions)

    async def run(self) -> None:
        while True:
            self.values += [record.value for record in await self.consumer.poll(timeout=0.2)]


@contextlib.asynccontextmanager
async def member(
    bootstrap: str, group: str, *topics: str, **settings: Any
) -> AsyncIterator[Member]:
    """A member that polls until the block ends; then it leaves."""
    own = Member(None)
    async with kclient.Consumer(
        bootstrap,
        *topics,
        group=group,
        on_assigned=own.came,
        on_revoked=own.went,
        **{**SETTINGS, **settings},
    ) as own.consumer:
        task = asyncio.create_task(own.run())
        try:
            yield own
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition: Any, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.02)


def shared(members: list[Member], name: str, partitions: int) -> bool:
    """Whether each partition has one owner, and each member owns some."""
    owned = sorted(part.partition for one in members for part in one.owned if part.topic == name)
    return all(one.owned for one in members) and owned == list(range(partitions))


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_members_share_a_topic_and_hand_over_what_they_leave(
    broker, topic, producer, strategy: str
) -> None:
    name = await topic(partitions=4)
    out = await producer()
    await write(out, name, [b"%d" % n for n in range(100)], partitions=4)
    how = {"partition_assignment_strategy": strategy}
    async with member(broker.bootstrap, name, name, **how) as first:
        async with member(broker.bootstrap, name, name, **how) as second:
            await until(lambda: shared([first, second], name, 4))
            await until(lambda: len({*first.values, *second.values}) == 100)
        await write(out, name, [b"%d" % n for n in range(100, 140)], partitions=4)
        await until(lambda: shared([first], name, 4))
        await until(lambda: len({*first.values, *second.values}) == 140)
        values = first.values + second.values
        assert sorted(values) == sorted(set(values))


async def test_a_group_goes_on_where_it_was(broker, topic, producer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(20)])
    part = TopicPartition(name, 0)
    by_hand = {**SETTINGS, "enable_auto_commit": False}
    async with kclient.Consumer(broker.bootstrap, name, group=name, **by_hand) as consumer:
        assert await consumer.committed([part]) == {part: None}
        records = []
        while len(records) < 7:
            records += await consumer.poll(max_records=7 - len(records), timeout=5.0)
        await consumer.commit()
        found = (await consumer.committed([part]))[part]
        assert found is not None and found.offset == 7
        await consumer.commit(records[2])
        await consumer.commit({part: OffsetAndMetadata(9, metadata="nine")})
        found = (await consumer.committed([part]))[part]
        assert found is not None and (found.offset, found.metadata) == (9, "nine")
        assert consumer.group_metadata().generation_id >= 1
    async with kclient.Consumer(broker.bootstrap, name, group=name, **SETTINGS) as consumer:
        records = await consumer.poll(max_records=1, timeout=10.0)
        assert [record.offset for record in records] == [9]


async def test_what_is_read_in_a_block_that_ends_well_is_committed(broker, topic, producer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(20)])
    async with kclient.Consumer(broker.bootstrap, name, group=name, **SETTINGS) as consumer:
        async for record in consumer:
            if record.offset == 12:
                break
    async with kclient.Consumer(broker.bootstrap, name, group=name, **SETTINGS) as consumer:
        async for record in consumer:
            assert record.offset == 13
            break


async def test_a_pattern_takes_in_a_topic_that_comes_later(broker, topic, producer) -> None:
    first = await topic(partitions=2)
    async with member(broker.bootstrap, first, pattern=first + ".*") as reader:
        await until(lambda: len(reader.owned) == 2)
        later = first + "-later"
        async with kclient.Admin(broker.bootstrap) as admin:
            await admin.create_topics([kclient.NewTopic(later, partitions=1)])
            await until(lambda: len(reader.owned) == 3)
            await (await producer()).send(later, b"v")
            await until(lambda: b"v" in reader.values)
            await admin.delete_topics([later])


async def test_partitions_assigned_by_hand_can_be_committed(broker, topic, producer) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"%d" % n for n in range(20)], partitions=2)
    part = TopicPartition(name, 1)
    async with kclient.Consumer(broker.bootstrap, group=name, **SETTINGS) as consumer:
        consumer.assign([part])
        await consumer.poll(max_records=4, timeout=10.0)
        await consumer.commit()
    async with kclient.Consumer(broker.bootstrap, group=name, **SETTINGS) as consumer:
        consumer.assign([part])
        assert (await consumer.poll(max_records=1, timeout=10.0))[0].offset >= 1


async def committed(bootstrap: str, group: str, partition: TopicPartition) -> int | None:
    async with kclient.Consumer(bootstrap, group=group, **SETTINGS) as other:
        found = (await other.committed([partition]))[partition]
        return None if found is None else found.offset


@contextlib.asynccontextmanager
async def placed(
    bootstrap: str, group: str, part: TopicPartition, way: str, **settings: Any
) -> AsyncIterator[Any]:
    """A consumer that has the partition, by hand or as a member, and knows its position."""
    topics = () if way == "assign" else (part.topic,)
    every = {**SETTINGS, **settings}
    async with kclient.Consumer(bootstrap, *topics, group=group, **every) as consumer:
        if way == "assign":
            consumer.assign([part])
        await until(lambda: part in consumer.assignment)
        await consumer.position(part)
        yield consumer


WAYS = ["assign", "subscribe"]
ENDS = ["close", "interval", "exception", "end of block"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ENDS)
async def test_an_explicit_commit_is_not_undone_by_automatic_ones(
    broker, topic, producer, way: str, end: str
) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(20)])
    part = TopicPartition(name, 0)
    how = {"auto_offset_reset": "latest", "auto_commit_interval": 0.1}
    with contextlib.suppress(ZeroDivisionError):
        async with placed(broker.bootstrap, name, part, way, **how) as consumer:
            assert await consumer.position(part) == 20
            await consumer.commit({part: 10})
            if end == "interval":
                for _ in range(5):
                    assert await consumer.poll(timeout=0.1) == []
            elif end == "exception":
                raise ZeroDivisionError
            elif end == "close":
                await consumer.close()
    assert await committed(broker.bootstrap, name, part) == 10
    async with placed(broker.bootstrap, name, part, way, **how) as consumer:
        assert await consumer.poll(max_records=1, timeout=10.0)
    assert await committed(broker.bootstrap, name, part) == 11


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_topic_that_is_deleted_leaves_a_pattern_subscription(
    broker, topic, producer, strategy: str
) -> None:
    first = await topic(partitions=2)
    other, how = first + "-other", {"partition_assignment_strategy": strategy}
    async with kclient.Admin(broker.bootstrap) as admin:
        await admin.create_topics([kclient.NewTopic(other, partitions=1)])
        part = TopicPartition(other, 0)
        async with member(broker.bootstrap, first, pattern=first + ".*", **how) as reader:
            await until(lambda: len(reader.owned) == 3)
            await admin.delete_topics([other])
            await until(lambda: len(reader.owned) == 2, 60.0)
            assert part not in reader.consumer.assignment
            await (await producer()).send(first, b"v")
            await until(lambda: b"v" in reader.values)


@pytest.mark.parametrize("way", WAYS)
async def test_a_seek_without_a_poll_is_not_committed(broker, topic, producer, way: str) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(20)])
    part = TopicPartition(name, 0)
    async with placed(broker.bootstrap, name, part, way) as consumer:
        await consumer.commit({part: 15})
    async with placed(broker.bootstrap, name, part, way, auto_commit_interval=0.1) as consumer:
        consumer.seek(part, 5)
    assert await committed(broker.bootstrap, name, part) == 15


@pytest.mark.parametrize("way", WAYS)
async def test_a_position_that_a_reset_chose_is_committed(
    broker, topic, producer, way: str
) -> None:
    name, out = await topic(), await producer()
    await write(out, name, [b"%d" % n for n in range(20)])
    part, how = TopicPartition(name, 0), {"auto_offset_reset": "latest"}
    async with placed(broker.bootstrap, name, part, way, **how):
        pass
    assert await committed(broker.bootstrap, name, part) == 20
    await out.send(name, b"while no member is there", partition=0)
    async with placed(broker.bootstrap, name, part, way, **how) as consumer:
        [record] = await consumer.poll(max_records=1, timeout=10.0)
        assert record.value == b"while no member is there"


async def test_a_commit_of_what_moved_is_typed_and_the_consumer_goes_on(
    broker, topic, producer
) -> None:
    name = await topic(partitions=2)
    out = await producer()
    how = {"enable_auto_commit": False, "partition_assignment_strategy": "cooperative-sticky"}
    async with member(broker.bootstrap, name, name, **how) as first:
        await until(lambda: shared([first], name, 2))
        async with member(broker.bootstrap, name, name, **how) as second:
            await until(lambda: shared([first, second], name, 2))
            [gone], [kept] = second.owned, first.owned
            with pytest.raises(CommitFailed) as caught:
                await first.consumer.commit({gone: 0, kept: 0})
            assert caught.value.partitions == (gone,)
            await out.send(name, b"v", partition=kept.partition)
            await until(lambda: b"v" in first.values)


async def test_a_static_member_comes_back_without_a_rebalance(broker, topic) -> None:
    name = await topic(partitions=2)
    if broker.version < (2, 3, 0):  # which brought them
        async with kclient.Consumer(
            broker.bootstrap, name, group=name, group_instance_id="a", **SETTINGS
        ) as consumer:
            with pytest.raises(kclient.errors.NoCommonVersion, match="group_instance_id"):
                await consumer.poll(timeout=10.0)
        return
    async with member(broker.bootstrap, name, name, group_instance_id="a") as first:
        async with member(broker.bootstrap, name, name, group_instance_id="b") as second:
            await until(lambda: shared([first, second], name, 2))
            rebalances = first.rebalances
        async with member(broker.bootstrap, name, name, group_instance_id="b") as again:
            await until(lambda: shared([first, again], name, 2))
            assert first.rebalances == rebalances
