"""Faults between two brokers: one follower falls behind and recovers; nothing else is harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import FetchResponse
from kclient.testing import Cluster, Fault, Faults, RequestInfo, run_virtually
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import fetch, produce
from tests.unit.testing.raw_peer import RawPeer

PAIR: Any = {"broker": 1, "replica": 2}
ALWAYS: Any = {"times": None, **PAIR}
AT_ONCE, TIMEOUT = 2.0, 70.0
"""Seconds to catch up: by the next fetch, or after one without a response has timed out."""


def fail(*_: object) -> None:
    raise LookupError("a mistake of the test")


async def fail_later(info: RequestInfo) -> None:
    await asyncio.sleep(0)
    fail(info)


BROKEN = ErrorCode.UNKNOWN_SERVER_ERROR
KINDS: dict[str, tuple[Callable[[Faults], Fault], float]] = {
    "an error": (lambda f: f.error("Fetch", BROKEN, **ALWAYS), AT_ONCE),
    "of a topic": (lambda f: f.error("Fetch", BROKEN, topic="t", **ALWAYS), AT_ONCE),
    "no request": (lambda f: f.lose_requests("Fetch", **ALWAYS), AT_ONCE),
    "no answer": (lambda f: f.lose_answers("Fetch", **ALWAYS), AT_ONCE),
    "silence": (lambda f: f.hang(**PAIR), TIMEOUT),
    "delay": (lambda f: f.delay("Fetch", 1000.0, **ALWAYS), AT_ONCE),
    "late answers": (lambda f: f.delay("Fetch", 1000.0, after=True, **ALWAYS), AT_ONCE),
    "held back": (lambda f: f.hold("Fetch", topic="t", **ALWAYS), AT_ONCE),
    "kept": (lambda f: f.reorder("Fetch", **ALWAYS), AT_ONCE),
    "cut": (lambda f: f.cut_answer("Fetch", byte=30, **ALWAYS), AT_ONCE),
    "a reset": (lambda f: f.cut_answer("Fetch", byte=30, reset=True, **ALWAYS), AT_ONCE),
    "a trickle": (lambda f: f.trickle("Fetch", 1.0, **ALWAYS), AT_ONCE),
    "any bytes": (lambda f: f.answer_bytes("Fetch", b"\xff\xff", **ALWAYS), AT_ONCE),
    "no frame": (
        lambda f: f.answer_bytes("Fetch", b"\x7f\xff\xff\xff", framed=False, **ALWAYS),
        TIMEOUT,
    ),
    "nothing new": (lambda f: f.rewrite("Fetch", lambda *_: FetchResponse(), **ALWAYS), AT_ONCE),
}


def run(scene: Callable[[Cluster], Any]) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("t", assignments=[[1, 2, 3]])
            await asyncio.sleep(1.0)
            await scene(cluster)

    run_virtually(main(), limit=600.0)


async def write(cluster: Cluster, count: int = 3) -> None:
    """Append ``count`` records to the leader alone."""
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        for _ in range(count):
            await peer.call(produce("t", batch_bytes(), acks=1), 9)
            await asyncio.sleep(0.2)
        assert (await peer.call(fetch("t", 0), 12)).error_code == 0


def end_of(cluster: Cluster, broker: int) -> int:
    return cluster.log("t", broker=broker).end_offset


@pytest.mark.parametrize("kind", KINDS)
def test_one_follower_falls_behind_and_recovers(kind: str) -> None:
    async def scene(cluster: Cluster) -> None:
        make, patience = KINDS[kind]
        fault = make(cluster.faults)
        await write(cluster)
        assert fault.hits >= 1
        assert end_of(cluster, 2) < 3
        assert end_of(cluster, 3) == 3
        fault.remove()
        assert fault.held == 0
        await asyncio.sleep(patience)
        assert end_of(cluster, 2) == 3

    run(scene)


@pytest.mark.parametrize("function", [fail, fail_later])
@pytest.mark.parametrize("at", ["before", "after_append", "after_reply"])
def test_what_a_hook_raises_for_a_follower_reaches_the_test(at: Any, function: Any) -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.on("Fetch", function, at=at, times=2, **PAIR)
        await write(cluster)
        await asyncio.sleep(AT_ONCE)
        assert (fault.hits, end_of(cluster, 2)) == (2, 3)
        with pytest.raises(LookupError, match="a mistake of the test"):
            cluster.faults.check()

    run(scene)


@pytest.mark.parametrize("broker", [1, 2])
def test_what_is_held_for_a_broker_goes_when_it_restarts(broker: int) -> None:
    async def scene(cluster: Cluster) -> None:
        fault = cluster.faults.delay("Fetch", 1000.0, times=1, after=True, **PAIR)
        await write(cluster)
        assert fault.held == 1
        await cluster.restart(broker, in_sync_within=10.0)
        assert fault.held == 0
        fault.remove()
        await cluster.wait_in_sync()
        async with RawPeer.to(cluster.brokers[cluster.leader("t")].address) as peer:
            await peer.call(produce("t", batch_bytes(), acks=-1), 9)
        assert len({end_of(cluster, one) for one in (1, 2, 3)}) == 1

    run(scene)


def test_several_faults_meet_one_request_in_the_order_in_which_they_were_added() -> None:
    async def scene(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        await write(cluster, 1)
        late = cluster.faults.delay("Produce", 5.0)
        refused = cluster.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        later = cluster.faults.delay("Produce", 7.0, after=True)
        cut = cluster.faults.cut_answer("Produce", byte=9)
        async with RawPeer.to(cluster.brokers[1].address) as peer:
            began = loop.time()
            peer.write(produce("t", batch_bytes(), acks=1), 9)
            assert len(await peer.read_end()) == 9
            assert loop.time() - began == pytest.approx(12.0, abs=0.1)
        assert [one.hits for one in (late, refused, later, cut)] == [1, 1, 1, 1]
        assert end_of(cluster, 1) == 1
        assert cluster.requests.of("Produce")[-1].errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(scene)
