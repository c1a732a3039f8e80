"""An embedded cluster without clients takes next to nothing: memory, tasks, timers."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from kclient.testing import Cluster, run_virtually

MOST_MB = 5.0
"""Beyond what the import takes: 0.1 MB is usual, and 15 are allowed."""

_PROGRAM = """
import asyncio, gc, json
from pathlib import Path
import kclient.testing

def memory_mb():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

async def main():
    imported = memory_mb()
    async with kclient.testing.Cluster(brokers=3) as cluster:
        empty = memory_mb() - imported
        cluster.create_topic("flights", partitions=3)
        dials = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(dials)
        await cluster.wait_in_sync(1, 2, 3)
        with_topic = memory_mb() - imported
    print(json.dumps({"empty": empty, "with a topic": with_topic}))

asyncio.run(main())
"""

IDLE_SECONDS = 120.0
"""Longer than a follower may lag: a leader checks the followers of a new topic once."""


async def test_an_idle_cluster_takes_next_to_no_memory() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, stdout=asyncio.subprocess.PIPE
    )
    reported, _ = await process.communicate()
    assert process.returncode == 0
    for when, mb in json.loads(reported).items():
        assert mb < MOST_MB, when


def _at_work() -> tuple[set[asyncio.Task[Any]], list[asyncio.TimerHandle]]:
    """All tasks but the test's, and all timers."""
    loop: Any = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return tasks, [one for one in loop._scheduled if not one.cancelled()]


def test_an_idle_cluster_has_neither_tasks_nor_timers() -> None:
    async def idle() -> None:
        async with Cluster(brokers=3) as cluster:
            assert _at_work() == (set(), [])
            cluster.create_topic("flights", partitions=3)
            await asyncio.sleep(IDLE_SECONDS)
            assert _at_work() == (set(), [])

    run_virtually(idle())
