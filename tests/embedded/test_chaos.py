"""A small but whole chaos run on the embedded cluster: it finishes, and it detects a bug.

``python -m tests.chaos`` tests what only real nodes show. Here a cluster on the test's loop stands
in for them; the run's threads call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from kclient.testing import Cluster
from tests.chaos import load, nemesis, plan, run
from tests.chaos.plan import Wishes
from tests.chaos.readers import Reader
from tests.chaos.report import Result, figures, shortfalls, text
from tests.history import Kind
from tests.support.standstill import Standstill

T = TypeVar("T")
WISHES = Wishes(records=5_000, kills=1, stops=0, cuts=12, partitions=4, seed=187)
"""With this seed the kill comes early and is short."""
STANDSTILL = 1.0
"""Seconds. A run takes two or three: a longer standstill makes its figures those of the machine."""
ATTEMPTS = 3


class Standin:
    """The embedded cluster with the interface that ``run`` needs: thread-safe blocking calls."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self.bootstrap = cluster.bootstrap
        self._killed: set[int] = set()

    def address(self, node: int) -> tuple[str, int]:
        broker = self._cluster.brokers[node]
        return broker.host, broker.port

    def alive(self, node: int) -> bool:
        return node not in self._killed

    def kill(self, node: int) -> None:
        self._killed.add(node)
        self._wait(self._cluster.crash(node))

    def restart(self, node: int) -> None:
        self._wait(self._cluster.restart(node))
        self._killed.remove(node)

    def pause(self, node: int) -> None:
        raise NotImplementedError("a broker in this process can't be stopped")

    def resume(self, node: int) -> None:
        raise NotImplementedError("a broker in this process can't be stopped")

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: dict[str, object] | None = None
    ) -> None:
        self._wait(self._create(name, partitions))

    def leaders(self, topic: str) -> dict[int, int]:
        return self._wait(self._leaders(topic))

    def wait_full_isr(self, *topics: str, timeout: float = 60.0) -> None:
        assert not self._killed, "one node at a time, and the next only when it is back"

    async def _create(self, name: str, partitions: int) -> None:
        self._cluster.create_topic(name, partitions=partitions, replication_factor=3)

    async def _leaders(self, topic: str) -> dict[int, int]:
        count = self._cluster.partition_count(topic)
        return {partition: self._cluster.leader(topic, partition) for partition in range(count)}

    def _wait(self, work: Awaitable[T]) -> T:
        async def waiting() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(waiting(), self._loop).result(30.0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits of a run between its faults and after the last one."""
    monkeypatch.setattr(plan, "KILL_TAKES", 1.0)
    monkeypatch.setattr(plan, "SHORTEST", 1.0)
    monkeypatch.setattr(run, "SETTLE", 0.5)
    monkeypatch.setattr(nemesis, "CALM", 0.1)
    monkeypatch.setattr(nemesis, "PATIENCE", 0.2)


@asynccontextmanager
async def standin() -> AsyncIterator[Standin]:
    async with asyncio.timeout(60.0), Cluster(brokers=3) as cluster:
        yield Standin(cluster)


async def chaos() -> Result:
    result = await run_through()
    known = figures(result)
    # Here a leader is replaced at once, so no record of a producer expires.
    for line in shortfalls(result, known):
        assert "no record failed" in line or "records offered within 5 s" in line, line
    assert result.count("kill") == 1
    assert result.count("cut") == 12
    assert result.ledger.acked >= 5_000
    assert "12 cuts" in text(result, known)
    return result


async def run_through() -> Result:
    """Run until one is without a standstill of the machine as long as a kill takes."""
    for _ in range(ATTEMPTS):
        with Standstill() as standstill:
            async with standin() as nodes:
                result = await run.run(WISHES, nodes, lambda line: None)
        if standstill.longest < STANDSTILL:
            return result
    pytest.fail(
        f"the machine stood still for {standstill.longest:.1f} s in each of {ATTEMPTS} runs"
    )


async def test_a_small_run_comes_to_its_end_and_finds_nothing_wrong() -> None:
    result = await chaos()
    assert result.verdict, text(result, figures(result))
    assert result.ledger.acked <= result.found <= result.ledger.offered
    assert result.verdict.report.delivered >= 2 * result.found


async def test_a_producer_that_is_not_idempotent_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same run without idempotence, as if the client had a bug that writes duplicates."""
    monkeypatch.setattr(load, "COMMON", {**load.COMMON, "idempotence": False})
    result = await chaos()
    assert not result.verdict
    assert Kind.DUPLICATE in result.verdict.report.kinds


async def test_a_consumer_that_dies_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(reader: Reader) -> None:
        await asyncio.sleep(0.3)
        raise LookupError("of its own")

    monkeypatch.setattr(Reader, "_read", dies)
    async with standin() as nodes:
        with pytest.raises(ExceptionGroup) as caught:
            await run.run(WISHES, nodes, lambda line: None)
    assert caught.group_contains(LookupError, match="of its own")
