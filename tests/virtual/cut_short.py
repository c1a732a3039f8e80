"""A consumer whose calls are cut short after a moment, thousands of times, while records come.

``cut_short`` waits for a poll or a step of ``async for`` no longer than a few milliseconds, over
and over; ``cut_anything_short`` does that to every call that waits. Each compares every record and
every position with the expected next one, so that nothing is left out and nothing comes twice. A
longer run by hand:

    python -m tests.virtual.cut_short --times 100000
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kclient.errors import RequestTimedOut
from kclient.testing import Cluster, VirtualLoop, run_virtually
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import Ledger, P, T, lead, scene

PARTITIONS = 3
SHORT = 0.005
"""Seconds after which a call is cut short at the latest."""
TROUBLES = 100
"""Calls between two faults of the network or the brokers, on average."""
REREAD = 200
"""Records that a seek goes back at most."""
LIMIT = 1_000_000.0
"""Virtual seconds."""


@dataclass(slots=True)
class Outcome:
    """The outcome of one run.

    Attributes:
        calls: Made.
        cut: Of these cut short.
        records: That came, each once and in order.
        troubles: Connections cut and leaders moved meanwhile.
    """

    calls: int = 0
    cut: int = 0
    records: int = 0
    troubles: int = 0


async def feed(cluster: Cluster, rng: random.Random) -> None:
    """A few records now and then, for ever."""
    while True:
        await asyncio.sleep(rng.uniform(0, SHORT))
        index = rng.randrange(PARTITIONS)
        cluster.append(T, index, batch(cluster.end_offset(T, index), rng.randrange(1, 6)))


def make_trouble(cluster: Cluster, rng: random.Random) -> None:
    """Cut the connections to a broker, or give a partition to another one."""
    if rng.random() < 0.5:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network.cut(cluster.brokers[rng.randrange(3) + 1].address)
    else:
        lead(cluster, rng.randrange(PARTITIONS), rng.randrange(3) + 1)


async def cut_short(seed: int, times: int, *, troubles: bool, **settings: Any) -> Outcome:
    """Polls and steps of loops that are waited for a few milliseconds at most."""
    rng = random.Random(seed)
    async with scene(0, PARTITIONS, **settings) as (cluster, consumer):
        feeding = asyncio.ensure_future(feed(cluster, rng))
        done, ledger = Outcome(), Ledger(PARTITIONS)
        records = aiter(consumer)
        while done.calls < times:
            done.calls += 1
            timeout = rng.uniform(0, SHORT)
            try:
                if rng.random() < 0.5:
                    poll = consumer.poll(rng.choice((1, 3, 100)), timeout=None)
                    ledger.take(await asyncio.wait_for(poll, timeout))
                else:
                    step = asyncio.ensure_future(anext(records))
                    ledger.take([await asyncio.wait_for(step, timeout)])
            except TimeoutError:
                done.cut += 1
            if rng.random() < 0.02:
                ledger.check_positions(consumer)
            if troubles and rng.random() < 1 / TROUBLES:
                make_trouble(cluster, rng)
                done.troubles += 1
        await finish(cluster, consumer, feeding, ledger)
        done.records = ledger.taken
        return done


async def finish(
    cluster: Cluster, consumer: Any, feeding: asyncio.Future[None], ledger: Ledger
) -> None:
    """Read all that is left: whatever was cut short, the consumer is as good as new."""
    feeding.cancel()
    await asyncio.wait([feeding])
    ends = {partition: cluster.end_offset(*partition) for partition in ledger.next}
    async with asyncio.timeout(60.0):
        while ledger.next != ends:
            ledger.take(await consumer.poll(timeout=1.0))
    ledger.check_positions(consumer)
    assert await consumer.poll(timeout=1.0) == []


class AnyCall:
    """Calls of every kind, each with the check of what it returns."""

    def __init__(self, cluster: Cluster, consumer: Any, rng: random.Random) -> None:
        self.ledger = Ledger(PARTITIONS)
        self._cluster = cluster
        self._consumer = consumer
        self._rng = rng
        self._records = aiter(consumer)
        self._calls: list[Callable[[float], Any]] = [
            *[self._poll, self._step, self._poll_arrow] * 3,
            self._seek,
            self._position,
            self._ends,
            self._times,
            self._partitions,
        ]

    async def one(self, timeout: float) -> None:
        """A call of any kind, cut short after ``timeout`` seconds."""
        await self._rng.choice(self._calls)(timeout)

    async def _poll(self, timeout: float) -> None:
        poll = self._consumer.poll(self._rng.choice((1, 3, 100)), timeout=None)
        self.ledger.take(await asyncio.wait_for(poll, timeout))

    async def _step(self, timeout: float) -> None:
        step = asyncio.ensure_future(anext(self._records))
        self.ledger.take([await asyncio.wait_for(step, timeout)])

    async def _poll_arrow(self, timeout: float) -> None:
        table = await asyncio.wait_for(self._consumer.poll_arrow(timeout=None), timeout)
        self.ledger.take_rows(table.to_pylist())

    async def _seek(self, timeout: float) -> None:
        partition = self._partition()
        end = self._cluster.end_offset(*partition)
        offset = self._rng.randint(max(end - REREAD, 0), end)
        self._consumer.seek(partition, offset)
        self.ledger.next[partition] = offset

    async def _position(self, timeout: float) -> None:
        partition = self._partition()
        position = await asyncio.wait_for(self._consumer.position(partition), timeout)
        assert position == self.ledger.next[partition]

    async def _ends(self, timeout: float) -> None:
        before = {one: self._cluster.end_offset(*one) for one in self.ledger.next}
        ends = await asyncio.wait_for(self._consumer.end_offsets(before), timeout)
        assert all(before[one] <= ends[one] <= self._cluster.end_offset(*one) for one in before)

    async def _times(self, timeout: float) -> None:
        # The timestamp of a record is its offset, see ``log_bytes.batch``.
        found = await asyncio.wait_for(self._consumer.offsets_for_times({P: 3}), timeout)
        assert found[P] is None or found[P].offset == 3

    async def _partitions(self, timeout: float) -> None:
        found = await asyncio.wait_for(self._consumer.partitions_for(T), timeout)
        assert len(found) == PARTITIONS

    def _partition(self) -> Any:
        return self._rng.choice(list(self.ledger.next))


async def cut_anything_short(seed: int, times: int, **settings: Any) -> Outcome:
    """Calls of every kind that waits, with seeks between them, a few milliseconds each."""
    rng = random.Random(seed)
    async with scene(0, PARTITIONS, **settings) as (cluster, consumer):
        feeding = asyncio.ensure_future(feed(cluster, rng))
        done, calls = Outcome(), AnyCall(cluster, consumer, rng)
        while done.calls < times:
            done.calls += 1
            try:
                await calls.one(rng.uniform(0, SHORT))
            except RequestTimedOut:
                raise
            except TimeoutError:
                done.cut += 1
            if rng.random() < 1 / TROUBLES:
                make_trouble(cluster, rng)
                done.troubles += 1
        await finish(cluster, consumer, feeding, calls.ledger)
        done.records = calls.ledger.taken
        return done


def main() -> None:
    """A run from a command line, as long as one likes."""
    parser = argparse.ArgumentParser(prog="python -m tests.virtual.cut_short", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=100_000)
    options = parser.parse_args()
    logging.disable()
    for name, run in (
        ("polls and steps", cut_short(options.seed, options.times, troubles=True)),
        ("calls of any kind", cut_anything_short(options.seed, options.times)),
    ):
        began = time.monotonic()
        outcome = run_virtually(run, seed=options.seed, limit=LIMIT)
        print(f"{name}: {outcome}, {time.monotonic() - began:.0f} s")  # noqa: T201


if __name__ == "__main__":
    main()
