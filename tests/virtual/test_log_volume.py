"""A long outage leaves few lines in the log, and its end leaves one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

import kclient
from kclient.errors import FlushFailed, KafkaError
from kclient.testing import Cluster, MemoryNet

ADDRESSES = tuple(f"broker-{number}:9092" for number in (1, 2, 3))


def net() -> MemoryNet:
    loop: Any = asyncio.get_running_loop()
    found: MemoryNet = loop.network
    return found


def lines(caplog: pytest.LogCaptureFixture, level: int, words: str) -> list[str]:
    found = (r for r in caplog.records if r.name == "kclient.network" and r.levelno == level)
    return [text for r in found if words in (text := r.getMessage())]


async def use(producer: Any, consumer: Any) -> None:
    while True:
        producer.send("t", b"v")
        with contextlib.suppress(KafkaError):
            await consumer.poll(timeout=1.0)
        await asyncio.sleep(0.1)  # else a time without trouble is tens of thousands of records


@pytest.mark.parametrize("how", ["refuse", "blackhole"])
async def test_ten_minutes_without_any_broker_are_logged_in_few_lines(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kclient")
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=6, replication_factor=3)
        consumer = kclient.Consumer(cluster.bootstrap, "t", auto_offset_reset="earliest")
        producer = kclient.Producer(cluster.bootstrap)
        await producer.start()
        async with consumer:
            using = asyncio.create_task(use(producer, consumer))
            await asyncio.sleep(5.0)
            for address in ADDRESSES:
                getattr(net(), how)(address)
            net().cut()
            caplog.clear()
            await asyncio.sleep(600.0)
            reported = lines(caplog, logging.WARNING, "")
            for address in ADDRESSES:  # of two clients
                assert 2 <= len([line for line in reported if address in line]) <= 16
            assert lines(caplog, logging.WARNING, "can't connect node=")
            assert not lines(caplog, logging.INFO, "usable again")

            net().heal()
            caplog.clear()
            await asyncio.sleep(30.0)
            assert lines(caplog, logging.WARNING, "") == []
            again = lines(caplog, logging.INFO, "usable again")
            for address in ADDRESSES:
                assert 1 <= len([line for line in again if address in line]) <= 2
            using.cancel()
            await asyncio.wait([using])
        with contextlib.suppress(FlushFailed):
            await producer.close()


async def test_a_broker_that_comes_and_goes_is_logged_once_per_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kclient")
    async with Cluster(brokers=1) as cluster, kclient.Admin(cluster.bootstrap) as admin:
        for _ in range(100):
            await admin.describe_cluster()
            net().cut()
            await asyncio.sleep(1.0)
    assert 8 <= len(lines(caplog, logging.WARNING, "connection lost")) <= 12
    assert len(lines(caplog, logging.INFO, "usable again")) <= 12


async def test_a_new_outage_is_logged_at_once_however_long_the_last_one_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kclient")
    async with Cluster(brokers=1) as cluster:
        admin = kclient.Admin(cluster.bootstrap, api_timeout=5.0)
        async with admin:
            for _ in range(2):
                caplog.clear()
                net().refuse("broker-1")
                net().cut()
                await asyncio.sleep(1.0)
                assert len(lines(caplog, logging.WARNING, "connection lost")) == 1
                with contextlib.suppress(KafkaError):
                    await admin.describe_cluster()
                await asyncio.sleep(300.0)
                net().heal()
                await asyncio.sleep(2.0)
                await admin.describe_cluster()
                await asyncio.sleep(15.0)
