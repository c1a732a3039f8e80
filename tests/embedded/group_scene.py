"""A cluster of three with connections to its brokers, for tests of the group coordinator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.testing import Cluster
from kclient.testing.broker import Broker
from kclient.testing.internal_topic import partition_of
from tests.unit.testing.group_calls import (
    join,
    sync,
)
from tests.unit.testing.raw_peer import RawPeer


class Scene:
    """A cluster of three and one connection to each broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._peers: list[RawPeer] = []

    async def peer(self, broker: int | None = None) -> RawPeer:
        """Open a connection; to the coordinator of g by default."""
        node_id = self.coordinator() if broker is None else broker
        peer = RawPeer.to(self.cluster.brokers[node_id].address)
        self._peers.append(peer)
        return await peer.__aenter__()

    async def close(self) -> None:
        for peer in self._peers:
            await peer.__aexit__()

    def coordinator(self, group: str = "g") -> int:
        up = next(one for one in self.cluster.brokers.values() if one.running)
        found = up.groups.find(group)
        assert found is not None
        return found.node_id

    @property
    def partition(self) -> int:
        return partition_of("g", 50)

    def broker(self) -> Broker:
        """The broker that coordinates g."""
        return self.cluster.brokers[self.coordinator()]

    async def members(self, count: int) -> None:
        """Wait until group g has ``count`` members."""
        group = self.broker().groups.shard("g").groups["g"]
        while len(group.members) != count:  # noqa: ASYNC110 - a group has no event for it
            await asyncio.sleep(0)

    async def alone(self, peer: RawPeer, group: str = "g", **options: Any) -> tuple[str, int]:
        """Make a group of one member; return its member id and generation."""
        asked = await peer.call(join(group, **options), 9)
        joined = await peer.call(join(group, asked.member_id, **options), 9)
        given = {joined.member_id: b"all"}
        assigned = await peer.call(sync(group, joined.generation_id, joined.member_id, **given), 5)
        assert assigned.assignment == b"all"
        return joined.member_id, joined.generation_id


@contextlib.asynccontextmanager
async def group_scene() -> AsyncIterator[Scene]:
    """A cluster with a topic t and no group."""
    async with asyncio.timeout(60), Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=2)
        one = Scene(cluster)
        try:
            yield one
        finally:
            await one.close()


def code_of(response: Any) -> ErrorCode:
    """The first error code in a response, at whichever level."""
    for name in ("topics", "groups", "results", "coordinators"):
        for part in getattr(response, name, None) or ():
            inner = getattr(part, "partitions", None)
            if isinstance(inner, list):
                return ErrorCode(inner[0].error_code) if inner else code_of(part)
            return ErrorCode(part.error_code)
    return ErrorCode(response.error_code)
