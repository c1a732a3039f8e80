"""Fetch without a session: offsets, sizes, epochs, unknown topics, waiting."""

from __future__ import annotations

import asyncio

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.list_offsets import filled
from tests.conformance.scenarios.metadata import NOWHERE
from tests.conformance.scenarios.produce import producer
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import MIB, fetch, produce

_BATCH = len(batch_bytes(2, step_ms=100))


def several(*parts: tuple[str, int], max_bytes: int = MIB, part_bytes: int = MIB) -> FetchRequest:
    """Partitions of several topics from their beginnings, each topic in an entry of its own."""
    topics = [
        FetchTopic(name, partitions=[FetchPartition(index, partition_max_bytes=part_bytes)])
        for name, index in parts
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=topics)


@scenario("Fetch")
async def records_in_every_version(run: Run) -> None:
    topic = await filled(run)
    await run.ask_each(fetch(topic, 0), *range(4, 13))
    await run.ask_each(fetch(await run.topic_id(topic), 0), *range(13, 19))


@scenario("Fetch")
async def an_empty_partition(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(fetch(topic, 0), 4, 7, 11, 12)
    await run.ask_each(fetch(await run.topic_id(topic), 0), 13, 18)


@scenario("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE)
async def offsets(run: Run) -> None:
    topic = await filled(run)
    for offset in (0, 1, 2, 5, 6, 7, 100, -1, -2):
        await run.ask_each(fetch(topic, 0, offset=offset), 4, 12, note=f"offset {offset}")


@scenario("Fetch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def unknown_topics_and_partitions(run: Run) -> None:
    topic = await filled(run)
    await run.ask_each(fetch(run.name("nowhere"), 0), 4, 7, 11, 12)
    await run.ask_each(fetch(topic, 1), 4, 11, 12)
    await run.ask(fetch(topic, 0, 1), 12, "beside one that there is")
    await run.ask(fetch("a b", 0), 12, "a name that can't be")
    topic_id = await run.topic_id(topic)
    await run.ask(fetch(topic_id, 5), 13, "partition 5")
    await run.ask(fetch(topic_id, -1), 13, "partition -1")


@scenario("Fetch", ErrorCode.UNKNOWN_TOPIC_ID)
async def unknown_topic_ids(run: Run) -> None:
    topic = await filled(run)
    topic_id = await run.topic_id(topic)
    await run.ask_each(fetch(NOWHERE, 0), 13, 15, 18)
    await run.ask(fetch(bytes(16), 0), 13, "zero")
    await run.delete_topic(topic)
    await run.ask(fetch(topic_id, 0), 13, "deleted")


@scenario("Fetch", ErrorCode.UNKNOWN_LEADER_EPOCH)
async def epochs_of_leaders(run: Run) -> None:
    topic = await filled(run)
    for epoch in (0, 1, -1):
        await run.ask_each(fetch(topic, 0, leader_epoch=epoch), 9, 12, note=f"epoch {epoch}")
    await run.ask(fetch(await run.topic_id(topic), 0, leader_epoch=7), 16, "epoch 7")


@scenario("Fetch")
async def an_epoch_of_a_leader_that_can_not_be(run: Run) -> None:
    topic = await filled(run)
    await run.ask_each(fetch(topic, 0, leader_epoch=-2), 9, 12)
    await run.ask(fetch(await run.topic_id(topic), 0, leader_epoch=-2), 16)


@scenario("Fetch")
async def the_last_epoch_that_was_fetched(run: Run) -> None:
    topic = await filled(run)
    for last, offset in ((0, 0), (0, 6), (0, 9), (1, 0), (5, 3)):
        asked = fetch(topic, 0, offset=offset, last_epoch=last)
        await run.ask(asked, 12, f"epoch {last}, offset {offset}")
    empty = await run.topic("empty")
    await run.ask(fetch(empty, 0, last_epoch=0), 12, "in an empty log")


@scenario("Fetch")
async def sizes_of_a_partition(run: Run) -> None:
    topic = await filled(run)
    for size in (0, 1, _BATCH - 1, _BATCH, _BATCH + 1, 2 * _BATCH, 3 * _BATCH):
        asked = fetch(topic, 0, partition_max_bytes=size)
        await run.ask_each(asked, 4, 12, note=f"{size} bytes of a partition")


@scenario("Fetch")
async def sizes_of_an_answer(run: Run) -> None:
    topic = await filled(run)
    for size in (0, 1, _BATCH, 2 * _BATCH - 1, 2 * _BATCH):
        await run.ask_each(fetch(topic, 0, max_bytes=size), 4, 12, note=f"{size} bytes in all")


@scenario("Fetch")
async def sizes_of_an_answer_for_several_partitions(run: Run) -> None:
    one, two = await filled(run), await run.topic("other", 2)
    for index in (0, 1):
        await run.quietly(produce(two, batch_bytes(2), partition=index), 9)
    wanted = ((two, 1), (one, 0), (two, 0))
    for size in (1, _BATCH, 2 * _BATCH, 4 * _BATCH, MIB):
        await run.ask(several(*wanted, max_bytes=size), 12, f"{size} bytes in all")
    await run.ask(several(*wanted, part_bytes=1), 12, "1 byte of each")


@scenario("Fetch", ErrorCode.UNKNOWN_SERVER_ERROR)
async def sizes_below_0(run: Run) -> None:
    topic = await filled(run)
    await run.ask(fetch(topic, 0, partition_max_bytes=-1), 12, "of a partition")
    await run.ask(fetch(topic, 0, max_bytes=-1), 12, "in all")


@scenario("Fetch")
async def read_committed(run: Run) -> None:
    topic = await filled(run)
    await run.ask_each(fetch(topic, 0, isolation=1), 4, 7, 12)
    await run.ask_each(fetch(topic, 0, offset=6, isolation=1), 4, 12, note="at the end")
    await run.ask(fetch(topic, 0, offset=9, isolation=1), 12, "behind the end")


@scenario("Fetch")
async def batches_of_a_producer(run: Run) -> None:
    topic, who = await run.topic(), await producer(run)
    for first in (0, 2):
        await run.quietly(produce(topic, batch_bytes(2, producer=(who, 0, first))), 9)
    await run.ask(fetch(topic, 0), 12)


@scenario("Fetch")
async def the_same_partition_twice(run: Run) -> None:
    topic = await filled(run)
    await run.ask(fetch(topic, 0, 0), 12, "in one entry")
    await run.ask(several((topic, 0), (topic, 0)), 12, "in two entries")


@scenario("Fetch")
async def nothing(run: Run) -> None:
    await run.ask_each(fetch(None), 4, 7, 12, 13, 18)
    topic = await run.topic()
    await run.ask(FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic)]), 12, "no partitions")


@scenario("Fetch")
async def waiting_ends_when_there_is_enough(run: Run) -> None:
    topic = await run.topic()
    reader, writer = run.peer(), run.peer()
    pending = await reader.begin(fetch(topic, 0, max_wait_ms=15_000, min_bytes=_BATCH + 1), 12)
    for _ in range(2):
        await writer.ask(produce(topic, batch_bytes(2)), 9)
    await pending.answer()


@scenario("Fetch")
async def waiting_ends_with_the_time(run: Run) -> None:
    topic = await filled(run)
    await run.ask(fetch(topic, 0, offset=6, max_wait_ms=50), 12)
    await run.ask(fetch(topic, 0, max_wait_ms=50, min_bytes=MIB), 12, "with less than was wanted")


@scenario("Fetch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def errors_are_not_waited_with(run: Run) -> None:
    topic = await run.topic()
    for asked, note in (
        (fetch(topic, 0, offset=9, max_wait_ms=15_000), "an offset"),
        (fetch(topic, 0, 7, max_wait_ms=15_000), "a partition"),
        (fetch(topic, 0, leader_epoch=9, max_wait_ms=15_000), "an epoch"),
    ):
        await run.ask(asked, 12, note)


@scenario("Fetch")
async def a_request_behind_one_that_waits(run: Run) -> None:
    topic = await run.topic()
    peer, writer = run.peer(), run.peer()
    first = await peer.begin(fetch(topic, 0, max_wait_ms=15_000), 12, "that waits")
    second = await peer.begin(fetch(topic, 0), 11, "behind it")
    await asyncio.sleep(0.2)
    await writer.ask(produce(topic, batch_bytes(2)), 9)
    await first.answer()
    await second.answer()


@scenario("Fetch")
async def a_deleted_topic_ends_the_waiting(run: Run) -> None:
    topic = await run.topic()
    reader = run.peer()
    pending = await reader.begin(fetch(topic, 0, max_wait_ms=15_000), 12)
    await asyncio.sleep(0.2)
    await run.delete_topic(topic)
    await pending.answer()


@scenario("Fetch")
async def a_reader_in_a_rack(run: Run) -> None:
    topic = await filled(run)
    asked = fetch(topic, 0)
    asked.rack_id = "rack-1"
    await run.ask_each(asked, 11, 12)
