"""No internal task dies in silence: each of each client is killed, in two ways, in three phases.

The tasks are those that ``health()`` names at run time. Either the client has failed: within a
second every waiter, and the next call, gets ``BackgroundTaskDied`` with the cause; or the task was
restarted, which is counted, and all goes on. ``close`` works in any case, and leaves nothing
behind.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import kclient
from kclient.errors import BackgroundTaskDied, ClientClosed, FlushFailed, KafkaError
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.virtual.cancelling import client_timers

SOON = 1.0
CLOSE = 3.0


class Boom(RuntimeError):
    """What is thrown into a task."""


class Kill(enum.Enum):
    """How a task is killed."""

    CANCEL = "cancelled from outside"
    THROW = "an exception out of what it awaits"


class Phase(enum.Enum):
    """The phase of the client."""

    DIALING = "connections are about to open"
    WORKING = "connected, requests under way"
    CLOSING = "close was called just now"
    LATE_CLOSING = "close was called, and brokers are silent"


class World:
    """A cluster, a client, and calls of it that wait."""

    def __init__(self, kind: str, phase: Phase) -> None:
        self.cluster = Cluster(brokers=2)
        self.kind = kind
        self.phase = phase
        self.client: Any = None
        self.waiting: list[asyncio.Task[Any]] = []

    async def set_up(self) -> None:
        """Bring the client to its phase."""
        loop: Any = asyncio.get_running_loop()
        cluster = self.cluster
        cluster.create_topic("t", partitions=2, replication_factor=2)
        make = {"producer": kclient.Producer, "consumer": kclient.Consumer, "admin": kclient.Admin}
        settings = {"auto_offset_reset": "earliest"} if self.kind == "consumer" else {}
        self.client = make[self.kind](cluster.bootstrap, **settings)
        await self.client.start()
        ends = self.phase in (Phase.CLOSING, Phase.LATE_CLOSING)
        for api in ("Produce", "DescribeCluster", *(() if ends else ("ListOffsets",))):
            cluster.faults.hold(api, times=None)
        if self.phase is Phase.DIALING:
            loop.network.cut()
            loop.network.latency = (0.2, 0.2)
            await asyncio.sleep(0.06)  # the back-off is over, or nearly
        self._wait_in_calls()
        await asyncio.sleep(0.2)
        if ends:
            if self.phase is Phase.LATE_CLOSING:
                loop.network.freeze()
            self.waiting.append(loop.create_task(self.client.close(CLOSE), name="the close"))
            await asyncio.sleep(0)
            await asyncio.sleep(0.1 if self.phase is Phase.LATE_CLOSING else 0)

    def _wait_in_calls(self) -> None:
        client, partition = self.client, TopicPartition("t", 0)
        if self.kind == "producer":
            client.send("t", b"v", partition=0)
            self._wait(client.flush(), "flush")
            self._wait(client.enqueue("nowhere", b"v"), "enqueue")
            self._wait(_result(client.send("t", b"w", partition=1)), "send")
        elif self.kind == "consumer":
            client.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
            self._wait(client.poll(timeout=None), "poll")
            self._wait(client.end_offsets([partition]), "end_offsets")
            self._wait(client.position(partition), "position")
            self._wait(client.partitions_for("nowhere"), "partitions_for")
        else:
            self._wait(client.describe_cluster(), "describe_cluster")
            self._wait(client.create_topics([kclient.NewTopic("new")]), "create_topics")

    def _wait(self, call: Coroutine[Any, Any, Any], name: str) -> None:
        self.waiting.append(asyncio.get_running_loop().create_task(call, name=name))

    @property
    def health(self) -> Any:
        """The health of the inside that all clients have in common."""
        found = self.client.health()
        return found if self.kind == "admin" else found.client

    async def use(self) -> object:
        """The next call."""
        if self.kind == "producer":
            return self.client.enqueue_nowait("t", b"x")
        if self.kind == "consumer":
            return await self.client.poll(timeout=0.1)
        return await self.client.list_topics(timeout=10.0)


async def _result(delivery: Awaitable[Any]) -> Any:
    return await delivery


def play(kind: str, phase: Phase, then: Callable[[World], Awaitable[Any]]) -> Any:
    """Run one world, and see that it leaves nothing behind."""
    reported: list[str] = []

    async def main() -> Any:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context)))
        world = World(kind, phase)
        async with world.cluster:
            await world.set_up()
            result = await then(world)
            began = loop.time()
            try:
                await world.client.close(CLOSE)
            except FlushFailed:
                assert kind == "producer"
            assert loop.time() - began <= CLOSE + 1.0
            await asyncio.gather(*world.waiting, return_exceptions=True)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert client_timers(loop) == []
            assert world.health.tasks == ()
            with pytest.raises(ClientClosed):
                await world.use()
            loop.network.heal()
        return result

    result = run_virtually(main(), limit=120.0)
    assert reported == []
    return result


def tasks_of(kind: str, phase: Phase) -> tuple[str, ...]:
    """The names of the tasks that such a client has then."""

    async def look(world: World) -> tuple[str, ...]:
        return tuple(world.health.tasks)

    found: tuple[str, ...] = play(kind, phase, look)
    return found


CASES = [
    (kind, phase, name, kill)
    for kind in ("producer", "consumer", "admin")
    for phase in Phase
    for name in tasks_of(kind, phase)
    for kill in Kill
]


@pytest.mark.parametrize(
    ("kind", "phase", "name", "kill"),
    CASES,
    ids=[f"{kind}-{phase.name}-{name}-{kill.name}".lower() for kind, phase, name, kill in CASES],
)
def test_no_task_dies_in_silence(kind: str, phase: Phase, name: str, kill: Kill) -> None:
    async def then(world: World) -> None:
        loop = asyncio.get_running_loop()
        victim = next(task for task in asyncio.all_tasks() if task.get_name() == name)
        await _kill(victim, kill)
        began = loop.time()
        await asyncio.sleep(0.01)
        metrics = world.client.metrics()
        if metrics.get("tasks.died"):
            await _has_failed(world, kill)
        else:
            if name.startswith("kclient:dial-") and kill is Kill.THROW:
                assert metrics["network.connections_failed"] >= 1  # a dialer may raise what it will
            elif name.startswith(("kclient:dial-", "kclient:close")):
                assert metrics["tasks.restarted"] == world.health.restarts == 1
            else:
                assert phase is Phase.CLOSING, "neither told nor started anew"
            await _goes_on(world, name)
        assert loop.time() - began <= CLOSE + 1.0

    play(kind, phase, then)


async def _kill(victim: asyncio.Task[Any], kill: Kill) -> None:
    if kill is Kill.CANCEL:
        victim.cancel()
        return
    for _ in range(5):
        waits_for: Any = victim._fut_waiter  # type: ignore[attr-defined]
        if victim.done():
            return  # it was about to end anyway
        if waits_for is not None and not waits_for.done():
            waits_for.set_exception(Boom("thrown in"))
            return
        await asyncio.sleep(0)
    pytest.fail(f"{victim!r} waits for nothing")


async def _has_failed(world: World, kill: Kill) -> None:
    """Check that every caller gets the error and its cause."""
    _, waiting = await asyncio.wait(world.waiting, timeout=SOON)
    assert not waiting
    for call in world.waiting:
        error = call.exception()
        if isinstance(error, FlushFailed):
            error = error.errors[0]
        if world.phase in (Phase.CLOSING, Phase.LATE_CLOSING):
            assert error is None or isinstance(error, (ClientClosed, BackgroundTaskDied))
        else:
            _is_the_death(error, kill)
    if world.phase in (Phase.CLOSING, Phase.LATE_CLOSING):
        return
    with pytest.raises(BackgroundTaskDied) as caught:
        await world.use()
    _is_the_death(caught.value, kill)
    assert world.health.state == "failed"
    assert "kclient:" in world.health.failure
    assert world.health.tasks == ()
    assert {one.state for one in world.health.connections} <= {"idle", "backing_off"}


def _is_the_death(error: BaseException | None, kill: Kill) -> None:
    assert isinstance(error, BackgroundTaskDied), repr(error)
    assert error.fatal
    if kill is Kill.THROW:
        assert isinstance(error.__cause__, Boom), repr(error.__cause__)
    else:
        assert "was cancelled from outside" in str(error)


async def _goes_on(world: World, name: str) -> None:
    """Another task has taken its place."""
    if world.phase in (Phase.CLOSING, Phase.LATE_CLOSING):
        [closing] = [task for task in world.waiting if task.get_name() == "the close"]
        async with asyncio.timeout(CLOSE + 1.0):
            await asyncio.wait([closing])
        assert closing.exception() is None or isinstance(closing.exception(), FlushFailed)
        return
    assert name.startswith("kclient:dial")
    assert world.health.state == "running"
    world.cluster.faults.clear()
    loop: Any = asyncio.get_running_loop()
    loop.network.latency = (0.0002, 0.001)
    # A call may fail with the killed dial where a repeat might not be right.
    async with asyncio.timeout(3.0):
        await world.use()


def test_the_tasks_are_all_there() -> None:
    """Or else the cases above would be fewer than they should be."""
    names = {kind: {name for k, _, name, _ in CASES if k == kind} for kind in ("producer", "admin")}
    names["consumer"] = {name for k, _, name, _ in CASES if k == "consumer"}
    for kind, found in names.items():
        assert "kclient:metadata" in found, kind
        assert "kclient:close" in found or f"kclient:close-{kind}" in found
        assert any(name.startswith("kclient:dial-") for name in found), kind
    assert "kclient:producer-sender" in names["producer"]
    assert {"kclient:offsets", "kclient:offset-lookup", "kclient:fetch-1"} <= names["consumer"]


def test_the_search_for_a_producer_id_does_not_die_in_silence() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t")
            cluster.faults.hold("InitProducerId", times=None)
            producer = kclient.Producer(cluster.bootstrap)
            await producer.start()
            delivery = producer.send("t", b"v")
            await asyncio.sleep(0.1)
            [victim] = [t for t in asyncio.all_tasks() if t.get_name() == "kclient:producer-id"]
            victim.cancel()
            async with asyncio.timeout(SOON):
                with pytest.raises(BackgroundTaskDied, match="producer-id") as caught:
                    await delivery
            assert caught.value.maybe_written is False
            await producer.close()

    run_virtually(main())


def test_a_start_that_waits_fails_with_a_fault_at_once() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.faults.hold("Metadata", times=None)
            admin = kclient.Admin(cluster.bootstrap)
            starting = asyncio.create_task(admin.start())
            await asyncio.sleep(0.1)
            admin._core._supervisor.listener_failed(Boom("a defect"))
            async with asyncio.timeout(SOON):
                with pytest.raises(BackgroundTaskDied) as caught:
                    await starting
            assert isinstance(caught.value.__cause__, Boom)
            await admin.close()
            cluster.faults.clear()

    run_virtually(main())


def test_errors_are_values_only_as_long_as_the_client_lives() -> None:
    """``return_errors`` does not turn the end of the client into an entry of the result."""

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic("t")
            for end in ("close", "death"):
                held = cluster.faults.hold("ListOffsets", times=None)
                admin = kclient.Admin(cluster.bootstrap)
                await admin.start()
                asking = asyncio.create_task(
                    admin.list_offsets({TopicPartition("t", 0): 0}, return_errors=True)
                )
                await asyncio.sleep(0.1)
                if end == "close":
                    await admin.close()
                else:
                    admin._core._supervisor.listener_failed(Boom("a defect"))
                expected: type[KafkaError] = ClientClosed if end == "close" else BackgroundTaskDied
                with pytest.raises(expected):
                    await asking
                await admin.close()
                cluster.faults.remove(held)

    run_virtually(main())
