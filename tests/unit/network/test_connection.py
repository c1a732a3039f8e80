"""Connection: the table, negotiation, ordered answers, deadlines and every kind of end; no loop."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from kclient.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.network.addresses import ConnectionKey, Lane
from kclient.network.connection import Connection
from kclient.network.connection_states import (
    HANDSHAKE,
    TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
)
from kclient.network.frames import FramePool
from kclient.network.handshake import Identity
from kclient.network.requests import PendingRequest, RawResponse
from kclient.protocol.headers import decode_request_header, encode_response
from kclient.protocol.message import Request, Response
from kclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kclient.transitions import IllegalTransition

SETUP_DEADLINE = 10.0
UNSUPPORTED_VERSION = 35
SPOKEN = [ApiVersion(0, 0, 11), ApiVersion(1, 0, 13), ApiVersion(3, 0, 12), ApiVersion(18, 0, 4)]


def new_connection(
    *, limit: int = 5, frame_limit: int = 1_000_000, authenticator: object = None
) -> Connection:
    return Connection(
        ConnectionKey(2, Lane.GENERAL),
        "kafka:9092",
        Identity("my-client", "kclient", "1.2.3"),
        pool=FramePool(),
        frame_limit=frame_limit,
        in_flight_limit=limit,
        authenticator=authenticator,  # type: ignore[arg-type]
    )


def deliver(connection: Connection, data: bytes, now: float = 1.0) -> None:
    while data:
        with connection.buffer() as buffer:
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
        data = data[count:]
        connection.received(count, now)


def versions(
    correlation_id: int, version: int = 4, error: int = 0, keys: list[ApiVersion] | None = None
) -> bytes:
    keys = SPOKEN if keys is None else keys
    return encode_response(ApiVersionsResponse(error, keys), version, correlation_id)


def ready(
    *, limit: int = 5, frame_limit: int = 1_000_000, keys: list[ApiVersion] | None = None
) -> Connection:
    connection = new_connection(limit=limit, frame_limit=frame_limit)
    connection.opened(0.0, SETUP_DEADLINE)
    connection.take_output()
    deliver(connection, versions(0, keys=keys))
    assert connection.state is ConnectionState.READY
    return connection


def pending(
    message: Request | None = None,
    *,
    deadline: float = 30.0,
    raw: bool = False,
    expect_response: bool = True,
    response_bytes: int = 0,
    build: Callable[[int], Request] | None = None,
    max_version: int | None = None,
) -> PendingRequest:
    message = message or MetadataRequest()
    return PendingRequest(
        type(message),
        build or message,
        timeout=deadline,
        deadline=deadline,
        raw=raw,
        expect_response=expect_response,
        response_bytes=response_bytes,
        max_version=max_version,
    )


def submit(connection: Connection, *requests: PendingRequest, now: float = 1.0) -> None:
    for request in requests:
        connection.submit(request, now)


def answer(request: PendingRequest, response: Response | None = None) -> bytes:
    return encode_response(response or MetadataResponse(), request.version, request.correlation_id)


def outcome(connection: Connection) -> object:
    ((_, value),) = connection.take_answers()
    return value


def written(connection: Connection) -> list[tuple[int, int, int, str | None]]:
    """(api key, version, correlation id, client id) of what was written since the last call."""
    data, found = connection.take_output(), []
    while data:
        (size,) = struct.unpack_from(">i", data)
        header = decode_request_header(data[4 : 4 + size])
        found.append((header.api_key, header.api_version, header.correlation_id, header.client_id))
        data = data[4 + size :]
    return found


class TestTable:
    def test_every_state_and_event_says_what_it_means(self) -> None:
        for member in [*ConnectionState, *ConnectionEvent]:
            assert member.value.endswith(".")
            assert len(member.value) > 10

    def test_every_state_is_in_the_table_and_every_target_exists(self) -> None:
        assert set(TRANSITIONS) == set(ConnectionState)
        for row in TRANSITIONS.values():
            assert set(row.values()) <= set(ConnectionState)

    def test_every_event_moves_something(self) -> None:
        assert {event for row in TRANSITIONS.values() for event in row} == set(ConnectionEvent)

    def test_every_state_is_reached_from_the_first_and_can_end(self) -> None:
        def reached(start: ConnectionState) -> set[ConnectionState]:
            seen, frontier = {start}, [start]
            while frontier:
                for target in TRANSITIONS[frontier.pop()].values():
                    if target not in seen:
                        seen.add(target)
                        frontier.append(target)
            return seen

        assert reached(ConnectionState.DIALING) == set(ConnectionState)
        for state in ConnectionState:
            assert ConnectionState.CLOSED in reached(state)

    def test_nothing_leaves_closed(self) -> None:
        assert TRANSITIONS[ConnectionState.CLOSED] == {}

    def test_the_handshake_is_all_that_comes_before_ready(self) -> None:
        before = {s for s in ConnectionState if s.name not in ("READY", "DRAINING", "CLOSED")}
        assert before == HANDSHAKE

    @pytest.mark.parametrize("state", ConnectionState)
    @pytest.mark.parametrize("event", ConnectionEvent)
    def test_apply_follows_the_table(self, state: ConnectionState, event: ConnectionEvent) -> None:
        connection = new_connection()
        connection.state = state
        if event in TRANSITIONS[state]:
            connection.apply(event)
            assert connection.state is TRANSITIONS[state][event]
        else:
            with pytest.raises(IllegalTransition, match=event.name):
                connection.apply(event)


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
        assert connection.versions.latest_usable(MetadataRequest) == 12
        assert connection.can_send(1.0)
        assert connection.take_answers() == []

    def test_falls_back_to_what_the_broker_names_of_this_one_api(self) -> None:
        """Brokers 2.4 to 3.x answer v4 with UNSUPPORTED_VERSION in v0, listing only key 18."""
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
        assert connection.versions.latest_usable(MetadataRequest) == 12

    def test_goes_lower_each_time_and_ends(self) -> None:
        """A broker that refuses whatever it offers itself can't keep us busy for ever."""
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

    def test_another_error_ends_it_with_the_brokers_word(self) -> None:
        connection = new_connection()
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, versions(0, error=42, keys=[]))
        assert isinstance(connection.error, BrokerUnreachable)
        assert "INVALID_REQUEST" in str(connection.error)

    def test_throttling_counts_from_the_first_answer_on(self) -> None:
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
    def test_an_unreadable_answer_ends_it(self, body: bytes) -> None:
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

    def test_every_cut_of_the_answer_gives_the_same(self) -> None:
        data = versions(0)
        for cut in range(1, len(data)):
            connection = new_connection()
            connection.opened(0.0, SETUP_DEADLINE)
            deliver(connection, data[:cut])
            assert connection.state is ConnectionState.NEGOTIATING
            deliver(connection, data[cut:])
            assert connection.state is ConnectionState.READY


class ScriptedAuthenticator:
    """Two exchanges, then it is satisfied; or it refuses."""

    def __init__(self, refuse: KafkaError | None = None) -> None:
        self.seen: list[Response | None] = []
        self.refuse = refuse

    def step(self, response: Response | None) -> Request | None:
        self.seen.append(response)
        if self.refuse is not None and response is not None:
            raise self.refuse
        return SaslHandshakeRequest("TEST") if len(self.seen) < 3 else None


class TestAuthentication:
    def started(self, authenticator: ScriptedAuthenticator) -> Connection:
        connection = new_connection(authenticator=authenticator)
        connection.opened(0.0, SETUP_DEADLINE)
        connection.take_output()
        deliver(connection, versions(0, keys=[*SPOKEN, ApiVersion(17, 0, 1)]))
        return connection

    def test_sits_between_negotiation_and_ready(self) -> None:
        authenticator = ScriptedAuthenticator()
        connection = self.started(authenticator)
        for correlation_id in (1, 2):
            assert connection.state is ConnectionState.AUTHENTICATING
            assert not connection.can_send(1.0)
            assert written(connection) == [(17, 1, correlation_id, "my-client")]
            deliver(connection, encode_response(SaslHandshakeResponse(), 1, correlation_id))
        assert connection.state is ConnectionState.READY
        assert authenticator.seen[0] is None
        assert all(isinstance(seen, SaslHandshakeResponse) for seen in authenticator.seen[1:])

    def test_a_refusal_is_the_reason_of_the_end(self) -> None:
        refusal = ClientError("wrong password")
        connection = self.started(ScriptedAuthenticator(refusal))
        deliver(connection, encode_response(SaslHandshakeResponse(), 1, 1))
        assert connection.error is refusal
        assert refusal.node_id == 2

    def test_a_broker_without_sasl_is_named(self) -> None:
        connection = new_connection(authenticator=ScriptedAuthenticator())
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, versions(0))
        assert isinstance(connection.error, NoCommonVersion)
        assert "SaslHandshake" in str(connection.error)

    def test_is_bound_by_the_setup_deadline(self) -> None:
        connection = self.started(ScriptedAuthenticator())
        connection.expire(SETUP_DEADLINE)
        assert "no answer to authentication" in str(connection.error)


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

    def test_a_request_without_an_answer_is_done_once_written(self) -> None:
        connection = ready()
        request = pending(expect_response=False)
        submit(connection, request)
        assert len(connection.in_flight) == 0
        assert connection.take_output()
        assert connection.take_answers() == [(request, None)]

    def test_are_refused_before_ready(self) -> None:
        connection = new_connection()
        with pytest.raises(IllegalTransition):
            submit(connection, pending())

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
        answers = connection.take_answers()
        assert [request for request, _ in answers] == requests
        assert [value.cluster_id for _, value in answers] == ["0", "1", "2"]  # type: ignore[attr-defined]
        assert connection.take_answers() == []

    def test_out_of_order_close_the_connection(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        deliver(connection, answer(requests[1]) + answer(requests[0]))
        assert connection.is_closed
        for _, error in connection.take_answers():
            assert isinstance(error, ConnectionLost)
            assert error.retriable
            assert error.maybe_written
            assert isinstance(error.__cause__, ProtocolError)

    def test_that_nobody_waits_for_close_the_connection(self) -> None:
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
        (_, error), (_, value) = connection.take_answers()
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

    def test_slices_of_a_decoded_answer_survive_the_frames_after_it(self) -> None:
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


def fetch_response(records: bytes, throttle_ms: int = 0) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=throttle_ms,
        responses=[
            FetchableTopicResponse(partitions=[PartitionData(records=records)]),
        ],
    )


class TestThrottling:
    def test_silences_this_connection_after_the_answer(self) -> None:
        connection = ready()
        request = pending()
        submit(connection, request)
        deliver(connection, answer(request, MetadataResponse(throttle_time_ms=2000)), now=5.0)
        assert isinstance(outcome(connection), MetadataResponse)
        assert request.throttle == 2.0
        assert not connection.can_send(6.99)
        assert connection.can_send(7.0)

    def test_does_not_hold_up_answers(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        deliver(connection, answer(requests[0], MetadataResponse(throttle_time_ms=2000)), now=5.0)
        deliver(connection, answer(requests[1]), now=5.1)
        assert len(connection.take_answers()) == 2

    def test_a_shorter_one_does_not_cut_a_longer_one_short(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        deliver(connection, answer(requests[0], MetadataResponse(throttle_time_ms=2000)), now=5.0)
        deliver(connection, answer(requests[1], MetadataResponse(throttle_time_ms=10)), now=5.0)
        assert connection.throttled_until == 7.0

    def test_is_read_from_a_raw_fetch_too(self) -> None:
        connection = ready()
        request = pending(FetchRequest(), raw=True)
        submit(connection, request)
        deliver(connection, answer(request, fetch_response(b"", throttle_ms=1500)), now=5.0)
        assert connection.throttled_until == 6.5

    @pytest.mark.parametrize(("highest", "silent"), [(5, False), (6, True)])
    def test_old_versions_were_delayed_by_the_broker_already(
        self, highest: int, silent: bool
    ) -> None:
        connection = ready(keys=[ApiVersion(3, 0, highest)])
        request = pending()
        submit(connection, request)
        deliver(connection, answer(request, MetadataResponse(throttle_time_ms=2000)))
        assert connection.can_send(1.1) is not silent

    def test_apis_without_the_field_are_fine(self) -> None:
        connection = ready(keys=[ApiVersion(17, 0, 1)])
        request = pending(SaslHandshakeRequest("X"))
        submit(connection, request)
        deliver(connection, answer(request, SaslHandshakeResponse()))
        assert isinstance(outcome(connection), SaslHandshakeResponse)

    def test_a_negative_one_is_ignored(self) -> None:
        connection = ready(keys=[ApiVersion(12, 0, 4)])
        request = pending(HeartbeatRequest())
        submit(connection, request)
        deliver(connection, answer(request, HeartbeatResponse(throttle_time_ms=-5)))
        assert connection.can_send(1.0)


class TestDeadlines:
    def test_the_earliest_of_all_counts(self) -> None:
        connection = ready()
        submit(connection, pending(deadline=300.0), pending(deadline=20.0))
        assert connection.next_deadline() == 20.0

    def test_one_expired_request_closes_the_connection_and_loses_the_others(self) -> None:
        connection = ready()
        first, expired, behind = pending(deadline=60), pending(deadline=20), pending(deadline=40)
        submit(connection, first, expired, behind)
        connection.expire(19.9)
        assert not connection.is_closed
        connection.expire(20.0)
        assert connection.is_closed
        outcomes = dict(connection.take_answers())
        assert isinstance(outcomes[expired], RequestTimedOut)
        assert "within 20 s" in str(outcomes[expired])
        for other in (first, behind):
            error = outcomes[other]
            assert isinstance(error, ConnectionLost)
            assert error.retriable
            assert error.maybe_written
        assert outcomes[first] is not outcomes[behind]
        assert connection.lost_requests == 3

    def test_a_drip_of_bytes_does_not_put_the_deadline_off(self) -> None:
        connection = ready()
        request = pending(deadline=20.0)
        submit(connection, request)
        data = answer(request)
        for index, now in enumerate(range(2, 20)):
            deliver(connection, data[index : index + 1], now=float(now))
        assert connection.next_deadline() == 20.0
        connection.expire(20.0)
        assert isinstance(outcome(connection), RequestTimedOut)

    def test_an_answer_in_time_takes_its_deadline_along(self) -> None:
        connection = ready()
        request = pending(deadline=20.0)
        submit(connection, request)
        deliver(connection, answer(request), now=19.0)
        assert connection.next_deadline() is None
        connection.expire(25.0)
        assert not connection.is_closed


class TestEnds:
    def test_lost_fails_what_is_under_way_each_with_an_error_of_its_own(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        cause = ConnectionResetError(104, "Connection reset by peer")
        connection.lost(cause)
        answers = connection.take_answers()
        assert [request for request, _ in answers] == requests
        errors = [error for _, error in answers]
        assert errors[0] is not errors[1]
        for error in errors:
            assert isinstance(error, ConnectionLost)
            assert error.__cause__ is cause
            assert error.node_id == 2
            assert error.maybe_written
            assert "Metadata v12" in str(error)
            assert "broker 2 at kafka:9092" in str(error)

    def test_lost_before_any_answer_hints_at_sasl(self) -> None:
        connection = ready()
        submit(connection, pending())
        connection.lost(None)
        assert "SASL" in str(connection.error)

    def test_lost_after_an_answer_has_no_such_hint(self) -> None:
        connection = ready()
        request = pending()
        submit(connection, request)
        deliver(connection, answer(request))
        connection.lost(None)
        assert "SASL" not in str(connection.error)

    def test_lost_in_the_middle_of_an_answer_says_so(self) -> None:
        connection = ready()
        request = pending()
        submit(connection, request)
        deliver(connection, answer(request)[:9])
        connection.lost(None)
        assert "in the middle of a response, after 9 bytes" in str(connection.error)

    def test_the_first_reason_stays(self) -> None:
        connection = ready()
        connection.end(ClientClosed("closed"))
        connection.lost(ConnectionResetError())
        assert isinstance(connection.error, ClientClosed)

    def test_ended_by_us_fails_what_is_under_way_with_our_reason(self) -> None:
        connection = ready()
        submit(connection, pending())
        connection.end(ClientClosed("the client was closed"))
        error = outcome(connection)
        assert isinstance(error, ClientClosed)
        assert error.maybe_written

    def test_retired_while_idle_ends_at_once(self) -> None:
        connection = ready()
        connection.retire()
        assert connection.is_closed

    def test_retired_while_busy_waits_for_the_answers_and_takes_nothing_new(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        connection.retire()
        assert connection.state is ConnectionState.DRAINING
        assert not connection.can_send(1.0)
        deliver(connection, answer(requests[0]))
        assert connection.state is ConnectionState.DRAINING
        deliver(connection, answer(requests[1]))
        assert connection.is_closed
        assert all(isinstance(value, MetadataResponse) for _, value in connection.take_answers())

    def test_gives_its_buffer_back(self) -> None:
        pool = FramePool()
        connection = Connection(
            ConnectionKey(1, Lane.FETCH),
            "kafka:9092",
            Identity("c", "kclient", "1"),
            pool=pool,
            frame_limit=1000,
            in_flight_limit=1,
        )
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, versions(0)[:20])
        assert pool.retained_bytes == 0
        connection.lost(None)
        assert pool.retained_bytes > 0


def test_texts_name_the_peer_and_the_lane() -> None:
    assert str(ConnectionKey(2, Lane.FETCH)) == "node=2 lane=fetch"
    assert new_connection().where == "broker 2 at kafka:9092"
