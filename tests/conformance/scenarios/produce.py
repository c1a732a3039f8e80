"""Produce: acks, versions, topics and partitions, producers' sequences, timestamps."""

from __future__ import annotations

import asyncio
import time

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.conformance.scenarios.metadata import NOWHERE
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce


def several(*parts: tuple[str, int, bytes | None], acks: int = -1) -> ProduceRequest:
    """Batches for several partitions, each topic in an entry of its own."""
    topics = [
        TopicProduceData(name, partition_data=[PartitionProduceData(index, records)])
        for name, index, records in parts
    ]
    return ProduceRequest(None, acks, 5000, topics)


async def producer(run: Run) -> int:
    """A producer id."""
    found = await run.quietly(InitProducerIdRequest(None, 60_000), 4)
    return int(found.producer_id)


@scenario("Produce")
async def in_every_version(run: Run) -> None:
    topic = await run.topic()
    for version in range(3, 13):
        await run.ask(produce(topic, batch_bytes(2)), version)
    await run.ask(produce(await run.topic_id(topic), batch_bytes(2)), 13)
    await run.ask(fetch(topic, 0), 11)


@scenario("Produce")
async def acks_of_leader_and_all(run: Run) -> None:
    topic = await run.topic()
    for acks in (1, -1):
        await run.ask_each(produce(topic, batch_bytes(), acks=acks), 3, 9, note=f"acks={acks}")


@scenario("Produce")
async def no_acks(run: Run) -> None:
    topic = await run.topic()
    peer = run.peer()
    await peer.begin(produce(topic, batch_bytes(3), acks=0), 9)
    await peer.ask(produce(topic, batch_bytes(), acks=1), 9, "behind it")


@scenario("Produce")
async def an_error_without_acks_closes_the_connection(run: Run) -> None:
    pending = await run.peer().begin(produce(run.name("nowhere"), batch_bytes(), acks=0), 9)
    await pending.answer()


@scenario("Produce", ErrorCode.INVALID_REQUIRED_ACKS)
async def acks_that_can_not_be(run: Run) -> None:
    topic = await run.topic()
    for acks in (2, -2, 32767):
        await run.ask_each(produce(topic, batch_bytes(), acks=acks), 3, 9, 12, note=f"acks={acks}")


@scenario("Produce", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
async def unknown_topics_and_partitions(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(produce(run.name("nowhere"), batch_bytes()), 3, 7, 8, 9, 10, 12)
    await run.ask_each(produce(topic, batch_bytes(), partition=1), 3, 12)
    await run.ask(produce(topic, batch_bytes(), partition=-1), 12, "partition -1")
    await run.ask(produce("", batch_bytes()), 12, "no name")
    await run.ask(produce("a b", batch_bytes()), 12, "a name that can't be")
    await run.ask(produce(run.name("nowhere"), batch_bytes(), acks=1), 9, "acks=1")


@scenario("Produce", ErrorCode.UNKNOWN_TOPIC_ID)
async def unknown_topic_ids(run: Run) -> None:
    topic = await run.topic()
    topic_id = await run.topic_id(topic)
    await run.ask(produce(NOWHERE, batch_bytes()), 13)
    await run.ask(produce(bytes(16), batch_bytes()), 13, "zero")
    await run.ask(produce(topic_id, batch_bytes(), partition=4), 13, "partition 4")
    await run.delete_topic(topic)
    await run.ask(produce(topic_id, batch_bytes()), 13, "deleted")


@scenario("Produce")
async def to_several_partitions(run: Run) -> None:
    one, two = await run.topic("one", 2), await run.topic("two")
    await run.ask(several((two, 0, batch_bytes()), (one, 1, batch_bytes(2))), 9)
    await run.ask(several((one, 0, batch_bytes()), (one, 1, batch_bytes(2))), 9, "one topic twice")


@scenario("Produce")
async def to_many_partitions(run: Run) -> None:
    topics = [await run.topic(f"t{one}", 4) for one in range(4)]
    parts = [PartitionProduceData(index, batch_bytes()) for index in (2, 0, 3, 1)]
    wanted = [TopicProduceData(topic, partition_data=parts) for topic in topics]
    await run.ask(ProduceRequest(None, -1, 5000, wanted), 9)


@scenario("Produce")
async def one_partition_fails_beside_one_that_does_not(run: Run) -> None:
    topic = await run.topic()
    await run.ask(several((topic, 7, batch_bytes()), (topic, 0, batch_bytes())), 9)
    await run.ask(several((topic, 0, batch_bytes()), (topic, 0, batch_bytes())), 9, "twice")


@scenario("Produce")
async def nothing(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(ProduceRequest(None, -1, 5000, []), 3, 9, 13)
    empty = ProduceRequest(None, 1, 5000, [TopicProduceData(topic, partition_data=[])])
    await run.ask_each(empty, 3, 9, note="no partitions")


# Producers


@scenario("Produce")
async def a_duplicate_is_acknowledged_again(run: Run) -> None:
    topic, who = await run.topic(), await producer(run)
    for first in (0, 2, 0, 2, 4, 2):
        records = batch_bytes(2, producer=(who, 0, first))
        await run.ask(produce(topic, records), 9, f"sequence {first}")
    await run.ask(list_offsets(topic, -1), 7)


@scenario("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
async def sequences_that_do_not_follow(run: Run) -> None:
    topic, who = await run.topic(), await producer(run)
    for first in (0, 5, 1, 2, 7, 3):
        await run.ask_each(
            produce(topic, batch_bytes(1, producer=(who, 0, first))), 3, 9, note=f"{first}"
        )


@scenario("Produce")
async def a_duplicate_that_is_forgotten(run: Run) -> None:
    topic, who = await run.topic(), await producer(run)
    for first in (*range(7), 1, 0, 6):
        await run.ask(produce(topic, batch_bytes(1, producer=(who, 0, first))), 9, f"{first}")


@scenario("Produce", ErrorCode.INVALID_PRODUCER_EPOCH)
async def epochs_of_producers(run: Run) -> None:
    topic, who = await run.topic(), await producer(run)
    for epoch, first in ((1, 0), (0, 0), (0, 1), (1, 1), (3, 4), (3, 0), (2, 0), (3, 1)):
        records = batch_bytes(1, producer=(who, epoch, first))
        await run.ask(produce(topic, records), 9, f"epoch {epoch}, sequence {first}")


@scenario("Produce")
async def an_unknown_producer_begins_anywhere(run: Run) -> None:
    topic = await run.topic()
    await run.ask(produce(topic, batch_bytes(1, producer=(1 << 40, 0, 77))), 9)
    await run.ask(produce(topic, batch_bytes(1, producer=(1 << 40, 0, 78))), 9)
    await run.ask(produce(topic, batch_bytes(1, producer=(1 << 40, 0, 80))), 9)


@scenario("Produce")
async def sequences_wrap_around(run: Run) -> None:
    topic, last = await run.topic(), (1 << 31) - 1
    for first, count in ((last - 1, 2), (0, 1), (1, 1)):
        records = batch_bytes(count, producer=(1 << 41, 0, first))
        await run.ask(produce(topic, records), 9, f"{count} from {first}")
    await run.ask(produce(topic, batch_bytes(3, producer=(1 << 42, 0, last))), 9, "across")
    await run.ask(produce(topic, batch_bytes(1, producer=(1 << 42, 0, 2))), 9, "after it")


@scenario("Produce", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
async def a_transactional_batch_without_a_transactional_id(run: Run) -> None:
    topic, who = await run.topic(), await producer(run)
    records = batch_bytes(1, producer=(who, 0, 0), transactional=True)
    await run.ask_each(produce(topic, records), 3, 9, 12)


# Timestamps


@scenario("Produce")
async def the_broker_gives_the_time(run: Run) -> None:
    topic = await run.topic(message_timestamp_type="LogAppendTime")
    await run.ask_each(produce(topic, batch_bytes(2)), 3, 9)
    await run.ask(fetch(topic, 0), 11)


@scenario("Produce")
async def a_duplicate_where_the_broker_gives_the_time(run: Run) -> None:
    topic, who = await run.topic(message_timestamp_type="LogAppendTime"), await producer(run)
    records = batch_bytes(2, producer=(who, 0, 0))
    await run.ask(produce(topic, records), 9)
    await asyncio.sleep(0.01)
    await run.ask(produce(topic, records), 9, "again")


@scenario("Produce", ErrorCode.INVALID_TIMESTAMP)
async def times_out_of_range(run: Run) -> None:
    topic = await run.topic(
        message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000
    )
    now = int(time.time() * 1000)
    await run.ask(produce(topic, batch_bytes(1, timestamp=now)), 9, "now")
    for version in (3, 8, 9):
        await run.ask(produce(topic, batch_bytes(2, timestamp=NOW)), version, "long ago")
    await run.ask(produce(topic, batch_bytes(1, timestamp=now + 3_600_000)), 9, "to come")
    await run.ask(produce(topic, batch_bytes(1, timestamp=-1)), 9, "none")


@scenario("Produce", ErrorCode.INVALID_TIMESTAMP)
async def a_time_that_is_hours_ahead(run: Run) -> None:
    topic = await run.topic()
    later = int(time.time() * 1000) + 7_200_000
    await run.ask(produce(topic, batch_bytes(1, timestamp=later)), 9)
    await run.ask(produce(topic, batch_bytes(1, timestamp=0)), 9, "of 1970")
