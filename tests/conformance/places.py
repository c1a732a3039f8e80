"""The two sides of a comparison: the embedded cluster, and real brokers of Apache Kafka.

`conftest.py` and the command line create them. Both must be configured alike: the embedded
cluster gets the settings of the real brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from kclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.testing import Cluster
from tests.support import tls
from tests.support.broker_settings import Ports, write_settings
from tests.support.class_path import parse_version
from tests.support.node_settings import IDS, write_node_settings
from tests.support.nodes import Nodes
from tests.unit.testing.raw_peer import RawPeer

RELEASE = "4.3.0"
_KAFKAS_OWN = {"fetch.max.bytes": 55 << 20}
"""Where the embedded cluster's default is another than Kafka's."""


OF_THREE = {"group.max.size": 4, "broker.session.timeout.ms": 4000}
"""Settings of the three nodes, which no other suite uses: some scenarios play while a node is
silent, before its session expires."""
_OF_A_NODE = {
    "node.id",
    "broker.rack",
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
}


_PATIENCE = 30.0
_METADATA = "__cluster_metadata"
_QUORUM_VERSION = 2


class Place(Protocol):
    """Where a scenario runs."""

    kind: str
    """The side's name in reports."""
    ids: tuple[int, ...]
    """The node ids of its brokers."""

    def address(self, node: int) -> tuple[str, int]:
        """Host and port of a broker."""

    async def stop(self, node: int) -> None:
        """Shut a broker down in order."""

    async def crash(self, node: int) -> None:
        """Crash a broker."""

    async def restart(self, node: int) -> None:
        """Restart a broker that is down; returns when it responds."""

    async def pause(self, node: int) -> None:
        """Cut a running broker off from the others; whether it responds to clients is undefined."""

    async def resume(self, node: int) -> None:
        """End a pause."""


class Embedded:
    """The embedded cluster."""

    kind = "embedded"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ids = tuple(cluster.brokers)

    def address(self, node: int) -> tuple[str, int]:
        host, _, port = self._cluster.brokers[node].address.rpartition(":")
        return host, int(port)

    async def stop(self, node: int) -> None:
        await self._cluster.stop(node)

    async def crash(self, node: int) -> None:
        await self._cluster.crash(node)

    async def restart(self, node: int) -> None:
        await self._cluster.restart(node)

    async def pause(self, node: int) -> None:
        self._cluster.isolate(node)

    async def resume(self, node: int) -> None:
        self._cluster.reconnect(node)


class OneNode:
    """The real broker that test sessions share; it is never stopped by a scenario."""

    kind = "kafka"
    ids = (1,)

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)

    def address(self, node: int) -> tuple[str, int]:
        if node != 1:
            raise ValueError(f"there is no broker {node}: this is a scenario of one")
        return self._address

    async def stop(self, node: int) -> None:
        raise NotImplementedError(f"broker {node} is shared: a scenario with nodes=3 may stop its")

    crash = restart = pause = resume = stop


def one_node(bootstrap: str) -> OneNode:
    """The shared broker, once its controller has given it producer ids."""

    async def has_ids() -> None:
        async with asyncio.timeout(_PATIENCE), RawPeer.to(bootstrap) as peer:
            while (await peer.call(InitProducerIdRequest(None, 60_000), 4)).error_code:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.05)

    asyncio.run(has_ids())
    return OneNode(bootstrap)


class ThreeNodes:
    """Three real nodes of our own."""

    kind = "kafka"

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._paused: set[int] = set()
        self.ids = nodes.ids

    def address(self, node: int) -> tuple[str, int]:
        return self._nodes.address(node)

    async def stop(self, node: int) -> None:
        await asyncio.to_thread(self._nodes.stop, node)

    async def crash(self, node: int) -> None:
        await asyncio.to_thread(self._nodes.kill, node)

    async def restart(self, node: int) -> None:
        await asyncio.to_thread(self._nodes.restart, node)

    async def pause(self, node: int) -> None:
        """Pause it once it isn't the controller, for which others would wait for half a minute."""
        while await self._controller() == node:
            await self.stop(node)
            await self.restart(node)
            await asyncio.to_thread(self._nodes.wait_full_isr)
        self._nodes.pause(node)
        self._paused.add(node)

    async def _controller(self) -> int:
        asked = DescribeQuorumRequest([RequestTopicData(_METADATA, [RequestPartitionData(0)])])
        async with RawPeer(*self.address(IDS[0])) as peer:
            found = await peer.call(asked, _QUORUM_VERSION)
        return int(found.topics[0].partitions[0].leader_id)

    async def resume(self, node: int) -> None:
        self._nodes.resume(node)
        self._paused.discard(node)

    async def heal(self) -> None:
        """Restart and resume what a scenario left down or silent; wait until all are in sync."""
        for node in tuple(self._paused):
            await self.resume(node)
        for node in IDS:
            if not self._nodes.alive(node):
                await self.restart(node)
        await asyncio.to_thread(self._nodes.wait_full_isr)


@contextlib.asynccontextmanager
async def embedded(nodes: int, seed: int = 0) -> AsyncIterator[Embedded]:
    """An embedded cluster with the settings of the real brokers, for the time of the context."""
    racks = [f"rack-{node}" for node in IDS] if nodes > 1 else None
    settings = _settings(nodes)
    async with Cluster(nodes, racks=racks, seed=seed, broker_configs=settings) as cluster:
        yield Embedded(cluster)


def _settings(nodes: int) -> dict[str, object]:
    """The settings of the real brokers, without those that each node has of its own."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if nodes == 1:
            write_settings(directory, parse_version(RELEASE), Ports(0, 0, 0), tls.keystore())
        else:
            write_node_settings(directory, IDS[0], dict.fromkeys(IDS, (0, 0, 0)), OF_THREE)
        lines = (directory / "server.properties").read_text().splitlines()
    settings: dict[str, object] = dict(line.split("=", 1) for line in lines)
    return {
        **{name: value for name, value in settings.items() if name not in _OF_A_NODE},
        **_KAFKAS_OWN,
    }
