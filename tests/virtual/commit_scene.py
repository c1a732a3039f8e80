"""A cluster in virtual time, and the inside of one consumer that commits to it by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kclient.cluster.coordinator import Coordinator
from kclient.cluster.core import ClientCore
from kclient.config import ConsumerConfig
from kclient.consumer.commits import Commits
from kclient.errors import KafkaError
from kclient.group.member import OUTSIDE, Generation
from kclient.group.offsets import GroupOffsets
from kclient.testing import Cluster
from kclient.types import OffsetAndMetadata, TopicPartition

P0, P1, P2 = (TopicPartition("flights", index) for index in range(3))
COMMIT, FETCH = "OffsetCommit", "OffsetFetch"
STRANGER = Generation(3, "nobody-knows-me")


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, None, metadata)


class Scene:
    """A cluster, and the inside of one consumer of group ``g`` that has all partitions."""

    def __init__(self, cluster: Cluster, core: ClientCore) -> None:
        self.cluster = cluster
        self.core = core
        self.coordinator = Coordinator(core, "g")
        self.offsets = GroupOffsets(core, self.coordinator)
        self.generation: Generation | None = OUTSIDE
        self.lost: set[TopicPartition] = set()
        self.refusals: list[tuple[KafkaError, Generation]] = []
        self.commits = Commits(
            core,
            self.offsets,
            lambda: self.generation,
            lambda partition: partition not in self.lost,
            lambda error, generation: self.refusals.append((error, generation)),
        )

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float | None = None,
        *,
        at_least: bool = False,
    ) -> None:
        """Commit, and wait for the outcome."""
        await self.commits.submit(offsets, timeout, at_least=at_least)

    def now(self, later: float = 0.0) -> float:
        return self.core.clock.now() + later

    async def committed(self, *partitions: TopicPartition) -> list[int | None]:
        """The offsets that the cluster has, read by another path than the commits."""
        found = await self.offsets.fetch(partitions or [P0])
        result = []
        for answer in found.values():
            assert not isinstance(answer, KafkaError), answer
            result.append(None if answer is None else answer.offset)
        return result


@asynccontextmanager
async def scene(brokers: int = 3, *, known: bool = True, **settings: Any) -> AsyncIterator[Scene]:
    """A cluster with topic ``flights``, whose id the client knows or not."""
    async with Cluster(brokers=brokers) as cluster:
        cluster.create_topic("flights", partitions=3)
        settings["bootstrap"] = cluster.bootstrap
        core = ClientCore(ConsumerConfig(**settings))
        await core.start()
        try:
            if known:
                await core.metadata.wait_for_topic("flights", 5.0)
            yield Scene(cluster, core)
        finally:
            await core.close()
