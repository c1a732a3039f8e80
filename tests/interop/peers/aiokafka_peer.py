"""aiokafka, in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiokafka

from tests.interop.peers.sample import TIMEOUT, Sample


class AiokafkaPeer:
    """aiokafka."""

    name = "aiokafka"

    def takes(self, sample: Sample) -> bool:
        """It refuses a record that has neither a key nor a value."""
        return sample.key is not None or sample.value is not None

    async def write(
        self, bootstrap: str, topic: str, samples: Sequence[Sample], codec: str
    ) -> None:
        """Write the samples with an idempotent producer."""
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            linger_ms=20,
        )
        await producer.start()
        try:
            waiting = [
                await producer.send(
                    topic,
                    sample.value,
                    key=sample.key,
                    partition=sample.partition,
                    timestamp_ms=sample.timestamp,
                    headers=list(sample.headers),
                )
                for sample in samples
            ]
            await asyncio.wait_for(asyncio.gather(*waiting), TIMEOUT)
        finally:
            await producer.stop()

    async def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sample]:
        """Read with a manual assignment."""
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(topic, p) for p in range(partitions)])
        await consumer.start()
        found: list[Sample] = []
        try:
            async with asyncio.timeout(TIMEOUT):
                while len(found) < count:
                    batches = await consumer.getmany(timeout_ms=200)
                    found.extend(
                        Sample(r.partition, r.key, r.value, tuple(r.headers), r.timestamp)
                        for records in batches.values()
                        for r in records
                    )
        finally:
            await consumer.stop()
        return found
