"""No rebalance holds the event loop for long, and a block is logged; promises R19 and R20.

See ``tests.support.holds`` for how. The pure build does a tenth of the work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pyarrow  # noqa: F401 - loaded before a probe looks
import pytest

import kclient
from kclient.consumer import poller
from kclient.testing import Cluster, LoopProbe
from tests.support.holds import held, run_held, scaled
from tests.support.users_work import UsersWork
from tests.unit.consumer.log_bytes import batch

T = "flights"
PARTITIONS = 1000
SETTINGS: Any = {
    "group": "audit",
    "auto_offset_reset": "earliest",
    "fetch_max_wait": 0.1,
    "heartbeat_interval": 0.1,
    "auto_commit_interval": 0.2,
}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60.0):
        while not condition():  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.01)


async def poll_on(consumer: Any) -> None:
    while True:
        await consumer.poll(timeout=1.0)


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_a_thousand_partitions_come_go_and_come_again(strategy: str) -> None:
    """All of them are committed meanwhile."""
    count = scaled(PARTITIONS)

    def member(cluster: Cluster) -> Any:
        settings = SETTINGS | {"partition_assignment_strategy": strategy}
        return kclient.Consumer(cluster.bootstrap, T, **settings)

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=count)
            data = batch(0, 10, value_bytes=100)
            for index in range(count):
                cluster.append(T, index, data)
            first, second = member(cluster), member(cluster)
            with LoopProbe() as probe:
                await first.start()
                reading = asyncio.create_task(poll_on(first))
                await until(lambda: len(first.assignment) == count)
                await until(lambda: first.metrics().get("consumer.records") == 10 * count)
                await second.start()
                also = asyncio.create_task(poll_on(second))
                await until(lambda: len(first.assignment) == len(second.assignment) == count / 2)
                also.cancel()
                await second.close()
                await until(lambda: len(first.assignment) == count)
                reading.cancel()
                await first.commit()
                await first.unsubscribe()
                await first.close()
            held(probe)

    run_held(main)


def test_the_leader_of_a_hundred_members_assigns_a_thousand_partitions() -> None:
    members = scaled(100)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T, partitions=scaled(PARTITIONS))
            settings = SETTINGS | {"heartbeat_interval": 1.0, "fetch_max_wait": 5.0}
            consumers = [kclient.Consumer(cluster.bootstrap, T, **settings) for _ in range(members)]
            for consumer in consumers:
                await consumer.start()
            with LoopProbe() as probe:
                reading = [asyncio.create_task(poll_on(consumer)) for consumer in consumers]
                share = scaled(PARTITIONS) // members
                await until(lambda: all(len(one.assignment) == share for one in consumers))
            for task in reading:
                task.cancel()
            for consumer in consumers:
                await consumer.close()
            held(probe)

    run_held(main)


def test_a_loop_over_records_of_a_member_lets_others_run_every_few_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heartbeats and commits run too, however long the application takes for each record."""
    work = UsersWork()
    monkeypatch.setattr("kclient.consumer.poller.monotonic", work.clock)

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T)
            data = batch(0, 500, value_bytes=100)
            for _ in range(10):
                cluster.append(T, 0, data)
            async with kclient.Consumer(cluster.bootstrap, T, **SETTINGS) as consumer:
                await consumer.poll(max_records=1, timeout=30.0)
                others = asyncio.create_task(work.watch())
                count = 0
                async for _ in consumer:
                    work.do()
                    count += 1
                    if count == 3000:
                        break
                others.cancel()
            assert work.now > 0.8
            assert work.longest() < poller.TURN + 2 * work.RECORD

    run_held(main)


async def test_user_code_that_blocks_the_loop_is_logged_and_costs_one_membership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is lost once; the consumer calls ``on_lost``, rejoins by itself, and reads on."""
    reported: list[str] = []
    caplog.set_level(logging.WARNING, "kclient")
    short = {"group.min.session.timeout.ms": 500}
    async with Cluster(brokers=1, broker_configs=short) as cluster:
        cluster.create_topic(T, partitions=2)
        for index in range(2):
            cluster.append(T, index, batch(0, 10))
        settings = SETTINGS | {"session_timeout": 1.0}
        async with kclient.Consumer(
            cluster.bootstrap,
            T,
            on_assigned=lambda _: reported.append("assigned"),
            on_lost=lambda _: reported.append("lost"),
            **settings,
        ) as consumer:
            while consumer.metrics().get("consumer.records") != 20:
                await consumer.poll(timeout=1.0)
            time.sleep(2.5)  # noqa: ASYNC251 - the block under test
            async with asyncio.timeout(30.0):
                while reported != ["assigned", "lost", "assigned"]:
                    await consumer.poll(timeout=0.1)
            cluster.append(T, 0, batch(10, 1))
            async with asyncio.timeout(30.0):
                # What was not committed before is read again, maybe in the same poll.
                while 10 not in [one.offset for one in await consumer.poll(timeout=1.0)]:
                    pass
            health = consumer.health().group
            assert health is not None
            assert health.joined
            assert health.late_heartbeats >= 1
            assert health.longest_block >= 2.0
            assert reported == ["assigned", "lost", "assigned"]
    [warning] = [one.message for one in caplog.records if "event loop was blocked" in one.message]
    assert "session_timeout=1.0 s" in warning
    assert "heartbeat of group audit is 2." in warning


@pytest.mark.parametrize("way", ["poll", "async for"])
async def test_code_that_blocks_the_loop_again_and_again_keeps_its_membership(way: str) -> None:
    """Each block is shorter than half of the session timeout."""
    configs = {"group.min.session.timeout.ms": 500, "group.initial.rebalance.delay.ms": 0}
    async with Cluster(brokers=1, broker_configs=configs) as cluster:
        cluster.create_topic("t", partitions=1)
        async with kclient.Producer(cluster.bootstrap) as producer:
            await producer.send_many("t", [b"v"] * 50)
        lost: list[object] = []
        async with kclient.Consumer(
            cluster.bootstrap,
            "t",
            group="g",
            auto_offset_reset="earliest",
            session_timeout=2.5,
            heartbeat_interval=0.6,
            on_lost=lost.append,
        ) as consumer:
            blocks = 0
            while blocks < 6:
                if way == "poll":
                    if await consumer.poll(max_records=1, timeout=1.0):
                        time.sleep(1.0)  # noqa: ASYNC251 - the block under test
                        blocks += 1
                    continue
                async for _ in consumer:
                    time.sleep(1.0)  # noqa: ASYNC251 - the block under test
                    blocks += 1
                    if blocks == 6:
                        break
        assert lost == []
