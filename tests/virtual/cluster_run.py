"""Clusters on virtual time in which everything breaks, by seed; no client but single requests.

``run(seed)`` makes a cluster of three to five brokers and some topics, lets ``Moves`` do 500 things
to it while a ``Watch`` looks on after each, heals all, and waits for all copies to be alike. A seed
gives the same run every time; to see one:

    python -m tests.virtual.cluster_run --seed 12 --trace
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from kclient.errors import RequestTimedOut
from kclient.testing import Cluster, run_virtually
from kclient.testing.controller import Tally
from tests.virtual.cluster_moves import Moves
from tests.virtual.cluster_watch import Watch
from tests.virtual.simulation import quiet

OPERATIONS = 500
LIMIT = 5_000.0
"""Virtual seconds that a run may take; a healthy one takes some minutes."""
SETTLING = 60.0
"""Virtual seconds after healing in which all copies must be in sync."""
CATCHING_UP = 3.0
"""Virtual seconds after which the in-sync copies must have the rest, too."""
SHOWN = 3
"""Failures that are spelled out."""
CONFIGS = {
    "broker.session.timeout.ms": 400,
    "replica.lag.time.max.ms": 300,
    "replica.fetch.backoff.ms": 50,
    "replica.socket.timeout.ms": 500,
}


@dataclass(slots=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        operations: How many were done.
        tally: What happened inside.
        failures: What should not have been.
        trace: What happened, where that was requested.
    """

    seed: int
    operations: int = 0
    tally: Tally = field(default_factory=Tally)
    failures: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Describe the outcome for people."""
        shown = "\n  ".join(self.failures[:SHOWN])
        return f"seed {self.seed}, after {self.operations} operations:\n  {shown}"


def run(seed: int, operations: int = OPERATIONS, *, trace: bool = False) -> Outcome:
    """One run, up to the first failure."""
    outcome = Outcome(seed)
    with quiet():
        try:
            run_virtually(_run(outcome, operations, trace), seed=seed, limit=LIMIT)
        except Exception as error:  # a broker that fails is a finding, too
            outcome.failures.append(f"{type(error).__name__}: {error}")
    return outcome


async def _run(outcome: Outcome, operations: int, trace: bool) -> None:
    """One run. Cancellation: ends it."""
    rng = random.Random(outcome.seed)
    cluster = Cluster(brokers=rng.randint(3, 5), broker_configs=CONFIGS, seed=outcome.seed)
    watch = Watch(cluster)
    outcome.failures = watch.failures
    async with cluster:
        moves = Moves(cluster, rng, watch, outcome.trace if trace else None)
        moves.create(partitions=2, min_isr=1, unclean=False)
        moves.create(partitions=2, min_isr=2, unclean=False)
        moves.create(partitions=1, min_isr=rng.randint(1, 2), unclean=True)
        try:
            while outcome.operations < operations and not watch.failures:
                await moves.step()
                watch.look()
                outcome.operations += 1
            if not watch.failures:
                moves.say("all is healed")
                await _heal(cluster, watch)
        finally:
            moves.close()
            outcome.tally = cluster.statistics()


async def _heal(cluster: Cluster, watch: Watch) -> None:
    """Heal everything, and wait until it has recovered. Cancellation: ends it."""
    cluster.faults.clear()
    cluster._control_plane.links.delay = None
    cluster.reconnect()
    for node_id, broker in cluster.brokers.items():
        if not broker.running:
            await cluster.restart(node_id, in_sync_within=0)
    watch.look()
    try:
        await cluster.wait_in_sync(timeout=SETTLING)
    except RequestTimedOut as error:
        watch.fail(str(error))
        return
    await asyncio.sleep(CATCHING_UP)
    if cluster.offline:
        watch.fail(f"nobody leads {cluster.offline}")
    watch.look_at_end()


@dataclass(slots=True)
class Totals:
    """The totals of many runs."""

    runs: int = 0
    operations: int = 0
    tally: Tally = field(default_factory=Tally)
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of one run."""
        self.runs += 1
        self.operations += outcome.operations
        for one in fields(Tally):
            count = getattr(self.tally, one.name) + getattr(outcome.tally, one.name)
            setattr(self.tally, one.name, count)
        if outcome.failures:
            self.failures.append(outcome.describe())

    def __str__(self) -> str:
        counts = ", ".join(
            f"{getattr(self.tally, one.name)} {one.name.replace('_', ' ')}" for one in fields(Tally)
        )
        return (
            f"{self.runs} runs, {self.operations} operations, {counts}; {len(self.failures)} failed"
        )


def run_many(first: int, count: int, operations: int = OPERATIONS) -> Totals:
    """Seeds from ``first`` on."""
    totals = Totals()
    for seed in range(first, first + count):
        totals.add(run(seed, operations))
    return totals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds, and print what came of them."""
    parser = argparse.ArgumentParser(description=run.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="of each run")
    parser.add_argument("--trace", action="store_true", help="show all that happened")
    chosen = parser.parse_args(arguments)
    totals = Totals()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        outcome = run(seed, chosen.operations, trace=chosen.trace)
        totals.add(outcome)
        sys.stdout.write("".join(f"{line}\n" for line in outcome.trace))
    sys.stdout.write("\n".join([*totals.failures[:SHOWN], f"{totals}", ""]))
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
