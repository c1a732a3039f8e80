"""Runs an adapter's coroutine on the loop that the job names. Loaded in workers only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.job import Job, Outcome


def run_on_loop(job: Job, main: Callable[[], Coroutine[Any, Any, Outcome]]) -> Outcome:
    """``asyncio.run`` on asyncio's own loop, or on uvloop."""
    factory = None
    if job.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())
