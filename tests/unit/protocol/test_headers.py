"""Frames and headers, against bytes worked out by hand from Kafka's protocol guide."""

from __future__ import annotations

import pytest

from kclient.errors import ProtocolError
from kclient.protocol import api_versions, headers
from kclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.response_frames import encode_response


def test_an_old_version_has_header_1_and_a_flexible_one_header_2() -> None:
    old = headers.encode_request(MetadataRequest(topics=None), 1, 7, "me")
    assert old.hex() == "00000010" + "0003" + "0001" + "00000007" + "00026d65" + "ffffffff"
    new = headers.encode_request(MetadataRequest(topics=None), 9, 7, "me")
    assert new.hex()[:34] == "00000012" + "0003" + "0009" + "00000007" + "00026d65" + "00"
    assert len(new) == 4 + int.from_bytes(new[:4], "big")


@pytest.mark.parametrize("client_id", [None, "", "kclient", "ünïcode"])
@pytest.mark.parametrize("version", [1, 9])
def test_a_request_header_comes_back(client_id: str | None, version: int) -> None:
    request = MetadataRequest(topics=None)
    frame = headers.encode_request(request, version, 2**31 - 1, client_id)[4:]
    header = headers.decode_request_header(frame)
    assert header[:4] == (3, version, 2**31 - 1, client_id)
    assert MetadataRequest.decode(frame, version, header.body_offset) == request


def test_a_client_id_that_can_not_be_sent_is_refused() -> None:
    for bad in ("x" * 40000, "\ud800", 7):
        with pytest.raises(ProtocolError) as caught:
            headers.encode_request(ApiVersionsRequest(), 0, 1, bad)  # type: ignore[arg-type]
        assert caught.value.field == "client_id"


@pytest.mark.parametrize("version", [3, 4])
def test_a_response_header_comes_back_in_both_forms(version: int) -> None:
    frame = encode_response(HeartbeatResponse(error_code=27), version, 5)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, offset = headers.decode_response_header(frame[4:], 12, version)
    assert (correlation_id, offset) == (5, 5 if version == 4 else 4)
    assert HeartbeatResponse.decode(frame[4:], version, offset).error_code == 27


@pytest.mark.parametrize("version", range(5))
def test_an_api_versions_response_always_has_header_0(version: int) -> None:
    frame = encode_response(ApiVersionsResponse(), version, 5)[4:]
    assert headers.decode_response_header(frame, 18, version) == (5, 4)
    assert ApiVersionsResponse.decode(frame, version, 4) == ApiVersionsResponse()


def test_tags_in_headers_are_skipped() -> None:
    frame = headers.encode_request(HeartbeatRequest(), 4, 1, "c")[4:]
    tagged = frame[:11] + b"\x01\x05\x02ab" + frame[12:]
    header = headers.decode_request_header(tagged)
    assert HeartbeatRequest.decode(tagged, 4, header.body_offset) == HeartbeatRequest()
    response = b"\x00\x00\x00\x09" + b"\x01\x05\x02ab" + MetadataResponse().encode(9)
    assert headers.decode_response_header(response, 3, 9) == (9, 9)


def test_a_request_of_an_unknown_version_can_get_a_response() -> None:
    """A newer client's ApiVersions request: its header is readable, its body is not needed."""
    frame = bytes.fromhex("0012" + "0009" + "0000000b" + "00026d65" + "00" + "ff")
    header = headers.decode_request_header(frame)
    assert header == (18, 9, 11, "me", 13)
    assert headers.decode_request_header(bytes.fromhex("03e70000000000010000")).api_key == 999


@pytest.mark.parametrize("data", ["", "0003", "00030009000000070005ff", "0003000900000007fffe00"])
def test_a_cut_request_header_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        headers.decode_request_header(bytes.fromhex(data))
    assert caught.value.struct == "RequestHeader"


@pytest.mark.parametrize("data", ["", "000000", "0000000101", "00000001ff"])
def test_a_cut_response_header_is_refused(data: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        headers.decode_response_header(bytes.fromhex(data), 3, 9)
    assert caught.value.struct == "ResponseHeader"


def test_a_message_that_can_not_be_sent_leaves_no_frame() -> None:
    with pytest.raises(ProtocolError):
        headers.encode_request(MetadataRequest(topics=None), 0, 1, "c")


def test_every_api_is_found_by_its_key() -> None:
    for api in api_versions.ALL:
        request = api_versions.request_class(api.key)
        response = request.RESPONSE
        assert (request.API_KEY, response.API_KEY) == (api.key, api.key)
        assert (request.NAME, response.NAME) == (api.name, api.name)
        for one in (request, response):
            assert (one.MIN_VERSION, one.MAX_VERSION) == (api.min_version, api.max_version)
            assert one.FIRST_FLEXIBLE == api.first_flexible


def test_api_names_cover_what_brokers_list_and_clients_never_send() -> None:
    assert api_versions.API_NAMES[3] == "Metadata"
    assert api_versions.API_NAMES[4] == "LeaderAndIsr"
    assert api_versions.API_NAMES[52] == "Vote"
    assert api_versions.API_NAMES[74] == "ListConfigResources"
    assert set(range(93)) <= set(api_versions.API_NAMES)


@pytest.mark.parametrize(
    ("key", "text"), [(4, r"4 \(LeaderAndIsr\)"), (52, r"52 \(Vote\)"), (999, "999"), (-1, "-1")]
)
def test_an_api_that_is_not_spoken_is_a_protocol_error(key: int, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        api_versions.request_class(key)
