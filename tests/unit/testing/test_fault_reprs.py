"""Reprs of faults and of the request log in a failing test: short, and sufficient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Request
from kclient.protocol.messages.fetch import FetchRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kclient.testing import Cluster, Fault
from kclient.testing.request_log import RequestLog, ServedRequest
from tests.unit.testing.calls import fetch, produce

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def crash(info: object) -> None:
    raise AssertionError


async def reply(info: object) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda f: f.delay("Produce", 0.5, times=3, broker=2),
            "<Fault delay 0.5 s, Produce, broker 2, 3 times left, 0 hits>",
        ),
        (
            lambda f: f.error("Fetch", NOT_LEADER, topic="t", partition=1),
            "<Fault error NOT_LEADER_OR_FOLLOWER, Fetch, t-1, 1 time left, 0 hits>",
        ),
        (
            lambda f: f.error("Produce", NOT_LEADER, after=True, topic="t"),
            "<Fault error NOT_LEADER_OR_FOLLOWER after, Produce, topic t, 1 time left, 0 hits>",
        ),
        (lambda f: f.hang(broker=2), "<Fault hang, broker 2, until removed, 0 hits>"),
        (
            lambda f: f.hold(None, client_id="app", times=None),
            "<Fault hold, client 'app', until removed, 0 hits>",
        ),
        (
            lambda f: f.delay("Fetch", 2, replica=3, version=12, connection=0),
            "<Fault delay 2 s, Fetch, version 12, connection 0, replica 3, 1 time left, 0 hits>",
        ),
        (
            lambda f: f.lose_answers("Produce", 2),
            "<Fault lose_answers, Produce, 2 times left, 0 hits>",
        ),
        (
            lambda f: f.close("Produce", after=True),
            "<Fault close after, Produce, 1 time left, 0 hits>",
        ),
        (
            lambda f: f.cut_answer("Fetch", byte=9),
            "<Fault cut_answer at byte 9, Fetch, 1 time left, 0 hits>",
        ),
        (lambda f: f.reorder("Fetch"), "<Fault reorder 2 answers, Fetch, 1 time left, 0 hits>"),
        (
            lambda f: f.on("Fetch", crash, at="after_append"),
            "<Fault on after_append crash(), Fetch, until removed, 0 hits>",
        ),
        (lambda f: f.on(0, reply), "<Fault on before reply(), Produce, until removed, 0 hits>"),
        (
            lambda f: f.rewrite("Metadata", lambda request, response: None, when=bool),
            "<Fault rewrite <lambda>(), Metadata, when bool(), 1 time left, 0 hits>",
        ),
        (lambda f: f.corrupt_fetch("t"), "<Fault corrupt_fetch t-0, Fetch, 1 time left, 0 hits>"),
        (
            lambda f: f.answer_bytes("Fetch", b"123", framed=False),
            "<Fault answer_bytes 3 bytes, Fetch, 1 time left, 0 hits>",
        ),
    ],
)
def test_a_fault_shows_what_it_does_to_which_requests_and_how_often(
    make: Callable[[Any], Fault], text: str
) -> None:
    assert repr(make(Cluster(3).faults)) == text


def test_a_fault_shows_its_state() -> None:
    fault = Cluster(1).faults.hold("Fetch", times=2)
    fault.use()
    fault.hold(lambda: None)
    assert repr(fault) == "<Fault hold, Fetch, 1 time left, 1 hit, holds 1>"
    fault.use()
    assert repr(fault) == "<Fault hold, Fetch, used up, 2 hits, holds 1>"
    fault.remove()
    assert repr(fault) == "<Fault hold, Fetch, removed, 2 hits>"


def test_faults_are_listed() -> None:
    faults = Cluster(1).faults
    assert repr(faults) == "<Faults: none>"
    first, second = faults.hang(), faults.hold("Fetch")
    assert repr(faults) == f"<Faults: 2\n  {first!r}\n  {second!r}>"
    for _ in range(20):
        faults.hang()
    assert repr(faults).count("\n") == 11
    assert repr(faults).endswith("\n  ... and 12 more>")


def entry(request: Request, **fields: Any) -> ServedRequest:
    names = {0: "Produce", 1: "Fetch", 3: "Metadata"}
    key = type(request).API_KEY
    return ServedRequest(1.0, 2, key, names[key], 12, 7, "app", 4, 100, request, **fields)


def test_a_request_shows_client_broker_api_and_outcome() -> None:
    asked = produce("t", None, partition=3)
    one = entry(asked)
    assert repr(one) == "<Produce v12 of 'app' to broker 2, t-3, no answer>"
    one.answered_at = 1.0
    one.response = ProduceResponse([TopicProduceResponse("t")])
    assert repr(one) == "<Produce v12 of 'app' to broker 2, t-3, answered>"
    part = PartitionProduceResponse(3, NOT_LEADER)
    one.response.responses[0].partition_responses = [part]
    assert repr(one) == "<Produce v12 of 'app' to broker 2, t-3, NOT_LEADER_OR_FOLLOWER>"
    part.error_code = 1234
    assert repr(one) == "<Produce v12 of 'app' to broker 2, t-3, 1234>"
    one.response = b"12345"
    assert repr(one) == "<Produce v12 of 'app' to broker 2, t-3, answered 5 bytes>"


def test_a_request_names_a_few_of_what_it_is_about() -> None:
    many = entry(fetch("t", *range(100)))
    assert repr(many) == "<Fetch v12 of 'app' to broker 2, t-0, t-1, t-2 and 97 more, no answer>"
    assert repr(entry(fetch(b"\1" * 16, 1))) == "<Fetch v12 of 'app' to broker 2, no answer>"
    assert repr(entry(MetadataRequest(None))) == "<Metadata v12 of 'app' to broker 2, no answer>"
    follower = entry(FetchRequest(), replica_id=3)
    assert repr(follower) == "<Fetch v12 of follower 3 to broker 2, no answer>"
    follower.replica_id, follower.client_id = -1, None
    assert repr(follower) == "<Fetch v12 of None to broker 2, no answer>"


def test_a_log_shows_how_many_there_are_and_the_last_ones() -> None:
    log = RequestLog()
    assert repr(log) == "<RequestLog: no requests>"
    for _ in range(8):
        log.add(entry(MetadataRequest([])))
    last = entry(MetadataRequest([]), response=MetadataResponse(), answered_at=2.0)
    log.add(last)
    follower = entry(FetchRequest(replica_id=3))
    log.add(follower)
    lines = repr(log).splitlines()
    assert lines[0] == "<RequestLog: 9 requests, and 1 of followers; the last ones:"
    assert lines[-1] == f"  {last!r}>"
    assert len(lines) == 6
