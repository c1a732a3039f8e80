"""ListOffsets: the symbolic times, lookups by time, epochs, and what is refused."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.calls import list_offsets, produce

LATEST, EARLIEST, MAX_TIMESTAMP, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


async def filled(run: Run) -> str:
    """A topic with three batches of two records each, a second apart."""
    topic = await run.topic()
    for step in range(3):
        records = batch_bytes(2, timestamp=NOW + 1000 * step, step_ms=100)
        await run.quietly(produce(topic, records), 9)
    return topic


@scenario("ListOffsets")
async def ends_in_every_version(run: Run) -> None:
    topic = await filled(run)
    for version in range(1, 12):
        await run.ask(list_offsets(topic, LATEST), version, "latest")
        await run.ask(list_offsets(topic, EARLIEST), version, "earliest")


@scenario("ListOffsets")
async def an_empty_partition(run: Run) -> None:
    topic = await run.topic()
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, LOCAL, TIERED, PENDING, 0, NOW):
        await run.ask(list_offsets(topic, timestamp), 11, str(timestamp))
    await run.ask_each(list_offsets(topic, NOW), 1, 3, 4)


@scenario("ListOffsets")
async def by_time(run: Run) -> None:
    topic = await filled(run)
    for step in (-1, 0, 50, 100, 101, 1000, 2000, 2100, 2101):
        await run.ask(list_offsets(topic, NOW + step), 7, f"+{step}")
    await run.ask_each(list_offsets(topic, NOW + 1000), 1, 4, 6, 10, 11)
    await run.ask(list_offsets(topic, 0), 7, "time 0")


@scenario("ListOffsets", ErrorCode.UNSUPPORTED_VERSION)
async def times_that_are_newer_than_the_version(run: Run) -> None:
    topic = await filled(run)
    for timestamp in (MAX_TIMESTAMP, LOCAL, TIERED, PENDING, -7, -100):
        for version in (1, 3, 4, 6, 7, 8, 9, 10, 11):
            await run.ask(list_offsets(topic, timestamp), version, str(timestamp))


@scenario("ListOffsets")
async def the_greatest_time_is_not_always_the_last(run: Run) -> None:
    topic = await run.topic()
    for step in (0, 5000, 2000, 5000):
        await run.quietly(produce(topic, batch_bytes(2, timestamp=NOW + step, step_ms=0)), 9)
    await run.ask(list_offsets(topic, MAX_TIMESTAMP), 7)
    await run.ask(list_offsets(topic, NOW + 3000), 7, "by time")


@scenario("ListOffsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def unknown_topics_and_partitions(run: Run) -> None:
    topic = await run.topic()
    nowhere = run.name("nowhere")
    await run.ask_each(list_offsets(nowhere, LATEST), 1, 4, 11)
    await run.ask_each(list_offsets(topic, LATEST, partition=1), 1, 11)
    await run.ask(list_offsets(topic, LATEST, partition=-1), 11, "partition -1")
    await run.ask(list_offsets("", LATEST), 11, "no name")
    await run.ask(list_offsets("a b", LATEST), 11, "a name that can't be")


@scenario("ListOffsets", ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)
async def epochs_of_leaders(run: Run) -> None:
    topic = await filled(run)
    for epoch in (0, 1, 7, -1, -2):
        await run.ask(list_offsets(topic, LATEST, leader_epoch=epoch), 4, f"epoch {epoch}")
        await run.ask(list_offsets(topic, NOW, leader_epoch=epoch), 11, f"epoch {epoch}")


@scenario("ListOffsets")
async def read_committed(run: Run) -> None:
    topic = await filled(run)
    for timestamp in (LATEST, EARLIEST, NOW, MAX_TIMESTAMP):
        await run.ask_each(list_offsets(topic, timestamp, isolation=1), 2, 7, note=str(timestamp))


@scenario("ListOffsets", ErrorCode.INVALID_REQUEST)
async def a_partition_twice(run: Run) -> None:
    topic = await run.topic(partitions=2)
    wanted = [ListOffsetsPartition(index, -1, LATEST) for index in (0, 0, 1)]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, wanted)])
    await run.ask_each(request, 1, 7)
    twice = ListOffsetsTopic(topic, [ListOffsetsPartition(1, -1, LATEST)])
    await run.ask(ListOffsetsRequest(-1, 0, [twice, twice]), 7, "a topic twice")


@scenario("ListOffsets")
async def several_topics(run: Run) -> None:
    one, two = await filled(run), await run.topic("other", 4)
    wanted = [ListOffsetsPartition(at, -1, LATEST) for at in (2, 1, 0, 3, 5)]
    topics = [ListOffsetsTopic(two, wanted)]
    topics += [
        ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, NOW + 1000)])
        for name in (one, *(run.name(f"nowhere{number}") for number in range(4)))
    ]
    request = ListOffsetsRequest(-1, 0, topics)
    await run.ask_each(request, 1, 6, 11)


@scenario("ListOffsets")
async def none_at_all(run: Run) -> None:
    await run.ask_each(ListOffsetsRequest(-1, 0, []), 1, 6, 11)
    topic = await run.topic()
    await run.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [])]), 7, "no partitions")


@scenario("ListOffsets")
async def by_a_debugging_client(run: Run) -> None:
    topic = await filled(run)
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, LATEST)])
    await run.ask_each(ListOffsetsRequest(-2, 0, [wanted]), 1, 7)
