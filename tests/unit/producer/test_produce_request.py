"""The fast path for Produce requests and responses matches the generated messages."""

from __future__ import annotations

import random

import pytest

from kclient.errors import ProtocolError
from kclient.producer.produce_request import (
    EncodedProduceRequest,
    PlainProduceResponse,
    TopicBatches,
)
from kclient.protocol.headers import encode_request
from kclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kclient.protocol.primitives import ZERO_UUID

VERSIONS = range(ProduceRequest.MIN_VERSION, ProduceRequest.MAX_VERSION + 1)
ID = bytes(range(16))


def cargo(*sizes: int, topics: int = 1) -> EncodedProduceRequest:
    return EncodedProduceRequest(
        -1,
        30_000,
        [
            TopicBatches(
                f"topic-{number}",
                ID,
                [(i, b"h" * 61, memoryview(b"b" * size)) for i, size in enumerate(sizes)],
            )
            for number in range(topics)
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [0, 1, 3, 130])
def test_the_pieces_are_the_generated_message(version: int, topics: int) -> None:
    request = cargo(0, 1, 65, 66, 16_321, 16_322, topics=topics)
    generated = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=request.topic_data
    )
    for topic in generated.topic_data:
        if version < 13:
            topic.topic_id = ZERO_UUID
        else:
            topic.name = ""
    assert encode_request(request, version, 7, "me") == encode_request(generated, version, 7, "me")
    assert request.encode(version) == b"".join(request.pieces(version))


@pytest.mark.parametrize("size", [(1 << 21) - 63, (1 << 21) - 62, (1 << 21) - 61])
def test_large_batches_have_longer_sizes(size: int) -> None:
    request = cargo(size)
    assert request.encode(9) == b"".join(request.pieces(9))


def response(version: int, topics: int = 2, partitions: int = 3) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="" if version >= 13 else f"topic-{number}",
                topic_id=bytes([number]) * 16 if version >= 13 else ZERO_UUID,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        error_code=index % 2,
                        base_offset=1000 + index,
                        log_append_time_ms=-1,
                        log_start_offset=5,
                    )
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ],
        throttle_time_ms=17,
    )


@pytest.mark.parametrize("version", [9, 10, 12, 13])
@pytest.mark.parametrize("partitions", [0, 1, 300])
def test_a_plain_response_is_read_at_once(version: int, partitions: int) -> None:
    wanted = response(version, partitions=partitions)
    reply = PlainProduceResponse.decode(memoryview(b"xy" + wanted.encode(version)), version, 2)
    assert isinstance(reply, PlainProduceResponse)
    assert reply.throttle_time_ms == 17
    assert reply.topics == {
        topic.topic_id if version >= 13 else topic.name: {
            part.index: (part.index, part.error_code, part.base_offset, -1, 5, 1, 0, 0)
            for part in topic.partition_responses
        }
        for topic in wanted.responses
    }


def with_record_errors(message: ProduceResponse) -> None:
    message.responses[0].partition_responses[1].record_errors = [
        BatchIndexAndErrorMessage(3, "bad")
    ]


def with_a_message(message: ProduceResponse) -> None:
    message.responses[1].partition_responses[2].error_message = "no"


def with_a_leader(message: ProduceResponse) -> None:
    message.responses[1].partition_responses[0].current_leader = LeaderIdAndEpoch(3, 4)


def with_endpoints(message: ProduceResponse) -> None:
    message.node_endpoints = [NodeEndpoint(3, "host", 9092, None)]


def with_unknown_tags(message: ProduceResponse) -> None:
    message.responses[0].unknown_tags = {9: b"news"}


def with_a_partition_twice(message: ProduceResponse) -> None:
    message.responses[0].partition_responses[1].index = 0


@pytest.mark.parametrize(
    "change",
    [
        with_record_errors,
        with_a_message,
        with_a_leader,
        with_endpoints,
        with_unknown_tags,
        with_a_partition_twice,
    ],
)
def test_a_response_with_more_fields_is_the_generated_one(change: object) -> None:
    message = response(10)
    change(message)  # type: ignore[operator]
    assert PlainProduceResponse.decode(message.encode(10), 10) == message


@pytest.mark.parametrize("version", range(9))
def test_responses_of_old_versions_are_the_generated_ones(version: int) -> None:
    data = response(version).encode(version)
    assert PlainProduceResponse.decode(data, version) == ProduceResponse.decode(data, version)


@pytest.mark.parametrize("version", [9, 13])
def test_damaged_responses_fail_as_the_generated_ones_do(version: int) -> None:
    rng, data = random.Random(1), response(version).encode(version)
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        cut = bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        try:
            wanted: object = ProduceResponse.decode(cut, version)
        except ProtocolError as error:
            wanted = str(error)
        try:
            got: object = PlainProduceResponse.decode(cut, version)
        except ProtocolError as error:
            got = str(error)
        if isinstance(got, PlainProduceResponse):
            assert isinstance(wanted, ProduceResponse)
            assert wanted.throttle_time_ms == got.throttle_time_ms
            assert {
                (topic.topic_id if version >= 13 else topic.name, part.index): part.base_offset
                for topic in wanted.responses
                for part in topic.partition_responses
            } == {(name, i): row[2] for name, rows in got.topics.items() for i, row in rows.items()}
        else:
            assert got == wanted


def test_no_versions_but_ours_are_read() -> None:
    with pytest.raises(ProtocolError, match="no version 14"):
        PlainProduceResponse.decode(response(13).encode(13), 14)
