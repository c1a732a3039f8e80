"""Group members in generated runs: calls cancelled at any await, slow functions, closes.

Workers share items, which one worker at a time may have. A worker has an item from the moment at
which its ``on_assigned`` takes it until its ``on_revoked`` ends or its ``on_lost`` begins. Whatever
is cancelled: no item has two workers, a member that is closed has none, and once the trouble is
over every item has a worker.

Two cases are left out where brokers hang: a coordinator that was loaded again responds to JoinGroup
and SyncGroup without a session of its own behind it, so a member is sure of its assignment with the
first heartbeat only; and ``on_lost`` waits for the end of an ``on_assigned`` in progress.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

import kclient
from kclient.errors import ClientClosed, KafkaError
from kclient.events import RequestCompleted
from kclient.testing import Cluster, run_virtually
from tests.virtual.cancelling import Cancelling, Moment
from tests.virtual.pool import G, member_of

ITEMS = 6
WORKERS = 4
LIVES = 8
"""Members that a worker makes one after the other in a run, and cancels the calls of."""
TIMEOUTS = (0.0, 0.3, 5.0)
"""Seconds that a close has."""
SEEDS = range(15)
LONG_SEEDS = range(1000, 1300)


class Bug(Exception):
    """An error of the user's code."""


class Items:
    """The protocol of one member: items assigned round robin, by functions that take time."""

    name = type = "items"

    def __init__(self, run: Run, worker: str) -> None:
        self._run = run
        self._rng = run.rng
        self.worker = worker
        self.member: kclient.GroupMember | None = None
        self.reported: list[str] = []
        self._given_at = 0.0
        self._proved = False
        self.had: set[int] = set()

    def metadata(self) -> bytes:
        return self.worker.encode()

    async def assign(self, members: Sequence[kclient.JoinedMember]) -> Mapping[str, bytes]:
        await self._dawdle()
        ids = sorted(one.member_id for one in members)
        return {one: bytes(range(number, ITEMS, len(ids))) for number, one in enumerate(ids)}

    async def on_assigned(self, assignment: kclient.GroupAssignment) -> None:
        self.reported.append("on_assigned")
        self._given_at, self._proved = asyncio.get_running_loop().time(), False
        if self._rng.random() < 0.5:
            await self._dawdle(fails=False)  # or nothing would have its items, and rightly so
        self._take(assignment)
        await self._dawdle()

    async def on_revoked(self, assignment: kclient.GroupAssignment) -> None:
        self.reported.append("on_revoked")
        try:
            await self._dawdle()
        finally:
            self.had.clear()

    async def on_lost(self, error: KafkaError) -> None:
        self.reported.append("on_lost")
        self.had.clear()
        await self._dawdle()

    def _take(self, assignment: kclient.GroupAssignment) -> None:
        if self.had:
            self._run.wrong(f"{self.worker} is given items while it has {self.had}")
        self.had = set(assignment.data)
        for other in self._run.protocols:
            if other is not self and other.had & self.had and self._is_sure and other._is_sure:
                self._run.wrong(f"{self.worker} and {other.worker} have {other.had & self.had}")

    @property
    def _is_sure(self) -> bool:
        assert self.member is not None
        just_given = asyncio.get_running_loop().time() == self._given_at
        return self.member.generation is not None and (self._proved or just_given)

    def observe(self, event: object) -> None:
        """As an observer of the member's events."""
        if isinstance(event, RequestCompleted) and event.api == "Heartbeat" and not event.error:
            self._proved = True

    async def _dawdle(self, *, fails: bool = True) -> None:
        if self._run.calm:
            return
        if self._rng.random() < 0.6:
            await asyncio.sleep(self._rng.choice((0, 0.001, 0.05, 0.5, 3.0)))
        if fails and self._rng.random() < 0.05:
            raise Bug


class Run:
    """One run.

    Args:
        seed: Decides all.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.protocols: list[Items] = []
        self.members: dict[str, kclient.GroupMember] = {}
        self.seen: dict[str, kclient.GroupAssignment] = {}
        self.trouble: list[str] = []
        self.calm = False

    def wrong(self, what: str) -> None:
        """Record a violation."""
        self.trouble.append(f"{asyncio.get_running_loop().time():.3f}: {what}")

    async def play(self) -> None:
        """Make trouble, and judge."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.wrong(f"reached the loop: {context!r}"))
        async with Cluster(brokers=3) as self.cluster:
            meddling = loop.create_task(self._meddle())
            await asyncio.gather(*(self._live(f"w{n}") for n in range(WORKERS)))
            meddling.cancel()
            self.cluster.faults.clear()
            self.calm = True
            followers = [loop.create_task(self._follow(worker)) for worker in self.members]
            await self._settle()
            for worker in self.members:
                await self._close(worker)
            await asyncio.gather(*followers)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            self.trouble += [f"left behind: {task!r}" for task in left]
        assert not self.trouble, "\n".join(self.trouble)

    async def _settle(self) -> None:
        """Every item has one worker, soon."""
        try:
            async with asyncio.timeout(90):
                while not self._all_owned():  # noqa: ASYNC110 - it is cheap on virtual time
                    await asyncio.sleep(0.1)
        except TimeoutError:
            for worker, member in self.members.items():
                self.wrong(f"{worker}: {member.assignment} {member.health()}")

    def _all_owned(self) -> bool:
        owned = [item for protocol in self.protocols for item in protocol.had]
        given = {worker: member.assignment for worker, member in self.members.items()}
        return sorted(owned) == list(range(ITEMS)) and given == self.seen

    async def _meddle(self) -> None:
        """Trouble at the brokers."""
        loop: Any = asyncio.get_running_loop()
        rng = self.rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / 4.0))
            match rng.randrange(3):
                case 0:
                    self.cluster.move_coordinator(G, rng.randrange(3) + 1)
                case 1:
                    loop.network.cut()
                case 2:
                    fault = self.cluster.faults.hang(broker=rng.randrange(3) + 1)
                    loop.call_later(rng.uniform(0, 14), self.cluster.faults.remove, fault)

    # A worker

    async def _live(self, worker: str) -> None:
        rng = self.rng
        for _ in range(LIVES):
            member = self._make(worker)
            calls = [member.start()]
            calls += [rng.choice(CALLS)(member) for _ in range(rng.randrange(5))]
            calls += [member.close(rng.choice(TIMEOUTS)) for _ in range(rng.randrange(3))]
            while calls:
                at_once = [calls.pop(0) for _ in range(rng.choice((1, 1, 2, 3))) if calls]
                await asyncio.gather(*map(self._cancelled, at_once))
            await self._close(worker)
            await asyncio.sleep(rng.choice((0, 0, 0.01, 1.0)))
        await self._make(worker).start()

    def _make(self, worker: str) -> kclient.GroupMember:
        protocol = Items(self, worker)
        self.protocols.append(protocol)
        settings: dict[str, Any] = {"bootstrap_timeout": 60.0, "observers": [protocol]}
        protocol.member = self.members[worker] = member_of(self.cluster, protocol, **settings)
        return protocol.member

    async def _follow(self, worker: str) -> None:
        """Take each assignment of the last member, by steps that are cancelled all the time."""
        steps = self.members[worker].assignments()
        while True:
            step = asyncio.ensure_future(anext(steps))
            await asyncio.wait([step], timeout=self.rng.choice((0, 0.01, 1.0)))
            step.cancel()
            try:
                self.seen[worker] = await step
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)
            except Bug:  # of before
                pass
            except StopAsyncIteration:
                return

    async def _cancelled(self, call: Coroutine[Any, Any, Any]) -> None:
        """Cancel ``call`` at one of its suspensions, or after a while."""
        moment = self.rng.choice(list(Moment))
        driver = Cancelling(call, self.rng.choice((0, 1, 2, 3, 5, 8)), moment)
        task = asyncio.create_task(_await(driver))
        cut = asyncio.get_running_loop().call_later(self.rng.choice((0.01, 1, 20)), task.cancel)
        await asyncio.wait([task])
        cut.cancel()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, KafkaError | Bug):
            self.wrong(f"{error!r}")

    async def _close(self, worker: str) -> None:
        member = self.members[worker]
        await member.close(self.rng.choice(TIMEOUTS))
        protocol: Any = member._host._protocol
        if protocol.had:
            self.wrong(f"{worker} is closed and has {protocol.had}: {protocol.reported[-5:]}")
        if member.assignment is not None:
            self.wrong(f"{worker} is closed and has {member.assignment}")
        with pytest.raises(ClientClosed):
            await member.joined()


async def _await(driver: Cancelling) -> Any:
    return await driver


async def _joined(member: kclient.GroupMember) -> None:
    await member.joined(20.0)


async def _wait_for_rebalance(member: kclient.GroupMember) -> None:
    member.rejoin("a test")
    await member.wait_for_rebalance(20.0)


async def _iterate(member: kclient.GroupMember) -> None:
    async for _ in member.assignments():
        pass


CALLS: list[Callable[[kclient.GroupMember], Coroutine[Any, Any, None]]] = [
    _joined,
    _wait_for_rebalance,
    _iterate,
]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_item_has_two_workers_or_none_whatever_is_cancelled(seed: int) -> None:
    run_virtually(Run(seed).play(), seed=seed, limit=3_000)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_no_item_has_two_workers_or_none_in_many_runs(fewer_seeds: int) -> None:
    for seed in LONG_SEEDS[::fewer_seeds]:
        run_virtually(Run(seed).play(), seed=seed, limit=3_000)
