"""Foreign clients look up offsets and administer topics, which tests the embedded cluster.

On real Kafka the same tests show that the expectations are those of Kafka.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.interop.peers.confluent_peer import ConfluentPeer
from tests.interop.peers.kafka_python_peer import kafka
from tests.interop.peers.sample import TIMEOUT, Sample
from tests.support.broker_fixtures import Broker, TopicFactory

FIRST_TIME = 1_700_000_000_000
WRITTEN = [Sample(0, b"k", b"v", (), FIRST_TIME + 1000 * index) for index in range(10)]
ASKED_TIME, FOUND_OFFSET = FIRST_TIME + 3500, 4
"""The first record at or after the time asked for is number 4."""

Offsets = tuple[int, int, int]
"""Earliest, latest, by time."""


def librdkafka_offsets(bootstrap: str, topic: str) -> Offsets:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        partition = confluent_kafka.TopicPartition(topic, 0)
        earliest, latest = consumer.get_watermark_offsets(partition, timeout=TIMEOUT)
        asked = confluent_kafka.TopicPartition(topic, 0, ASKED_TIME)
        (found,) = consumer.offsets_for_times([asked], timeout=TIMEOUT)
        return earliest, latest, found.offset
    finally:
        consumer.close()


def kafka_python_offsets(bootstrap: str, topic: str) -> Offsets:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        partition = kafka.TopicPartition(topic, 0)
        earliest = consumer.beginning_offsets([partition])[partition]
        latest = consumer.end_offsets([partition])[partition]
        found = consumer.offsets_for_times({partition: ASKED_TIME})[partition]
        return earliest, latest, found.offset
    finally:
        consumer.close()


@pytest.mark.parametrize("offsets", [librdkafka_offsets, kafka_python_offsets])
async def test_a_blocking_client_finds_offsets(
    offsets: Callable[[str, str], Offsets], broker: Broker, topic: TopicFactory
) -> None:
    name = await topic()
    await ConfluentPeer().write(broker.bootstrap, name, WRITTEN, "none")
    found = await asyncio.to_thread(offsets, broker.bootstrap, name)
    assert found == (0, len(WRITTEN), FOUND_OFFSET)


async def test_aiokafka_finds_offsets(broker: Broker, topic: TopicFactory) -> None:
    name = await topic()
    await ConfluentPeer().write(broker.bootstrap, name, WRITTEN, "none")
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(name, 0)
        earliest = (await consumer.beginning_offsets([partition]))[partition]
        latest = (await consumer.end_offsets([partition]))[partition]
        found = (await consumer.offsets_for_times({partition: ASKED_TIME}))[partition]
    finally:
        await consumer.stop()
    assert (earliest, latest, found.offset) == (0, len(WRITTEN), FOUND_OFFSET)


def await_partitions(look: Callable[[], int | None], expected: int | None) -> None:
    """Poll until the change has reached the broker asked: the controller responds before that."""
    deadline = time.monotonic() + TIMEOUT
    while (seen := look()) != expected:
        assert time.monotonic() < deadline, f"{seen} partitions, not {expected}"


def librdkafka_topics(bootstrap: str, name: str) -> None:
    """Create, grow and delete a topic."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})

    def look() -> int | None:
        found = admin.list_topics(timeout=TIMEOUT).topics.get(name)
        return None if found is None or found.error else len(found.partitions)

    new = confluent_kafka.admin.NewTopic(name, num_partitions=2, replication_factor=1)
    admin.create_topics([new])[name].result(TIMEOUT)
    await_partitions(look, 2)
    more = confluent_kafka.admin.NewPartitions(name, 5)
    admin.create_partitions([more])[name].result(TIMEOUT)
    await_partitions(look, 5)
    admin.delete_topics([name])[name].result(TIMEOUT)
    await_partitions(look, None)


def kafka_python_topics(bootstrap: str, name: str) -> None:
    """Create, grow and delete a topic."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)

    def look() -> int | None:
        found = {one["name"]: one for one in admin.describe_topics() if not one["error_code"]}
        return len(found[name]["partitions"]) if name in found else None

    try:
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
        await_partitions(look, 2)
        admin.create_partitions({name: 5})
        await_partitions(look, 5)
        admin.delete_topics([name])
        await_partitions(look, None)
    finally:
        admin.close()


@pytest.mark.parametrize("administer", [librdkafka_topics, kafka_python_topics])
async def test_a_topic_is_made_grown_and_deleted(
    administer: Callable[[str, str], None], broker: Broker
) -> None:
    name = f"interop-{secrets.token_hex(4)}"
    await asyncio.to_thread(administer, broker.bootstrap, name)
