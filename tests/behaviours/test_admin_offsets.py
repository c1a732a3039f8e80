"""Looking up offsets, on every kind of broker."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kclient.admin import Admin
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.errors import InvalidArgument, NoCommonVersion
from kclient.types import IsolationLevel, OffsetSpec, TopicPartition

START = 1_700_000_000_000


async def filled(topic: Any, producer: Any, times: list[int]) -> TopicPartition:
    """A fresh partition with one record per time, in that order."""
    name = await topic()
    client = await producer(linger=0.0)
    for when in times:
        await client.send(name, b"value", partition=0, timestamp=when)
    return TopicPartition(name, 0)


async def test_an_empty_partition_starts_and_ends_at_zero(admin: Any, topic: Any) -> None:
    key = TopicPartition(await topic(), 0)
    client: Admin = await admin()
    for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
        found = (await client.list_offsets({key: spec}))[key]
        assert found is not None
        assert found.offset == 0


async def test_earliest_and_latest_of_several_partitions_at_once(
    admin: Any, topic: Any, producer: Any
) -> None:
    name = await topic(partitions=3)
    sender = await producer(linger=0.0)
    for partition in range(3):
        for _ in range(partition):
            await sender.send(name, b"value", partition=partition)
    client: Admin = await admin()
    keys = [TopicPartition(name, n) for n in range(3)]
    ends = await client.list_offsets(dict.fromkeys(keys, OffsetSpec.LATEST))
    starts = await client.list_offsets(dict.fromkeys(keys, OffsetSpec.EARLIEST))
    assert [found.offset for found in ends.values() if found] == [0, 1, 2]
    assert [found.offset for found in starts.values() if found] == [0, 0, 0]
    assert list(ends) == keys


async def test_a_time_finds_the_first_record_that_is_not_older(
    admin: Any, topic: Any, producer: Any
) -> None:
    key = await filled(topic, producer, [START, START + 1000, START + 2000])
    client: Admin = await admin()
    for asked, offset in [(0, 0), (START, 0), (START + 1, 1), (START + 2000, 2)]:
        found = (await client.list_offsets({key: asked}))[key]
        assert found is not None
        assert (found.offset, found.timestamp) == (offset, START + 1000 * offset)


async def test_a_datetime_does_the_same(admin: Any, topic: Any, producer: Any) -> None:
    key = await filled(topic, producer, [START, START + 5000])
    client: Admin = await admin()
    when = datetime.datetime.fromtimestamp(START / 1000 + 1, tz=datetime.UTC)
    found = (await client.list_offsets({key: when}))[key]
    assert found is not None
    assert found.offset == 1
    with pytest.raises(InvalidArgument, match="time zone"):
        await client.list_offsets({key: when.replace(tzinfo=None)})


async def test_a_time_after_the_last_record_finds_none(
    admin: Any, topic: Any, producer: Any
) -> None:
    key = await filled(topic, producer, [START])
    client: Admin = await admin()
    assert await client.list_offsets({key: START + 1}) == {key: None}


async def test_the_greatest_timestamp_or_a_typed_error_from_older_brokers(
    admin: Any, topic: Any, producer: Any, broker: Any
) -> None:
    key = await filled(topic, producer, [START, START + 9000, START + 1000])
    client: Admin = await admin()
    if broker.version < (3, 0, 0):
        with pytest.raises(NoCommonVersion, match="MAX_TIMESTAMP needs ListOffsets version 7"):
            await client.list_offsets({key: OffsetSpec.MAX_TIMESTAMP})
        return
    found = (await client.list_offsets({key: OffsetSpec.MAX_TIMESTAMP}))[key]
    assert found is not None
    assert (found.offset, found.timestamp) == (1, START + 9000)


async def test_without_transactions_both_isolation_levels_see_the_same_end(
    admin: Any, topic: Any, producer: Any
) -> None:
    key = await filled(topic, producer, [START, START])
    client: Admin = await admin()
    for isolation in IsolationLevel:
        found = (await client.list_offsets({key: OffsetSpec.LATEST}, isolation=isolation))[key]
        assert found is not None
        assert found.offset == 2


async def test_leader_epochs_come_with_offsets_where_brokers_report_them(
    admin: Any, topic: Any, broker: Any
) -> None:
    key = TopicPartition(await topic(), 0)
    client: Admin = await admin()
    found = (await client.list_offsets({key: OffsetSpec.LATEST}))[key]
    assert found is not None
    if broker.version < (2, 1, 0):
        assert found.leader_epoch is None
    else:
        assert found.leader_epoch is not None
        assert found.leader_epoch >= 0


async def test_a_partition_that_does_not_exist_does_not_harm_the_others(
    admin: Any, topic: Any
) -> None:
    name = await topic()
    good, bad = TopicPartition(name, 0), TopicPartition(name, 7)
    client: Admin = await admin()
    found = await client.list_offsets(
        {bad: OffsetSpec.LATEST, good: OffsetSpec.LATEST}, return_errors=True, timeout=15.0
    )
    assert isinstance(found[bad], UnknownTopicOrPartition)
    assert str(bad) in str(found[bad])
    assert found[good] is not None
