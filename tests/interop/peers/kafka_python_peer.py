"""kafka-python, the blocking pure-Python client, in a thread."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Sequence

from tests.interop.peers.sample import TIMEOUT, Sample

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own making, on import
    import kafka


class KafkaPythonPeer:
    """kafka-python."""

    name = "kafka-python"

    def takes(self, sample: Sample) -> bool:
        """It refuses a record with neither key nor value, and a header without a value."""
        if sample.key is None and sample.value is None:
            return False
        return all(value is not None for _, value in sample.headers)

    async def write(
        self, bootstrap: str, topic: str, samples: Sequence[Sample], codec: str
    ) -> None:
        """Write the samples with its default, idempotent producer."""
        await asyncio.to_thread(_write, bootstrap, topic, samples, codec)

    async def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sample]:
        """Read with a manual assignment."""
        return await asyncio.to_thread(_read, bootstrap, topic, partitions, count)


def _write(bootstrap: str, topic: str, samples: Sequence[Sample], codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
    )
    try:
        futures = [
            producer.send(
                topic,
                sample.value,
                key=sample.key,
                headers=list(sample.headers),
                partition=sample.partition,
                timestamp_ms=sample.timestamp,
            )
            for sample in samples
        ]
        for future in futures:
            future.get(timeout=TIMEOUT)
    finally:
        producer.close(timeout=TIMEOUT)


def _read(bootstrap: str, topic: str, partitions: int, count: int) -> list[Sample]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    found: list[Sample] = []
    deadline = time.monotonic() + TIMEOUT
    try:
        assigned = [kafka.TopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(assigned)
        for partition in assigned:
            consumer.seek(partition, 0)
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(
                    Sample(r.partition, r.key, r.value, tuple(map(tuple, r.headers)), r.timestamp)
                    for r in records
                )
    finally:
        consumer.close()
    return found
