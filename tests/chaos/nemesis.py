"""Injects the plan's faults: nodes by ``tests.support.nodes``, connections by ``tests.faults``.

``run`` starts it beside the load. One node is away at a time, and the next is hit only once all
replicas are in sync; connections are cut all the while. A cut counts only where a Produce request
is in flight on that connection, as the proxy sees it. ``faults`` lists what was done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from tests.chaos.measures import Fault
from tests.chaos.plan import Blow, Cut, Knife, NodeFault, Plan
from tests.faults import FaultProxy, Passage, Session, rules
from tests.faults.passage import Side

_PRODUCE = "Produce"
_LOOK = 0.002
"""Seconds between two looks for a connection that can be cut."""
CALM = 1.0
"""Seconds before a leader is hit in which no connection is cut. Else most of the cut's five seconds
would measure the leader's failure, for which the whole cluster waits until it is detected."""
PATIENCE = 2.0
"""Seconds to find a connection for a cut, after which another cut is tried."""


class Cluster(Protocol):
    """What it asks of the nodes; all of it blocks."""

    def alive(self, node: int) -> bool: ...
    def kill(self, node: int) -> None: ...
    def pause(self, node: int) -> None: ...
    def resume(self, node: int) -> None: ...
    def restart(self, node: int) -> None: ...
    def leaders(self, topic: str) -> dict[int, int]: ...
    def wait_full_isr(self, *topics: str, timeout: float = 60.0) -> None: ...


class Nemesis:
    """All faults of one run.

    Args:
        emit: Is given a line for each fault of a node.

    Attributes:
        faults: What was done, in order; times are the loop's.
    """

    def __init__(
        self,
        plan: Plan,
        nodes: Cluster,
        proxy: FaultProxy,
        topic: str,
        emit: Callable[[str], object],
    ) -> None:
        self.faults: list[Fault] = []
        self._plan = plan
        self._nodes = nodes
        self._proxy = proxy
        self._topic = topic
        self._emit = emit
        self._leaders: Mapping[int, int] = {}
        self._enough = asyncio.Event()
        self._calm = False

    def stop(self) -> None:
        """Begin no other fault; ``break_nodes`` still heals the last one."""
        self._enough.set()

    def count(self, kind: str) -> int:
        """How many faults of a kind counted so far."""
        return sum(fault.kind == kind and fault.counts for fault in self.faults)

    async def learn(self) -> None:
        """Find the leaders, before the first fault."""
        self._leaders = await asyncio.to_thread(self._nodes.leaders, self._topic)

    async def break_nodes(self) -> None:
        """Kill and stop leaders, one after the other; returns when all is well behind the last."""
        for fault in self._plan.node_faults():
            await asyncio.to_thread(self._nodes.wait_full_isr, self._topic)
            await self.learn()
            if await self._rest(fault.rest):
                return
            self._calm = True
            await asyncio.sleep(CALM)
            await self.learn()
            await self._strike(fault, self._leaders[fault.partition])
            await asyncio.to_thread(self._nodes.wait_full_isr, self._topic)
            await self.learn()

    async def cut_connections(self) -> None:
        """Cut connections until as many counted as were asked for, or it is stopped."""
        wanted = self._plan.wishes.cuts
        for cut in self._plan.cuts():
            if wanted is not None and self.count("cut") >= wanted:
                return
            if await self._rest(cut.rest):
                return
            await self._cut(cut)

    async def _strike(self, fault: NodeFault, node: int) -> None:
        led = frozenset(p for p, leader in self._leaders.items() if leader == node)
        kill = fault.blow is Blow.KILL
        await asyncio.to_thread(self._nodes.kill if kill else self._nodes.pause, node)
        at = time.monotonic()
        self._calm = False
        kind = "kill" if kill else "stop"
        self.faults.append(Fault(kind, at, node, led, how=fault.blow.value))
        self._emit(f"{fault.blow.value}: node {node}, which led {len(led)} partitions")
        await asyncio.sleep(fault.away)  # not cut short: a stop lasts as long as planned
        await asyncio.to_thread(self._nodes.restart if kill else self._nodes.resume, node)
        self._emit(f"node {node} is back after {time.monotonic() - at:.1f} s")

    async def _cut(self, cut: Cut) -> None:
        if cut.knife in (Knife.CLOSE, Knife.RESET):
            session = await self._busy(cut.depth)
            if session is not None:
                self._note(session, cut.knife)
                session.cut(reset=cut.knife is Knife.RESET)
            return

        def busy(passage: Passage) -> bool:
            if not self._may_be_cut(passage.session):
                return False
            self._note(passage.session, cut.knife)
            return True

        on: Side = "request" if cut.knife is Knife.REQUEST else "answer"
        rule = self._proxy.add(rules.Cut(_PRODUCE, on=on, at=cut.depth, when=busy))
        try:
            await rule.reached(timeout=PATIENCE)
        except TimeoutError:
            return  # none came; another cut makes up for it
        finally:
            self._proxy.remove(rule)

    def _note(self, session: Session, knife: Knife) -> None:
        node = -1 if session.node is None else session.node
        led = frozenset(p for p, leader in self._leaders.items() if leader == node)
        self.faults.append(
            Fault(
                "cut",
                time.monotonic(),
                node,
                led,
                producer=session.client_id or "",
                how=knife.value,
                counts=self._may_be_cut(session),
            )
        )

    async def _busy(self, dice: float) -> Session | None:
        """A connection with a Produce request in flight; None if there is none for long."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            busy = [one for one in self._proxy.sessions() if self._may_be_cut(one)]
            if busy:
                return busy[int(dice * len(busy))]
            await asyncio.sleep(_LOOK)
        return None

    def _may_be_cut(self, session: Session) -> bool:
        """Whether a client is connected and waits for a Produce response, outside of a calm."""
        if self._calm:
            return False
        return session.in_flight(_PRODUCE) > 0 and session in self._proxy.sessions()

    async def _rest(self, seconds: float) -> bool:
        """Wait; whether it was stopped meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._enough.wait()
        except TimeoutError:
            return False
        return True
