"""Bugs of clients in groups are found, and a stalled consumer reports it: with planted bugs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kclient.errors import ConsumerStalled
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import fill
from tests.virtual.group_run import run
from tests.virtual.group_scene import COOPERATIVE, Reader, settled
from tests.virtual.planted_in_groups import BUGS, STALLS

SEEDS = 50
"""How many seeds a bug may go unseen."""
PATIENCE = 2.1
"""Seconds of ``fetch_max_wait`` and ``request_timeout`` below."""
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_of_a_client_in_a_group_is_found(plant: Plant) -> None:
    for seed in range(SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            broken = run(seed)
        if broken.failures:
            sound = run(seed)
            assert not sound.failures, sound.describe()
            return
    pytest.fail(f"{SEEDS} seeds, and nothing was found")


async def stalls_of(strategy: str) -> list[ConsumerStalled]:
    """The stalls that two readers of four partitions report in six times the patience."""
    async with Cluster(brokers=3) as cluster:
        fill(cluster, 20, 4)
        readers = [
            Reader(cluster, partition_assignment_strategy=strategy, request_timeout=PATIENCE - 0.1)
            for _ in range(2)
        ]
        for reader in readers:
            await reader.start()
        await settled(*readers)
        await asyncio.sleep(6 * PATIENCE)
        for reader in readers:
            await reader.stop()
        read = [(part, len(seen)) for reader in readers for part, seen in reader.offsets.items()]
        assert sum(count for part, count in read if part.partition != 1) >= 60
        errors = [error for reader in readers for error in reader.errors]
        assert all(isinstance(error, ConsumerStalled) for error in errors), errors
        return [error for error in errors if isinstance(error, ConsumerStalled)]


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
@pytest.mark.parametrize("plant", STALLS, ids=lambda plant: plant.__name__)
def test_a_stalled_consumer_reports_it(plant: Plant, strategy: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        reported = run_virtually(stalls_of(strategy), limit=300.0)
    assert len(reported) >= 3
    assert {error.topic_partition.partition for error in reported if error.topic_partition} == {1}


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_no_stall_is_reported_where_there_is_none(strategy: str) -> None:
    assert run_virtually(stalls_of(strategy), limit=300.0) == []
