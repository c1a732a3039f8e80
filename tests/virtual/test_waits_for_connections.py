"""A request that waits for its connection still has its full time for the response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.errors import RequestTimedOut
from kclient.testing import Cluster, MemoryNet


def net() -> MemoryNet:
    loop: Any = asyncio.get_running_loop()
    found: MemoryNet = loop.network
    return found


async def ask_slowly(cluster: Cluster, admin: kclient.Admin) -> asyncio.Task[Any]:
    """A call whose request waits 8 s for a connection; its response takes 5 s more."""
    await admin.describe_cluster()
    net().blackhole("broker-1")
    net().cut("broker-1")
    await asyncio.sleep(2.0)
    asking = asyncio.create_task(admin.describe_cluster())
    await asyncio.sleep(8.0)
    cluster.faults.delay("DescribeCluster", 5.0)
    net().heal("broker-1")
    return asking


async def test_the_time_for_the_response_begins_when_the_request_is_written() -> None:
    async with (
        Cluster(brokers=1) as cluster,
        kclient.Admin(cluster.bootstrap, request_timeout=10.0) as admin,
    ):
        asking = await ask_slowly(cluster, admin)
        closed = admin.metrics()["network.connections_closed"]
        assert (await asking).brokers
        assert admin.metrics()["network.connections_closed"] == closed
        assert admin.metrics().get("calls.retries", 0) == 0


async def test_a_call_that_is_out_of_time_leaves_the_connection_alone() -> None:
    async with (
        Cluster(brokers=1) as cluster,
        kclient.Admin(cluster.bootstrap, request_timeout=10.0, api_timeout=10.5) as admin,
    ):
        asking = await ask_slowly(cluster, admin)
        closed = admin.metrics()["network.connections_closed"]
        with pytest.raises(RequestTimedOut, match=r"s for a connection, and .* s for the answer"):
            await asking
        assert (await admin.describe_cluster()).brokers  # behind the response that came too late
        assert admin.metrics()["network.connections_closed"] == closed
