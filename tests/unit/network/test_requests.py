"""InFlightRequests: completed in order, bounded, with the earliest deadline of all."""

from __future__ import annotations

import pytest

from kclient.errors import ProtocolError
from kclient.network.requests import InFlightRequests, PendingRequest
from kclient.protocol.messages.metadata import MetadataRequest


def request(correlation_id: int, deadline: float = 30.0) -> PendingRequest:
    pending = PendingRequest(MetadataRequest, MetadataRequest(), timeout=30.0, deadline=deadline)
    pending.correlation_id = correlation_id
    pending.version = 9
    return pending


def filled(*requests: PendingRequest, limit: int = 5) -> InFlightRequests:
    in_flight = InFlightRequests(limit)
    for each in requests:
        in_flight.add(each)
    return in_flight


def test_responses_belong_to_the_oldest_request() -> None:
    first, second = request(1), request(2)
    in_flight = filled(first, second)
    assert in_flight.oldest is first
    assert in_flight.complete_next(1) is first
    assert in_flight.complete_next(2) is second
    assert in_flight.oldest is None


def test_a_response_out_of_order_is_refused_and_takes_nothing_out() -> None:
    in_flight = filled(request(1), request(2))
    with pytest.raises(ProtocolError, match=r"Metadata v9 \(correlation 1\).*correlation id 2"):
        in_flight.complete_next(2)
    assert len(in_flight) == 2


def test_a_response_without_a_request_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no request waits"):
        filled().complete_next(1)


def test_the_limit_bounds_what_may_be_sent() -> None:
    in_flight = filled(request(1), limit=2)
    assert in_flight.can_send_more
    in_flight.add(request(2))
    assert not in_flight.can_send_more
    in_flight.complete_next(1)
    assert in_flight.can_send_more


def test_the_earliest_deadline_need_not_be_the_oldest_requests() -> None:
    in_flight = filled(request(1, deadline=300.0), request(2, deadline=30.0))
    assert in_flight.earliest_deadline() == 30.0
    assert not in_flight.has_expired(29.9)
    assert in_flight.has_expired(30.0)


def test_nothing_in_flight_has_no_deadline() -> None:
    assert filled().earliest_deadline() is None
    assert not filled().has_expired(1e9)


def test_clear_takes_out_all_oldest_first() -> None:
    requests = [request(n) for n in range(3)]
    in_flight = filled(*requests)
    assert in_flight.clear() == requests
    assert len(in_flight) == 0
