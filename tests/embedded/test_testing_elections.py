"""ElectLeaders of all partitions, which `tests/conformance` can't send to its shared broker."""

from __future__ import annotations

from typing import Any

from kclient.protocol.messages.elect_leaders import ElectLeadersRequest
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer

PREFERRED = 0


async def test_of_all_partitions_only_the_elected_are_reported() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2], [2, 1]])
        cluster.create_topic("u", partitions=1)
        cluster.move_leader("t", 1, 1)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            answer: Any = await peer.call(ElectLeadersRequest(PREFERRED, None, 5000), 2)
    reported = {
        topic.topic: [(one.partition_id, one.error_code) for one in topic.partition_result]
        for topic in answer.replica_election_results
    }
    assert (answer.error_code, reported) == (0, {"t": [(1, 0)], "u": []})
