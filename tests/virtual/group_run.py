"""Groups of consumers on virtual time in which everything breaks, by seed.

``run(seed)`` makes a cluster of three brokers, a producer, and a group whose members come and go,
lets ``GroupMoves`` do 500 things to them while a ``GroupWatch`` looks on, heals all, and waits
until every record was read and every member is well. A seed gives the same run every time; to see
one:

    python -m tests.virtual.group_run --seed 12 --trace
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import kclient
from kclient.testing import Cluster, VirtualLoop, run_virtually
from tests.virtual.group_member import Plan
from tests.virtual.group_moves import GroupMoves
from tests.virtual.group_player import COMMITTING
from tests.virtual.group_watch import GroupWatch
from tests.virtual.simulation import quiet

OPERATIONS = 500
LIMIT = 2_000.0
"""Virtual seconds that a run may take; a healthy one takes about a minute."""
SESSION, PATIENCE, REQUEST = 1.2, 2.4, 1.0
SETTLING = SESSION + 3 * PATIENCE + 5.0
"""Virtual seconds after healing in which all must be read, and every member well.

The group waits for dead members in a rebalance in progress, for the assignment of a dead leader in
the next, and once more for those that tried in vain; the rest is for requests and back-offs that
began before.
"""
PHASE = 50
"""Operations of a calm, and of the storm that follows."""
SHOWN = 3
"""Failures that are spelled out."""
CONFIGS = {
    "broker.session.timeout.ms": 400,
    "replica.lag.time.max.ms": 300,
    "replica.fetch.backoff.ms": 50,
    "replica.socket.timeout.ms": 500,
    "group.min.session.timeout.ms": 100,
    "offsets.topic.num.partitions": 1,
}
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky")


@dataclass(slots=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        operations: How many were done.
        counts: What happened, by name.
        failures: What should not have been.
        trace: What happened, where that was requested.
    """

    seed: int
    operations: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Describe the outcome for people."""
        shown = "\n  ".join(self.failures[:SHOWN])
        return f"seed {self.seed}, after {self.operations} operations:\n  {shown}"


class Scene:
    """One run while it goes on. ``handler_run`` has one of its own.

    Attributes:
        moves_type: Draws operations.
        watch_type: Judges.
    """

    moves_type: type[GroupMoves] = GroupMoves
    watch_type: type[GroupWatch] = GroupWatch

    def __init__(self, outcome: Outcome, operations: int, *, trace: bool) -> None:
        self._outcome = outcome
        self._operations = operations
        self._traces = trace
        self._rng = random.Random(f"group {outcome.seed}")

    def _say(self, text: str) -> None:
        if self._traces:
            self._outcome.trace.append(f"{asyncio.get_running_loop().time():9.3f} {text}")

    def _plan(self) -> Plan:
        chance = self._rng
        strategy, committing = chance.choice(STRATEGIES), chance.choice(COMMITTING)
        settings: dict[str, Any] = {
            "partition_assignment_strategy": strategy,
            "enable_auto_commit": committing == "auto",
            "auto_commit_interval": chance.choice((0.0, 0.2, 0.6)),
            "auto_offset_reset": "earliest",
            "isolation_level": chance.choice(("read_uncommitted", "read_committed")),
            "session_timeout": SESSION,
            "heartbeat_interval": 0.3,
            "max_poll_interval": PATIENCE,
            "request_timeout": REQUEST,
            "connection_setup_timeout": REQUEST,
            "bootstrap_timeout": 5.0,
            "api_timeout": chance.choice((3.0, 10.0)),
            "fetch_max_wait": 0.5,
            "metadata_max_age": 2.0,
            "retry_backoff": 0.02,
            "retry_backoff_max": 0.2,
            "reconnect_backoff": 0.02,
            "reconnect_backoff_max": 0.2,
        }
        plan = Plan(
            settings,
            ("ants", "bees")[: chance.choice((1, 1, 2))],
            static=chance.random() < 0.25,
            committing=committing,
            patience=PATIENCE,
            slowness=chance.choice((0.02, 0.3)),
        )
        self._say(f"{strategy}, commits: {committing}, {plan}")
        return plan

    async def play(self) -> None:
        """All of it."""
        loop, outcome = asyncio.get_running_loop(), self._outcome
        assert isinstance(loop, VirtualLoop)
        loop.set_exception_handler(
            lambda _, context: outcome.failures.append(f"reached the loop: {context!r}")
        )
        plan = self._plan()
        async with Cluster(brokers=3, broker_configs=CONFIGS, seed=outcome.seed) as cluster:
            for topic in plan.topics:
                cluster.create_topic(
                    topic, partitions=self._rng.randint(1, 4), replication_factor=2
                )
            watch = self.watch_type(cluster, plan.topics, SESSION, self._say)
            outcome.failures = watch.failures
            with watch.listening():
                async with kclient.Producer(
                    cluster.bootstrap,
                    linger=0.0,
                    request_timeout=REQUEST,
                    retry_backoff=0.05,
                    metadata_max_age=0.5,
                ) as producer:
                    moves = self.moves_type(
                        cluster, plan, producer, watch, loop.network, self._rng, self._say
                    )
                    await self._act(cluster, moves, watch, producer)
            self._count(moves, watch)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not watch.failures:
            outcome.failures += [f"left behind: {task!r}" for task in left]

    async def _act(
        self, cluster: Cluster, moves: GroupMoves, watch: GroupWatch, producer: Any
    ) -> None:
        outcome = self._outcome
        for _ in range(2):
            await moves.join()
        while outcome.operations < self._operations and not watch.failures:
            if outcome.operations % PHASE == 0:
                await moves.change(calm=outcome.operations // PHASE % 2 == 0)
            await moves.step()
            watch.look()
            outcome.operations += 1
        if not watch.failures:
            await self._heal(moves)
            await self._settle(cluster, moves, watch, producer)
        for player in moves.players:
            await player.crash()
        await moves.settle()

    async def _heal(self, moves: GroupMoves) -> None:
        await moves.change(calm=True)
        if not moves.players:
            await moves.join()
        for player in moves.players:
            player.quick = True
            player.resume()

    async def _settle(
        self, cluster: Cluster, moves: GroupMoves, watch: GroupWatch, producer: Any
    ) -> None:
        """Check that every member is well again, and all is read."""
        loop, players = asyncio.get_running_loop(), moves.players
        healed = loop.time()
        await producer.flush()  # what is written later would count as not read
        trouble = ["nothing was looked at"]
        while trouble and not watch.failures:
            if loop.time() - healed > SETTLING:
                watch.fail(f"{SETTLING} s after all was healed: {'; '.join(trouble)}")
                return
            await asyncio.sleep(0.1)
            trouble = watch.missing() + [
                f"{player.name} had no good call" for player in players if player.good_at < healed
            ]
            for topic in watch.topics:
                for index in range(cluster.partition_count(topic)):
                    owners = watch.owners(kclient.TopicPartition(topic, index))
                    if len(owners) != 1:
                        trouble.append(f"{topic}-{index} has the owners {owners}")
        self._outcome.counts["longest settling, ms"] = round(1000 * (loop.time() - healed))
        self._say("all is well")
        watch.look_at_end()
        while players:
            await players.pop().leave()

    def _count(self, moves: GroupMoves, watch: GroupWatch) -> None:
        counts = self._outcome.counts
        counts.update(moves.counts)
        counts["commits seen"] = watch.commits
        counts["records"] = len(watch.values)
        counts["records read again"] = watch.again
        counts["virtual seconds"] = round(asyncio.get_running_loop().time())


def run(
    seed: int, operations: int = OPERATIONS, *, trace: bool = False, scene: type[Scene] = Scene
) -> Outcome:
    """One run, up to the first failure."""
    outcome = Outcome(seed)
    with quiet():
        try:
            playing = scene(outcome, operations, trace=trace).play()
            run_virtually(playing, seed=seed, limit=LIMIT)
        except Exception as error:  # also of a loop in which nothing goes on
            outcome.failures.append(f"{type(error).__name__}: {error}")
    return outcome


@dataclass(slots=True)
class Totals:
    """The totals of many runs."""

    runs: int = 0
    operations: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of one run."""
        self.runs += 1
        self.operations += outcome.operations
        longest = self.counts.pop("longest settling, ms", 0)
        self.counts.update(outcome.counts)
        self.counts["longest settling, ms"] = max(
            longest, outcome.counts.get("longest settling, ms", 0)
        )
        if outcome.failures:
            self.failures.append(outcome.describe())

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return (
            f"{self.runs} runs, {self.operations} operations, {len(self.failures)} failed; {counts}"
        )


def run_many(
    first: int, count: int, operations: int = OPERATIONS, *, scene: type[Scene] = Scene
) -> Totals:
    """Seeds from ``first`` on."""
    totals = Totals()
    for seed in range(first, first + count):
        totals.add(run(seed, operations, scene=scene))
    return totals


def main(arguments: Sequence[str] | None = None, scene: type[Scene] = Scene) -> int:
    """Run seeds, and print what came of them."""
    parser = argparse.ArgumentParser(description=run.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of each run")
    parser.add_argument("--trace", action="store_true", help="show all that happened")
    chosen = parser.parse_args(arguments)
    totals = Totals()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        outcome = run(seed, chosen.operations, trace=chosen.trace, scene=scene)
        totals.add(outcome)
        sys.stdout.write("".join(f"{line}\n" for line in outcome.trace))
    sys.stdout.write("\n".join([*totals.failures, f"{totals}", ""]))
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
