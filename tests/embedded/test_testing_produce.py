"""Produce on the embedded cluster: what is appended, what is answered, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kclient.record.compression import Compression
from kclient.testing import Cluster
from kclient.types import TimestampType
from tests.unit.testing.batches import NOW, batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        one.create_topic("t", partitions=3)
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    """Speaks to broker 1, which leads partition 0."""
    async with RawPeer.to(cluster.brokers[1].address) as one:
        yield one


async def answer(peer: RawPeer, request: ProduceRequest, version: int = 12) -> Any:
    """The answer for the one partition that is asked for."""
    response = await peer.call(request, version)
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("codec", Compression)
async def test_records_arrive_as_they_were_sent(
    cluster: Cluster, peer: RawPeer, codec: Compression
) -> None:
    data = batch_bytes(3, codec=codec)
    got = await answer(peer, produce("t", data))
    assert (got.error_code, got.base_offset, got.log_append_time_ms) == (0, 0, -1)
    (stored,) = cluster.log("t").batches
    assert bytes(stored.data[21:]) == data[21:]
    assert [one.value for one in cluster.records("t")] == [b"v"] * 3


async def test_the_leader_epoch_is_stamped(cluster: Cluster, peer: RawPeer) -> None:
    cluster.move_leader("t", 0, 2)
    cluster.move_leader("t", 0, 1)
    await answer(peer, produce("t", batch_bytes()))
    assert cluster.log("t").batches[0].leader_epoch == 2
    assert cluster.records("t")[0].leader_epoch == 2


async def test_topics_are_named_by_id_from_v13_on(cluster: Cluster, peer: RawPeer) -> None:
    assert (await answer(peer, produce(cluster.topic_id("t"), batch_bytes()), 13)).error_code == 0
    unknown = await answer(peer, produce(b"\1" * 16, batch_bytes()), 13)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.end_offset("t") == 1


@pytest.mark.parametrize(("topic", "partition"), [("nope", 0), ("t", 3), ("t", -1)])
async def test_what_is_not_there_is_unknown(peer: RawPeer, topic: str, partition: int) -> None:
    got = await answer(peer, produce(topic, batch_bytes(), partition=partition))
    assert got.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert got.base_offset == -1


async def test_another_brokers_partition_is_refused_with_a_hint(
    cluster: Cluster, peer: RawPeer
) -> None:
    response = await peer.call(produce("t", batch_bytes(), partition=1), 10)
    got = response.responses[0].partition_responses[0]
    assert got.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (2, 0)
    (node,) = response.node_endpoints
    assert (node.node_id, node.port) == (2, cluster.brokers[2].port)
    assert cluster.end_offset("t", 1) == 0


async def test_before_v10_there_is_no_hint(peer: RawPeer) -> None:
    got = await answer(peer, produce("t", batch_bytes(), partition=1), 9)
    assert got.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_partitions_of_one_request_fail_each_for_itself(
    cluster: Cluster, peer: RawPeer
) -> None:
    parts = [PartitionProduceData(index, batch_bytes()) for index in (0, 1, 7)]
    response = await peer.call(
        ProduceRequest(None, -1, 1000, [TopicProduceData("t", partition_data=parts)]), 9
    )
    codes = [one.error_code for one in response.responses[0].partition_responses]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.end_offset("t", 0) == 1


async def test_acks_0_is_not_answered(cluster: Cluster, peer: RawPeer) -> None:
    peer.write(produce("t", batch_bytes(), acks=0), 9)
    assert (await peer.call(ApiVersionsRequest(), 0)).error_code == 0
    assert cluster.end_offset("t") == 1


async def test_an_error_with_acks_0_closes_the_connection(peer: RawPeer) -> None:
    peer.write(produce("nope", batch_bytes(), acks=0), 9)
    assert await peer.read_end() == b""


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_acks_that_cannot_be_are_refused(cluster: Cluster, peer: RawPeer, acks: int) -> None:
    got = await answer(peer, produce("t", batch_bytes(), acks=acks))
    assert got.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert cluster.end_offset("t") == 0


async def test_too_few_replicas_in_sync_refuse_acks_all_only(cluster: Cluster) -> None:
    cluster.create_topic("m", configs={"min.insync.replicas": 3})
    await cluster.stop(3)
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        refused = await answer(peer, produce("m", batch_bytes()))
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await answer(peer, produce("m", batch_bytes(), acks=1))).error_code == 0
        await cluster.restart(3)
        assert (await answer(peer, produce("m", batch_bytes()))).base_offset == 1


async def test_a_batch_that_is_too_large_is_refused_by_the_topics_limit(
    cluster: Cluster, peer: RawPeer
) -> None:
    cluster.create_topic("small", configs={"max.message.bytes": 100})
    got = await answer(peer, produce("small", batch_bytes(value=b"x" * 100)))
    assert got.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert got.log_start_offset == -1


async def test_a_damaged_batch_is_refused(cluster: Cluster, peer: RawPeer) -> None:
    data = bytearray(batch_bytes())
    data[-1] ^= 1
    got = await answer(peer, produce("t", bytes(data)))
    assert got.error_code == ErrorCode.CORRUPT_MESSAGE
    assert cluster.end_offset("t") == 0


async def test_records_that_are_refused_are_listed(cluster: Cluster, peer: RawPeer) -> None:
    cluster.create_topic("c", configs={"cleanup.policy": "compact"})
    got = await answer(peer, produce("c", batch_bytes(2, key=None)), 8)
    assert got.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in got.record_errors] == [0, 1]
    assert {one.batch_index_error_message for one in got.record_errors} == {got.error_message}
    assert (await answer(peer, produce("c", batch_bytes(2, key=None)), 7)).error_code == 87


async def test_log_append_time_is_the_brokers(cluster: Cluster, peer: RawPeer) -> None:
    cluster.create_topic("l", configs={"message.timestamp.type": "LogAppendTime"})
    got = await answer(peer, produce("l", batch_bytes(2)))
    assert got.log_append_time_ms > NOW
    for record in cluster.records("l"):
        assert record.timestamp == got.log_append_time_ms
        assert record.timestamp_type is TimestampType.LOG_APPEND_TIME


async def test_a_repeated_batch_is_acknowledged_once_more_and_kept_once(
    cluster: Cluster, peer: RawPeer
) -> None:
    given = await peer.call(InitProducerIdRequest(None), 4)
    assert (given.error_code, given.producer_epoch) == (0, 0)
    data = batch_bytes(2, producer=(given.producer_id, 0, 0))
    await answer(peer, produce("t", batch_bytes()))
    assert [(await answer(peer, produce("t", data))).base_offset for _ in range(2)] == [1, 1]
    assert cluster.end_offset("t") == 3
    gap = await answer(peer, produce("t", batch_bytes(1, producer=(given.producer_id, 0, 9))))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_sequences_are_known_to_the_next_leader(cluster: Cluster, peer: RawPeer) -> None:
    data = batch_bytes(2, producer=(5, 0, 0))
    await answer(peer, produce("t", data))
    cluster.move_leader("t", 0, 2)
    async with RawPeer.to(cluster.brokers[2].address) as other:
        assert (await answer(other, produce("t", data))).base_offset == 0
    assert cluster.end_offset("t") == 2


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("", ErrorCode.INVALID_REQUEST), ("x", ErrorCode.UNSUPPORTED_VERSION)],
)
async def test_transactional_ids_are_refused(
    peer: RawPeer, transactional_id: str, code: ErrorCode
) -> None:
    got = await peer.call(InitProducerIdRequest(transactional_id), 4)
    assert (got.error_code, got.producer_id) == (code, -1)


async def test_transactional_batches_without_an_id_are_not_authorized(peer: RawPeer) -> None:
    data = batch_bytes(producer=(5, 0, 0), transactional=True)
    got = await answer(peer, produce("t", data))
    assert got.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_the_request_log_keeps_no_records(cluster: Cluster, peer: RawPeer) -> None:
    await answer(peer, produce("t", batch_bytes()))
    (served,) = cluster.requests.of("Produce", broker=1)
    assert served.request.topic_data[0].partition_data[0].records is None
    assert served.request.acks == -1


async def test_broker_configs_are_the_default_of_topics() -> None:
    async with Cluster(1, broker_configs={"message.max.bytes": 100}) as cluster:
        cluster.create_topic("t")
        async with RawPeer.to(cluster.bootstrap) as peer:
            got = await answer(peer, produce("t", batch_bytes(value=b"x" * 100)))
    assert got.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_records_can_be_put_in_past_all_rules(cluster: Cluster) -> None:
    data = bytearray(batch_bytes(2))
    data[-1] ^= 1
    assert cluster.append("t", 0, bytes(data)) == 0
    assert cluster.end_offset("t") == 2
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.append("t", 9, bytes(data))
