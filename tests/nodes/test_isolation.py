"""One broker of three is slow or hangs (R22): partitions that the others lead are unaffected.

The load is offered at a fixed rate far below what clients and brokers can do, so a partition keeps
its rate unless something holds it up. Each partition is on one node only: with three replicas a
stopped node would hold up acks=all on all others until it is out of sync, which isn't the client's
fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kclient import Consumer, Producer
from kclient.hooks import RequestCompleted
from tests.faults import Delay, FaultProxy, Ignore, Rule, Stall, Trickle
from tests.nodes.diary import Diary
from tests.nodes.patience import Patience, patience_with
from tests.nodes.steady_load import SteadyLoad, under_load
from tests.support.nodes import Nodes

BAD = 1
"""The first in the list of bootstrap addresses as well."""
PLACES = [(1,), (2,), (3,), (1,), (2,), (3,)]
THEIRS = [index for index, (node,) in enumerate(PLACES) if node == BAD]
OTHERS = [index for index, (node,) in enumerate(PLACES) if node != BAD]
RATE = 5000.0 / len(PLACES)
KEPT = 0.9
"""Share of the rate that partitions on the other nodes keep."""
TIMEOUT = 2.0
"""Seconds for a request, and for the making of a connection."""
LIMIT = TIMEOUT + 1.0
SOON: dict[str, Any] = {
    "request_timeout": TIMEOUT,
    "connection_setup_timeout": TIMEOUT,
    "connection_setup_timeout_max": TIMEOUT,
}
BEFORE, DURING = 2.0, 4.0
"""Seconds of the two windows; the second is longer than any client may wait."""
BITES_WITHIN = 0.5
_PATIENCE = 30.0

RULES: dict[str, Callable[[], Rule]] = {
    "a byte per second": lambda: Trickle(interval=1.0, node=BAD),
    "half a frame, then silence": lambda: Stall(None, node=BAD, times=None),
    "accepts and says nothing": lambda: Ignore(node=BAD, times=None),
    "ten seconds late": lambda: Delay(None, 10.0, node=BAD, times=None),
}
STOPPED = "the process is stopped"


@contextlib.asynccontextmanager
async def gone_bad(kind: str, proxy: FaultProxy, nodes: Nodes) -> AsyncIterator[None]:
    """One node is slow or hangs for the time of the context."""
    if kind == STOPPED:
        await asyncio.to_thread(nodes.pause, BAD)
    else:
        rule = proxy.add(RULES[kind]())
        if isinstance(rule, Ignore):
            for session in proxy.sessions(BAD):
                session.cut()
    try:
        yield
    finally:
        proxy.clear()
        if kind == STOPPED:
            await asyncio.to_thread(nodes.resume, BAD)


def kept_their_rate(load: SteadyLoad, start: float, bad: float, end: float) -> None:
    """Partitions of the other nodes were written and read as before; those of the bad one not."""
    for what, count in (("acknowledged", load.acks_between), ("read", load.reads_between)):
        before = count(start, bad, OTHERS) / (bad - start)
        during = count(bad, end, OTHERS) / (end - bad)
        assert before > KEPT * RATE * len(OTHERS), f"{before:.0f} records/s {what} before"
        assert during >= KEPT * before, f"{during:.0f} records/s {what}, {before:.0f} before"
        assert count(bad + BITES_WITHIN, end, THEIRS) == 0, f"what {BAD} leads was {what} as well"


def gave_up_in_time(diaries: list[Diary], patience: Patience, bad: float) -> None:
    """Requests to the bad node failed soon, and their connections were closed."""
    for diary in diaries:
        failed = [
            event
            for event in diary.of(RequestCompleted, bad)
            if event.node_id == BAD and event.error is not None
        ]
        assert failed, f"no request of the {diary.client} to node {BAD} failed"
        late = [event for event in failed if event.seconds > LIMIT]
        assert not late, f"the {diary.client} waited too long: {late[0]}"
    assert patience.ended > 0, "no connection was given up"
    assert patience.longest <= LIMIT, f"a connection was kept for {patience.longest:.2f} s"


@pytest.mark.parametrize("kind", [*RULES, STOPPED])
async def test_what_other_nodes_lead_goes_on(nodes: Nodes, topic: str, kind: str) -> None:
    await asyncio.to_thread(
        nodes.create_topic, topic, replicas=PLACES, configs={"min.insync.replicas": 1}
    )
    diaries = [Diary("producer"), Diary("consumer")]
    async with (
        FaultProxy(nodes.bootstrap) as proxy,
        Producer(proxy.bootstrap, observers=[diaries[0]], **SOON) as producer,
        Consumer(
            proxy.bootstrap, topic, auto_offset_reset="earliest", observers=[diaries[1]], **SOON
        ) as consumer,
        under_load(SteadyLoad(producer, consumer, topic, len(PLACES), RATE)) as load,
    ):
        await load.flowing(_PATIENCE)
        start = time.monotonic()
        await asyncio.sleep(BEFORE)
        async with patience_with(proxy, BAD) as patience:
            bad = time.monotonic()
            async with gone_bad(kind, proxy, nodes):
                await asyncio.sleep(DURING)
                end = time.monotonic()
                patience.look()
        await load.drain(_PATIENCE)
    kept_their_rate(load, start, bad, end)
    gave_up_in_time(diaries, patience, bad)
    assert not load.wrong, load.wrong[:10]
