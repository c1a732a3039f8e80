"""The refresh task and its waiters, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager

import pytest

from kclient.backoff import Backoff
from kclient.broker_errors import InvalidTopic, TopicAuthorizationFailed, UnknownTopicOrPartition
from kclient.clock import SystemClock
from kclient.cluster.metadata import LeaderHint, MetadataState
from kclient.cluster.updater import MetadataUpdater
from kclient.cluster.view import Cluster
from kclient.cluster.wakeups import run_sliced
from kclient.config import CommonConfig
from kclient.errors import BrokerUnreachable, ClientClosed, MetadataTimedOut
from kclient.hooks import Counters, Event, Hooks, MetadataUpdated
from kclient.protocol.message import Request, Response
from kclient.protocol.messages.metadata import MetadataRequest
from tests.unit.cluster.answers import A, answer, topic
from tests.unit.cluster.virtual import Answer, FakeNetwork, Script, Steady, run, turns


class Seen:
    """An observer that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


def knows(*names: str) -> Script:
    """Script a cluster that knows these topics, led by 1 in epoch 1."""

    def script(node: int, request: Request, version: int) -> Response:
        assert isinstance(request, MetadataRequest)
        asked = [t.name or "" for t in request.topics or []]
        return answer(
            *[topic(n, [(1, 1)], topic_id=A) if n in names else topic(n, error=3) for n in asked]
        )

    return script


def make(
    network: FakeNetwork, observers: tuple[Seen, ...] = (), **settings: float
) -> MetadataUpdater:
    settings = {f"metadata_{name}": value for name, value in settings.items()}
    state = MetadataState(CommonConfig(**settings), Backoff(0.1, 1.0), Steady())
    return MetadataUpdater(
        state,
        network,  # type: ignore[arg-type]
        clock=SystemClock(),
        hooks=Hooks(observers),
        counters=Counters(),
    )


@asynccontextmanager
async def running(updater: MetadataUpdater) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(updater.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_a_topic_becomes_known_and_the_address_book_follows() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            found = await updater.wait_for_topic("t", 5.0)
        assert found.leaders == (1,)
        assert updater.view.leader("t", 0) == 1
        assert {n.node_id: n.port for n in network.nodes.values()} == {1: 9001, 2: 9002}
        assert all(raw.released for raw in network.raws)

    run(main())


def test_a_known_topic_is_given_without_suspending() -> None:
    async def main() -> None:
        updater = make(FakeNetwork(knows("t")))
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
        waiting = updater.wait_for_topic("t", 5.0)
        with pytest.raises(StopIteration) as done:
            waiting.send(None)
        assert done.value.value.name == "t"

    run(main())


def test_an_unknown_topic_ends_after_the_grace_and_not_after_the_timeout() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        updater = make(FakeNetwork(knows()))
        async with running(updater):
            with pytest.raises(UnknownTopicOrPartition, match="topic typo: the brokers"):
                await updater.wait_for_topic("typo", 60.0)
            assert loop.time() == pytest.approx(5.0, abs=0.1)

    run(main())


def test_an_unknown_topic_is_not_asked_for_in_a_storm() -> None:
    async def main() -> None:
        network = FakeNetwork(knows())
        updater = make(network)
        async with running(updater):
            with pytest.raises(UnknownTopicOrPartition):
                await updater.wait_for_topic("typo", 60.0)
        assert len(network.sent) <= 12

    run(main())


def hanging(*nodes: int, delay: float | None = None) -> Script:
    """Script a cluster that knows t; these brokers respond after ``delay`` s, or never."""

    def script(node: int, request: Request, version: int) -> Response | Answer | None:
        said = knows("t")(node, request, version)
        assert isinstance(said, Response)
        if node not in nodes:
            return said
        return Answer(said, delay) if delay is not None else None

    return script


def test_after_a_second_of_silence_another_broker_is_asked_as_well() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            await asyncio.sleep(10.0)
            network.script, network.sent = hanging(1, delay=30.0), []
            began, version = loop.time(), updater.view.version
            updater.request_update()
            await updater.wait_newer(version, 5.0)
            assert [node for _, node, _ in network.sent] == [1, 2]
            assert loop.time() - began == pytest.approx(1.0, abs=0.1)
            assert updater.last_error is None
            version = updater.view.version
            await asyncio.sleep(40.0)  # broker 1's late response is dropped
            assert updater.view.version == version
        assert all(raw.released for raw in network.raws)

    run(main())


def test_a_broker_that_failed_is_asked_again_while_another_one_hangs() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            await asyncio.sleep(10.0)
            began, version = loop.time(), updater.view.version
            healthy = hanging(1)

            def script(node: int, request: Request, version: int) -> Response | Answer | None:
                if node == 2 and loop.time() < began + 3.0:
                    return Answer(BrokerUnreachable("restarts"))
                return healthy(node, request, version)

            network.script, network.sent = script, []
            updater.request_update()
            await updater.wait_newer(version, 20.0)
            assert [node for _, node, _ in network.sent][:2] == [1, 2]
            assert {node for _, node, _ in network.sent} == {1, 2}
            assert loop.time() - began < 10.0

    run(main())


def test_a_leader_that_hangs_is_not_asked_whether_another_one_leads() -> None:
    class Troubled(FakeNetwork):
        """Broker 1 lost its connections, and may be dialed again."""

        def connection_error(self, node_id: int) -> Exception | None:
            return BrokerUnreachable("lost") if node_id == 1 else None

    async def main() -> None:
        network = Troubled(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            await asyncio.sleep(10.0)
            network.script, network.sent = hanging(1), []
            version = updater.view.version
            updater.leader_failed(1)
            await updater.wait_newer(version, 5.0)
            assert [node for _, node, _ in network.sent] == [2]

    run(main())


def test_a_response_that_comes_late_but_first_is_taken() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            await asyncio.sleep(10.0)
            network.script, network.sent = hanging(1, 2, delay=1.5), []
            began, version = loop.time(), updater.view.version
            updater.request_update()
            await updater.wait_newer(version, 5.0)
            assert loop.time() - began == pytest.approx(1.5, abs=0.1)
            await asyncio.sleep(10.0)
        assert [node for _, node, _ in network.sent] == [1, 2]
        assert all(raw.released for raw in network.raws)

    run(main())


def test_a_refresh_fails_when_all_that_were_asked_have_failed() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            await asyncio.sleep(10.0)
            late = {1: BrokerUnreachable("one"), 2: BrokerUnreachable("two")}
            network.script = lambda node, *_: Answer(late[node], 2.0 if node == 1 else 0.5)
            network.sent = []
            updater.request_update()
            await asyncio.sleep(1.7)
            assert updater.last_error is None
            await asyncio.sleep(0.35)
            assert str(updater.last_error) == "one"
            assert [node for _, node, _ in network.sent] == [1, 2]

    run(main())


def test_an_unknown_topic_holds_up_no_other_waiter() -> None:
    async def main() -> None:
        updater = make(FakeNetwork(knows("t")))
        async with running(updater):
            late = asyncio.create_task(updater.wait_for_topic("typo", 60.0))
            started = asyncio.get_running_loop().time()
            await updater.wait_for_topic("t", 1.0)
            assert asyncio.get_running_loop().time() - started < 0.2
            with pytest.raises(UnknownTopicOrPartition):
                await late

    run(main())


def test_a_topic_that_appears_during_the_grace_is_given() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def script(node: int, request: Request, version: int) -> Response:
            return knows(*(["t"] if loop.time() > 2.0 else []))(node, request, version)  # type: ignore[return-value]

        updater = make(FakeNetwork(script))
        async with running(updater):
            assert (await updater.wait_for_topic("t", 60.0)).name == "t"
        assert loop.time() < 3.2

    run(main())


@pytest.mark.parametrize("first", [3, 5])
def test_a_topic_that_waits_for_its_leader_has_all_of_the_timeout(first: int) -> None:
    """Brokers that return LEADER_NOT_AVAILABLE (5) know the topic, whatever came before."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def script(*_: object) -> Response:
            now = loop.time()
            if now > 40.0:
                return answer(topic("t", [(1, 1)], topic_id=A))
            return answer(topic("t", error=first if now < 2.0 else 5))

        updater = make(FakeNetwork(script))
        async with running(updater):
            with pytest.raises(MetadataTimedOut, match=r"topic t after 20 s.*error code 5"):
                await updater.wait_for_topic("t", 20.0)
            assert loop.time() == pytest.approx(20.0, abs=0.1)
            assert (await updater.wait_for_topic("t", 60.0)).name == "t"

    run(main())


def test_the_grace_begins_again_after_another_error() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def script(*_: object) -> Response:
            return answer(topic("t", error=5 if 2.0 < loop.time() < 10.0 else 3))

        updater = make(FakeNetwork(script))
        async with running(updater):
            with pytest.raises(UnknownTopicOrPartition, match=r"asked for 5\.0 s"):
                await updater.wait_for_topic("t", 60.0)
        assert 15.0 <= loop.time() <= 17.0

    run(main())


@pytest.mark.parametrize(("code", "error"), [(17, InvalidTopic), (29, TopicAuthorizationFailed)])
def test_a_refused_topic_ends_at_once(code: int, error: type[Exception]) -> None:
    async def main() -> None:
        updater = make(FakeNetwork(lambda *_: answer(topic("t", error=code))))
        async with running(updater):
            with pytest.raises(error, match="topic t"):
                await updater.wait_for_topic("t", 60.0)
        assert asyncio.get_running_loop().time() < 0.2

    run(main())


def test_a_refusal_of_before_is_asked_again_instead_of_repeated() -> None:
    async def main() -> None:
        codes = [29, 0]

        def script(*_: object) -> Response:
            code = codes.pop(0) if len(codes) > 1 else codes[0]
            return answer(topic("t", [(1, 1)] if not code else (), error=code))

        updater = make(FakeNetwork(script))
        async with running(updater):
            with pytest.raises(TopicAuthorizationFailed):
                await updater.wait_for_topic("t", 60.0)
            assert (await updater.wait_for_topic("t", 60.0)).leaders == (1,)

    run(main())


def test_without_any_response_the_timeout_holds_and_the_text_has_the_reason() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = FakeNetwork(lambda *_: BrokerUnreachable("refused"))
        updater = make(network)
        async with running(updater):
            with pytest.raises(MetadataTimedOut, match=r"topic t after 7 s.*refused") as late:
                await updater.wait_for_topic("t", 7.0)
        assert loop.time() == pytest.approx(7.0)
        assert isinstance(late.value.__cause__, BrokerUnreachable)

    run(main())


def test_waiters_wake_with_the_newer_view_and_not_before() -> None:
    async def main() -> None:
        network = FakeNetwork(lambda *_: Answer(answer(), delay=1.0))
        updater = make(network)
        async with running(updater):
            await updater.wait_newer(0, 5.0)
            version = updater.view.version
            waiters = [asyncio.create_task(updater.wait_newer(version, 30.0)) for _ in range(3)]
            await asyncio.sleep(5)
            assert not any(w.done() for w in waiters)
            updater.request_update()
            views = await asyncio.gather(*waiters)
            assert all(v.version > version for v in views)

    run(main())


def test_a_leader_hint_wakes_waiters_without_a_request() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            sent = len(network.sent)
            waiter = asyncio.create_task(updater.wait_newer(updater.view.version, 5.0))
            await turns()
            assert updater.apply_leader_hints([LeaderHint("t", 0, 2, 9)])
            assert (await waiter).leader("t", 0) == 2
            assert len(network.sent) == sent

    run(main())


def test_a_thousand_needs_make_one_request() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            await asyncio.sleep(10)
            sent = len(network.sent)
            for _ in range(1000):
                updater.request_update()
            await asyncio.sleep(5)
            assert len(network.sent) == sent + 1

    run(main())


def test_a_refused_leader_makes_no_storm() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            sent = len(network.sent)
            for _ in range(2000):
                updater.request_update()
                await asyncio.sleep(0.01)
            assert len(network.sent) - sent <= 25

    run(main())


def test_a_leader_that_is_away_is_looked_after_until_another_leads_or_it_is_back() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            for ends in ("it is back", "another leads"):
                network.down = {1}
                updater.leader_failed(1)
                sent = len(network.sent)
                await asyncio.sleep(20.0)
                assert 40 <= len(network.sent) - sent <= 60
                network.down = set() if ends == "it is back" else {1}
                if ends == "another leads":
                    updater.apply_leader_hints([LeaderHint("t", 0, 2, 2)])
                await asyncio.sleep(1.0)
                sent = len(network.sent)
                await asyncio.sleep(60.0)
                assert len(network.sent) == sent, ends

    run(main())


def test_an_idle_client_asks_by_age_only() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network, max_age=300.0)
        updater.add_topic("t")
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            sent = len(network.sent)
            await asyncio.sleep(3650)
            assert len(network.sent) - sent == 12

    run(main())


def test_dead_brokers_lead_back_to_the_bootstrap_address() -> None:
    async def main() -> None:
        network = FakeNetwork(knows("t"))
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            network.down = {1, 2}
            version = updater.view.version
            updater.request_update()
            await updater.wait_newer(version, 30.0)
            assert network.sent[-1][1] == -1

    run(main())


def test_no_broker_is_considered_twice_for_one_refresh() -> None:
    class Thinking(FakeNetwork):
        choices: list[list[int]]

        def least_loaded(self, node_ids: Iterable[int] | None = None, lane: int = 0) -> int | None:
            self.choices.append(list(node_ids or ()))
            return super().least_loaded(node_ids, lane)

    async def main() -> None:
        network = Thinking(knows("t"))
        network.choices = []
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            network.down = {1, 2}
            choices = network.choices = []
            version = updater.view.version
            updater.request_update()
            await updater.wait_newer(version, 30.0)
            assert choices[-1] == [-1]
            assert [1, 2] in choices and choices.count([1, 2]) == 1

    run(main())


def test_a_refresh_after_one_that_brought_nothing_new_goes_to_another_broker() -> None:
    """Else a stale broker would be chosen for ever, as it has an open connection."""

    def script(node: int, request: Request, version: int) -> Response:
        return answer(topic("t", [(1, 1)], topic_id=A), brokers=[1, 2, 3])

    async def main() -> None:
        network = FakeNetwork(script)
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            asked = []
            for _ in range(7):
                version = updater.view.version
                updater.request_update()
                await updater.wait_newer(version, 5.0)
                asked.append(network.sent[-1][1])
        assert asked == [1, 2, 3, 1, 2, 3, 1]

    run(main())


def test_a_broker_with_a_senseless_response_is_not_asked_again_at_once() -> None:
    def script(node: int, request: Request, version: int) -> Response:
        if node in mad:
            return answer(brokers=[])
        return answer(topic("t", [(1, 1)], topic_id=A))

    mad: set[int] = set()
    network = FakeNetwork(script)

    async def main() -> None:
        updater = make(network)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
            mad.add(1)
            before, version = len(network.sent), updater.view.version
            updater.request_update()
            await updater.wait_newer(version, 5.0)
            assert [node for _, node, _ in network.sent[before:]] == [1, 2]

    run(main())


def test_malformed_metadata_is_a_failed_refresh_and_not_a_dead_task() -> None:
    async def main() -> None:
        network = FakeNetwork(lambda *_: answer(brokers=[]))
        updater = make(network)
        async with running(updater) as task:
            with pytest.raises(MetadataTimedOut, match="no brokers"):
                await updater.wait_newer(0, 3.0)
            assert not task.done()

    run(main())


def test_the_end_of_the_client_reaches_waiters_at_once() -> None:
    async def main() -> None:
        updater = make(FakeNetwork(lambda *_: None))
        async with running(updater):
            waiter = asyncio.create_task(updater.wait_for_topic("t", 60.0))
            await turns()
            updater.end(ClientClosed("closed"))
            with pytest.raises(ClientClosed):
                await waiter
            with pytest.raises(ClientClosed):
                await updater.wait_newer(5, 60.0)
        assert asyncio.get_running_loop().time() == 0.0

    run(main())


def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    async def main() -> None:
        updater = make(FakeNetwork(lambda *_: None))
        waiter = asyncio.create_task(updater.wait_newer(0, 60.0))
        await turns()
        waiter.cancel()
        await asyncio.wait([waiter])
        assert not updater._news._waiters

    run(main())


def test_listeners_and_observers_are_notified() -> None:
    async def main() -> None:
        seen = Seen()
        views: list[Cluster] = []
        updater = make(FakeNetwork(knows("t")), (seen,))
        updater.add_listener(views.append)
        async with running(updater):
            await updater.wait_for_topic("t", 5.0)
        assert views[-1] is updater.view
        reported = [e for e in seen.events if isinstance(e, MetadataUpdated)]
        assert (reported[-1].brokers, reported[-1].topics, reported[-1].partitions) == (2, 1, 1)

    run(main())


def test_long_work_yields_to_the_loop() -> None:
    async def main() -> None:
        ticks = 0

        async def ticker() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        def work() -> Generator[None, None, str]:
            end = time.thread_time() + 0.1
            while time.thread_time() < end:
                yield
            return "done"

        task = asyncio.create_task(ticker())
        assert await run_sliced(work(), budget=0.01) == "done"
        task.cancel()
        await asyncio.wait([task])
        assert ticks >= 5

    run(main())


def test_short_work_does_not_suspend() -> None:
    def work() -> Generator[None, None, int]:
        yield
        return 1

    coroutine = run_sliced(work())
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    assert done.value.value == 1
