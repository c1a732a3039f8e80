"""Faults that can never act as requested are refused at once: names, kinds and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.testing import Cluster

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
Make = Callable[[Any], Any]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(brokers=3)


def refuse(cluster: Cluster, make: Make, *words: str) -> None:
    """The call must be refused with these words, and add no fault."""
    with pytest.raises(InvalidArgument) as caught:
        make(cluster.faults)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not cluster.faults


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda f: f.hang(brokr=2),
            ("hang", "'brokr'", "did you mean 'broker'?", "replica, topic"),
        ),
        (lambda f: f.error("Produce", NOT_LEADER, topics="t"), ("did you mean 'topic'?",)),
        (lambda f: f.error("Produce", NOT_LEADER, time=2), ("error", "did you mean 'times'?")),
        (lambda f: f.on("Fetch", print, att="before"), ("did you mean 'at'?",)),
        (lambda f: f.cut_answer("Fetch", bytes=4), ("'bytes'", "did you mean 'byte'?")),
        (lambda f: f.delay(None, 1.0, xyz=4), ("'xyz'", "it takes", "broker, client_id")),
        (lambda f: f.corrupt_fetch("t", clientid="a"), ("corrupt_fetch", "'clientid'")),
        (lambda f: f.lose_requests("Produce", after=True), ("lose_requests", "'after'")),
        (lambda f: f.lose_answers("Produce", after=False), ("lose_answers", "'after'")),
        (lambda f: f.hang(times=3), ("hang", "'times'")),
        (lambda f: f.unavailable(api="Fetch"), ("unavailable", "'api'")),
    ],
)
def test_an_unknown_argument_is_named_with_what_was_meant(
    cluster: Cluster, make: Make, words: tuple[str, ...]
) -> None:
    refuse(cluster, make, *words)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f.error("Prodce", NOT_LEADER), ("'Prodce'", "did you mean 'Produce'?")),
        (lambda f: f.hold("fetch"), ("did you mean 'Fetch'?",)),
        (lambda f: f.hold("DESCRIBECLUSTER"), ("did you mean 'DescribeCluster'?",)),
        (lambda f: f.hold(99), ("99",)),
        (lambda f: f.hold(True), ("True",)),
        (lambda f: f.hold(1.0), ("1.0",)),
        (lambda f: f.hold(["Fetch"]), ("['Fetch']",)),
        (lambda f: f.hold("Vote"), ("Vote", "isn't served")),
        (lambda f: f.error(None, NOT_LEADER), ("error", "an API")),
        (lambda f: f.throttle(None, 1.0), ("throttle", "an API")),
        (lambda f: f.rewrite(None, print), ("rewrite", "an API")),
    ],
)
def test_an_api_must_be_one_that_is_served(
    cluster: Cluster, make: Make, words: tuple[str, ...]
) -> None:
    refuse(cluster, make, *words)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"broker": 0}, ("broker=0", "1, 2, 3")),
        ({"broker": 4}, ("broker=4", "1, 2, 3")),
        ({"broker": -1}, ("broker",)),
        ({"broker": "2"}, ("broker", "'2'")),
        ({"broker": True}, ("broker", "True")),
        ({"broker": None}, ("broker", "None", "leave it out")),
        ({"client_id": 3}, ("client_id", "3")),
        ({"client_id": b"x"}, ("client_id",)),
        ({"topic": b"t"}, ("topic", "b't'")),
        ({"topic": ""}, ("topic",)),
        ({"topic": ["t"]}, ("topic",)),
        ({"topic": "t", "partition": -1}, ("partition", "-1")),
        ({"topic": "t", "partition": "0"}, ("partition",)),
        ({"partition": 0}, ("partition needs topic",)),
        ({"version": -1}, ("version",)),
        ({"version": 9.0}, ("version",)),
        ({"version": 99}, ("version=99", "4 to 18")),
        ({"connection": -1}, ("connection",)),
        ({"connection": "1"}, ("connection",)),
        ({"replica": 0}, ("replica",)),
        ({"replica": "all"}, ("replica", "'any'")),
        ({"replica": 7}, ("replica", "1, 2, 3")),
        ({"replica": 2, "broker": 2}, ("broker 2", "itself")),
        ({"when": True}, ("when", "True")),
    ],
)
def test_what_no_request_can_be_is_refused(
    cluster: Cluster, where: dict[str, Any], words: tuple[str, ...]
) -> None:
    refuse(cluster, lambda faults: faults.hold("Fetch", **where), *words)


async def never(_: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f.hold("Produce", replica=2), ("replica", "Produce", "Fetch")),
        (lambda f: f.hold("Heartbeat", topic="t"), ("Heartbeat", "topic")),
        (lambda f: f.hold("Metadata", topic="t", partition=0), ("Metadata", "partition")),
        (lambda f: f.error("DescribeLogDirs", NOT_LEADER, topic="t"), ("DescribeLogDirs", "topic")),
        (lambda f: f.hold("Fetch", when=never), ("when", "coroutine")),
        (lambda f: f.rewrite("Fetch", never), ("function", "coroutine", "on()")),
        (lambda f: f.rewrite("Fetch", b"bytes"), ("function",)),
        (lambda f: f.on("Fetch", b"bytes"), ("function",)),
        (lambda f: f.on("Fetch", print, at="during"), ("before, after_append, after_reply",)),
        (lambda f: f.on("Fetch", print, at=["before"]), ("at",)),
    ],
)
def test_what_does_not_fit_together_is_refused(
    cluster: Cluster, make: Make, words: tuple[str, ...]
) -> None:
    refuse(cluster, make, *words)


@pytest.mark.parametrize("times", ["2", 0, -1, 1.5, True, math.nan])
def test_times_is_a_number_above_0(cluster: Cluster, times: Any) -> None:
    for make in (
        lambda faults: faults.error("Produce", NOT_LEADER, times=times),
        lambda faults: faults.lose_answers("Produce", times),
        lambda faults: faults.on("Produce", print, times=times),
        lambda faults: faults.corrupt_fetch("t", times=times),
    ):
        refuse(cluster, make, "times", repr(times))


@pytest.mark.parametrize("seconds", ["2", -0.1, math.nan, math.inf, None, True, 3e6])
def test_seconds_are_a_number_from_0(cluster: Cluster, seconds: Any) -> None:
    if seconds != 3e6:
        refuse(cluster, lambda f: f.delay("Produce", seconds), "seconds", repr(seconds))
    refuse(cluster, lambda f: f.throttle("Produce", seconds), "seconds", f"{seconds!r}"[:3])


@pytest.mark.parametrize("number", [-1, "1", 1.5, True, None])
def test_counts_and_bytes_are_whole(cluster: Cluster, number: Any) -> None:
    refuse(cluster, lambda f: f.cut_answer("Fetch", byte=number), "byte", repr(number))
    refuse(cluster, lambda f: f.cut_request("Fetch", byte=number), "byte", repr(number))
    refuse(cluster, lambda f: f.reorder("Fetch", count=number), "count", repr(number))


@pytest.mark.parametrize("pace", [0, -1, math.nan, math.inf, "1", None, True])
def test_a_pace_is_above_0(cluster: Cluster, pace: Any) -> None:
    refuse(cluster, lambda f: f.trickle("Fetch", pace), "bytes_per_second", repr(pace))


@pytest.mark.parametrize("flag", [1, None, "yes"])
def test_flags_are_true_or_false(cluster: Cluster, flag: Any) -> None:
    for name, make in {
        "after": lambda f: f.hold("Fetch", after=flag),
        "reset": lambda f: f.cut_answer("Fetch", byte=1, reset=flag),
        "framed": lambda f: f.answer_bytes("Fetch", b"", framed=flag),
    }.items():
        refuse(cluster, make, f"{name}={flag!r} must be True or False")
    refuse(cluster, lambda f: f.answer_bytes("Fetch", b"", after=flag), "after")
    refuse(cluster, lambda f: f.error("Metadata", NOT_LEADER, after=flag), "after")
    refuse(cluster, lambda f: f.cut_request("Fetch", byte=1, reset=flag), "reset")


@pytest.mark.parametrize("data", [5, "text", None, [1, 2]])
def test_bytes_are_bytes(cluster: Cluster, data: Any) -> None:
    refuse(cluster, lambda f: f.answer_bytes("Fetch", data), "data", repr(data))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.NONE, ("NONE", "no error")),
        (0, ("no error",)),
        (12345, ("12345", "rewrite")),
        ("NOT_LEADER_OR_FOLOWER", ("did you mean ErrorCode.NOT_LEADER_OR_FOLLOWER?",)),
        (None, ("code",)),
        (True, ("code", "True")),
    ],
)
def test_an_error_is_an_error(cluster: Cluster, code: Any, words: tuple[str, ...]) -> None:
    refuse(cluster, lambda f: f.error("Produce", code), *words)


def test_kafkas_number_of_an_error_will_do(cluster: Cluster) -> None:
    assert cluster.faults.error("Produce", 6).code is NOT_LEADER  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", ["t", None])
@pytest.mark.parametrize("partition", [0, None])
def test_a_broker_of_the_cluster_and_what_it_may_name_is_taken(
    cluster: Cluster, topic: str | None, partition: int | None
) -> None:
    where: Any = {"broker": 3, "client_id": "", "version": 12, "connection": 0, "replica": 2}
    if topic is not None:
        where["topic"] = topic
        if partition is not None:
            where["partition"] = partition
    cluster.faults.hold("Fetch", **where)
    cluster.faults.delay(None, 0, replica="any")
    assert len(list(cluster.faults)) == 2


@pytest.mark.parametrize("partition", [-1, "0", None])
def test_a_corrupt_fetch_is_of_a_partition(cluster: Cluster, partition: Any) -> None:
    refuse(cluster, lambda f: f.corrupt_fetch("t", partition), "partition", repr(partition))
    refuse(cluster, lambda f: f.corrupt_fetch(b"t"), "topic")
    refuse(cluster, lambda f: f.corrupt_fetch("t", broker=9), "1, 2, 3")


def test_a_cut_request_is_matched_by_its_header(cluster: Cluster) -> None:
    refuse(cluster, lambda f: f.cut_request("Produce", byte=1, topic="t"), "topic", "cut_request")
    refuse(cluster, lambda f: f.cut_request("Fetch", byte=1, replica=2), "replica")
