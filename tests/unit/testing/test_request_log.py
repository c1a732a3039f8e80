"""The log of requests, and how tests name an API."""

from __future__ import annotations

import asyncio

import pytest

from kclient.errors import InvalidArgument
from kclient.protocol.messages.fetch import FetchRequest
from kclient.testing.api_names import api_key_of
from kclient.testing.request_log import RequestLog, ServedRequest


def entry(api_key: int = 1, broker: int = 1) -> ServedRequest:
    return ServedRequest(0.0, broker, api_key, "x", 0, 0, None, 1, 10, None)


@pytest.mark.parametrize("api", [FetchRequest, "Fetch", 1])
def test_an_api_has_three_names(api: object) -> None:
    assert api_key_of(api) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("api", ["fetch", 9999, dict])
def test_what_is_no_api_is_refused(api: object) -> None:
    with pytest.raises(InvalidArgument, match="neither a request class"):
        api_key_of(api)  # type: ignore[arg-type]


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


async def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    log = RequestLog()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await log.wait_count("Fetch", 1)
    log.add(entry())
