"""Where a consumer reads: assignment, seeks, resets, pauses, lookups, on every kind of broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kclient.broker_errors import OffsetOutOfRange
from kclient.errors import InvalidArgument, NoPosition
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.behaviours.reading import offsets, read, write

START = "earliest"


async def test_without_a_position_poll_says_what_to_do(topic, consumer) -> None:
    name = await topic(partitions=2)
    back = await consumer(name)
    for _ in range(2):
        with pytest.raises(NoPosition, match=f"{name}-0, {name}-1.*seek.*auto_offset_reset"):
            await back.poll(timeout=1.0)
    with pytest.raises(NoPosition, match=f"{name}-1"):
        await back.position(TopicPartition(name, 1))
    assert back.positions() == {TopicPartition(name, 0): None, TopicPartition(name, 1): None}


async def test_reset_none_is_an_error_as_well(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset="none")
    with pytest.raises(NoPosition):
        await back.poll(timeout=1.0)


async def test_after_a_seek_the_same_consumer_reads(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"%d" % n for n in range(10)])
    back = await consumer(name)
    with pytest.raises(NoPosition):
        await back.poll(timeout=1.0)
    back.seek(TopicPartition(name, 0), 4)
    assert offsets(await read(back, 6)) == {0: list(range(4, 10))}


async def test_reset_to_earliest_reads_what_is_there(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 3)
    assert offsets(await read(await consumer(name, auto_offset_reset=START), 3)) == {0: [0, 1, 2]}


async def test_reset_to_latest_reads_what_comes(topic, producer, consumer) -> None:
    name = await topic()
    out = await producer(linger=0.0)
    await write(out, name, [b"old"] * 3)
    back = await consumer(name, auto_offset_reset="latest")
    assert await back.position(TopicPartition(name, 0)) == 3
    await out.send(name, b"new")
    [record] = await read(back, 1)
    assert (record.offset, record.value) == (3, b"new")


async def test_seeking_back_gives_records_again(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 10)
    back = await consumer(name, auto_offset_reset=START)
    await read(back, 10)
    back.seek(TopicPartition(name, 0), 7)
    assert offsets(await read(back, 3)) == {0: [7, 8, 9]}


async def test_seeking_ahead_skips_what_is_buffered(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 100)
    back = await consumer(name, auto_offset_reset=START)
    await read(back, 1)
    back.seek(TopicPartition(name, 0), 90)
    assert offsets(await read(back, 10)) == {0: list(range(90, 100))}


async def test_seeking_takes_the_value_that_a_commit_has(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 5)
    back = await consumer(name)
    back.seek(TopicPartition(name, 0), OffsetAndMetadata(3, leader_epoch=0))
    assert offsets(await read(back, 2)) == {0: [3, 4]}


async def test_seeking_in_the_middle_of_a_loop(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 20)
    back = await consumer(name, auto_offset_reset=START)
    seen = []
    async for record in back:
        seen.append(record.offset)
        if seen == [0, 1, 2]:
            back.seek(TopicPartition(name, 0), 17)
        if record.offset == 19:
            break
    assert seen == [0, 1, 2, 17, 18, 19]


async def test_a_seek_overtakes_a_fetch_that_is_under_way(topic, producer, consumer) -> None:
    name = await topic()
    out = await producer(linger=0.0)
    await write(out, name, [b"v"] * 5)
    back = await consumer(name, auto_offset_reset=START, fetch_max_wait=0.2)
    await read(back, 5)
    waiting = asyncio.ensure_future(back.poll(timeout=10.0))  # its fetch waits at the broker
    await asyncio.sleep(0.05)
    back.seek(TopicPartition(name, 0), 2)
    await out.send(name, b"v")  # completes the fetch from before the seek
    assert (await waiting)[0].offset == 2


async def test_to_the_beginning_and_to_the_end(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    out = await producer(linger=0.0)
    await write(out, name, [b"v"] * 10, partitions=2)
    back = await consumer(name, fetch_max_wait=0.1)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    back.seek_to_beginning(first)
    back.seek_to_end(second)
    assert [await back.position(one) for one in (first, second)] == [0, 5]
    assert offsets(await read(back, 5)) == {0: [0, 1, 2, 3, 4]}
    back.seek_to_beginning()
    assert offsets(await read(back, 10)) == {0: list(range(5)), 1: list(range(5))}
    back.seek_to_end()
    assert [await back.position(one) for one in (first, second)] == [5, 5]


async def test_the_position_moves_with_the_hand_over_only(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 10)
    back = await consumer(name, auto_offset_reset=START)
    partition = TopicPartition(name, 0)
    assert await back.position(partition) == 0
    await read(back, 4)  # more than that was fetched
    assert await back.position(partition) == 4
    assert back.positions() == {partition: 4}


async def test_out_of_range_without_a_reset_names_the_offset(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 5)
    back = await consumer(name)
    partition = TopicPartition(name, 0)
    back.seek(partition, 1000)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match=f"{name}-0 at offset 1000") as failed:
            await back.poll(timeout=10.0)
        assert failed.value.topic_partition == partition
        assert await back.position(partition) == 1000
    back.seek(partition, 3)
    assert offsets(await read(back, 2)) == {0: [3, 4]}


async def test_out_of_range_is_reset_by_policy(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 3)
    back = await consumer(name, auto_offset_reset=START)
    back.seek(TopicPartition(name, 0), 1000)
    assert offsets(await read(back, 3)) == {0: [0, 1, 2]}


async def test_a_partition_out_of_range_does_not_stop_the_others(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"v"] * 40, partitions=2)
    back = await consumer(name)
    back.seek(TopicPartition(name, 0), 1000)
    back.seek(TopicPartition(name, 1), 0)
    seen, errors = [], 0
    while len(seen) < 20 or not errors:
        try:
            seen += await back.poll(max_records=5, timeout=5.0)
        except OffsetOutOfRange:
            errors += 1
    assert offsets(seen) == {1: list(range(20))}


async def test_paused_partitions_rest_and_the_others_go_on(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"v"] * 20, partitions=2)
    back = await consumer(name, auto_offset_reset=START)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    back.pause(first)
    assert back.paused == {first}
    assert offsets(await read(back, 10)) == {1: list(range(10))}
    assert await back.poll(timeout=0.05) == []
    assert back.positions() == {first: 0, second: 10}
    back.resume(first)
    assert back.paused == frozenset()
    assert offsets(await read(back, 10)) == {0: list(range(10))}


async def test_pausing_keeps_what_was_fetched_and_loses_nothing(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 100)
    back = await consumer(name, auto_offset_reset=START)
    seen = []
    while len(seen) < 100:
        seen += await back.poll(max_records=9, timeout=5.0)
        back.pause()
        assert await back.poll(timeout=0) == []
        back.resume()
    assert offsets(seen) == {0: list(range(100))}
    assert back.metrics()["consumer.fetches"] < 20  # not fetched again each time


async def test_pausing_in_the_middle_of_a_loop(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"v"] * 20, partitions=2)
    back = await consumer(name, auto_offset_reset=START)
    seen = []
    async for record in back:
        seen.append(record)
        if len(seen) == 1:
            back.pause(record.topic_partition)
        if len(seen) == 11:
            break
    other = 1 - seen[0].partition
    assert [record.partition for record in seen[1:]] == [other] * 10
    back.resume()
    assert offsets(await read(back, 9)) == {seen[0].partition: list(range(1, 10))}


async def test_resuming_what_is_not_paused_changes_nothing(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 10)
    back = await consumer(name, auto_offset_reset=START)
    await read(back, 3)
    back.resume(TopicPartition(name, 0))
    assert offsets(await read(back, 7)) == {0: list(range(3, 10))}


async def test_single_partitions_can_be_assigned(topic, producer, consumer) -> None:
    name = await topic(partitions=3)
    await write(await producer(), name, [b"v"] * 30, partitions=3)
    back = await consumer(auto_offset_reset=START)
    back.assign([TopicPartition(name, 0), TopicPartition(name, 2)])
    assert back.assignment == {TopicPartition(name, 0), TopicPartition(name, 2)}
    assert offsets(await read(back, 20)) == {0: list(range(10)), 2: list(range(10))}
    assert await back.poll(timeout=0.05) == []


async def test_assigning_anew_keeps_the_position_of_what_stays(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"v"] * 20, partitions=2)
    back = await consumer(auto_offset_reset=START)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    back.assign([first])
    await read(back, 4)
    back.assign([first, second])
    assert offsets(await read(back, 16)) == {0: list(range(4, 10)), 1: list(range(10))}
    back.assign([second])
    assert back.positions() == {second: 10}
    back.assign([first, second])  # what was removed starts from the reset policy again
    assert offsets(await read(back, 10)) == {0: list(range(10))}


async def test_with_nothing_assigned_poll_says_so(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset=START)
    back.unassign()
    assert back.assignment == frozenset()
    with pytest.raises(NoPosition, match="nothing to read"):
        await back.poll(timeout=1.0)


async def test_a_waiting_poll_hears_of_an_assignment(topic, producer, consumer) -> None:
    first, second = await topic(), await topic()
    await write(await producer(), second, [b"v"])
    back = await consumer(first, auto_offset_reset=START)
    waiting = asyncio.ensure_future(back.poll(timeout=30.0))
    await asyncio.sleep(0.05)
    back.assign([TopicPartition(second, 0)])
    assert [record.topic for record in await waiting] == [second]


async def test_what_is_not_assigned_can_not_be_sought_or_paused(topic, consumer) -> None:
    name = await topic()
    back = await consumer(name)
    other = TopicPartition(name, 5)
    for call in (
        lambda: back.seek(other, 0),
        lambda: back.seek_to_end(other),
        lambda: back.pause(other),
        lambda: back.resume(other),
        lambda: back.lag(other),
    ):
        with pytest.raises(InvalidArgument, match=f"{name}-5 is not assigned"):
            call()
    with pytest.raises(InvalidArgument, match="not assigned"):
        await back.position(other)


async def test_the_ends_of_partitions_can_be_looked_up(topic, producer, consumer) -> None:
    name = await topic(partitions=2)
    await write(await producer(), name, [b"v"] * 7, partitions=2)
    back = await consumer()
    both = [TopicPartition(name, 0), TopicPartition(name, 1)]
    assert await back.beginning_offsets(both) == dict.fromkeys(both, 0)
    assert await back.end_offsets(both) == {both[0]: 4, both[1]: 3}
    assert back.assignment == frozenset()


async def test_offsets_can_be_looked_up_by_time(topic, producer, consumer) -> None:
    name = await topic()
    out = await producer()
    for offset in range(5):
        await out.send(name, b"v", timestamp=1_700_000_000_000 + offset * 1000)
    back = await consumer(name)
    partition = TopicPartition(name, 0)
    found = await back.offsets_for_times({partition: 1_700_000_002_500})
    assert (found[partition].offset, found[partition].timestamp) == (3, 1_700_000_003_000)
    assert await back.offsets_for_times({partition: 1_700_000_099_000}) == {partition: None}
    back.seek(partition, found[partition])
    assert offsets(await read(back, 2)) == {0: [3, 4]}


async def test_seeking_a_time_goes_to_the_first_record_from_then_on(
    topic, producer, consumer
) -> None:
    name = await topic()
    out, began = await producer(), datetime(2024, 5, 1, 12, tzinfo=UTC)
    for offset in range(5):
        when = began + timedelta(seconds=offset)
        await out.send(name, b"v", timestamp=int(when.timestamp() * 1000))
    back, partition = await consumer(name), TopicPartition(name, 0)
    when = began + timedelta(seconds=2.5)
    assert (await back.offsets_for_times({partition: when}))[partition].offset == 3
    back.seek(partition, when)
    assert offsets(await read(back, 2)) == {0: [3, 4]}
    back.seek(partition, began)
    assert offsets(await read(back, 5)) == {0: [0, 1, 2, 3, 4]}
    back.seek(partition, began + timedelta(hours=1))
    assert await back.position(partition) == 5
    with pytest.raises(InvalidArgument, match=r"no time zone.*astimezone"):
        back.seek(partition, began.replace(tzinfo=None))
    with pytest.raises(InvalidArgument, match=r"no time zone.*astimezone"):
        await back.offsets_for_times({partition: began.replace(tzinfo=None)})


async def test_partitions_of_a_topic_are_shown(topic, consumer) -> None:
    name = await topic(partitions=3)
    found = await (await consumer()).partitions_for(name)
    assert [(one.topic, one.index) for one in found] == [(name, 0), (name, 1), (name, 2)]
    assert all(one.leader is not None for one in found)


async def test_lag_is_what_is_left_to_read(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 10)
    back = await consumer(name, auto_offset_reset=START)
    partition = TopicPartition(name, 0)
    assert back.lag(partition) is None
    await read(back, 4)
    assert back.lag(partition) == 6
    assert back.metrics()["consumer.lag"] == 6
    await read(back, 6)
    assert back.lag(partition) == 0


async def test_partitions_that_are_added_later_are_read_from_their_beginning(
    topic, producer, consumer, admin
) -> None:
    name = await topic()
    back = await consumer(name, auto_offset_reset="latest", metadata_max_age=0.2)
    await back.position(TopicPartition(name, 0))
    await (await admin()).create_partitions({name: 3})
    out = await producer(metadata_max_age=0.2)
    async with asyncio.timeout(20.0):
        # The metadata is refreshed five times a second, without an event for it.
        while len(await out.partitions_for(name)) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await out.send(name, b"in the new one", partition=2)
    [record] = await read(back, 1)
    assert (record.partition, record.value) == (2, b"in the new one")
    assert len(back.assignment) == 3


async def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    broker, topic, producer, consumer, admin
) -> None:
    name = await topic()
    out = await producer(linger=0.0)
    await write(out, name, [b"old"] * 5)
    back = await consumer(name, auto_offset_reset=START, metadata_max_age=0.5, fetch_max_wait=0.1)
    assert len(await read(back, 5)) == 5
    boss = await admin()
    await boss.delete_topics([name])
    await remade(boss, name)
    again = await producer(linger=0.0)
    await again.send(name, b"new")
    async with asyncio.timeout(30.0):
        records = []
        while not records:
            records = await back.poll(timeout=1.0)
    assert [(record.offset, record.value) for record in records] == [(0, b"new")]


async def remade(boss, name: str) -> None:
    """Create ``name`` as soon as its predecessor is deleted."""
    from kclient.admin import NewTopic
    from kclient.broker_errors import TopicAlreadyExists

    async with asyncio.timeout(20.0):
        while True:
            try:
                await boss.create_topics([NewTopic(name, partitions=1, replication_factor=1)])
                return
            except TopicAlreadyExists:
                await asyncio.sleep(0.1)
