"""Connection: throttling, deadlines, and every kind of end."""

from __future__ import annotations

import pytest

from kclient.errors import (
    ClientClosed,
    ConnectionLost,
    RequestTimedOut,
)
from kclient.network.connection import (
    Connection,
    ConnectionState,
)
from kclient.network.frames import FramePool
from kclient.network.handshake import ClientInformation
from kclient.network.nodes import ConnectionKey, Lane
from kclient.protocol.api_versions import MAX_THROTTLE_TIME
from kclient.protocol.messages.api_versions import (
    ApiVersion,
)
from kclient.protocol.messages.fetch import (
    FetchRequest,
)
from kclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kclient.protocol.messages.metadata import MetadataResponse
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.network.connections import (
    SETUP_DEADLINE,
    answer,
    deliver,
    fetch_response,
    outcome,
    pending,
    ready,
    submit,
    versions,
)


class TestThrottling:
    def test_silences_this_connection_after_the_response(self) -> None:
        connection = ready()
        request = pending()
        submit(connection, request)
        deliver(connection, answer(request, MetadataResponse(throttle_time_ms=2000)), now=5.0)
        assert isinstance(outcome(connection), MetadataResponse)
        assert request.throttle == 2.0
        assert not connection.can_send(6.99)
        assert connection.can_send(7.0)

    def test_does_not_hold_up_responses(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        deliver(connection, answer(requests[0], MetadataResponse(throttle_time_ms=2000)), now=5.0)
        deliver(connection, answer(requests[1]), now=5.1)
        assert len(connection.take_outcomes()) == 2

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

    @pytest.mark.parametrize("raw", [False, True])
    def test_no_response_silences_a_connection_for_days(self, raw: bool) -> None:
        connection = ready()
        request = pending(FetchRequest(), raw=raw)
        submit(connection, request)
        damaged = fetch_response(b"", throttle_ms=2**31 - 1)
        deliver(connection, answer(request, damaged), now=5.0)
        assert connection.throttled_until == 5.0 + MAX_THROTTLE_TIME

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
        outcomes = dict(connection.take_outcomes())
        assert isinstance(outcomes[expired], RequestTimedOut)
        assert "within 19 s" in str(outcomes[expired])
        for other in (first, behind):
            error = outcomes[other]
            assert isinstance(error, ConnectionLost)
            assert error.retriable
            assert error.maybe_written
        assert outcomes[first] is not outcomes[behind]
        assert connection.lost_requests == 3

    def test_time_spent_waiting_for_the_connection_is_not_the_peers(self) -> None:
        connection = ready()
        request = pending(deadline=20.0)
        submit(connection, request, now=15.0)
        assert connection.next_deadline() == 34.0
        connection.expire(33.9)
        assert not connection.is_closed
        connection.expire(34.0)
        assert connection.is_closed
        assert "within 19 s" in str(dict(connection.take_outcomes())[request])

    def test_a_caller_past_its_deadline_fails_and_the_connection_stays(self) -> None:
        connection = ready()
        hasty, patient = pending(deadline=20.0), pending(deadline=20.0)
        hasty.caller_deadline = 20.0
        submit(connection, hasty, patient, now=15.0)
        assert connection.next_deadline() == 20.0
        connection.expire(20.0)
        assert not connection.is_closed
        ((reported, error),) = connection.take_outcomes()
        assert reported is hasty
        assert isinstance(error, RequestTimedOut)
        assert error.maybe_written
        assert "waited 14 s for a connection, and 5 s for the answer" in str(error)
        assert connection.next_deadline() == 34.0  # it still holds the place of its response
        connection.expire(21.0)
        assert connection.take_outcomes() == []
        deliver(connection, answer(hasty) + answer(patient), now=22.0)
        assert [request for request, _ in connection.take_outcomes()] == [hasty, patient]
        assert connection.next_deadline() is None

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

    def test_a_response_in_time_removes_its_deadline(self) -> None:
        connection = ready()
        request = pending(deadline=20.0)
        submit(connection, request)
        deliver(connection, answer(request), now=19.0)
        assert connection.next_deadline() is None
        connection.expire(25.0)
        assert not connection.is_closed


class TestEnds:
    def test_lost_fails_what_is_in_flight_each_with_an_error_of_its_own(self) -> None:
        connection = ready()
        requests = [pending(), pending()]
        submit(connection, *requests)
        cause = ConnectionResetError(104, "Connection reset by peer")
        connection.lost(cause)
        answers = connection.take_outcomes()
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

    def test_lost_before_any_response_hints_at_sasl(self) -> None:
        connection = ready()
        submit(connection, pending())
        connection.lost(None)
        assert "SASL" in str(connection.error)

    def test_lost_after_a_response_has_no_such_hint(self) -> None:
        connection = ready()
        request = pending()
        submit(connection, request)
        deliver(connection, answer(request))
        connection.lost(None)
        assert "SASL" not in str(connection.error)

    def test_lost_in_the_middle_of_a_response_reports_it(self) -> None:
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

    def test_ended_by_us_fails_what_is_in_flight_with_our_reason(self) -> None:
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

    def test_retired_while_busy_waits_for_the_responses_and_takes_nothing_new(self) -> None:
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
        assert all(isinstance(value, MetadataResponse) for _, value in connection.take_outcomes())

    def test_gives_its_buffer_back(self) -> None:
        pool = FramePool()
        connection = Connection(
            ConnectionKey(1, Lane.FETCH),
            "kafka:9092",
            ClientInformation("c", "kclient", "1"),
            pool=pool,
            frame_limit=1000,
            in_flight_limit=1,
        )
        connection.opened(0.0, SETUP_DEADLINE)
        deliver(connection, versions(0)[:20])
        assert pool.retained_bytes == 0
        connection.lost(None)
        assert pool.retained_bytes > 0
