"""``ConsistentRandom`` and librdkafka itself send the same keys to the same partitions."""

from __future__ import annotations

import asyncio
import random

import confluent_kafka
import pytest

import kclient
from kclient.partitioners import ConsistentRandom
from kclient.testing import Cluster

RNG = random.Random(7)
KEYS = [RNG.randbytes(RNG.choice([1, 2, 3, 7, 16, 100])) for _ in range(80)]
KEYS += [b"\x00", b"\xff" * 9, "Schlüssel".encode()]
EMPTY = 600
"""Enough that a random choice leaves no partition out (a chance of 1e-20 at 12)."""


def write_all(bootstrap: str, topic: str) -> None:
    """Write each key, and records without one, with librdkafka."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "sticky.partitioning.linger.ms": 0}
    )
    for key in [*KEYS, *[None] * EMPTY, *[b""] * EMPTY]:
        producer.produce(topic, b"v", key)
    assert producer.flush(30) == 0


def found(cluster: Cluster, topic: str, partitions: int) -> dict[bytes | None, set[int]]:
    """The partitions that have records of each key."""
    places: dict[bytes | None, set[int]] = {}
    for partition in range(partitions):
        for record in cluster.records(topic, partition):
            places.setdefault(record.key, set()).add(partition)
    return places


@pytest.mark.parametrize("partitions", [1, 7, 12])
async def test_keys_go_where_librdkafka_sends_them(partitions: int) -> None:
    async with Cluster(brokers=1) as cluster:
        for topic in ("ours", "theirs"):
            cluster.create_topic(topic, partitions=partitions)
        await asyncio.to_thread(write_all, cluster.bootstrap, "theirs")
        partitioner = ConsistentRandom(random.Random(1))
        async with kclient.Producer(cluster.bootstrap, partitioner=partitioner) as producer:
            for key in [*KEYS, *[None] * EMPTY, *[b""] * EMPTY]:
                producer.send("ours", b"v", key=key)
            await producer.flush()
        ours, theirs = (found(cluster, topic, partitions) for topic in ("ours", "theirs"))
        assert {key: ours[key] for key in KEYS} == {key: theirs[key] for key in KEYS}
        for key in (None, b""):  # not hashed: spread over the topic, record by record
            assert len(ours[key]) == len(theirs[key]) == partitions
