"""Connection: what is written, and which response belongs to which request."""

from __future__ import annotations

import struct

import pytest

from kclient.errors import (
    ConnectionLost,
    NoCommonVersion,
    ProtocolError,
)
from kclient.network.connection import (
    ConnectionState,
)
from kclient.network.frames import RawResponse
from kclient.network.nodes import ConnectionKey, Lane
from kclient.protocol.message import Request
from kclient.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.response_frames import encode_response
from tests.unit.network.connections import (
    answer,
    deliver,
    fetch_response,
    new_connection,
    outcome,
    pending,
    ready,
    submit,
    written,
)


class TestRequests:
    def test_are_written_in_order_with_rising_correlation_ids(self) -> None:
        connection = ready()
        submit(connection, pending(), pending(), pending())
        assert written(connection) == [(3, 12, n, "my-client") for n in (1, 2, 3)]

    def test_correlation_ids_wrap_before_they_turn_negative(self) -> None:
        connection = ready()
        connection._correlation_id = 2**31 - 1
        submit(connection, pending(), pending())
        assert [correlation_id for _, _, correlation_id, _ in written(connection)] == [2**31 - 1, 0]

    def test_a_builder_gets_the_negotiated_version(self) -> None:
        connection = ready()
        seen: list[int] = []

        def build(version: int) -> Request:
            seen.append(version)
            return MetadataRequest()

        submit(connection, pending(build=build), pending(build=build, max_version=7))
        assert seen == [12, 7]

    def test_no_common_version_writes_nothing(self) -> None:
        connection = ready()
        with pytest.raises(NoCommonVersion, match="Heartbeat"):
            submit(connection, pending(HeartbeatRequest()))
        assert connection.take_output() == b""
        assert len(connection.in_flight) == 0

    def test_a_message_that_does_not_fit_its_version_writes_nothing(self) -> None:
        connection = ready()
        with pytest.raises(ProtocolError):
            submit(connection, pending(MetadataRequest(topics=3)))  # type: ignore[arg-type]
        assert connection.take_output() == b""
        submit(connection, pending())
        assert written(connection) == [(3, 12, 1, "my-client")]

    def test_a_request_without_a_response_is_done_once_written(self) -> None:
        connection = ready()
        request = pending(expect_response=False)
        submit(connection, request)
        assert len(connection.in_flight) == 0
        assert connection.take_output()
        assert connection.take_outcomes() == [(request, None)]

    def test_are_refused_before_ready(self) -> None:
        connection = new_connection()
        assert not connection.submit(pending(), 1.0)
        assert not connection.output and not len(connection.in_flight)

    def test_the_limit_holds(self) -> None:
        connection = ready(limit=2)
        requests = [pending(), pending()]
        submit(connection, *requests)
        assert not connection.can_send(1.0)
        deliver(connection, answer(requests[0]))
        assert connection.can_send(1.0)


class TestAnswers:
    def test_belong_to_the_requests_in_order(self) -> None:
        connection = ready()
        requests = [pending() for _ in range(3)]
        submit(connection, *requests)
        deliver(
            connection,
            b"".join(
                answer(r, MetadataResponse(cluster_id=str(n))) for n, r in enumerate(requests)
            ),
        )
        answers = connection.take_outcomes()
        assert [request for request, _ in answers] == requests
        assert [value.cluster_id for _, value in answers] == ["0", "1", "2"]  # type: ignore[attr-defined]
        assert connection.take_outcomes() == []

    def test_out_of_order_close_the_connection(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        deliver(connection, answer(requests[1]) + answer(requests[0]))
        assert connection.is_closed
        for _, error in connection.take_outcomes():
            assert isinstance(error, ConnectionLost)
            assert error.retriable
            assert error.maybe_written
            assert isinstance(error.__cause__, ProtocolError)

    def test_to_unknown_requests_close_the_connection(self) -> None:
        connection = ready()
        deliver(connection, encode_response(MetadataResponse(), 12, 77))
        assert isinstance(connection.error, ConnectionLost)
        assert "correlation id 77" in str(connection.error)

    def test_a_body_that_cannot_be_read_fails_its_request_only(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        broken = struct.pack(">iiB", 8, requests[0].correlation_id, 0) + b"\xff\xff\xff"
        deliver(connection, broken + answer(requests[1]))
        (_, error), (_, value) = connection.take_outcomes()
        assert isinstance(error, ProtocolError)
        assert error.node_id == 2
        assert isinstance(value, MetadataResponse)
        assert connection.state is ConnectionState.READY

    def test_trailing_bytes_fail_the_request(self) -> None:
        connection = ready()
        request = pending()
        submit(connection, request)
        data = answer(request)
        deliver(connection, struct.pack(">i", len(data) - 4 + 3) + data[4:] + b"abc")
        assert isinstance(outcome(connection), ProtocolError)

    def test_raw_ones_come_undecoded_with_their_own_bytes(self) -> None:
        connection = ready()
        request = pending(raw=True)
        submit(connection, request)
        deliver(connection, answer(request, MetadataResponse(cluster_id="mine")))
        raw = outcome(connection)
        assert isinstance(raw, RawResponse)
        assert (raw.api_key, raw.version) == (3, 12)
        assert MetadataResponse.decode(raw.body, raw.version).cluster_id == "mine"

    def test_a_released_raw_one_cannot_be_read_any_more(self) -> None:
        connection = ready()
        request = pending(raw=True)
        submit(connection, request)
        deliver(connection, answer(request))
        raw = outcome(connection)
        assert isinstance(raw, RawResponse)
        raw.release()
        raw.release()
        with pytest.raises(ValueError, match="released"):
            bytes(raw.body)

    def test_a_detached_raw_one_stays_good_for_ever(self) -> None:
        connection = ready()
        requests = [pending(FetchRequest(), raw=True) for _ in range(2)]
        views = []
        for fill, request in zip((b"a", b"b"), requests, strict=True):
            submit(connection, request)
            deliver(connection, answer(request, fetch_response(fill * 50_000)))
            raw = outcome(connection)
            assert isinstance(raw, RawResponse)
            views.append(raw.detach())
            raw.release()
        assert bytes(views[0]).count(b"a") >= 50_000
        assert bytes(views[1]).count(b"b") >= 50_000

    def test_slices_of_a_decoded_response_survive_the_frames_after_it(self) -> None:
        """Records are memoryviews into the frame: its buffer must not be reused under them."""
        connection = ready()
        kept = []
        for fill in (b"a", b"b", b"c"):
            request = pending(FetchRequest())
            submit(connection, request)
            deliver(connection, answer(request, fetch_response(fill * 1000)))
            response = outcome(connection)
            assert isinstance(response, FetchResponse)
            kept.append(response.responses[0].partitions[0].records)
        assert [bytes(records or b"") for records in kept] == [
            fill * 1000 for fill in (b"a", b"b", b"c")
        ]

    def test_a_frame_may_be_larger_than_the_limit_by_what_was_asked_for(self) -> None:
        connection = ready(frame_limit=1000)
        small, large = pending(FetchRequest()), pending(FetchRequest(), response_bytes=5000)
        submit(connection, large, small)
        deliver(connection, answer(large, fetch_response(b"x" * 4000)))
        assert isinstance(outcome(connection), FetchResponse)
        deliver(connection, answer(small, fetch_response(b"x" * 4000)))
        assert isinstance(connection.error, ConnectionLost)
        assert "allowed are 4 to 1000" in str(connection.error)
        assert isinstance(outcome(connection), ConnectionLost)


def test_texts_name_the_peer_and_the_lane() -> None:
    assert str(ConnectionKey(2, Lane.FETCH)) == "node=2 lane=fetch"
    assert new_connection().where == "broker 2 at kafka:9092"
