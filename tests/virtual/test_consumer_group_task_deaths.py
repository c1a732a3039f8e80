"""No internal task of a consumer in a group dies in silence: each is killed, in each phase.

As ``test_task_deaths`` does for clients without a group. The tasks are those that ``health()``
names in that phase. Within a second every waiter, and the next call, gets ``BackgroundTaskDied``,
or the task was restarted, which is counted; ``close`` works in any case.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import kclient
from kclient.errors import BackgroundTaskDied, ClientClosed
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.virtual.cancelling import client_timers
from tests.virtual.consumer_scene import T, fill, until
from tests.virtual.group_scene import GROUP, SETTINGS

SOON = 1.0
CLOSE = 3.0
P = TopicPartition(T, 0)


class Boom(RuntimeError):
    """What is thrown into a task."""


class Kill(enum.Enum):
    """How a task is killed."""

    CANCEL = "cancelled from outside"
    THROW = "an exception out of what it awaits"


class Phase(enum.Enum):
    """The phase of the member, and which request of it is held."""

    FINDING = "FindCoordinator"
    JOINING = "JoinGroup"
    SYNCING = "SyncGroup"
    STARTING = "OffsetFetch"
    READING = None
    RUNNING = "none: handlers of run() are at work"
    COMMITTING = "OffsetCommit"
    UNSUBSCRIBING = "LeaveGroup"
    THROWN_OUT = "LeaveGroup, as no poll came for long"
    CLOSING = "LeaveGroup, in close"


async def _work(_: object) -> None:
    await asyncio.sleep(0.3)


class World:
    """A cluster, a member, and calls of it that wait."""

    def __init__(self, phase: Phase) -> None:
        self.cluster = Cluster(brokers=2)
        self.phase = phase
        self.waiting: list[asyncio.Task[Any]] = []

    async def set_up(self) -> None:
        """Bring the member to its phase."""
        phase, faults = self.phase, self.cluster.faults
        fill(self.cluster, 20, 2)
        late = phase is Phase.THROWN_OUT
        self.client: Any = kclient.Consumer(
            self.cluster.bootstrap,
            T,
            group=GROUP,
            **{**SETTINGS, "max_poll_interval": 2.0 if late else 300.0},
        )
        held = None
        if phase in (Phase.FINDING, Phase.JOINING, Phase.SYNCING, Phase.STARTING):
            held = faults.hold(phase.value, times=None)  # type: ignore[arg-type]
        await self.client.start()
        if held is None and phase is not Phase.RUNNING:
            assert await self.client.poll(timeout=None)
        if phase is Phase.COMMITTING:
            held = faults.hold("OffsetCommit", times=None)
            self._wait(self.client.commit(), "commit")
        elif phase in (Phase.UNSUBSCRIBING, Phase.THROWN_OUT, Phase.CLOSING):
            held = faults.hold("LeaveGroup", times=None)
            if phase is Phase.UNSUBSCRIBING:
                self._wait(self.client.unsubscribe(), "unsubscribe")
            elif phase is Phase.CLOSING:
                self._wait(self.client.close(CLOSE), "the close")
        if held is not None:
            await until(lambda: held.held)
        if phase is Phase.RUNNING:
            self._wait(self.client.run(_work), "run")
        elif phase not in (Phase.THROWN_OUT, Phase.CLOSING, Phase.UNSUBSCRIBING):
            self._wait(self._read(), "reader")
        if phase is not Phase.CLOSING:
            self._wait(self.client.partitions_for("nowhere"), "partitions_for")
        await asyncio.sleep(0.1 if phase is Phase.RUNNING else 0.01)

    async def _read(self) -> None:
        while True:
            await self.client.poll(timeout=None)

    def _wait(self, call: Coroutine[Any, Any, Any], name: str) -> None:
        self.waiting.append(asyncio.get_running_loop().create_task(call, name=name))


def play(phase: Phase, then: Callable[[World], Awaitable[Any]]) -> Any:
    """Run one world, and see that it leaves nothing behind."""
    reported: list[str] = []

    async def main() -> Any:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context)))
        world = World(phase)
        async with world.cluster:
            await world.set_up()
            result = await then(world)
            began = loop.time()
            await world.client.close(CLOSE)
            assert loop.time() - began <= CLOSE + 1.0
            await asyncio.gather(*world.waiting, return_exceptions=True)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert client_timers(loop) == []
            assert world.client.health().client.tasks == ()
            with pytest.raises(ClientClosed):
                await world.client.poll(timeout=0.1)
        return result

    result = run_virtually(main(), limit=120.0)
    assert reported == []
    return result


def tasks_in(phase: Phase) -> tuple[str, ...]:
    """The names of the tasks that a member has then."""

    async def look(world: World) -> tuple[str, ...]:
        return tuple(sorted(set(world.client.health().client.tasks)))

    found: tuple[str, ...] = play(phase, look)
    return found


CASES = [(phase, name, kill) for phase in Phase for name in tasks_in(phase) for kill in Kill]


@pytest.mark.parametrize(
    ("phase", "name", "kill"),
    CASES,
    ids=[f"{phase.name}-{name}-{kill.name}".lower() for phase, name, kill in CASES],
)
def test_no_task_of_a_member_dies_in_silence(phase: Phase, name: str, kill: Kill) -> None:
    async def then(world: World) -> None:
        victim = next(task for task in asyncio.all_tasks() if task.get_name() == name)
        await _kill(victim, kill)
        await asyncio.sleep(0.01)
        metrics = world.client.metrics()
        if name.startswith("kclient:close"):
            assert metrics["tasks.restarted"] == 1
            return
        if name == "kclient:run-feeder" and kill is Kill.THROW:
            # What polling raises ends the run only.
            [run] = [task for task in world.waiting if task.get_name() == "run"]
            with pytest.raises(Boom):
                await run
            assert world.client.health().client.state == "running"
            return
        assert metrics["tasks.died"] == 1, "nobody knows"
        if world.waiting:
            _, hanging = await asyncio.wait(world.waiting, timeout=SOON)
            assert not hanging
        for call in world.waiting:
            error = call.exception()
            if phase is Phase.CLOSING:
                assert error is None or isinstance(error, (ClientClosed, BackgroundTaskDied))
            else:
                _is_the_death(error, kill)
        if phase is not Phase.CLOSING:
            for use in (world.client.poll(timeout=0.1), world.client.commit({P: 1})):
                async with asyncio.timeout(SOON):
                    with pytest.raises(BackgroundTaskDied) as caught:
                        await use
                _is_the_death(caught.value, kill)
            assert not world.client.health().ok
            assert world.client.health().client.state == "failed"

    play(phase, then)


async def _kill(victim: asyncio.Task[Any], kill: Kill) -> None:
    if kill is Kill.CANCEL:
        victim.cancel()
        return
    for _ in range(5):
        waits_for: Any = victim._fut_waiter  # type: ignore[attr-defined]
        if waits_for is not None and not waits_for.done():
            waits_for.set_exception(Boom("thrown in"))
            return
        await asyncio.sleep(0)
    pytest.fail(f"{victim!r} waits for nothing")


def _is_the_death(error: BaseException | None, kill: Kill) -> None:
    assert isinstance(error, BackgroundTaskDied), repr(error)
    assert error.fatal
    if kill is Kill.THROW:
        assert isinstance(error.__cause__, Boom), repr(error.__cause__)
    else:
        assert "was cancelled from outside" in str(error)


def test_the_tasks_of_a_member_are_all_there() -> None:
    """Or else the cases above would be fewer than they should be."""
    found = {name.removeprefix("kclient:") for _, name, _ in CASES}
    assert found >= {
        *("membership", "heartbeats", "commits", "committed-offsets", "unsubscribe"),
        *(
            "run-feeder",
            "leave-group",
            "offsets",
            "metadata",
            "fetch-1",
            "fetch-2",
            "close-consumer",
        ),
    }
