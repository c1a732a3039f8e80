"""Messages as Python values: defaults, equality, repr, versions, values that can't be sent."""

from __future__ import annotations

import pytest

from kclient.errors import ProtocolError
from kclient.protocol import messages
from kclient.protocol.message import Message
from kclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.unit.protocol.every_message import every_message, versions


def refusal(message: Message, version: int) -> ProtocolError:
    """Return the error of an encode that must fail and write nothing."""
    out = bytearray(b"before")
    with pytest.raises(ProtocolError) as caught:
        message.encode_into(out, version)
    assert out == b"before"
    return caught.value


@pytest.mark.parametrize("message", every_message(), ids=lambda message: message.__name__)
def test_defaults_go_through_every_version(message: type[Message]) -> None:
    for version in versions(message):
        assert message.decode(message().encode(version), version) == message()


def test_metadata_requests_have_the_bytes_of_the_protocol_guide() -> None:
    """Version 9 for one topic, and version 1 for all of them, written out by hand."""
    request = MetadataRequest([MetadataRequestTopic(name="a")], allow_auto_topic_creation=False)
    assert request.encode(9).hex() == "02" + "026100" + "00" + "00" + "00" + "00"
    assert MetadataRequest(topics=None).encode(1).hex() == "ffffffff"


def test_lists_of_new_messages_are_their_own() -> None:
    first, second = MetadataRequest(), MetadataRequest()
    assert first.topics is not None and second.topics is not None
    first.topics.append(MetadataRequestTopic())
    assert second.topics == []


def test_messages_are_equal_by_value_and_unhashable() -> None:
    assert MetadataResponseBroker(1, "h", 9092) == MetadataResponseBroker(1, "h", 9092)
    assert MetadataResponseBroker(1, "h", 9092) != MetadataResponseBroker(1, "h", 9093)
    assert MetadataRequest(unknown_tags={1: b""}) != MetadataRequest()
    assert MetadataRequest() != MetadataResponse()
    with pytest.raises(TypeError):
        hash(MetadataRequest())


def test_messages_take_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        MetadataRequest().topic = []  # type: ignore[attr-defined]


def test_a_repr_shows_no_payload_and_no_long_lists() -> None:
    assert "hunter2" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0me\0hunter2"))
    assert "<11 bytes>" in repr(SaslAuthenticateRequest(auth_bytes=b"\0me\0hunter2"))
    many = MetadataRequest([MetadataRequestTopic(name=f"t{n}") for n in range(1000)])
    assert "1000 in all" in repr(many)
    assert len(repr(many)) < 500
    assert "tags 7" in repr(MetadataRequest(unknown_tags={7: b"secret"}))
    assert "AAAAAAAAAAAAAAAAAAAAAQ" in repr(MetadataRequestTopic(topic_id=bytes(15) + b"\x01"))


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_that_is_not_spoken_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match=r"0 to 13"):
        MetadataRequest.decode(b"", version)
    assert "0 to 13" in str(refusal(MetadataRequest(), version))


def test_a_field_that_the_version_lacks_must_be_at_its_default() -> None:
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], validate_only=True)
    error = refusal(request, 0)
    assert (error.struct, error.field) == ("CreateTopicsRequest", "validate_only")
    assert request.encode(1)


def test_an_ignorable_field_is_left_out_silently() -> None:
    broker = MetadataResponseBroker(1, "h", 9092, rack="r1")
    response = MetadataResponse(brokers=[broker], cluster_id="c")
    read = MetadataResponse.decode(response.encode(0), 0)
    assert read.cluster_id is None
    assert read.brokers == [MetadataResponseBroker(1, "h", 9092)]


def test_none_is_refused_where_the_version_has_no_null() -> None:
    error = refusal(MetadataRequest(topics=None), 0)
    assert (error.struct, error.field) == ("MetadataRequest", "topics")
    error = refusal(CreateTopicsRequest([CreatableTopic(None)]), 5)  # type: ignore[arg-type]
    assert (error.struct, error.field) == ("CreatableTopic", "name")


@pytest.mark.parametrize(
    ("topic", "field"),
    [
        (CreatableTopic("t", 2**31), "num_partitions"),
        (CreatableTopic("t", "1"), "num_partitions"),  # type: ignore[arg-type]
        (CreatableTopic("t", 1, 40000), "replication_factor"),
        (CreatableTopic(7), "name"),  # type: ignore[arg-type]
        (CreatableTopic("x" * 40000), "name"),
        (CreatableTopic("\ud800"), "name"),
        (CreatableTopic("t", assignments=3), "assignments"),  # type: ignore[arg-type]
        (CreatableTopic("t", configs=["k"]), "configs"),  # type: ignore[list-item]
    ],
)
@pytest.mark.parametrize("version", [0, 7])
def test_a_value_that_can_not_be_sent_is_named(
    topic: CreatableTopic, field: str, version: int
) -> None:
    error = refusal(CreateTopicsRequest([CreatableTopic("fine", 1, 1), topic]), version)
    assert (error.struct, error.field) == ("CreatableTopic", field)


def test_a_topic_id_of_the_wrong_length_is_refused() -> None:
    error = refusal(MetadataRequest([MetadataRequestTopic(topic_id=b"short")]), 12)
    assert (error.struct, error.field) == ("MetadataRequestTopic", "topic_id")


def test_bad_tags_are_refused() -> None:
    assert refusal(MetadataRequest(unknown_tags={-1: b""}), 9).field == "unknown_tags"
    bad = MetadataRequest(unknown_tags={1: "x"})  # type: ignore[dict-item]
    assert refusal(bad, 9).field == "unknown_tags"


def test_unknown_tags_are_kept_and_written_again() -> None:
    tagged = MetadataRequestTopic(name="t", unknown_tags={3: b"\x01", 200: b""})
    request = MetadataRequest([tagged], unknown_tags={0: b"zero"})
    data = request.encode(9)
    read = MetadataRequest.decode(data, 9)
    assert read == request
    assert read.encode(9) == data


def test_records_are_slices_of_the_input() -> None:
    partition = PartitionData(0, records=b"batches")
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])
    frame = bytearray(response.encode(4))
    records = FetchResponse.decode(frame, 4).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    frame[frame.index(b"batches")] = ord("B")
    assert bytes(records) == b"Batches"
    none = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(0)])])
    for version in (4, 12):
        read = FetchResponse.decode(none.encode(version), version)
        assert read.responses[0].partitions[0].records is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_written_from_any_bytes(kind: type) -> None:
    partition = PartitionProduceData(0, kind(b"batches"))
    request = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[partition])])
    for version in (3, 9):
        read = ProduceRequest.decode(request.encode(version), version)
        assert read.topic_data[0].partition_data[0].records == b"batches"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_messages_are_read_from_any_bytes_at_an_offset(kind: type) -> None:
    broker = MetadataResponseBroker(1, "höst", 9092, "r")
    data = MetadataResponse(brokers=[broker], cluster_id="c").encode(12)
    read = MetadataResponse.decode(kind(b"header" + data), 12, offset=6)
    assert read.brokers == [broker]


def test_bytes_left_over_are_an_error() -> None:
    with pytest.raises(ProtocolError) as caught:
        MetadataRequest.decode(MetadataRequest().encode(9) + b"x", 9)
    assert (caught.value.struct, caught.value.offset) == ("MetadataRequest", 5)


def test_an_old_broker_responds_to_a_new_api_versions_request_in_version_0() -> None:
    """UNSUPPORTED_VERSION with only the range of ApiVersions in it (KIP-511)."""
    body = bytes.fromhex("0023" + "00000001" + "0012" + "0000" + "0003")
    response = ApiVersionsResponse.decode(body, 0)
    assert response.error_code == 35
    [only] = response.api_keys
    assert (only.api_key, only.min_version, only.max_version) == (18, 0, 3)
    assert ApiVersionsRequest.MAX_VERSION > 3


def test_the_package_knows_every_message_and_no_other() -> None:
    assert messages.FetchResponse is FetchResponse
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        messages.NoSuchRequest  # noqa: B018
