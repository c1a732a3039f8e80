"""Waiting until brokers show a change, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kclient.admin.operations import GONE, wait_until_seen
from kclient.clock import SystemClock
from kclient.cluster.calls import Calls
from kclient.cluster.view import Broker
from kclient.errors import ClientClosed, ConnectionLost
from kclient.hooks import Counters, Hooks
from kclient.protocol.message import Request
from tests.support.views import view_of
from tests.unit.cluster.answers import answer, topic
from tests.unit.cluster.virtual import FakeNetwork, Script, Steady, config, run


def core_of(script: Script, brokers: int = 2) -> Any:
    network: Any = FakeNetwork(script)
    metadata: Any = SimpleNamespace(
        view=view_of(Broker(n, f"b{n}", 9000 + n) for n in range(1, brokers + 1))
    )
    clock = SystemClock()
    calls = Calls(network, metadata, config(), clock=clock, rng=Steady(), counters=Counters())
    parts = {"metadata": metadata, "clock": clock, "calls": calls, "hooks": Hooks()}
    return SimpleNamespace(network=network, **parts)


def elapsed() -> float:
    return asyncio.get_running_loop().time()


def nodes(core: Any) -> list[int]:
    return [node for _, node, _ in core.network.sent]


def shows(count: int, leader: int = 1) -> Any:
    return answer(topic("t", [(leader, 0)] * count) if count else topic("t", error=3))


def test_all_brokers_are_asked_and_those_that_know_are_not_asked_again() -> None:
    async def main() -> None:
        def script(node: int, request: Request, version: int) -> Any:
            return shows(2 if node == 1 or elapsed() > 0.05 else 0)

        core = core_of(script)
        assert await wait_until_seen(core, {"t": 2}, 10.0)
        assert nodes(core)[:2] == [1, 2]
        assert nodes(core)[2:] == [2] * (len(nodes(core)) - 2)

    run(main())


@pytest.mark.parametrize(("count", "leader"), [(1, 1), (2, -1), (0, 1)])
def test_fewer_partitions_or_no_leaders_are_not_enough(count: int, leader: int) -> None:
    async def main() -> None:
        core = core_of(lambda *_: shows(count, leader))
        assert not await wait_until_seen(core, {"t": 2}, 1.0)
        assert elapsed() == pytest.approx(1.0)

    run(main())


def test_a_deleted_topic_must_not_be_shown_any_more() -> None:
    async def main() -> None:
        core = core_of(lambda *_: shows(2 if elapsed() < 0.3 else 0))
        assert await wait_until_seen(core, {"t": GONE}, 10.0)
        assert 0.3 <= elapsed() < 1.0

    run(main())


def test_a_broker_that_can_not_be_asked_is_not_waited_for() -> None:
    async def main() -> None:
        core = core_of(lambda node, *_: ConnectionLost("down") if node == 2 else shows(2))
        assert await wait_until_seen(core, {"t": 2}, 10.0)
        assert elapsed() < 0.1

    run(main())


def test_the_wait_is_bounded_also_when_there_is_much_time() -> None:
    async def main() -> None:
        core = core_of(lambda *_: shows(0))
        assert not await wait_until_seen(core, {"t": 2}, 600.0)
        assert elapsed() == pytest.approx(5.0)
        assert len(nodes(core)) < 40

    run(main())


def test_of_a_large_cluster_only_some_are_asked() -> None:
    async def main() -> None:
        core = core_of(lambda *_: shows(2), brokers=100)
        assert await wait_until_seen(core, {"t": 2}, 10.0)
        assert len(nodes(core)) == 12

    run(main())


def test_the_end_of_the_client_ends_the_wait() -> None:
    async def main() -> None:
        core = core_of(lambda *_: shows(0))
        waiting = asyncio.create_task(wait_until_seen(core, {"t": 2}, 10.0))
        await asyncio.sleep(0.1)
        core.calls.end(ClientClosed("closed"))
        with pytest.raises(ClientClosed):
            await waiting

    run(main())
