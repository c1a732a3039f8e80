"""One run from a topic to a result: starts load, readers and nemesis, and ends them.

``__main__`` calls ``run`` with nodes that are up. It decides when enough has happened, and at which
rate the load goes on; what is broken and what is right is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from tests.chaos import nemesis as breaking
from tests.chaos.judge import judge
from tests.chaos.ledger import Ledger
from tests.chaos.load import Load
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import SETTLE, Plan, Wishes
from tests.chaos.readback import EARLIEST, LATEST, offsets_of, read_all
from tests.chaos.readers import Reader
from tests.chaos.records import Recipe
from tests.chaos.report import Result
from tests.faults import FaultProxy

TOPIC = "chaos"
FULL_RATE = 12_000.0
"""Records per second once all faults are through and only records are missing."""
FLOWING = 0.8
"""Acknowledged of offered, within a second, of a load that nodes keep up with."""
FLOWING_WITHIN = 60.0
_WARMING = 1.0
_LOOK = 0.2


class Nodes(breaking.Cluster, Protocol):
    """What a run asks of its nodes."""

    bootstrap: str

    def address(self, node: int) -> tuple[str, int]: ...
    def create_topic(
        self, name: str, *, partitions: int = 1, configs: dict[str, object] | None = None
    ) -> None: ...


async def run(wishes: Wishes, nodes: Nodes, emit: Callable[[str], object]) -> Result:
    """Do one run.

    Args:
        nodes: All are up, and used by nothing else.
        emit: Is given a line now and then.
    """
    one = _Run(wishes, nodes, emit)
    await asyncio.to_thread(
        nodes.create_topic,
        TOPIC,
        partitions=one.plan.wishes.partitions,
        configs={"min.insync.replicas": 2},
    )
    return await one.go()


class _Run:
    def __init__(self, wishes: Wishes, nodes: Nodes, emit: Callable[[str], object]) -> None:
        self.plan = Plan(wishes)
        self._nodes = nodes
        self._emit = emit
        self._recipe = Recipe(wishes.seed, wishes.partitions)
        self._ledger = Ledger()
        self._seconds: dict[str, float] = {}
        self._cut_short = ""

    async def go(self) -> Result:
        begun = time.monotonic()
        async with FaultProxy(self._nodes.bootstrap) as proxy:
            nemesis = Nemesis(self.plan, self._nodes, proxy, TOPIC, self._emit)
            load = self._load(proxy.bootstrap)
            readers = [self._reader(proxy.bootstrap, restless=one) for one in (False, True)]
            await nemesis.learn()
            try:
                for reader in readers:
                    await reader.start()
                await load.start()
                await self._until_flowing()
                await self._while_it_breaks(nemesis, load, readers)
                begun = self._took("load", begun)
                await load.stop()
                begun = self._took("flush", begun)
                ends = await self._offsets(LATEST)
                await asyncio.gather(*(reader.finish(ends) for reader in readers))
            except BaseException:
                await load.abandon()
                await asyncio.gather(*(reader.abandon() for reader in readers))
                raise
        return await self._judge(nemesis, proxy, readers, begun)

    async def _judge(
        self, nemesis: Nemesis, proxy: FaultProxy, readers: Sequence[Reader], begun: float
    ) -> Result:
        """Read all of it back, past the proxy, and judge it."""
        self._emit("reading all of it back")
        ends = await self._offsets(LATEST)
        logs = await read_all(self._nodes.bootstrap, TOPIC, ends, self._recipe)
        begun = self._took("read", begun)
        verdict = judge(
            TOPIC,
            self._ledger,
            self._recipe,
            logs,
            starts=await self._offsets(EARLIEST),
            ends=await self._offsets(LATEST),  # asked again: nothing may come behind what was read
            trails={reader.name: reader.trails for reader in readers},
        )
        self._took("judge", begun)
        return Result(
            self.plan.wishes,
            self._ledger,
            nemesis.faults,
            verdict,
            self._seconds,
            cut_short=self._cut_short,
            reader_errors=Counter(error for reader in readers for error in reader.errors),
            found=sum(len(rows) for rows in logs.values()),
            cuts_made=proxy.cuts,
            peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        )

    def _load(self, bootstrap: str) -> Load:
        wishes = self.plan.wishes
        return Load(
            bootstrap,
            TOPIC,
            self._recipe,
            self._ledger,
            count=wishes.producers,
            compression=wishes.compression,
            seed=wishes.seed,
            rate=self.plan.rate,
        )

    def _reader(self, bootstrap: str, *, restless: bool) -> Reader:
        wishes = self.plan.wishes
        return Reader(
            "restless" if restless else "steady",
            bootstrap,
            TOPIC,
            wishes.partitions,
            self._recipe,
            seed=wishes.seed,
            restless=restless,
        )

    async def _until_flowing(self) -> None:
        """Wait until as much is acknowledged as is offered, or the first fault is too late.

        Nodes that just started are slow at first, which must not be attributed to a fault.
        """
        ledger, deadline = self._ledger, time.monotonic() + FLOWING_WITHIN
        while time.monotonic() < deadline:
            offered, acked = ledger.offered, ledger.acked
            await asyncio.sleep(_WARMING)
            if ledger.acked - acked >= (ledger.offered - offered) * FLOWING > 0:
                return

    async def _while_it_breaks(
        self, nemesis: Nemesis, load: Load, readers: Sequence[Reader]
    ) -> None:
        """Return when all is reached, all is well again, and a window behind the last fault."""
        async with asyncio.TaskGroup() as group:
            group.create_task(load.watch())
            for reader in readers:
                group.create_task(reader.watch())
            breaking = [
                group.create_task(nemesis.break_nodes()),
                group.create_task(nemesis.cut_connections()),
            ]
            await self._until_reached(nemesis, load)
            nemesis.stop()
            await asyncio.gather(*breaking)
            last = max((fault.at for fault in nemesis.faults), default=0.0)
            await asyncio.sleep(max(0.0, last + SETTLE - time.monotonic()))
            load.finish()
            for reader in readers:
                reader.stop()

    async def _until_reached(self, nemesis: Nemesis, load: Load) -> None:
        """Wait for the time, the faults and the records, but not for ever."""
        wishes, begun = self.plan.wishes, time.monotonic()
        limit = self.plan.seconds * 3 + 120.0
        reported = 0
        while True:
            await asyncio.sleep(_LOOK)
            passed = time.monotonic() - begun
            if passed // 10 > reported:
                reported = int(passed // 10)
                self._emit(f"{self._ledger.acked:,} records, {nemesis.count('cut')} cuts")
            if passed > limit:
                self._cut_short = f"not reached in {limit:.0f} s"
                return
            if passed < (wishes.minutes or 0.0) * 60.0 or not self._all_struck(nemesis):
                continue
            if self._ledger.acked >= (wishes.records or 0):
                return
            load.rate = max(self.plan.rate, FULL_RATE)

    def _all_struck(self, nemesis: Nemesis) -> bool:
        wishes = self.plan.wishes
        wanted = (("kill", wishes.kills), ("stop", wishes.stops), ("cut", wishes.cuts))
        return all(nemesis.count(kind) >= (count or 0) for kind, count in wanted)

    async def _offsets(self, which: int) -> dict[int, int]:
        leaders = await asyncio.to_thread(self._nodes.leaders, TOPIC)
        addresses = {node: self._nodes.address(node) for node in set(leaders.values())}
        return await asyncio.to_thread(offsets_of, addresses, TOPIC, leaders, which)

    def _took(self, step: str, begun: float) -> float:
        now = time.monotonic()
        self._seconds[step] = now - begun
        return now
