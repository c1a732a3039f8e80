"""Groups under a storm: members and nodes are killed, stopped and restarted, and all is read.

    python -m tests.nodes.group_storm                     # 10 minutes
    python -m tests.nodes.group_storm --seconds 90        # as in CI
    python -m tests.nodes.group_storm --client librdkafka --seed 7

Two groups of three members read the same twelve partitions, one rebalances eagerly, the other one
cooperatively. One blow falls at a time, on both; one node is away at a time, and the next goes once
all replicas are in sync. After each blow both groups must be whole again, within the session
timeout and 5 s; in the end nothing is left out. The pieces are those of `tests.mixed`.
"""

from __future__ import annotations

import argparse
import asyncio
import enum
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mixed.metronome import Metronome
from tests.mixed.process import Member, Settings
from tests.mixed.scenario import GRACE, Outcome, Scenario, Stuck
from tests.mixed.writer import Writer
from tests.support.nodes import Nodes, three_nodes

TOPIC = "storm"
PARTITIONS, MEMBERS = 12, 3
SESSION, HEARTBEAT = 6.0, 1.0
REQUEST_TIMEOUT = 4.0
"""Seconds that a client waits for a stopped node, so that no recovery can be quicker."""
RATE = 10.0
"""Records per second for each partition."""
MODES = {"eager": "range", "cooperative": "cooperative-sticky"}
WAYS = {"kclient": ("poll", "iterate", "run")}
"""How members read and commit, round robin."""
_MEMBER_AWAY, _NODE_AWAY = (0.0, 3.0), (0.3, 3.0)
_NODE_PAUSED = (5.0, 9.0)
_LONGEST_BACK = 90.0
_COORDINATOR = 0.6


class Strike(enum.Enum):
    """What happens next."""

    MEMBER_KILL = "kill -9 of a member"
    MEMBER_STOP = "SIGSTOP of a member"
    MEMBER_RESTART = "restart of a member"
    NODE_KILL = "kill -9 of a node"
    NODE_STOP = "SIGSTOP of a node"
    NODE_RESTART = "restart of a node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The parameters of a storm.

    Attributes:
        seconds: How long it lasts at least; every kind of strike comes at least once.
        client: The client of all members.
    """

    seconds: float = 600.0
    seed: int = 1
    client: str = "kclient"


def strikes(rng: random.Random) -> Iterator[Strike]:
    """For ever, in rounds that have each of them once."""
    while True:
        kinds = list(Strike)
        rng.shuffle(kinds)
        yield from kinds


async def storm(
    wishes: Wishes, nodes: Nodes, topic: str, emit: Callable[[str], object]
) -> dict[str, Outcome]:
    """Run a storm: mode -> the outcome of its group.

    Args:
        nodes: All are up, and used by nothing else.
        topic: A name that no topic has.
        emit: Is given a line now and then.
    """
    await asyncio.to_thread(nodes.create_topic, topic, partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as folder, Metronome() as metronome:
        return await _Storm(wishes, nodes, topic, metronome, Path(folder), emit).go()


class _Storm:
    def __init__(
        self,
        wishes: Wishes,
        nodes: Nodes,
        topic: str,
        metronome: Metronome,
        folder: Path,
        emit: Callable[[str], object],
    ) -> None:
        self._wishes = wishes
        self._nodes = nodes
        self._topic = topic
        self._emit = emit
        self._rng = random.Random(f"storm {wishes.seed}")
        self._ways = WAYS.get(wishes.client, ("",))
        self._started = 0
        self._writer = Writer(
            nodes.bootstrap, topic, PARTITIONS, RATE, request_timeout=REQUEST_TIMEOUT
        )
        self._scenes: dict[str, Scenario] = {}
        for mode, assignor in MODES.items():
            settings = Settings(
                bootstrap=nodes.bootstrap,
                topic=topic,
                group=f"{topic}-{mode}",
                assignor=assignor,
                session=SESSION,
                heartbeat=HEARTBEAT,
                request_timeout=REQUEST_TIMEOUT,
            )
            mine = folder / mode
            mine.mkdir()
            self._scenes[mode] = Scenario(settings, PARTITIONS, self._writer, metronome, mine, emit)

    async def go(self) -> dict[str, Outcome]:
        """Do all of it; the outcomes of a storm that ended early have the reason."""
        await self._writer.start()
        try:
            try:
                await self._rage()
            finally:
                await self._writer.stop()
            await asyncio.gather(*(scene.drained() for scene in self._scenes.values()))
            outcomes = {mode: await scene.finish() for mode, scene in self._scenes.items()}
        except Stuck as error:
            outcomes = {mode: scene.judged() for mode, scene in self._scenes.items()}
            next(iter(outcomes.values())).wrong.insert(0, str(error))
        finally:
            for scene in self._scenes.values():
                await scene.abandon()
        for outcome in outcomes.values():
            outcome.wrong += [f"not written: {one}" for one in self._writer.failures[:3]]
        return outcomes

    async def _rage(self) -> None:
        began = time.monotonic()
        await self._start(MEMBERS, "three members join")
        for place, strike in enumerate(strikes(self._rng)):
            if time.monotonic() - began > self._wishes.seconds and place >= len(Strike):
                return
            if strike is Strike.MEMBER_KILL:
                await self._kill_members()
            elif strike is Strike.MEMBER_STOP:
                await self._stop_members()
            elif strike is Strike.MEMBER_RESTART:
                await self._restart_members()
            else:
                await self._strike_node(strike)

    async def _kill_members(self) -> None:
        struck, began = self._struck(), time.monotonic()
        await asyncio.gather(*(scene.kill(member) for scene, member in struck))
        await self._settled("kill -9 of a member", began)
        await asyncio.sleep(self._rng.uniform(*_MEMBER_AWAY))
        await self._start(1, "another one joins")

    async def _stop_members(self) -> None:
        struck, began = self._struck(), time.monotonic()
        for scene, member in struck:
            scene.freeze(member)
        await self._settled("SIGSTOP of a member", began)
        await asyncio.sleep(self._rng.uniform(*_MEMBER_AWAY))
        began = time.monotonic()
        for _, member in struck:
            member.thaw()
        await self._settled("SIGCONT of a member", began)

    async def _restart_members(self) -> None:
        struck, began = self._struck(), time.monotonic()
        await asyncio.gather(*(scene.leave(member) for scene, member in struck))
        await self._settled("a member leaves", began)
        await self._start(1, "it comes back")

    async def _strike_node(self, strike: Strike) -> None:
        """Strike a node and bring it back; groups must become whole before and after its return."""
        nodes = self._nodes
        node = await self._chosen()
        blow = {
            Strike.NODE_KILL: nodes.kill,
            Strike.NODE_STOP: nodes.pause,
            Strike.NODE_RESTART: nodes.stop,
        }[strike]
        began = time.monotonic()
        await asyncio.to_thread(blow, node)
        await self._settled(f"{strike.value}, {node}", began)
        pause = strike is Strike.NODE_STOP
        away = began + self._rng.uniform(*(_NODE_PAUSED if pause else _NODE_AWAY))
        await asyncio.sleep(max(0.0, away - time.monotonic()))
        began = time.monotonic()
        if pause:
            nodes.resume(node)
            await self._settled(f"SIGCONT of a node, {node}", began)
        else:
            await asyncio.to_thread(nodes.restart, node)
        await asyncio.to_thread(nodes.wait_full_isr, self._topic, timeout=_LONGEST_BACK)
        self._emit(f"node {node} is in sync {time.monotonic() - began:.1f} s after it came back")
        await self._settled(f"node {node} is back", time.monotonic())

    async def _start(self, count: int, what: str) -> None:
        """Members join both groups; what counts is the time since their programs run."""
        started: list[tuple[Scenario, list[Member]]] = [
            (scene, []) for scene in self._scenes.values()
        ]
        for _ in range(count):
            way = self._ways[self._started % len(self._ways)]
            self._started += 1
            for scene, members in started:
                members.append(await scene.start(self._wishes.client, way))
        up = await asyncio.gather(*(scene.up(members) for scene, members in started))
        await self._settled(what, max(up))

    async def _settled(self, what: str, since: float) -> None:
        """Both groups are whole again; one that isn't ends the storm, once both have had time."""
        ended = await asyncio.gather(
            *(scene.settled(what, since) for scene in self._scenes.values()),
            return_exceptions=True,
        )
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def _chosen(self) -> int:
        """A node; more often than not one that coordinates one of the groups."""
        node = self._rng.choice(self._nodes.ids)
        scene = self._rng.choice(list(self._scenes.values()))
        if self._rng.random() > _COORDINATOR:
            return node
        at = await asyncio.to_thread(scene.view.coordinator)
        found = (one for one in self._nodes.ids if self._nodes.address(one) == at)
        return next(found, node)

    def _struck(self) -> list[tuple[Scenario, Member]]:
        """One member of each group."""
        return [
            (scene, self._rng.choice(list(scene.members.values())))
            for scene in self._scenes.values()
        ]


def reported(outcomes: dict[str, Outcome]) -> str:
    """The report, and with it how long recoveries took."""
    lines = [f"{mode}: {outcome}" for mode, outcome in outcomes.items()]
    for mode, outcome in outcomes.items():
        took = sorted(blow.seconds for blow in outcome.blows if blow.bounded)
        if took:
            lines.append(
                f"{mode}: {len(took)} recoveries, median {took[len(took) // 2]:.1f} s, longest "
                f"{took[-1]:.1f} s; allowed are {SESSION + GRACE:g} s"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.nodes.group_storm")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", default="kclient")
    options = parser.parse_args(arguments)
    wishes = Wishes(seconds=options.seconds, seed=options.seed, client=options.client)
    begun = time.monotonic()

    def emit(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:6.1f} s  {line}\n")
        sys.stdout.flush()

    logging.getLogger("kclient").setLevel(logging.ERROR)  # brokers that are away are expected
    with three_nodes(purpose="storm") as nodes:
        outcomes = asyncio.run(storm(wishes, nodes, TOPIC, emit))
    wrong = sum(len(one.wrong) + len(one.slow()) for one in outcomes.values())
    sys.stdout.write(f"{reported(outcomes)}\n{wrong} wrong in {time.monotonic() - begun:.0f} s\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
