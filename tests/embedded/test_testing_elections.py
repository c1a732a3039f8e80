"""ElectLeaders on the embedded cluster: what Apache Kafka 4.3.0 answers, and who leads then."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer

PREFERRED, UNCLEAN = 0, 1
NEEDLESS = ErrorCode.ELECTION_NOT_NEEDED

Told = dict[str, list[tuple[int, int]]]


async def asked(
    cluster: Cluster, kind: int, topics: dict[str, list[int]] | None, version: int = 2
) -> tuple[int, Told]:
    """The code for the whole request, and what is told of each partition."""
    wanted = None if topics is None else [TopicPartitions(*one) for one in topics.items()]
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        answer: Any = await peer.call(ElectLeadersRequest(kind, wanted, 5000), version)
    return answer.error_code, {
        topic.topic: [(one.partition_id, one.error_code) for one in topic.partition_result]
        for topic in answer.replica_election_results
    }


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_leaders_that_are_preferred_already_and_unknown_partitions(version: int) -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=2)
        code, told = await asked(cluster, PREFERRED, {"t": [7, 1, 1], "no": [0]}, version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code == 0
    assert told == {
        "t": [(7, unknown), (1, NEEDLESS), (1, NEEDLESS)],
        "no": [(0, unknown)],
    }


async def test_the_preferred_leader_leads_again() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2], [2, 1]])
        cluster.move_leader("t", 0, 2)
        assert await asked(cluster, PREFERRED, {"t": [0]}) == (0, {"t": [(0, 0)]})
        assert await asked(cluster, PREFERRED, {"t": [0]}) == (0, {"t": [(0, NEEDLESS)]})


async def test_of_all_partitions_only_those_are_told_that_were_elected() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2], [2, 1]])
        cluster.create_topic("u", partitions=1)
        cluster.move_leader("t", 1, 1)
        assert await asked(cluster, PREFERRED, None) == (0, {"t": [(1, 0)], "u": []})


async def test_a_preferred_leader_that_is_away_and_nobody_who_could_lead() -> None:
    config = {"unclean.leader.election.enable": "false"}
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[2, 1]], configs=config)
        cluster.create_topic("u", assignments=[[2]], configs=config)
        await cluster.stop(2)
        away = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert (await asked(cluster, PREFERRED, {"t": [0]}))[1] == {"t": [(0, away)]}
        assert (await asked(cluster, UNCLEAN, {"t": [0]}))[1] == {"t": [(0, NEEDLESS)]}
        none = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert (await asked(cluster, UNCLEAN, {"u": [0]}))[1] == {"u": [(0, none)]}


@pytest.mark.parametrize("kind", [2, -1])
async def test_a_kind_of_election_that_there_is_none_of(kind: int) -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        refused = ErrorCode.INVALID_REQUEST
        assert await asked(cluster, kind, {"t": [0]}) == (refused, {"t": [(0, refused)]})
        assert await asked(cluster, kind, None) == (refused, {})
        assert await asked(cluster, kind, {}) == (0, {})


async def test_faults_answer_in_place_of_an_election() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1, 2]])
        cluster.move_leader("t", 0, 2)
        cluster.faults.error("ElectLeaders", ErrorCode.NOT_CONTROLLER, times=1)
        _, told = await asked(cluster, PREFERRED, {"t": [0]})
        assert told["t"][0][1] == ErrorCode.NOT_CONTROLLER
        assert (await asked(cluster, PREFERRED, {"t": [0]}))[1] == {"t": [(0, 0)]}
