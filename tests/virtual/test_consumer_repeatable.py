"""A consumer of many topics does the same by the same seed, however its process hashes texts.

Topics are assigned and unassigned, polls wait side by side, leaders move and connections break:
whatever order a set or an address would give to these must not show on the network. This module
prints the digest of such a run when it is called as a program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kclient.testing import Cluster, MemoryNet, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import reading, the_loop

ROOT = Path(__file__).parents[2]
PARTITIONS = [TopicPartition(f"topic-{n}", index) for n in range(8) for index in range(2)]


async def many_topics() -> int:
    """Some seconds in the life of a consumer; returns how many records it read."""
    rng, read = the_loop().rng, 0
    async with Cluster(brokers=3) as cluster:
        for topic in dict.fromkeys(partition.topic for partition in PARTITIONS):
            cluster.create_topic(topic, partitions=2)

        async def poll(consumer: Any) -> None:
            nonlocal read
            read += len(await consumer.poll(20, timeout=0.3))

        async with reading(cluster, *{one.topic for one in PARTITIONS[:1]}) as consumer:
            for _ in range(40):
                for topic, index in rng.sample(PARTITIONS, 5):
                    end = cluster.end_offset(topic, index)
                    cluster.append(topic, index, batch(end, 5))
                topic, index = rng.choice(PARTITIONS)
                broker = rng.randrange(3) + 1
                if rng.random() < 0.2:
                    consumer.assign(rng.sample(PARTITIONS, 9))
                elif rng.random() < 0.3:
                    the_loop().network.cut(cluster.brokers[broker].address)
                elif cluster.leader(topic, index) != broker:
                    cluster.move_leader(topic, index, broker)
                await asyncio.gather(*(poll(consumer) for _ in range(3)))
    return read


def run(seed: int) -> str:
    """How many records a run read, and a digest of all that passed on the network."""
    network = MemoryNet(seed=seed, split=0.05)
    return f"{run_virtually(many_topics(), seed=seed, network=network)} {network.digest()}"


def test_a_seed_gives_the_same_run_however_texts_are_hashed() -> None:
    reported = {
        subprocess.run(
            [sys.executable, "-m", "tests.virtual.test_consumer_repeatable"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in (1, 2, 3)
    }
    [only] = reported
    assert len(set(only.splitlines())) == 3
    assert all(int(line.split()[0]) > 100 for line in only.splitlines())


def main() -> None:
    """Print a few digests."""
    logging.disable()
    for seed in range(3):
        print(run(seed))  # noqa: T201


if __name__ == "__main__":
    main()
