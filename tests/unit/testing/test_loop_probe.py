"""The probe that measures how long callbacks block the loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kclient.testing import LoopProbe


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_the_longest_callback_is_found_in_cpu_time() -> None:
    async def main() -> None:
        burn(0.03)

    with LoopProbe() as probe:
        asyncio.run(main())
    assert 0.03 <= probe.longest < 1
    assert "task" in probe.longest_callback
    assert probe.callbacks > 0


def test_waiting_does_not_count() -> None:
    async def main() -> None:
        threading.Event().wait(0.05)  # blocks the loop without using CPU

    with LoopProbe() as probe:
        asyncio.run(main())
    assert probe.longest < 0.05


def test_a_probe_leaves_the_loop_as_it_was() -> None:
    before = asyncio.Handle._run
    with LoopProbe() as probe, pytest.raises(RuntimeError, match="already on"):
        probe.__enter__()
    assert asyncio.Handle._run is before
