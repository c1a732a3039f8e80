"""Throttling on whole clients: the throttle time delays a client, and never stalls it."""

from __future__ import annotations

import asyncio

import kclient
from kclient.testing import Cluster

PATIENCE = 8.0
"""Seconds; a stall would last for the handshake's 10 s or a request's 30 s."""


async def test_a_throttled_handshake_delays_and_does_not_stall() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.faults.throttle("ApiVersions", 0.05, times=None)
        async with asyncio.timeout(PATIENCE), kclient.Producer(cluster.bootstrap) as producer:
            assert (await producer.send("t", b"x")).offset == 0
