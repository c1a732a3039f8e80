"""Members of a group while everything happens at random: afterwards all are in one generation.

The host's calls are compared with the contract of ``MembershipHost``: one at a time, nothing
assigned that wasn't requested, nothing lost that wasn't assigned.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing import Cluster, VirtualLoop, run_virtually
from tests.virtual.members import G, Worker, settled, until

OPERATIONS = 60
SEEDS = range(12)
CODES = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class Judged(Worker):
    """A worker that checks the order of the calls that it receives."""

    def __init__(self, cluster: Cluster, name: str, **settings: Any) -> None:
        super().__init__(cluster, name, **settings)
        self.inside: str | None = None
        self.wrong_order: list[str] = []

    async def _notify(self, what: str, detail: Any = None) -> None:
        if self.inside is not None:
            self.wrong_order.append(f"{what} inside of {self.inside}")
        before = [reported for reported in self.calls if reported != "interrupt"][-1:]
        if what == "assigned" and before not in (["prepare"], ["assign"]):
            self.wrong_order.append(f"assigned after {before}")
        if what == "lost" and before == ["lost"]:
            self.wrong_order.append("lost twice")
        self.inside = what
        try:
            await super()._notify(what, detail)
        finally:
            self.inside = None


class Run:
    """One run.

    Args:
        seed: Decides all.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.workers: list[Judged] = []
        self.left: set[str] = set()
        self.jobs: list[asyncio.Task[Any]] = []

    async def play(self) -> None:
        """Start, make trouble, heal, judge."""
        async with Cluster(brokers=3) as cluster:
            self.cluster = cluster
            for number in range(4):
                options = {"group_instance_id": f"s{number}"} if number == 3 else {}
                self.workers.append(Judged(cluster, f"w{number}", **options))
            for worker in self.workers:
                await worker.start()
            for _ in range(OPERATIONS):
                await self.operate()
                await asyncio.sleep(self.rng.expovariate(1 / 2.0))
            await self.heal()
            healed = asyncio.get_running_loop().time()
            await until(
                lambda: settled(self.workers) and not any(w.inside for w in self.workers), 90
            )
            took = asyncio.get_running_loop().time() - healed
            for worker in self.workers:
                assert worker.failure is None, worker.failure
                assert not worker.wrong_order, (worker.name, worker.wrong_order, worker.calls)
            assert took < 60, took
            for worker in self.workers:
                await worker.stop()
                assert worker.calls[-1] == "leaving"

    async def operate(self) -> None:
        """Do anything."""
        rng, cluster = self.rng, self.cluster
        loop: Any = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        worker = rng.choice(self.workers)
        match rng.randrange(10):
            case 0:
                cluster.move_coordinator(G, rng.randrange(3) + 1)
            case 1:
                loop.network.cut()
            case 2:
                fault = cluster.faults.hang(broker=rng.randrange(3) + 1)
                loop.call_later(rng.uniform(0, 25), cluster.faults.remove, fault)
            case 3:
                fault = cluster.faults.unavailable(broker=rng.randrange(3) + 1)
                loop.call_later(rng.uniform(0, 25), cluster.faults.remove, fault)
            case 4:
                worker.member.rejoin("at random")
            case 5:
                self._do(worker.member.leave("at random", timeout=rng.uniform(0, 5)))
                loop.call_later(rng.uniform(0, 10), worker.member.rejoin, "back")
            case 6:
                seconds = rng.uniform(0, 15)
                worker.slow[rng.choice(["prepare", "assign", "assigned", "lost"])] = lambda: (
                    asyncio.sleep(seconds)
                )
            case 7:
                worker.slow.clear()
            case 8:
                api = rng.choice(["JoinGroup", "SyncGroup", "Heartbeat", "FindCoordinator"])
                codes = CODES if api != "FindCoordinator" else CODES[:2]
                cluster.faults.error(api, rng.choice(codes), times=rng.randrange(1, 4))
            case 9:
                api = rng.choice(["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"])
                cluster.faults.lose_answers(api, times=rng.randrange(1, 3))

    def _do(self, call: Any) -> None:
        self.jobs.append(asyncio.get_running_loop().create_task(call))

    async def heal(self) -> None:
        """All is well from now on, and every worker wants to join."""
        await asyncio.sleep(26)
        await asyncio.gather(*self.jobs)
        self.cluster.faults.clear()
        for worker in self.workers:
            worker.slow.clear()
            worker.member.rejoin("healed")


@pytest.mark.parametrize("seed", SEEDS)
def test_after_anything_all_are_in_one_generation(seed: int) -> None:
    run_virtually(Run(seed).play(), seed=seed, limit=3_000)
