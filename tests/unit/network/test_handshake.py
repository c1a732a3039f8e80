"""The handshake: first request, fallbacks, peers that are no brokers, where SASL comes in."""

from __future__ import annotations

import struct

import pytest

from kclient.errors import (
    BrokerUnreachable,
    ConnectionLost,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.network.connection import (
    Connection,
    ConnectionEvent,
    ConnectionState,
)
from kclient.protocol.headers import decode_request_header
from kclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.response_frames import encode_response
from tests.unit.network.connections import (
    SETUP_DEADLINE,
    SPOKEN,
    UNSUPPORTED_VERSION,
    deliver,
    new_connection,
    pending,
    ready,
    versions,
    written,
)


class TestNegotiation:
    def test_begins_with_api_versions_v4_and_our_name(self) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        assert connection.state is ConnectionState.NEGOTIATING
        data = connection.take_output()
        header = decode_request_header(data[4:])
        assert (header.api_key, header.api_version, header.client_id) == (18, 4, "my-client")
        body = ApiVersionsRequest.decode(data[4:], 4, header.body_offset)
        assert (body.client_software_name, body.client_software_version) == ("kclient", "1.2.3")

    def test_is_ready_once_the_versions_are_known(self) -> None:
        connection = ready()
        assert connection.versions is not None
        assert connection.versions.usable[MetadataRequest, None] == 12
        assert connection.can_send(1.0)
        assert connection.take_outcomes() == []

    def test_falls_back_to_what_the_broker_names_of_this_one_api(self) -> None:
        """Brokers 2.4 to 3.x respond to v4 with UNSUPPORTED_VERSION in v0, listing only key 18."""
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        connection.take_output()
        deliver(connection, versions(0, 0, UNSUPPORTED_VERSION, [ApiVersion(18, 0, 3)]))
        assert connection.state is ConnectionState.NEGOTIATING
        assert written(connection) == [(18, 3, 1, "my-client")]
        deliver(connection, versions(1, 3))
        assert connection.state is ConnectionState.READY

    def test_falls_back_to_version_0_where_the_broker_names_nothing(self) -> None:
        """Brokers before 2.4, such as 1.0.2."""
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        connection.take_output()
        deliver(connection, versions(0, 0, UNSUPPORTED_VERSION, []))
        assert written(connection) == [(18, 0, 1, "my-client")]
        deliver(connection, versions(1, 0))
        assert connection.state is ConnectionState.READY
        assert connection.versions is not None
        assert connection.versions.usable[MetadataRequest, None] == 12

    def test_goes_lower_each_time_and_ends(self) -> None:
        """A broker that refuses every version that it lists can't keep the client busy for ever."""
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        asked = []
        for correlation_id in range(10):
            asked += [version for _, version, _, _ in written(connection)]
            if connection.is_closed:
                break
            lies = versions(correlation_id, 0, UNSUPPORTED_VERSION, [ApiVersion(18, 0, 4)])
            deliver(connection, lies)
        assert asked == [4, 3, 2, 1, 0]
        assert isinstance(connection.error, BrokerUnreachable)
        assert "refused version 0" in str(connection.error)

    def test_a_broker_that_is_too_new_is_named(self) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, versions(0, 0, UNSUPPORTED_VERSION, [ApiVersion(18, 7, 9)]))
        assert isinstance(connection.error, BrokerUnreachable)
        assert "7 to 9" in str(connection.error)

    def test_another_error_ends_it_with_the_brokers_error(self) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, versions(0, error=42, keys=[]))
        assert isinstance(connection.error, BrokerUnreachable)
        assert "INVALID_REQUEST" in str(connection.error)

    def test_throttling_counts_from_the_first_response_on(self) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        response = ApiVersionsResponse(0, SPOKEN, throttle_time_ms=500)
        deliver(connection, encode_response(response, 4, 0), now=1.0)
        assert not connection.can_send(1.4)
        assert connection.can_send(1.5)

    def test_silence_ends_it_at_the_setup_deadline(self) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        assert connection.next_deadline() == SETUP_DEADLINE
        connection.expire(SETUP_DEADLINE - 0.01)
        assert not connection.is_closed
        connection.expire(SETUP_DEADLINE)
        assert connection.setup_timed_out
        assert isinstance(connection.error, BrokerUnreachable)
        assert "no answer to ApiVersions" in str(connection.error)

    @pytest.mark.parametrize(
        ("said", "hint"),
        [
            (b"\x15\x03\x03\x00\x02\x02\x46", "TLS listener"),
            (b"HTTP/1.1 400 Bad Request\r\n", "HTTP server"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "another service"),
            (b"\x7f\xff\xff\xff", "does not speak Kafka"),
            (b"\xff\xff\xff\xff", "does not speak Kafka"),
        ],
    )
    def test_a_peer_that_is_no_broker_is_recognised(self, said: bytes, hint: str) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, said)
        assert isinstance(connection.error, BrokerUnreachable)
        assert hint in str(connection.error)
        assert isinstance(connection.error.__cause__, ProtocolError)

    @pytest.mark.parametrize(
        "body", [b"", b"\x00", b"\x00\x00\x05", b"\x00\x23\x00\x00\x00\x09", b"\x00\x00" * 40]
    )
    def test_an_unreadable_response_ends_it(self, body: bytes) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        frame = struct.pack(">i", 0) + body
        deliver(connection, struct.pack(">i", len(frame)) + frame)
        assert isinstance(connection.error, BrokerUnreachable)

    def test_closed_by_the_peer_at_once_hints_at_security(self) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        connection.lost(None)
        assert isinstance(connection.error, BrokerUnreachable)
        assert connection.error.hint is not None
        assert "TLS or SASL" in connection.error.hint

    def test_every_cut_of_the_response_gives_the_same(self) -> None:
        data = versions(0)
        for cut in range(1, len(data)):
            connection = new_connection()
            connection.opened(0.0, SETUP_DEADLINE)
            deliver(connection, data[:cut])
            assert connection.state is ConnectionState.NEGOTIATING
            deliver(connection, data[cut:])
            assert connection.state is ConnectionState.READY


class TestAuthentication:
    def started(self) -> Connection:
        connection = new_connection(authenticates=True)
        connection.opened(0.0, SETUP_DEADLINE)
        connection.take_output()
        deliver(connection, versions(0, keys=[*SPOKEN, ApiVersion(17, 0, 1)]))
        return connection

    def ready(self) -> Connection:
        connection = self.started()
        connection.authenticated()
        return connection

    def test_sits_between_negotiation_and_ready(self) -> None:
        connection = self.started()
        for correlation_id in (1, 2):
            assert connection.state is ConnectionState.AUTHENTICATING
            assert not connection.can_send(1.0)
            connection.ask(SaslHandshakeRequest("TEST"), 1.0, SETUP_DEADLINE)
            assert written(connection) == [(17, 1, correlation_id, "my-client")]
            response = SaslHandshakeResponse(0, [str(correlation_id)])
            deliver(connection, encode_response(response, 1, correlation_id))
            ((_, outcome),) = connection.take_outcomes()
            assert isinstance(outcome, SaslHandshakeResponse)
            assert outcome.mechanisms == [str(correlation_id)]
        connection.authenticated()
        assert connection.state is ConnectionState.READY

    def test_a_broker_without_sasl_is_named(self) -> None:
        connection = new_connection(authenticates=True)
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, versions(0))
        with pytest.raises(NoCommonVersion, match="SaslHandshake"):
            connection.ask(SaslHandshakeRequest("TEST"), 1.0, SETUP_DEADLINE)

    def test_is_bound_by_the_setup_deadline(self) -> None:
        connection = self.started()
        connection.ask(SaslHandshakeRequest("TEST"), 1.0, SETUP_DEADLINE)
        connection.expire(SETUP_DEADLINE)
        assert "no answer to authentication" in str(connection.error)

    def test_an_unreadable_step_ends_it(self) -> None:
        connection = self.started()
        connection.ask(SaslHandshakeRequest("TEST"), 1.0, SETUP_DEADLINE)
        deliver(connection, struct.pack(">iih", 6, 1, 0))
        assert isinstance(connection.error, BrokerUnreachable)

    def test_steps_are_no_use_of_the_connection(self) -> None:
        connection = self.ready()
        connection.apply(ConnectionEvent.RENEWED)
        connection.ask(SaslHandshakeRequest("TEST"), 50.0, 60.0)
        deliver(connection, encode_response(SaslHandshakeResponse(), 1, 1), 51.0)
        assert connection.last_used == 0.0
        assert connection.answered == 0

    def test_a_renewal_lets_what_is_under_way_be_answered_and_others_wait(self) -> None:
        connection = self.ready()
        first, second = pending(), pending()
        assert connection.submit(first, 1.0)
        connection.apply(ConnectionEvent.RENEWED)
        connection.ask(SaslHandshakeRequest("TEST"), 1.0, 10.0)
        assert not connection.submit(second, 1.0)
        deliver(connection, encode_response(MetadataResponse(), first.version, 1))
        deliver(connection, encode_response(SaslHandshakeResponse(), 1, 2))
        assert [type(outcome) for _, outcome in connection.take_outcomes()] == [
            MetadataResponse,
            SaslHandshakeResponse,
        ]
        connection.authenticated()
        assert connection.submit(second, 2.0)

    def test_a_renewal_without_an_answer_ends_it_for_those_that_wait(self) -> None:
        connection = self.ready()
        connection.apply(ConnectionEvent.RENEWED)
        future = connection.ask(SaslHandshakeRequest("TEST"), 1.0, 10.0)
        connection.expire(10.0)
        assert connection.state is ConnectionState.CLOSED
        ((request, outcome),) = connection.take_outcomes()
        assert request.future is future
        assert isinstance(outcome, RequestTimedOut)

    def test_retired_while_it_renews_it_closes_after_the_step(self) -> None:
        connection = self.ready()
        connection.apply(ConnectionEvent.RENEWED)
        connection.ask(SaslHandshakeRequest("TEST"), 1.0, 10.0)
        connection.retire()
        assert connection.state is ConnectionState.DRAINING
        deliver(connection, encode_response(SaslHandshakeResponse(), 1, 1))
        assert connection.state is ConnectionState.CLOSED
        connection.authenticated()

    def test_a_closed_one_takes_no_step(self) -> None:
        connection = self.started()
        connection.lost(None)
        with pytest.raises(ConnectionLost, match="authentication"):
            connection.ask(SaslHandshakeRequest("TEST"), 1.0, 10.0)
