"""A service tested on a cluster in the test's own loop: ``pytest examples/test_service.py``.

The fixture comes with kclient's pytest plugin, and pytest-asyncio runs the tests. Nothing is
installed or started beside them: the brokers are in this process, fresh for each test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kclient import Consumer, Producer
from kclient.testing import Cluster, ErrorCode

pytestmark = pytest.mark.asyncio


async def warn(bootstrap: str) -> None:
    """The service under test: readings above 80 degrees go to another topic."""
    async with (
        Producer(bootstrap) as producer,
        Consumer(bootstrap, "readings", auto_offset_reset="earliest") as consumer,
    ):
        async for record in consumer:
            if float(record.value or b"0") > 80:
                await producer.send("warnings", record.value, key=record.key)


@asynccontextmanager
async def running_service(cluster: Cluster) -> AsyncIterator[None]:
    cluster.create_topic("readings", partitions=3)
    cluster.create_topic("warnings")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        service = group.create_task(warn(cluster.bootstrap))
        yield
        service.cancel()


async def warnings_of(bootstrap: str, *readings: bytes) -> list[bytes]:
    """Send readings of one pump, the last of them a hot one; returns what is warned of."""
    async with Producer(bootstrap) as producer:
        for reading in readings:
            await producer.send("readings", reading, key=b"pump-7")
    found: list[bytes] = []
    async with Consumer(bootstrap, "warnings", auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            found.append(record.value or b"")
            if record.value == readings[-1]:
                break
    return found


async def test_only_hot_readings_are_warned_of(kafka_cluster: Cluster) -> None:
    async with running_service(kafka_cluster):
        found = await warnings_of(kafka_cluster.bootstrap, b"79.9", b"81.5", b"20", b"99")
    assert found == [b"81.5", b"99"]


async def test_a_warning_outlives_the_leader_of_its_topic(kafka_cluster: Cluster) -> None:
    async with running_service(kafka_cluster):
        await kafka_cluster.crash(kafka_cluster.leader("warnings"))
        assert await warnings_of(kafka_cluster.bootstrap, b"90") == [b"90"]


async def test_what_brokers_get_wrong_makes_no_second_warning(kafka_cluster: Cluster) -> None:
    faults = kafka_cluster.faults
    lost = faults.lose_answers("Produce", topic="warnings")  # written, but not acknowledged
    faults.error("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="readings")
    async with running_service(kafka_cluster):
        assert await warnings_of(kafka_cluster.bootstrap, b"90", b"91") == [b"90", b"91"]
    assert lost.hits == 1
