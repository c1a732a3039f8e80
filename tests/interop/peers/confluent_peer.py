"""librdkafka through confluent-kafka, the blocking client, in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import confluent_kafka

from tests.interop.peers.sample import TIMEOUT, Sample


class ConfluentPeer:
    """librdkafka."""

    name = "librdkafka"

    def takes(self, _: Sample) -> bool:
        """It takes all that the protocol can express."""
        return True

    async def write(
        self, bootstrap: str, topic: str, samples: Sequence[Sample], codec: str
    ) -> None:
        """Write the samples with an idempotent producer."""
        await asyncio.to_thread(_write, bootstrap, topic, samples, codec)

    async def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sample]:
        """Read with a manual assignment."""
        return await asyncio.to_thread(_read, bootstrap, topic, partitions, count)


def _write(bootstrap: str, topic: str, samples: Sequence[Sample], codec: str) -> None:
    failures: list[str] = []

    def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
            "delivery.timeout.ms": int(TIMEOUT * 1000),
        }
    )
    for sample in samples:
        producer.produce(
            topic,
            sample.value,
            key=sample.key,
            partition=sample.partition,
            timestamp=sample.timestamp,
            headers=list(sample.headers),
            on_delivery=delivered,
        )
    left = producer.flush(TIMEOUT)
    if failures or left:
        raise RuntimeError(f"librdkafka did not deliver: {failures[:3]}, {left} left")


def _read(bootstrap: str, topic: str, partitions: int, count: int) -> list[Sample]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    found: list[Sample] = []
    deadline = time.monotonic() + TIMEOUT
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(found), timeout=0.2):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                found.append(
                    Sample(
                        message.partition(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        message.timestamp()[1],
                    )
                )
    finally:
        consumer.close()
    return found
