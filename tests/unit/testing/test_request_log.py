"""The log of requests, and the names by which tests give an API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument, RequestTimedOut
from kclient.protocol.api_versions import request_class
from kclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kclient.testing.api_versions import api_key_of
from kclient.testing.request_log import RequestLog, ServedRequest
from tests.unit.testing.calls import produce


def is_big(one: ServedRequest) -> bool:
    return one.size_bytes > 1 << 20


def entry(api_key: int = 1, broker: int = 1) -> ServedRequest:
    return ServedRequest(0.0, broker, api_key, "x", 0, 0, None, 1, 10, request_class(api_key)())


@pytest.mark.parametrize("api", [FetchRequest, "Fetch", 1])
def test_an_api_has_three_names(api: object) -> None:
    assert api_key_of(api) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("api", ["fetch", 9999, dict])
def test_what_is_no_api_is_refused(api: object) -> None:
    with pytest.raises(InvalidArgument, match="neither a request class"):
        api_key_of(api)  # type: ignore[arg-type]


async def test_what_could_never_be_found_is_refused() -> None:
    log = RequestLog()
    for api, words in (("Prodce", "did you mean 'Produce'?"), ("Vote", "isn't served")):
        with pytest.raises(InvalidArgument, match=words):
            log.of(api)
        with pytest.raises(InvalidArgument, match=words):
            log.count(api)
        with pytest.raises(InvalidArgument, match=words):
            await log.wait_for(api)
        with pytest.raises(InvalidArgument, match=words):
            await log.wait_count(api, 1)
    for broker in ("1", 0, True):
        with pytest.raises(InvalidArgument, match=r"broker=.* must be an int of at least 1"):
            log.of("Fetch", broker=broker)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"broker=.* must be an int of at least 1"):
            await log.wait_for("Fetch", broker=broker)  # type: ignore[arg-type]
    for count in ("1", -1, 1.5, None):
        with pytest.raises(InvalidArgument, match=r"count=.* must be an int of at least 0"):
            await log.wait_count("Fetch", count)  # type: ignore[arg-type]
    for what in (None, 1.0, ["Fetch"], True):
        with pytest.raises(InvalidArgument, match="neither a request class"):
            await log.wait_for(what)  # type: ignore[arg-type]


def test_entries_are_kept_in_order_up_to_the_limit() -> None:
    log = RequestLog(limit=2)
    for broker in (1, 2, 3):
        log.add(entry(broker=broker))
    assert [one.broker for one in log] == [2, 3]
    assert len(log) == 2
    assert log.count("Fetch") == 3


def test_entries_are_found_by_api_and_broker() -> None:
    log = RequestLog()
    for api_key, broker in ((1, 1), (1, 2), (0, 1)):
        log.add(entry(api_key, broker))
    assert len(log.of("Fetch")) == 2
    assert len(log.of("Fetch", broker=2)) == 1
    assert log.of("Metadata") == []


def test_clear_forgets_entries_and_counts() -> None:
    log = RequestLog()
    log.add(entry())
    log.clear()
    assert (len(log), log.count("Fetch")) == (0, 0)


async def test_waiting_ends_when_the_count_is_there() -> None:
    log = RequestLog()

    async def add() -> None:
        log.add(entry())
        log.add(entry(0))
        assert not waiting.done()
        log.add(entry())

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(log.wait_count("Fetch", 2))
        group.create_task(add())
    await log.wait_count("Fetch", 1)


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    log = RequestLog()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await log.wait_count("Fetch", 1)
    log.add(entry())


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (lambda log: log.wait_for("Produce", timeout=0.01), r"no Produce within 0\.01 s"),
        (
            lambda log: log.wait_for("Fetch", broker=2, answered=True, timeout=0),
            "no Fetch to broker 2 with its answer within 0 s",
        ),
        (
            lambda log: log.wait_for(is_big, replicas=True, timeout=0),
            "no request for which is_big holds within 0 s",
        ),
        (lambda log: log.wait_count("Fetch", 9, timeout=0), "7 of 9 Fetch requests within 0 s"),
    ],
)
async def test_a_wait_in_vain_names_what_was_there(wait: Callable[[Any], Any], text: str) -> None:
    log = RequestLog()
    with pytest.raises(RequestTimedOut, match=r"no Produce .*; the last requests: none"):
        await log.wait_for("Produce", timeout=0)
    for broker in range(3, 10):
        log.add(entry(broker=broker))
    with pytest.raises(RequestTimedOut, match=text) as reported:
        await wait(log)
    assert [f"to broker {one}" in str(reported.value) for one in (4, 5, 9)] == [False, True, True]
    log.add(entry(broker=2))
    log.add(entry(0))


@pytest.mark.parametrize("timeout", [-1, "1", True])
async def test_a_time_that_is_none_is_refused(timeout: Any) -> None:
    log = RequestLog()
    with pytest.raises(InvalidArgument, match="timeout"):
        await log.wait_for("Fetch", timeout=timeout)
    with pytest.raises(InvalidArgument, match="timeout"):
        await log.wait_count("Fetch", 1, timeout=timeout)


async def test_a_time_out_of_the_condition_is_its_own() -> None:
    log = RequestLog()

    def condition(one: ServedRequest) -> bool:
        raise TimeoutError("the test's")

    waiting = asyncio.ensure_future(log.wait_for(condition, timeout=60))
    await asyncio.sleep(0)
    log.add(entry())
    with pytest.raises(TimeoutError, match="the test's"):
        await waiting


def test_the_bytes_that_are_kept_are_bounded() -> None:
    log = RequestLog(limit_bytes=100)
    entries = [entry() for _ in range(20)]
    for one in entries:
        log.add(one)
    assert len(log) == 10
    log.answered(entries[-1], FetchResponse(), 1.0, 35, True)
    assert len(log) == 6
    log.answered(entries[0], FetchResponse(), 1.0, 1000, True)  # dropped long ago
    assert len(log) == 6
    log.answered(entries[-2], FetchResponse(), 1.0, 1000, True)
    assert list(log) == entries[-1:]
    log.clear()
    log.answered(entries[-1], FetchResponse(), 1.0, 1000, True)
    log.add(entry())
    assert len(log) == 1


def test_records_do_not_count() -> None:
    log = RequestLog(limit_bytes=1200)
    for _ in range(20):
        one = entry(0)
        one.request = produce("t", bytes(5000))
        one.size_bytes = 5040
        log.add(one)
        log.over(one)
        assert one.request.topic_data[0].partition_data[0].records is None
    assert len(log) == 20
    for _ in range(20):
        one = entry(1)
        log.add(one)
        part = PartitionData(0, records=bytes(5000))
        response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[part])])
        log.answered(one, response, 1.0, 5010, True)
        assert part.records is None
    assert len(log) == 40


def test_requests_of_followers_have_limits_of_their_own() -> None:
    log = RequestLog(limit=2)
    log.add(entry())
    for _ in range(5):
        one = entry()
        one.request = FetchRequest(replica_id=2)
        log.add(one)
    assert (len(log), len(log.all(replicas=True))) == (1, 3)
    assert (log.count(1), log.count(1, replicas=True)) == (1, 6)


async def test_waiting_for_a_count_may_include_followers() -> None:
    log = RequestLog()
    waiting = asyncio.ensure_future(log.wait_count(1, 2, replicas=True))
    await asyncio.sleep(0)
    for node_id in (-1, 2):
        assert not waiting.done()
        one = entry()
        one.request = FetchRequest(replica_id=node_id)
        log.add(one)
    await waiting


def test_errors_are_found_wherever_they_are() -> None:
    one = entry(3)
    assert one.errors == []
    one.response = MetadataResponse(
        topics=[
            MetadataResponseTopic(3, "a"),
            MetadataResponseTopic(
                0, "b", partitions=[MetadataResponsePartition(code) for code in (5, 3, 1234)]
            ),
        ]
    )
    assert one.errors == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        1234,
    ]
    one.response = b"\0"
    assert one.errors == []
