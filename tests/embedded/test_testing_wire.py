"""The embedded cluster on the wire: versions, framing, order, and malformed bytes."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.headers import encode_request
from kclient.protocol.message import Request
from kclient.protocol.messages import alter_configs
from kclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kclient.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing import Cluster
from kclient.testing.api_versions import VERSIONS
from tests.unit.testing import acl_calls, group_calls, transaction_calls, user_calls
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, list_offsets, produce
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=1) as one:
        one.create_topic("t", partitions=2)
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.bootstrap) as one:
        yield one


def sample(api_key: int, version: int, topic_id: bytes) -> Request:
    """A valid request of that API and version."""
    if api_key in group_calls.NEWEST:
        return group_calls.sample(api_key, version, topic_id)
    if api_key in transaction_calls.NEWEST:
        return transaction_calls.sample(api_key, version)
    if api_key in acl_calls.NEWEST:
        return acl_calls.sample(api_key)
    if api_key in user_calls.SAMPLES:
        return user_calls.SAMPLES[api_key]
    topic = topic_id if version >= 13 else "t"
    requests: dict[int, Request] = {
        0: produce(topic, batch_bytes()),
        1: fetch(topic, 0, isolation=version % 2),
        2: list_offsets("t", -1),
        3: MetadataRequest([MetadataRequestTopic(ZERO_UUID, "t")]),
        17: SaslHandshakeRequest("PLAIN"),
        18: ApiVersionsRequest("kclient-test", "1.0") if version >= 3 else ApiVersionsRequest(),
        19: CreateTopicsRequest([CreatableTopic(f"new-{version}", 1, 1)]),
        20: DeleteTopicsRequest([DeleteTopicState("t")])
        if version >= 6
        else DeleteTopicsRequest(topic_names=["nope"]),
        21: DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])]),
        22: InitProducerIdRequest(None),
        23: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])]
        ),
        32: DescribeConfigsRequest([DescribeConfigsResource(2, "t", None)]),
        33: alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(2, "t")]),
        35: DescribeLogDirsRequest([DescribableLogDirTopic("t", [0])]),
        36: SaslAuthenticateRequest(b"x"),
        37: CreatePartitionsRequest([CreatePartitionsTopic("t", 3 + version, None)]),
        43: ElectLeadersRequest(0, [TopicPartitions("t", [0])]),
        44: IncrementalAlterConfigsRequest(
            [AlterConfigsResource(2, "t", [AlterableConfig("retention.ms", 0, "5")])]
        ),
        60: DescribeClusterRequest(),
        68: ConsumerGroupHeartbeatRequest("g", "m"),
        76: ShareGroupHeartbeatRequest("g", "m"),
        74: ListConfigResourcesRequest([2] if version else []),
        75: DescribeTopicPartitionsRequest(),
    }
    return requests[api_key]


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (key, version)
        for key, (lowest, highest) in VERSIONS.items()
        for version in range(lowest, highest + 1)
    ],
)
async def test_every_served_version_gets_a_response(
    cluster: Cluster, peer: RawPeer, api_key: int, version: int
) -> None:
    request = sample(api_key, version, cluster.topic_id("t"))
    response = await peer.call(request, version)
    assert type(response) is type(request).RESPONSE
    (served,) = cluster.requests
    assert (served.api_key, served.version, served.client_id) == (api_key, version, "raw")


async def test_api_versions_lists_what_is_served(peer: RawPeer) -> None:
    response = await peer.call(ApiVersionsRequest("a", "1"), 4)
    listed = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert listed == {**VERSIONS, 0: (0, 13)}  # v0 for librdkafka's sake (KAFKA-18659)
    assert "metadata.version" in {one.name for one in response.finalized_features}


async def test_an_unknown_api_versions_version_gets_v0_and_the_connection_lives(
    peer: RawPeer,
) -> None:
    peer.write_bytes(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    frame = await peer.read_frame()
    assert struct.unpack_from(">i", frame)[0] == 7
    response = ApiVersionsResponse.decode(frame, 0, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.max_version) for one in response.api_keys] == [(18, 4)]
    assert (await peer.call(ApiVersionsRequest(), 0)).error_code == 0


@pytest.mark.parametrize("name", ["", "a b", "-a", "ä"])
async def test_a_client_name_that_cannot_be_is_refused(peer: RawPeer, name: str) -> None:
    response = await peer.call(ApiVersionsRequest(name, "1"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "data",
    [
        encode_request(produce("t", batch_bytes()), 2, 1, "x"),  # listed, but refused as by 4.x
        encode_request(fetch("t", 0), 3, 1, "x"),
        encode_request(MetadataRequest([]), 13, 1, "x")[:-1] + b"\xff",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),  # no such API
        struct.pack(">ihhih", 10, 3, 99, 1, -1),  # no such version
        struct.pack(">ihhih", 10, 3, 13, 1, 500),  # a client id that runs past the end
        struct.pack(">i", 4) + b"\0\0\0\0",  # too short for a request
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    ],
)
async def test_what_is_not_served_ends_that_connection_only(
    cluster: Cluster, peer: RawPeer, data: bytes
) -> None:
    async with RawPeer.to(cluster.bootstrap) as other:
        peer.write_bytes(data)
        assert await peer.read_end() == b""
        assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_bytes_past_the_end_of_a_request_are_ignored(peer: RawPeer) -> None:
    frame = bytearray(encode_request(MetadataRequest([]), 12, 1, "x")) + b"\0\0\0"
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    peer.write_bytes(bytes(frame))
    assert (await peer.read(MetadataRequest, 12, 1)).controller_id == 1


async def test_a_request_may_come_byte_by_byte(peer: RawPeer) -> None:
    for byte in encode_request(MetadataRequest([]), 12, 1, "x"):
        peer.write_bytes(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await peer.read(MetadataRequest, 12, 1)).controller_id == 1


async def test_a_large_request_is_taken_whole(cluster: Cluster, peer: RawPeer) -> None:
    cluster.create_topic("large", configs={"max.message.bytes": 10_000_000})
    records = batch_bytes(3, value=b"x" * 3_000_000)
    response = await peer.call(produce("large", records), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    got = await peer.call(fetch("large", 0, max_bytes=1), 12)
    assert len(got.responses[0].partitions[0].records) == len(records)
    assert (await peer.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_a_request_over_the_limit_ends_the_connection() -> None:
    async with Cluster(1, broker_configs={"socket.request.max.bytes": 1000}) as cluster:
        async with RawPeer.to(cluster.bootstrap) as peer:
            peer.write_bytes(struct.pack(">i", 1001))
            assert await peer.read_end() == b""


async def test_pipelined_requests_get_responses_in_order(cluster: Cluster, peer: RawPeer) -> None:
    waiting = peer.write(fetch("t", 0, max_wait_ms=300), 12)
    quick = peer.write(ApiVersionsRequest(), 0)
    assert (await peer.read(type(fetch("t", 0)), 12, waiting)).error_code == 0
    assert (await peer.read(ApiVersionsRequest, 0, quick)).error_code == 0


async def test_a_waiting_request_holds_up_its_own_connection_only(cluster: Cluster) -> None:
    async with RawPeer.to(cluster.bootstrap) as one, RawPeer.to(cluster.bootstrap) as other:
        one.write(fetch("t", 0, max_wait_ms=60_000), 12)
        one.write(ApiVersionsRequest(), 0)
        await cluster.requests.wait_count("Fetch", 1)
        assert (await other.call(MetadataRequest([]), 12)).controller_id == 1
        assert cluster.requests.count("ApiVersions") == 0


async def test_a_client_that_does_not_read_holds_up_no_other(cluster: Cluster) -> None:
    cluster.create_topic("large", configs={"max.message.bytes": 10_000_000})
    cluster.append("large", 0, batch_bytes(1, value=b"x" * 5_000_000))
    async with RawPeer.to(cluster.bootstrap) as slow, RawPeer.to(cluster.bootstrap) as other:
        for _ in range(10):
            slow.write(fetch("large", 0, max_bytes=1), 12)
        await cluster.requests.wait_count("Fetch", 1)
        assert (await other.call(MetadataRequest([]), 12)).controller_id == 1
        for correlation in range(1, 11):
            response = await slow.read(type(fetch("t", 0)), 12, correlation)
            assert len(response.responses[0].partitions[0].records) > 5_000_000


async def test_mutated_requests_never_stop_the_broker(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(7)
    topic_id = cluster.topic_id("t")
    seeds = [
        encode_request(sample(key, version, topic_id), version, 1, "x")
        for key, (lowest, highest) in VERSIONS.items()
        for version in (lowest, highest)
        if key not in (19, 20, 37)  # requests that create and delete topics grow the state
    ]
    for _ in range(600):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        async with RawPeer.to(cluster.bootstrap) as peer:
            peer.write_bytes(bytes(data))
            peer.write_eof()
            await peer.read_end()
    async with RawPeer.to(cluster.bootstrap) as peer:
        assert (await peer.call(MetadataRequest([]), 12)).controller_id == 1
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []
