"""The first metadata, from the address that responds first. In virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kclient.backoff import Backoff
from kclient.clock import SystemClock
from kclient.cluster.bootstrap import Bootstrap
from kclient.cluster.metadata import MetadataState
from kclient.cluster.updater import MetadataUpdater
from kclient.config import CommonConfig
from kclient.errors import BootstrapFailed, BrokerUnreachable, ClientClosed, ProtocolError
from kclient.hooks import Counters, Hooks
from tests.unit.cluster.answers import answer
from tests.unit.cluster.virtual import Answer, FakeNetwork, Script, Steady, run


def make(script: Script, count: int) -> tuple[Bootstrap, MetadataUpdater, FakeNetwork]:
    network: Any = FakeNetwork(script, bootstrap=range(-1, -count - 1, -1))
    clock, rng, backoff = SystemClock(), Steady(), Backoff(0.1, 1.0)
    state = MetadataState(CommonConfig(), backoff, rng)
    updater = MetadataUpdater(state, network, clock=clock, hooks=Hooks(), counters=Counters())
    found = Bootstrap(updater, network, clock=clock, backoff=backoff, rng=rng)
    return found, updater, network


def elapsed() -> float:
    return asyncio.get_running_loop().time()


def test_the_first_address_that_responds_gives_the_view() -> None:
    async def main() -> None:
        bootstrap, updater, network = make(lambda *_: answer(), 3)
        await bootstrap.run(30.0)
        assert sorted(updater.view.brokers) == [1, 2]
        assert [node for _, node, _ in network.sent] == [-1]

    run(main())


def test_a_refused_address_costs_nothing_if_the_next_one_responds() -> None:
    async def main() -> None:
        bootstrap, updater, _ = make(
            lambda node, *_: BrokerUnreachable("refused") if node == -1 else answer(), 2
        )
        await bootstrap.run(30.0)
        assert updater.view.version == 1
        assert elapsed() < 0.01

    run(main())


def test_a_silent_address_does_not_hold_up_the_next_one() -> None:
    async def main() -> None:
        bootstrap, _, network = make(lambda node, *_: answer() if node == -3 else None, 3)
        await bootstrap.run(30.0)
        assert elapsed() == pytest.approx(1.0, abs=0.01)
        assert [node for _, node, _ in network.sent] == [-1, -2, -3]

    run(main())


def test_a_failure_lets_the_next_address_begin_although_another_is_silent() -> None:
    async def main() -> None:
        said = {-1: None, -2: BrokerUnreachable("refused"), -3: answer()}
        bootstrap, _, _ = make(lambda node, *_: said[node], 3)
        await bootstrap.run(30.0)
        assert elapsed() == pytest.approx(0.5, abs=0.01)

    run(main())


def test_a_response_that_comes_too_late_gives_its_frame_back() -> None:
    async def main() -> None:
        bootstrap, _, network = make(lambda node, *_: Answer(answer(), delay=2.0 + node), 2)
        await bootstrap.run(30.0)
        await asyncio.sleep(5)
        assert len(network.raws) == 2
        assert all(raw.released for raw in network.raws)

    run(main())


def test_a_broker_that_comes_up_later_is_found() -> None:
    async def main() -> None:
        bootstrap, updater, _ = make(
            lambda *_: answer() if elapsed() > 12 else BrokerUnreachable("refused"), 2
        )
        await bootstrap.run(30.0)
        assert updater.view.version == 1
        assert elapsed() < 13.5

    run(main())


def test_failures_name_every_address_with_its_reason_in_time() -> None:
    async def main() -> None:
        def script(node: int, *_: object) -> Any:
            return {
                -1: BrokerUnreachable("connection refused"),
                -2: ProtocolError("it speaks HTTP"),
                -3: answer(brokers=[]),
                -4: None,
            }[node]

        bootstrap, updater, network = make(script, 4)
        with pytest.raises(BootstrapFailed) as error:
            await bootstrap.run(10.0)
        assert elapsed() == pytest.approx(10.0)
        text = str(error.value)
        assert "boot1:9092: connection refused" in text
        assert "boot2:9092: it speaks HTTP" in text
        assert "boot3:9092: Metadata lists no brokers" in text
        assert "boot4:9092: no answer" in text
        assert "within 10 s" in text
        assert text.endswith("make a new client to try again)")
        assert error.value.__cause__ is not None
        assert updater.view.version == 0
        assert len(network.sent) < 3 * 15 + 1

    run(main())


def test_a_client_closed_meanwhile_stops_looking() -> None:
    async def main() -> None:
        bootstrap, _, _ = make(lambda *_: ClientClosed("closed"), 1)
        with pytest.raises(ClientClosed):
            await bootstrap.run(30.0)
        assert elapsed() == 0.0

    run(main())


def test_cancelling_it_leaves_nothing_behind() -> None:
    async def main() -> None:
        bootstrap, _, _ = make(lambda *_: None, 2)
        task = asyncio.create_task(bootstrap.run(30.0))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
