"""Consumers in a group, on virtual time, beside what `tests/behaviours` shows on every broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader, settled


def test_an_eager_rebalance_revokes_all_and_a_cooperative_one_what_moves() -> None:
    async def main(strategy: str) -> tuple[list[list[int]], list[list[int]]]:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 4)
            first = await Reader(cluster, partition_assignment_strategy=strategy).start()
            await settled(first)
            second = await Reader(cluster, partition_assignment_strategy=strategy).start()
            await until(lambda: len(second.owned) == 2)
            await settled(first, second)
            reported = first.reported("revoked"), first.reported("assigned")
            await second.stop()
            await first.stop()
            return reported

    revoked, assigned = run_virtually(main("range"))
    assert revoked == [[0, 1, 2, 3]]
    assert assigned in ([[0, 1, 2, 3], [0, 1]], [[0, 1, 2, 3], [2, 3]])
    revoked, assigned = run_virtually(main(COOPERATIVE))
    assert len(revoked) == 1 and len(revoked[0]) == 2
    assert assigned[0] == [0, 1, 2, 3] and all(more == [] for more in assigned[1:])


def test_auto_commit_takes_only_what_an_earlier_call_handed_over() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            part = TopicPartition(T, 0)
            consumer = kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, **{**SETTINGS, "auto_commit_interval": 1.0}
            )
            await consumer.start()
            await consumer.poll(max_records=5, timeout=None)
            await consumer.poll(max_records=5, timeout=None)
            await asyncio.sleep(30.0)
            assert await consumer.committed([part]) == {part: None}
            await consumer.poll(max_records=5, timeout=None)
            await asyncio.sleep(0.5)
            assert (await consumer.committed([part]))[part].offset == 10
            await consumer.close()
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS) as again:
                [record] = await again.poll(max_records=1, timeout=None)
                assert record.offset == 10  # the last five were handed over, maybe not finished

    run_virtually(main())


def test_a_poll_that_waits_raises_at_once_what_a_callback_raised() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic(T, partitions=1)

            def assigned(partitions: Any) -> None:
                raise ZeroDivisionError("of the user")

            async with kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, on_assigned=assigned, **SETTINGS
            ) as consumer:
                begun = the_loop().time()
                with pytest.raises(ZeroDivisionError):
                    await consumer.poll(timeout=900.0)
                assert the_loop().time() - begun < 5.0

    run_virtually(main())
