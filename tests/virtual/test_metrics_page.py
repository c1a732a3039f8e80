"""docs/metrics.md is what ``metrics()`` returns: the names of the code, and of each client."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster
from tests.support.contexts import running

ROOT = Path(kclient.__file__).parent
SECTIONS = (ROOT.parent / "docs" / "metrics.md").read_text().split("\n## ")[1:]
TABLES = [section for section in SECTIONS if not section.startswith("Health\n")]
PAGE = "\n".join(TABLES)
ROW = re.compile(r"^\| `([a-z_.]+)` \| (counter|gauge) \| (\w+) \| (\S.+\.) \|$", re.MULTILINE)
NAME = re.compile(r'"((?:calls|metadata|network|tasks|producer|consumer|group)\.[a-z_]+)"')
SETTINGS = {"group.id", "group.protocol", "producer.properties"}
"""Java's names of settings and their files, which have the same form."""

EVERYWHERE, PRODUCER, CONSUMER, GROUP = (
    {name: kind for name, kind, _, _ in ROW.findall(section)} for section in TABLES
)
ALL = {**EVERYWHERE, **PRODUCER, **CONSUMER, **GROUP}


def names_in_the_code() -> set[str]:
    texts = [
        path.read_text()
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ("protocol", "testing")
    ]
    return {name for text in texts for name in NAME.findall(text)} - SETTINGS


def test_the_page_has_each_name_of_the_code_and_no_other() -> None:
    assert set(ALL) == names_in_the_code()


def test_every_row_of_the_page_is_read_and_each_table_is_sorted() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROW.findall(PAGE)) == len(ALL)
    for table in (EVERYWHERE, PRODUCER, CONSUMER, GROUP):
        assert list(table) == sorted(table)


def check(metrics: dict[str, float], *tables: dict[str, str]) -> None:
    """All that is returned is in these tables, and all gauges of the tables are returned."""
    documented = {name: kind for table in tables for name, kind in table.items()}
    assert set(metrics) <= set(documented)
    assert {name for name, kind in documented.items() if kind == "gauge"} <= set(metrics)


async def test_each_client_returns_what_its_tables_have() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with running(cluster) as clients:
            cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS)
            cluster.faults.error("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            cluster.faults.error("Fetch", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            await clients.producer.send("t", b"v")
            assert len(await clients.consumer.poll(timeout=5.0)) == 1
            await clients.consumer.commit()
            with pytest.raises(kclient.UnknownTopicOrPartition):
                await clients.consumer.commit({kclient.TopicPartition("none", 0): 1})
            await clients.admin.list_topics()
            await clients.member.joined()
            check(clients.producer.metrics(), EVERYWHERE, PRODUCER)
            check(clients.consumer.metrics(), EVERYWHERE, CONSUMER, GROUP)
            check(clients.admin.metrics(), EVERYWHERE)
            check(clients.member.metrics(), EVERYWHERE, GROUP)


async def test_counters_have_the_values_that_the_page_states() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.create_topic("dead")
        async with kclient.Producer(cluster.bootstrap, linger=0.0) as producer:
            cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS)
            await asyncio.gather(*(producer.send("t", b"v") for _ in range(3)))
            cluster.faults.error("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            with pytest.raises(kclient.TopicAuthorizationFailed):
                await producer.send("t", b"v")
            counted = producer.metrics()
            assert counted["producer.records_delivered"] == 3
            assert counted["producer.records_failed"] == counted["producer.batches_failed"] == 1
            assert counted["producer.retries"] == 1
            assert counted["producer.requests"] == 3
            assert counted["producer.buffered_bytes"] == 0

            async def handle(record: Any) -> None:
                if record.offset == 1:
                    raise ValueError("no")

            async with kclient.Consumer(
                cluster.bootstrap, "t", group="g", auto_offset_reset="earliest"
            ) as consumer:
                run = asyncio.create_task(
                    consumer.run(handle, dead_letter_topic="dead", producer=producer)
                )
                await asyncio.sleep(60.0)
                counted = consumer.metrics()
                run.cancel()
            assert counted["consumer.records"] == 3
            assert counted["consumer.handled"] == 2
            assert counted["consumer.handler_failures"] == 5  # each attempt
            assert counted["consumer.sent_on"] == 1
            assert counted["consumer.partitions"] == counted["group.rebalances"] == 1
            assert counted["consumer.lag"] == 0
