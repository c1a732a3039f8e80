"""kclient itself, in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import kclient
from tests.interop.peers.sample import TIMEOUT, Sample


class KclientPeer:
    """kclient."""

    name = "kclient"

    def takes(self, _: Sample) -> bool:
        """It takes all that the protocol can express."""
        return True

    async def write(
        self, bootstrap: str, topic: str, samples: Sequence[Sample], codec: str
    ) -> None:
        """Write the samples with the default, idempotent producer."""
        async with kclient.Producer(bootstrap, compression=codec, linger=0.02) as producer:
            deliveries = [
                producer.send(
                    topic,
                    sample.value,
                    key=sample.key,
                    headers=sample.headers,
                    partition=sample.partition,
                    timestamp=sample.timestamp,
                )
                for sample in samples
            ]
            await asyncio.wait_for(asyncio.gather(*deliveries), TIMEOUT)

    async def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sample]:
        """Read with a manual assignment."""
        found: list[Sample] = []
        async with kclient.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([kclient.TopicPartition(topic, p) for p in range(partitions)])
            async with asyncio.timeout(TIMEOUT):
                while len(found) < count:
                    records = await consumer.poll(timeout=0.2)
                    found.extend(
                        Sample(r.partition, r.key, r.value, tuple(r.headers), r.timestamp)
                        for r in records
                    )
        return found
