"""The clock that reads the running loop's time, and the one that is bound to a loop."""

from __future__ import annotations

import asyncio
import time

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


async def bound_clock() -> SystemClock:
    clock = SystemClock()
    clock.bind_to_loop()
    return clock


def test_a_bound_clock_reads_where_its_loop_reads() -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        assert loop.run_until_complete(bound_clock()).now is time.monotonic
    finally:
        loop.close()


@pytest.mark.parametrize("of", ["loop", "its class", "asyncio's base class"])
def test_a_bound_clock_follows_a_loop_with_a_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    loop = asyncio.SelectorEventLoop()
    if of == "loop":
        monkeypatch.setattr(loop, "time", lambda: 42.0)
    else:
        owner = type(loop) if of == "its class" else asyncio.BaseEventLoop
        monkeypatch.setattr(owner, "time", lambda loop: 42.0)
    try:
        assert loop.run_until_complete(bound_clock()).now() == 42.0
    finally:
        loop.close()


async def test_a_started_client_has_a_bound_clock() -> None:
    async with Cluster() as cluster, Producer(bootstrap=cluster.bootstrap) as producer:
        clock = producer._core.clock
        assert isinstance(clock, SystemClock)
        await asyncio.to_thread(clock.now)  # raises where it asks for the running loop
