"""``GroupMember.close`` ends in time in every state of the world, and no task dies in silence."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kclient.clock import SystemClock
from kclient.error_codes import ErrorCode
from kclient.errors import BackgroundTaskDied, ClientClosed, KafkaError
from kclient.network.dialer import TcpDialer
from kclient.testing import Cluster, run_virtually
from tests.virtual.cancelling import client_timers
from tests.virtual.hanging import Hanging
from tests.virtual.pool import G, Pool, member_of


class State(enum.Enum):
    """State of the world when close is called."""

    HEALTHY = "all is well"
    FROZEN = "brokers take connections and bytes, and say nothing"
    REFUSED = "brokers are gone, and their ports refuse"
    COORDINATOR_FROZEN = "one broker says nothing, and it leads the group"
    BOOTSTRAPPING = "the client looks for a first broker, in vain so far"
    DNS_HANGS = "the look-up of the first broker's name hangs"
    NO_COORDINATOR = "nobody leads the group"
    JOINING = "JoinGroup waits for another member"
    PREPARING = "on_revoked doesn't return"
    ASSIGNING = "assign doesn't return"
    TAKING = "on_assigned doesn't return"
    MOVING = "the coordinator moves right now, and every moment"
    LOST = "the session is over, and on_lost doesn't return"
    FAILED = "it can't be a member"
    FORBIDDEN = "it may not be a member for now"
    NO_METADATA = "metadata of the protocol raises"
    CONCURRENT = "several callers close at once"


HANGS = {State.PREPARING: "on_revoked", State.ASSIGNING: "assign", State.TAKING: "on_assigned"}
NEVER_IN = {State.NO_COORDINATOR, State.FAILED, State.FORBIDDEN, State.NO_METADATA}
WELL = {State.HEALTHY, State.CONCURRENT, State.JOINING, State.MOVING, *HANGS}
"""States in which the group receives the LeaveGroup."""


class World:
    """A cluster, a member in a state, another member that sees it leave, and waiting calls."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.cluster = Cluster(brokers=3)
        self.pool = Pool()
        self.waiting: list[asyncio.Task[Any]] = []
        self.timers: list[asyncio.TimerHandle] = []
        self.member: Any = None

    async def set_up(self) -> None:
        state, loop = self.state, asyncio.get_running_loop()
        net: Any = loop.network  # type: ignore[attr-defined]
        if state is State.DNS_HANGS:
            self.member = member_of(
                "kafka.example:9092",
                dialer=TcpDialer(SystemClock(), resolver=_hanging),
                bootstrap_timeout=60.0,
            )
        else:
            self.member = member_of(self.cluster, self.pool)
        if state in (State.BOOTSTRAPPING, State.DNS_HANGS):
            net.blackhole("broker-1")
            net.refuse("broker-2")
            net.refuse("broker-3")
            self._wait(self.member.start())
            await asyncio.sleep(0.3)
            return
        self._trouble_before()
        await self.member.start()
        self._wait(self._iterate())
        if state not in (*NEVER_IN, State.TAKING):
            await self.member.joined(30.0)
        await self._trouble_after(net)
        self._wait(self.member.wait_for_rebalance())
        await asyncio.sleep(0.5 if state is not State.LOST else 15)

    def _trouble_before(self) -> None:
        faults, state = self.cluster.faults, self.state
        if state is State.NO_COORDINATOR:
            faults.error("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None)
        elif state is State.FAILED:
            faults.error("JoinGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif state is State.FORBIDDEN:
            faults.error("JoinGroup", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
        elif state is State.NO_METADATA:
            self.pool.acts["metadata"] = _raise
        elif state is State.TAKING:
            self.pool.acts["on_assigned"] = _for_ever
        elif state is State.LOST:
            self.pool.acts["on_lost"] = _for_ever

    async def _trouble_after(self, net: Any) -> None:
        state, cluster = self.state, self.cluster
        if state in (State.FROZEN, State.LOST):
            net.freeze()
        elif state is State.COORDINATOR_FROZEN:
            cluster.faults.hang(broker=cluster.coordinator(G))
        elif state is State.REFUSED:
            for node_id in cluster.brokers:
                await cluster.crash(node_id)
        elif state is State.JOINING:
            other = Pool()
            other.acts["on_revoked"] = lambda: asyncio.sleep(3)
            self.second = member_of(cluster, other)
            await self.second.start()
            await self.second.joined(30.0)
            self.member.rejoin("a test")
        elif state in HANGS:
            self.pool.acts[HANGS[state]] = _for_ever
            self.member.rejoin("a test")
        elif state is State.MOVING:
            self._move()

    def _move(self) -> None:
        loop = asyncio.get_running_loop()
        self.cluster.move_coordinator(G, self.cluster.coordinator(G) % 3 + 1)
        self.timers.append(loop.call_later(0.02, self._move))

    async def _iterate(self) -> None:
        while True:
            try:
                async for _ in self.member.assignments():
                    pass
            except ZeroDivisionError:
                continue
            return

    def _wait(self, call: Any) -> None:
        self.waiting.append(asyncio.get_running_loop().create_task(call))

    async def tear_down(self) -> None:
        for timer in self.timers:
            timer.cancel()
        if self.state is State.JOINING:
            await self.second.close()


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _raise() -> None:
    raise ZeroDivisionError("a bug of the user")


async def _hanging(host: str, port: int) -> Any:
    await _for_ever()


@pytest.mark.parametrize("timeout", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
def test_close_is_bounded_in_every_state(state: State, timeout: float) -> None:
    reported: list[str] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context)))
        world = World(state)
        async with world.cluster:
            await world.set_up()
            began, many = loop.time(), 5 if state is State.CONCURRENT else 1
            await asyncio.gather(*(world.member.close(timeout) for _ in range(many)))
            assert loop.time() - began <= timeout + 1.0
            await world.tear_down()
            await asyncio.sleep(0)
            _, hanging = await asyncio.wait(world.waiting, timeout=0.01)
            assert not hanging
            for task in world.waiting:
                error = task.exception()
                assert error is None or isinstance(error, KafkaError), repr(error)
            for call in (world.member.joined, world.member.wait_for_rebalance, world.member.start):
                with pytest.raises(ClientClosed):
                    await call()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert client_timers(loop) == []
            if timeout == 5.0 and state in WELL:
                assert world.cluster.requests.of("LeaveGroup")
            loop.network.heal()
            await asyncio.sleep(0.01)
            assert loop.network.links == []

    run_virtually(main(), limit=600.0)
    assert reported == []


@pytest.mark.parametrize("timeout", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("stubborn", [False, True])
def test_what_on_assigned_has_begun_is_revoked_however_little_time_a_close_has(
    stubborn: bool, timeout: float
) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool, hanging = Pool(), Hanging(stubborn=stubborn)
            pool.acts["on_assigned"] = hanging
            member = member_of(cluster, pool)
            await member.start()
            while hanging.began is None:  # noqa: ASYNC110 - it is cheap on virtual time
                await asyncio.sleep(0.01)
            await member.close(timeout)
            assert [name for name in pool.reported if name.startswith("on_")] == [
                "on_assigned",
                "on_revoked",
            ]
            assert member.assignment is None
            hanging.go.set()

    run_virtually(main())


def test_the_others_have_the_work_of_a_leaving_member_within_a_heartbeat() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            async with member_of(cluster, Pool(b"a")) as first:
                async with member_of(cluster, Pool(b"b")) as second:
                    while (await second.joined()).data != b"a,b":  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                began = asyncio.get_running_loop().time()
                while first.assignment is None or first.assignment.data != b"a":  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                assert asyncio.get_running_loop().time() - began <= 3.5

    run_virtually(main())


class Boom(RuntimeError):
    """What is thrown into a task."""


async def _cancel(victim: asyncio.Task[Any]) -> None:
    victim.cancel()


async def _throw(victim: asyncio.Task[Any]) -> None:
    waits_for: Any = victim._fut_waiter  # type: ignore[attr-defined]
    waits_for.set_exception(Boom("thrown in"))


@pytest.mark.parametrize("kill", [_cancel, _throw])
@pytest.mark.parametrize("name", ["membership", "heartbeats", "metadata"])
@pytest.mark.parametrize("when", ["stable", "joining", "in user code"])
def test_no_task_dies_in_silence(
    name: str, when: str, kill: Callable[[asyncio.Task[Any]], Awaitable[None]]
) -> None:
    """R15: every waiter is notified within a second, and the next call raises."""

    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            member = member_of(cluster, pool)
            if when == "joining":
                cluster.faults.hold("JoinGroup", times=None)
            await member.start()
            if when != "joining":
                await member.joined()
            if when == "in user code":
                pool.acts["on_revoked"] = _for_ever
                member.rejoin("a test")
            waiting = asyncio.ensure_future(member.wait_for_rebalance())
            await asyncio.sleep(0.2)
            (victim,) = [t for t in asyncio.all_tasks() if t.get_name() == f"kclient:{name}"]
            await kill(victim)
            _, late = await asyncio.wait([waiting], timeout=1.0)
            assert not late
            if (name, when, kill) == ("membership", "in user code", _throw):
                assert isinstance(waiting.exception(), Boom)  # as if out of the user's own code
                await member.joined()
            else:
                assert isinstance(waiting.exception(), BackgroundTaskDied)
                with pytest.raises(BackgroundTaskDied):
                    await member.joined()
                with pytest.raises(BackgroundTaskDied):
                    member.rejoin("a test")
                assert member.health().client.state == "failed"
                assert not member.health().ok
            pool.acts.clear()
            await member.close(1.0)
            cluster.faults.clear()

    run_virtually(main())
