"""Metadata of very many partitions doesn't hold the event loop for long.

See ``tests.support.holds`` for how. The pure build does a tenth of the work.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow  # noqa: F401 - loaded before a probe looks
import pytest

import kclient
from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kclient.testing import Cluster, LoopProbe
from tests.support.holds import held, run_held, scaled


class CannedMetadata(MetadataResponse):
    """A response that is encoded already: the embedded broker runs on the probed loop."""

    data = b""

    def encode_into(self, out: bytearray, version: int) -> None:
        out += self.data


def metadata_of(topics: list[str], partitions: int, bootstrap: str) -> MetadataResponse:
    host, _, port = bootstrap.rpartition(":")
    canned = CannedMetadata()
    canned.data = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host=host, port=int(port))],
        cluster_id="big",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=number.to_bytes(16, "big"),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for index in range(partitions)
                ],
            )
            for number, name in enumerate(topics, 1)
        ],
    ).encode(MetadataResponse.MAX_VERSION)
    return canned


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_metadata_of_a_hundred_thousand_partitions(kind: str) -> None:
    topics = [f"topic-{number:05}" for number in range(scaled(10_000))]

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            canned = metadata_of(topics, 10, cluster.bootstrap)
            make: Any = kclient.Producer if kind == "producer" else kclient.Consumer
            async with make(cluster.bootstrap, metadata_max_age=0.3) as client:
                cluster.faults.rewrite("Metadata", lambda request, answer: canned, times=None)
                with LoopProbe() as probe:
                    tasks = [asyncio.create_task(client.partitions_for(name)) for name in topics]
                    for task in tasks:
                        assert len(await task) == 10
                    await cluster.requests.wait_count(
                        "Metadata", cluster.requests.count("Metadata") + 3
                    )
                held(probe)

    run_held(main)
