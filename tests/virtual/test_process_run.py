"""``kclient.process`` copies each record exactly once, whatever breaks."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, run_virtually
from tests.virtual.group_run import run, run_many
from tests.virtual.process_run import ProcessScene

SEEDS, FEWEST = 200, 30
OFTEN = 200
"""Each kind of operation must have come more often than this."""


def test_process_copies_each_record_once_whatever_breaks() -> None:
    totals = run_many(1000, 2, 150, scene=ProcessScene)
    assert not totals.failures, "\n".join(totals.failures)
    assert totals.operations == 2 * 150


def test_a_seed_gives_the_same_run_every_time() -> None:
    one, other = (run(7, 100, trace=True, scene=ProcessScene) for _ in range(2))
    assert one.trace == other.trace
    assert one.counts == other.counts


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_hundred_runs_of_process_copy_each_record_once(
    capsys: pytest.CaptureFixture[str], fewer_seeds: int
) -> None:
    seeds = max(SEEDS // fewer_seeds, FEWEST)
    totals = run_many(0, seeds, scene=ProcessScene)
    with capsys.disabled():
        sys.stdout.write(f"\n{totals}\n")
    assert not totals.failures, "\n".join(totals.failures)
    often = OFTEN * seeds // SEEDS
    for name, count in totals.counts.items():
        rare = name.startswith("ended by") or name == "longest settling, ms"
        assert rare or count > often, name


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("awaits", [True, False])
def test_a_fenced_process_says_so_also_where_the_handler_awaits_deliveries(
    version: int, awaits: bool
) -> None:
    async def main() -> None:
        async with Cluster(transaction_version=version) as cluster:
            for topic in ("source", "copies"):
                cluster.create_topic(topic)
            async with kclient.Producer(cluster.bootstrap) as producer:
                await producer.send("source", b"one")

            async def handle(record: Any, txn: Any) -> None:
                async with kclient.Producer(cluster.bootstrap, transactional_id="x"):
                    delivery = txn.send("copies", record.value)
                    if awaits:
                        await delivery

            async with (
                kclient.Consumer(
                    cluster.bootstrap,
                    "source",
                    group="g",
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                ) as consumer,
                kclient.Producer(cluster.bootstrap, transactional_id="x") as producer,
            ):
                with pytest.raises(kclient.ProducerFenced):
                    await kclient.process(consumer, producer, handle)

    run_virtually(main(), limit=300.0)
