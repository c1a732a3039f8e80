"""Calls of a member that are cut short after a moment, thousands of times, amid rebalances.

As ``test_consumer_cut_short`` without a group. Nothing is left out and nothing comes twice: what
was handed over before a rebalance is committed before it, whatever was cut short.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import kclient
from kclient.errors import KafkaError
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import Ledger, P, T, fill, lead
from tests.virtual.cut_short import PARTITIONS, SHORT, feed, finish
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS

TIMES = 5_000
TROUBLES = 100
"""Calls between two rebalances, moves of the coordinator or of a leader, on average."""


async def make_trouble(cluster: Cluster, consumer: Any, rng: random.Random) -> None:
    """Something that a member must live through."""
    match rng.randrange(4):
        case 0:
            consumer.rejoin("for the test")
        case 1:
            cluster.move_coordinator(GROUP, rng.randrange(3) + 1)
        case 2:
            lead(cluster, rng.randrange(PARTITIONS), rng.randrange(3) + 1)
        case _:
            consumer.subscribe(T)


async def one_call(consumer: Any, records: Any, ledger: Ledger, rng: random.Random) -> None:
    """Any call, cut short after a few milliseconds."""
    timeout = rng.uniform(0, SHORT)
    match rng.randrange(8):
        case 0 | 1 | 2:
            poll = consumer.poll(rng.choice((1, 3, 100)), timeout=None)
            ledger.take(await asyncio.wait_for(poll, timeout))
        case 3 | 4 | 5:
            step = asyncio.ensure_future(anext(records))
            ledger.take([await asyncio.wait_for(step, timeout)])
        case 6:
            await asyncio.wait_for(consumer.commit(), timeout)
        case _:
            await asyncio.wait_for(consumer.committed([P]), timeout)


@pytest.mark.parametrize(
    ("strategy", "seed"),
    [
        ("range", 0),
        (COOPERATIVE, 1),
        pytest.param("range", 1, marks=pytest.mark.long),
        pytest.param(COOPERATIVE, 0, marks=pytest.mark.long),
    ],
)
def test_calls_of_a_member_that_are_cut_short_skip_and_repeat_nothing(
    seed: int, strategy: str
) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 0, PARTITIONS)
            settings: Any = {
                **SETTINGS,
                "partition_assignment_strategy": strategy,
                "auto_commit_interval": 0.05,
                "heartbeat_interval": 0.05,
            }
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **settings) as consumer:
                feeding = asyncio.ensure_future(feed(cluster, rng))
                ledger, cut, refused = Ledger(PARTITIONS), 0, 0
                records = aiter(consumer)
                for _ in range(TIMES):
                    try:
                        await one_call(consumer, records, ledger, rng)
                    except TimeoutError as error:
                        assert not isinstance(error, KafkaError)
                        cut += 1
                    except kclient.errors.CommitFailed:
                        refused += 1  # in the midst of a rebalance
                    if rng.random() < 1 / TROUBLES:
                        await make_trouble(cluster, consumer, rng)
                await finish(cluster, consumer, feeding, ledger)
                assert consumer.health().group.rebalances > 5
                assert consumer.metrics().get("consumer.partitions_lost", 0) == 0
            assert cut > 1_000
            assert refused < 100
            assert ledger.taken > TIMES // 2

    run_virtually(main(), seed=seed, limit=100_000.0)
