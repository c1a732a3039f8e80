"""``python -m tests.exactly_once``: kill a transactional process -9, and see that nothing shows it.

    python -m tests.exactly_once                             20 kills, against 4.3.0
    python -m tests.exactly_once --kills 3 --version 3.9.1
    python -m tests.exactly_once --nodes --minutes 5         three nodes, which are killed, too

Ends with 0 if the committed output is the input, each record once, for kclient, librdkafka and
Java, and no transaction hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import kclient
from kclient import NewTopic, TopicPartition
from tests.exactly_once import readers
from tests.support import kafka
from tests.support.nodes import Nodes, three_nodes

PARTITIONS = 4
RATE = 1000
"""Records per second that are written to the source."""
_STANDSTILL = 60.0
"""Seconds without progress after which the run has failed."""


class Run:
    """One run against one cluster.

    Args:
        bootstrap: Of the cluster.
        seed: Of the times of the kills.
        emit: Prints a line.
    """

    def __init__(self, bootstrap: str, seed: int, emit: Callable[[str], None]) -> None:
        name = f"eo-{secrets.token_hex(4)}"
        self.source, self.target, self.group = f"{name}-in", f"{name}-out", name
        self.written = 0
        self._bootstrap = bootstrap
        self._rng = random.Random(seed)
        self._emit = emit
        self._starts = 0

    async def create(self, replicas: int) -> None:
        """Create both topics."""
        async with kclient.Admin(self._bootstrap) as admin:
            await admin.create_topics(
                [
                    NewTopic(topic, partitions=PARTITIONS, replication_factor=replicas)
                    for topic in (self.source, self.target)
                ]
            )

    async def feed(self, stop: asyncio.Event) -> None:
        """Write numbered records until ``stop``."""
        async with kclient.Producer(self._bootstrap) as producer:
            while not stop.is_set():
                numbers = range(self.written, self.written + RATE // 10)
                await producer.send_many(self.source, [(b"%d" % n, b"%d" % n) for n in numbers])
                self.written += len(numbers)
                await asyncio.sleep(0.1)

    async def start_worker(self) -> asyncio.subprocess.Process:
        """Start the process that is to be killed."""
        self._starts += 1
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.exactly_once.worker", self._bootstrap, self.source, self.target),
            *(self.group, "worker", str(self._starts)),
        )

    async def kill_again_and_again(self, kills: int, seconds: float) -> None:
        """Kill it so often, at least, and for so long."""
        began, done = time.monotonic(), 0
        while done < kills or time.monotonic() - began < seconds:
            worker = await self.start_worker()
            await asyncio.sleep(self._rng.uniform(0.5, 3.0))
            if worker.returncode is not None:
                raise AssertionError(f"the worker ended by itself, with {worker.returncode}")
            worker.send_signal(signal.SIGKILL)
            await worker.wait()
            done += 1
        self._emit(f"killed the process {done} times, {self.written:,} records written so far")

    async def finish(self) -> None:
        """Let it come to the end of the source."""
        worker = await self.start_worker()
        partitions = [TopicPartition(self.source, n) for n in range(PARTITIONS)]
        async with kclient.Consumer(
            self._bootstrap, group=self.group, enable_auto_commit=False
        ) as reader:
            try:
                ends = await reader.end_offsets(partitions)
                done, moved = -1, time.monotonic()
                while done < sum(ends.values()):
                    found = await reader.committed(partitions)
                    now = sum(at.offset for at in found.values() if at is not None)
                    if now > done:
                        done, moved = now, time.monotonic()
                    elif time.monotonic() - moved > _STANDSTILL:
                        raise TimeoutError(f"the worker stands still at {found} of {ends}")
                    await asyncio.sleep(0.2)
            finally:
                worker.send_signal(signal.SIGKILL)
                await worker.wait()

    async def verdict(self) -> bool:
        """Whether each record is there once, for each of the readers."""
        expected = sorted(b"%d" % n for n in range(self.written))
        ok = self._compare(
            "kclient",
            await readers.by_kclient(self._bootstrap, self.target, len(expected)),
            expected,
        )
        seen = await asyncio.to_thread(
            readers.by_librdkafka, self._bootstrap, self.target, len(expected)
        )
        ok = self._compare("librdkafka", seen, expected) and ok
        seen, hanging = await asyncio.to_thread(
            readers.by_java, self._bootstrap, self.target, len(expected)
        )
        ok = self._compare("Java", seen, expected) and ok
        self._emit(f"find-hanging: {len(hanging)} transactions")
        return ok and not hanging

    def _compare(self, reader: str, seen: list[bytes], expected: list[bytes]) -> bool:
        lost = Counter(expected) - Counter(seen)
        doubled = Counter(seen) - Counter(expected)
        self._emit(
            f"{reader}: {len(seen):,} records of {len(expected):,}, "
            f"{lost.total()} lost, {doubled.total()} doubled"
        )
        return not lost and not doubled


async def run(run: Run, kills: int, seconds: float, nodes: Nodes | None) -> bool:
    """The whole run; True if nothing is wrong."""
    await run.create(1 if nodes is None else 3)
    stop = asyncio.Event()
    feeding = asyncio.create_task(run.feed(stop))
    breaking = [asyncio.create_task(_break(nodes, random.Random(7), stop))] if nodes else []
    try:
        await run.kill_again_and_again(kills, seconds)
    finally:
        stop.set()
        await asyncio.gather(feeding, *breaking)
    await run.finish()
    return await run.verdict()


async def _break(nodes: Nodes, rng: random.Random, stop: asyncio.Event) -> None:
    """Kill a node, start it again, and so on until ``stop``; then all are up."""
    while not stop.is_set():
        node = rng.choice((1, 2, 3))
        await asyncio.sleep(rng.uniform(2.0, 5.0))
        await asyncio.to_thread(nodes.kill, node)
        await asyncio.sleep(rng.uniform(1.0, 3.0))
        await asyncio.to_thread(nodes.restart, node)
        await asyncio.to_thread(nodes.wait_full_isr, timeout=60.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once")
    parser.add_argument("--version", default="4.3.0")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--nodes", action="store_true", help="three nodes, which are killed, too")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    begun = time.monotonic()

    def emit(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:6.1f} s  {line}\n")
        sys.stdout.flush()

    with _cluster(options.version, several=options.nodes) as (bootstrap, nodes):
        emit(f"seed {options.seed}, {options.version} at {bootstrap}")
        one = Run(bootstrap, options.seed, emit)
        passed = asyncio.run(run(one, options.kills, options.minutes * 60, nodes))
    emit("passed: exactly once" if passed else "FAILED")
    return 0 if passed else 1


@contextlib.contextmanager
def _cluster(version: str, *, several: bool) -> Iterator[tuple[str, Nodes | None]]:
    if several:
        with three_nodes(version, purpose="exactly-once") as nodes:
            yield nodes.bootstrap, nodes
        return
    running = kafka.acquire(version)
    try:
        yield running.bootstrap, None
    finally:
        kafka.release(version)


if __name__ == "__main__":
    sys.exit(main())
