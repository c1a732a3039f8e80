"""Whole producers and consumers on virtual time, while everything breaks; by seed.

``simulate(seed)`` makes a cluster of three brokers, some topics, one to three producers and one or
two consumers, has them do 200 operations while a ``Nemesis`` breaks what it can, heals all, lets
every client finish, and compares the history with the logs. A seed gives the same run every time,
in every process; to see one:

    python -m tests.virtual.simulation --seed 123 --trace
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

from kclient.testing import Cluster, MemoryNet, run_virtually
from tests.history import History, Place, Report, Written, check
from tests.virtual.casting import Cast, consumer_settings, producer_settings
from tests.virtual.consuming import ConsumerWorker
from tests.virtual.nemesis import Nemesis
from tests.virtual.producing import ProducerWorker

OPERATIONS = 200
BROKERS = 3
LIMIT = 2_000.0
"""Virtual seconds that a run may take; a healthy one takes about a minute."""
SETTLING = 300.0
"""Virtual seconds after healing in which everything must be settled and read."""
LATE = 2.0
"""Seconds in which a request arrives that was on its way when its producer was closed."""
SHOWN = 5
"""Failures that are spelled out."""


@dataclass(slots=True)
class Totals:
    """Counts of what happened in one run, or in many."""

    runs: int = 0
    operations: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    delivered: int = 0
    crashes: int = 0
    cuts: int = 0
    retries: int = 0
    reconnects: int = 0
    leader_moves: int = 0
    virtual_seconds: float = 0.0

    def __iadd__(self, other: Totals) -> Totals:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))
        return self

    def __str__(self) -> str:
        return ", ".join(
            f"{one.name.replace('_', ' ')} {getattr(self, one.name):,.0f}" for one in fields(self)
        )


@dataclass(slots=True)
class Run:
    """One run and its outcome.

    Attributes:
        seed: Of everything.
        history: What happened.
        net: The network, with its own trace.
        report: What the checker found.
        trouble: What else went wrong: an error, something left behind, an uncaught fault.
        totals: In figures.
    """

    seed: int
    history: History
    net: MemoryNet
    report: Report = field(default_factory=Report)
    trouble: list[str] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return bool(self.report) and not self.trouble

    @property
    def digest(self) -> str:
        """A digest of the history and of all bytes on the network."""
        return f"{self.history.digest()[:32]}{self.net.digest()}"

    def describe(self) -> str:
        """What is wrong, and how to see it again."""
        found = [*self.trouble] + ([] if self.report else [str(self.report)])
        command = f"python -m tests.virtual.simulation --seed {self.seed} --trace"
        return "\n".join([f"seed {self.seed}:", *found, f"to see it again: {command}"])


def simulate(seed: int) -> Run:
    """Run one seed. Never raises for what goes wrong in the run: that is in what it returns."""
    net = MemoryNet(seed=seed)
    run = Run(seed, History(), net)
    scene = _Scene(run)
    try:
        run_virtually(scene.play(), seed=seed, limit=LIMIT, network=net)
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        run.trouble.append("".join(traceback.format_exception(error)).rstrip())
    return run


class _Scene:
    """One run while it goes on."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rng = random.Random(f"plan {run.seed}")
        names = ("ants", "bees")[: self._rng.randrange(1, 3)]
        self._topics = {name: self._rng.randrange(1, 4) for name in names}

    async def play(self) -> None:
        """All of it."""
        loop, run = asyncio.get_running_loop(), self._run
        started = loop.time()
        loop.set_exception_handler(
            lambda _, context: run.trouble.append(f"reached the loop: {context!r}")
        )
        run.history.begin(lambda: loop.time() - started)
        async with Cluster(brokers=BROKERS, seed=run.seed) as cluster:
            for name, partitions in self._topics.items():
                cluster.create_topic(name, partitions=partitions)
            cast = Cast(cluster.bootstrap)
            finished = await self._act(cluster, cast)
            logs = _logs(cluster)
            run.totals.leader_moves = sum(cluster.leader_epoch(*place) for place in logs)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        run.trouble += [f"left behind: {task!r}" for task in left]
        run.report = check(run.history, logs, finished=finished)
        self._count(cast, loop.time() - started)

    async def _act(self, cluster: Cluster, cast: Cast) -> dict[str, Sequence[Place]]:
        rng = self._rng
        producers = [self._producer(n, cast) for n in range(rng.choice((1, 1, 2, 3)))]
        consumers = [self._consumer(n, cast, cluster) for n in range(rng.choice((1, 1, 2)))]
        nemesis = Nemesis(
            cluster,
            self._run.net,
            self._run.history,
            random.Random(rng.random()),
            rng.choice((0.1, 0.4)),
        )
        self._weather()
        storm = asyncio.get_running_loop().create_task(nemesis.run(), name="nemesis")
        try:
            await self._work([*producers, *consumers])
        finally:
            storm.cancel()
            await asyncio.gather(storm, return_exceptions=True)
        self._run.totals.crashes = nemesis.crashes
        await nemesis.heal()
        self._run.net.cut_probability = 0.0
        async with asyncio.timeout(SETTLING):
            for producer in producers:
                await producer.close(SETTLING)
            await asyncio.sleep(LATE)
            finished = {}
            for consumer in consumers:
                finished[consumer.name] = await consumer.catch_up(again=False)
            finished[consumers[0].name] = await consumers[0].catch_up(again=True)
            for consumer in consumers:
                await consumer.close()
        return finished

    async def _work(self, workers: Sequence[ProducerWorker | ConsumerWorker]) -> None:
        """Distribute the operations."""
        shares = [OPERATIONS // len(workers)] * len(workers)
        shares[0] += OPERATIONS - sum(shares)

        async def work(worker: ProducerWorker | ConsumerWorker, share: int) -> None:
            await worker.start()
            await worker.run(share)

        async with asyncio.TaskGroup() as group:
            for worker, share in zip(workers, shares, strict=True):
                group.create_task(work(worker, share))

    def _weather(self) -> None:
        """Configure the network for the whole run."""
        net, rng = self._run.net, self._rng
        net.latency = rng.choice(((0.0002, 0.001), (0.001, 0.01), (0.005, 0.05)))
        net.split = rng.choice((0.0, 0.0, 0.2))
        net.cut_probability = rng.choice((0.0, 0.002, 0.01))

    def _producer(self, number: int, cast: Cast) -> ProducerWorker:
        rng = self._rng
        return ProducerWorker(
            f"p{number}",
            cast,
            producer_settings(rng),
            self._topics,
            self._run.history,
            random.Random(rng.random()),
            rng.choice((0.02, 0.12)),
        )

    def _consumer(self, number: int, cast: Cast, cluster: Cluster) -> ConsumerWorker:
        rng = self._rng
        return ConsumerWorker(
            f"c{number}",
            cast,
            consumer_settings(rng),
            list(self._topics) if rng.random() < 0.5 else (),
            [Place(name, index) for name, count in self._topics.items() for index in range(count)],
            self._run.history,
            lambda place: cluster.end_offset(*place),
            random.Random(rng.random()),
            rng.choice((0.02, 0.12)),
        )

    def _count(self, cast: Cast, seconds: float) -> None:
        run, totals = self._run, self._run.totals
        totals.runs = 1
        totals.operations = OPERATIONS
        totals.acknowledged = run.report.acknowledged
        totals.failed = run.report.failed
        totals.unknown = run.report.unknown
        totals.delivered = run.report.delivered
        totals.cuts = run.net.stats.cuts
        totals.reconnects = cast.reconnects
        totals.retries = cast.retries
        totals.virtual_seconds = seconds


def _logs(cluster: Cluster) -> dict[Place, list[Written]]:
    return {
        Place(topic, index): [
            Written(record.offset, record.key, record.value, tuple(record.headers))
            for record in cluster.records(topic, index)
        ]
        for topic in cluster.topics
        for index in range(cluster.partition_count(topic))
    }


@contextmanager
def quiet() -> Iterator[None]:
    """Drop the clients' log: it has a line for each of thousands of faults."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate_many(first: int, count: int) -> tuple[Totals, list[str]]:
    """Run seeds from ``first`` on; return what happened in all, and a text per failure.

    What is only noticed when objects are collected, such as a coroutine that was never awaited,
    counts as well.
    """
    totals, failures = Totals(), []
    heard: list[str] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda seen: heard.append(
        f"unraisable: {seen.exc_value!r} {seen.object!r}"
    )
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("error")
            for seed in range(first, first + count):
                run = simulate(seed)
                totals += run.totals
                if not run.well:
                    failures.append(run.describe())
            del run
            gc.collect()
    finally:
        sys.unraisablehook = hook
    return totals, failures + heard


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds, and print what came of them."""
    parser = argparse.ArgumentParser(description=simulate.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--trace", action="store_true", help="show all that happened")
    parser.add_argument("--digest", action="store_true", help="show the digest of each run only")
    chosen = parser.parse_args(arguments)
    if not chosen.trace and not chosen.digest:
        totals, failures = simulate_many(chosen.seed, chosen.count)
        shown = [*failures[:SHOWN], f"{totals}; {len(failures)} failed", ""]
        sys.stdout.write("\n".join(shown))
        return 1 if failures else 0
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        with quiet():
            run = simulate(seed)
        shown = run.history.lines if chosen.trace else []
        verdict = "all is well" if run.well else run.describe()
        sys.stdout.write("\n".join([*shown, f"{seed} {run.digest} {verdict}", ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
