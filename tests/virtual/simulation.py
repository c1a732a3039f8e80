"""Whole producers and consumers on virtual time, while everything breaks; by seed.

``simulate(seed)`` makes a cluster of three brokers, some topics, one to three producers and one or
two consumers, has them do 200 operations while a ``Nemesis`` breaks what it can, mends all, lets
everybody finish, and holds the history against the logs. A seed gives the same run every time, in
every process; to see one:

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
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import kclient
from kclient.errors import FlushFailed
from kclient.hooks import ConnectionOpened, Event
from kclient.testing import Cluster, MemoryNet, run_virtually
from tests.history import History, Place, Report, Written, check
from tests.virtual.consuming import ConsumerWorker
from tests.virtual.nemesis import Nemesis
from tests.virtual.producing import ProducerWorker

OPERATIONS = 200
BROKERS = 3
LIMIT = 2_000.0
"""Virtual seconds that a run may take; a healthy one takes about a minute."""
SETTLING = 300.0
"""Virtual seconds after healing in which everything must be settled and read."""


@dataclass(slots=True)
class Totals:
    """What happened in one run, or in many."""

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
    """One run and what came of it.

    Attributes:
        seed: Of everything.
        history: What happened.
        net: The network, with its own trace.
        report: What the checker found.
        trouble: What else went wrong: an error, something left behind, a fault nobody caught.
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
        """Nothing is wrong."""
        return bool(self.report) and not self.trouble

    @property
    def digest(self) -> str:
        """Of the history and of all bytes on the network."""
        return f"{self.history.digest()[:32]}{self.net.digest()}"

    def describe(self) -> str:
        """What is wrong, and how to see it again."""
        found = [*self.trouble] + ([] if self.report else [str(self.report)])
        command = f"python -m tests.virtual.simulation --seed {self.seed} --trace"
        return "\n".join([f"seed {self.seed}:", *found, f"to see it again: {command}"])


class Reconnects:
    """Counts connections to where there was one before; an observer of one client."""

    def __init__(self) -> None:
        self.count = 0
        self._known: set[tuple[int, str]] = set()

    def observe(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, ConnectionOpened):
            self.count += (event.node_id, event.lane) in self._known
            self._known.add((event.node_id, event.lane))


def simulate(seed: int) -> Run:
    """Run one seed. Never raises for what goes wrong in the run: that is in what it returns."""
    net = MemoryNet(seed=seed)
    run = Run(seed, History(), net)
    scene = _Scene(run)
    try:
        run_virtually(scene.play(), seed=seed, limit=LIMIT, network=net)
    except Exception as error:
        run.trouble.append("".join(traceback.format_exception(error)).rstrip())
    return run


class _Scene:
    """One run while it goes on."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rng = random.Random(f"plan {run.seed}")
        self._reconnects: list[Reconnects] = []
        self._clients: list[Any] = []
        self._topics = {
            name: self._rng.randrange(1, 4)
            for name in ("ants", "bees")[: self._rng.randrange(1, 3)]
        }

    async def play(self) -> None:
        """All of it."""
        loop, run = asyncio.get_running_loop(), self._run
        started = loop.time()
        loop.set_exception_handler(
            lambda _, context: run.trouble.append(f"reached the loop: {context!r}")
        )
        run.history._now = lambda: loop.time() - started
        async with Cluster(brokers=BROKERS, seed=run.seed) as cluster:
            for name, partitions in self._topics.items():
                cluster.create_topic(name, partitions=partitions)
            finished = await self._act(cluster)
            logs = _logs(cluster)
            run.totals.leader_moves = sum(cluster.leader_epoch(*place) for place in logs)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        run.trouble += [f"left behind: {task!r}" for task in left]
        run.report = check(run.history, logs, finished=finished)
        self._count(loop.time() - started)

    async def _act(self, cluster: Cluster) -> dict[str, Sequence[Place]]:
        rng, history = self._rng, self._run.history
        async with AsyncExitStack() as stack:
            producers = [
                await self._producer(f"p{n}", cluster, stack)
                for n in range(rng.choice((1, 1, 2, 3)))
            ]
            consumers = [
                await self._consumer(f"c{n}", cluster, stack) for n in range(rng.choice((1, 1, 2)))
            ]
            self._weather()
            nemesis = Nemesis(
                cluster, self._run.net, history, random.Random(rng.random()), rng.choice((0.2, 0.6))
            )
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
                for client in self._clients:
                    if isinstance(client, kclient.Producer):
                        await _close(client)
                return await self._read_on(consumers)
        raise AssertionError("unreachable: the stack hides no error")

    async def _work(self, workers: Sequence[Any]) -> None:
        """Share the operations out."""
        shares = [OPERATIONS // len(workers)] * len(workers)
        shares[0] += OPERATIONS - sum(shares)
        async with asyncio.TaskGroup() as group:
            for worker, share in zip(workers, shares, strict=True):
                group.create_task(worker.run(share))

    async def _read_on(self, consumers: Sequence[ConsumerWorker]) -> dict[str, Sequence[Place]]:
        finished: dict[str, Sequence[Place]] = {}
        for worker in consumers:
            finished[worker.name] = await worker.catch_up(again=False)
        finished[consumers[0].name] = await consumers[0].catch_up(again=True)
        return finished

    def _weather(self) -> None:
        """How the network is for the whole run."""
        net, rng = self._run.net, self._rng
        net.latency = rng.choice(((0.0002, 0.001), (0.001, 0.01), (0.005, 0.05)))
        net.split = rng.choice((0.0, 0.0, 0.2))
        net.cut_probability = rng.choice((0.0, 0.002, 0.01))

    async def _producer(self, name: str, cluster: Cluster, stack: AsyncExitStack) -> ProducerWorker:
        rng, history = self._rng, self._run.history
        short = rng.random() < 0.2  # of memory
        producer: kclient.Producer[Any, Any] = kclient.Producer(
            cluster.bootstrap,
            observers=[self._observer()],
            compression=rng.choice(("none", "none", "lz4", "gzip")),
            batch_size=rng.choice((300, 2_000, 4_000) if short else (300, 2_000, 65_536)),
            linger=rng.choice((0.0, 0.005, 0.05)),
            max_in_flight=rng.choice((1, 2, 5, 5)),
            buffer_memory=4_000 if short else 32 << 20,
            delivery_timeout=rng.choice((0.7, 3.0, 120.0, 120.0, 120.0)),
            request_timeout=rng.choice((1.0, 3.0, 10.0)),
            connection_setup_timeout=1.0,
            connection_setup_timeout_max=rng.choice((1.0, 4.0)),
            max_block=rng.choice((0.5, 60.0, None)),
            retry_backoff=rng.choice((0.01, 0.1)),
        )
        history.producer(name)
        await stack.enter_async_context(_closing(producer))
        self._clients.append(producer)
        return ProducerWorker(
            name,
            producer,
            self._topics,
            history,
            random.Random(rng.random()),
            rng.choice((0.02, 0.12)),
        )

    async def _consumer(self, name: str, cluster: Cluster, stack: AsyncExitStack) -> ConsumerWorker:
        rng = self._rng
        by_topic = rng.random() < 0.5
        consumer: kclient.Consumer[Any, Any] = kclient.Consumer(
            cluster.bootstrap,
            *(self._topics if by_topic else ()),
            observers=[self._observer()],
            auto_offset_reset="earliest",
            isolation_level=rng.choice(("read_uncommitted", "read_committed")),
            fetch_max_wait=rng.choice((0.1, 0.5, 0.5)),
            max_partition_fetch_bytes=rng.choice((200, 5_000, 1 << 20)),
            buffer_memory=rng.choice((5_000, 64 << 20)),
            request_timeout=rng.choice((1.0, 3.0, 10.0)),
            connection_setup_timeout=1.0,
            connection_setup_timeout_max=rng.choice((1.0, 4.0)),
            retry_backoff=rng.choice((0.01, 0.1)),
        )
        await stack.enter_async_context(consumer)
        self._clients.append(consumer)
        if not by_topic:
            consumer.assign(
                kclient.TopicPartition(topic, partition)
                for topic, count in self._topics.items()
                for partition in range(count)
            )
        return ConsumerWorker(
            name,
            consumer,
            self._run.history,
            lambda place: cluster.end_offset(*place),
            random.Random(rng.random()),
            rng.choice((0.02, 0.12)),
        )

    def _observer(self) -> Reconnects:
        self._reconnects.append(Reconnects())
        return self._reconnects[-1]

    def _count(self, seconds: float) -> None:
        run, totals = self._run, self._run.totals
        totals.runs = 1
        totals.operations = OPERATIONS
        totals.acknowledged = run.report.acknowledged
        totals.failed = run.report.failed
        totals.unknown = run.report.unknown
        totals.delivered = run.report.delivered
        totals.cuts = run.net.stats.cuts
        totals.reconnects = sum(one.count for one in self._reconnects)
        for client in self._clients:
            metrics = client.metrics()
            totals.retries += int(metrics.get("producer.retries", 0))
            totals.retries += int(metrics.get("consumer.fetch_failures", 0))
        totals.virtual_seconds = seconds


class _closing:
    """Enters a producer, and leaves it without minding what it could not deliver."""

    def __init__(self, producer: kclient.Producer[Any, Any]) -> None:
        self._producer = producer

    async def __aenter__(self) -> None:
        await self._producer.start()

    async def __aexit__(self, *error: object) -> None:
        await _close(self._producer)


async def _close(producer: kclient.Producer[Any, Any]) -> None:
    try:
        await producer.close(timeout=SETTLING)
    except FlushFailed:
        return


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
    """Clients tell the log of every fault, of which there are thousands: nobody reads that."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def simulate_many(first: int, count: int) -> tuple[Totals, list[str]]:
    """Run seeds from ``first`` on; return what happened in all, and a text per failure.

    Whatever is only noticed when objects are let go, such as a coroutine that nobody awaited,
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
    """Run seeds, and say what came of them."""
    parser = argparse.ArgumentParser(description=simulate.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--trace", action="store_true", help="show all that happened")
    parser.add_argument("--digest", action="store_true", help="show the digest of each run only")
    chosen = parser.parse_args(arguments)
    if not chosen.trace and not chosen.digest:
        totals, failures = simulate_many(chosen.seed, chosen.count)
        sys.stdout.write("\n".join([*failures, f"{totals}; {len(failures)} failed", ""]))
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
