"""The bench's real runner and worker processes, on a tiny cell against the embedded cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from benchmarks.broker import Address
from benchmarks.cells import CELLS
from benchmarks.results import Run
from benchmarks.runner import Plan, Session
from benchmarks.topics import Topics
from kclient.testing import Cluster


async def test_a_tiny_cell_is_written_and_read_through_the_runner() -> None:
    cells = (
        replace(CELLS["produce: base"], entries=("kclient send_many",)),
        replace(CELLS["consume: base"], entries=("kclient poll", "kclient poll, in a group")),
    )
    async with Cluster(brokers=1) as cluster:
        address = Address(cluster.bootstrap, None, None, "embedded")
        topics = Topics(cluster.bootstrap, "tiny")
        session = Session(address, Plan(cells, rounds=1, records=1_000), topics)
        found: list[Run] = await asyncio.to_thread(session.run)
        await asyncio.to_thread(topics.delete, sorted(topics.alive))
    assert [run.entry for run in found] == [
        "kclient send_many",
        "kclient poll",
        "kclient poll, in a group",
    ]
    for run in found:
        assert "error" not in run.outcome, run.outcome
        assert run.outcome["records"] == 1_000
        assert run.outcome["cpu_us"] > 0
