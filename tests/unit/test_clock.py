"""The clock that reads the running loop's time, and the one that is bound to a loop."""

from __future__ import annotations

import asyncio

import pytest

from kclient import Producer
from kclient.clock import SystemClock
from kclient.testing import Cluster


def test_a_clock_reads_the_loop_that_runs() -> None:
    clock = SystemClock()
    with pytest.raises(RuntimeError):
        clock.now()

    async def gap() -> float:
        return clock.now() - asyncio.get_running_loop().time()

    for _ in range(2):
        assert 0 >= asyncio.run(gap()) > -1


def test_a_bound_clock_reads_its_loop_directly() -> None:
    async def bound() -> object:
        clock = SystemClock()
        clock.bind_to_loop()
        assert 0 >= clock.now() - asyncio.get_running_loop().time() > -1
        return clock.now

    first = asyncio.run(bound())
    assert callable(first)  # no loop runs: the bound clock works without one
    first()


async def test_a_bound_clock_follows_a_loop_with_a_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 42.0)
    clock = SystemClock()
    clock.bind_to_loop()
    assert clock.now() == 42.0


async def test_a_started_client_has_a_bound_clock() -> None:
    async with Cluster() as cluster, Producer(bootstrap=cluster.bootstrap) as producer:
        clock = producer._core.clock
        assert isinstance(clock, SystemClock)
        await asyncio.to_thread(clock.now)  # raises where it asks for the running loop
