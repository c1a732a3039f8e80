"""The retry loop of single requests, in virtual time against a scripted network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kclient.backoff import Backoff
from kclient.broker_errors import NotController, TopicAlreadyExists, UnknownTopicOrPartition
from kclient.clock import SystemClock
from kclient.cluster.calls import AnyNode, Calls, ControllerTarget, LeaderTarget, NodeTarget
from kclient.cluster.metadata import MetadataState
from kclient.cluster.updater import MetadataUpdater
from kclient.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    KafkaError,
    NoCommonVersion,
    RequestTimedOut,
)
from kclient.hooks import Counters, Hooks
from kclient.protocol.message import Request, Response
from kclient.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kclient.protocol.messages.metadata import MetadataRequest
from tests.unit.cluster.answers import A, answer, topic
from tests.unit.cluster.virtual import Answer, FakeNetwork, Steady, config, run, turns

Reply = Callable[[int], "Response | KafkaError | Answer | None"]


class Stage:
    """Metadata, calls and a network that scripts Metadata and other responses separately."""

    def __init__(self, reply: Reply, **settings: Any) -> None:
        self.reply = reply
        self.controller = 1
        self.leader = (1, 1)
        self.metadata_up = True
        self.network = FakeNetwork(self._script)
        self.settings = config(**settings)
        common: dict[str, Any] = {"clock": SystemClock(), "counters": Counters()}
        state = MetadataState(config(), Backoff(0.1, 1.0), Steady())
        network: Any = self.network
        self.metadata = MetadataUpdater(state, network, hooks=Hooks(), **common)
        self.calls = Calls(network, self.metadata, self.settings, rng=Steady(), **common)

    def _script(self, node: int, request: Request, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return self.reply(node)
        if not self.metadata_up:
            return BrokerUnreachable("refused")
        asked = [t.name or "" for t in request.topics or []]
        topics = [
            topic(n, [self.leader], topic_id=A) if n == "t" else topic(n, error=3) for n in asked
        ]
        return answer(*topics, controller_id=self.controller)

    @property
    def asked(self) -> list[int]:
        """The nodes that received requests other than Metadata."""
        return [n for _, n, m in self.network.sent if not isinstance(m, MetadataRequest)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Calls]:
        task = asyncio.create_task(self.metadata.run())
        try:
            await self.metadata.wait_newer(0, 5.0)
            yield self.calls
        finally:
            task.cancel()
            await asyncio.wait([task])


def said(code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="x", error_code=code)])


def first_error(response: CreateTopicsResponse) -> int:
    return response.topics[0].error_code


def elapsed() -> float:
    return asyncio.get_running_loop().time()


REQUEST = CreateTopicsRequest()


def test_a_good_response_is_returned() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said())
        async with stage.running() as calls:
            assert await calls.call(AnyNode(), REQUEST, check=first_error) == said()
            assert await calls.call(NodeTarget(2), REQUEST) == said()
            assert await calls.call(ControllerTarget(), REQUEST) == said()
            assert await calls.call(LeaderTarget("t", 0), REQUEST) == said()
        assert stage.asked == [1, 2, 1, 1]

    run(main())


def test_what_can_not_be_helped_is_raised_at_once_with_what_and_where() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said(36))
        async with stage.running() as calls:
            with pytest.raises(TopicAlreadyExists, match="CreateTopics to the controller") as error:
                await calls.call(ControllerTarget(), REQUEST, check=first_error)
        assert error.value.node_id == 1
        assert len(stage.asked) == 1

    run(main())


def test_a_moved_controller_is_found_through_a_newer_view() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said(41 if node == 1 else 0))
        async with stage.running() as calls:
            stage.controller = 2
            await calls.call(ControllerTarget(), REQUEST, check=first_error)
        assert stage.asked == [1, 2]

    run(main())


def test_a_controller_that_stays_wrong_is_not_asked_in_a_storm() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said(41))
        async with stage.running() as calls:
            with pytest.raises(RequestTimedOut, match="NOT_CONTROLLER") as error:
                await calls.call(ControllerTarget(), REQUEST, timeout=20.0, check=first_error)
            assert elapsed() == pytest.approx(20.0, abs=0.2)
        assert isinstance(error.value.__cause__, NotController)
        assert len(stage.asked) <= 27
        assert len(stage.network.sent) <= 2 * 27 + 2

    run(main())


def test_a_refused_leader_hint_moves_the_next_attempt() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said(6 if node == 1 else 0))
        async with stage.running() as calls:
            await stage.metadata.wait_for_topic("t", 5.0)
            stage.leader = (2, 2)
            await calls.call(LeaderTarget("t", 0), REQUEST, check=first_error)
        assert stage.asked == [1, 2]

    run(main())


def test_a_partition_that_does_not_exist_ends_after_the_grace() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said())
        async with stage.running() as calls:
            with pytest.raises(UnknownTopicOrPartition, match="t-7: topic t has 1 partitions"):
                await calls.call(LeaderTarget("t", 7), REQUEST)
            assert elapsed() < 2.5

    run(main())


def test_an_unknown_topic_ends_after_the_grace() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said())
        async with stage.running() as calls:
            with pytest.raises(UnknownTopicOrPartition, match="typo"):
                await calls.call(LeaderTarget("typo", 0), REQUEST)
            assert elapsed() < 6.5

    run(main())


def test_lost_connections_are_retried_with_back_off() -> None:
    async def main() -> None:
        left = [3]

        def reply(node: int) -> Response | KafkaError:
            left[0] -= 1
            return said() if left[0] < 0 else ConnectionLost("reset")

        stage = Stage(reply)
        async with stage.running() as calls:
            await calls.call(AnyNode(), REQUEST)
            assert elapsed() == pytest.approx(0.1 + 0.2 + 0.4)

    run(main())


def test_the_deadline_holds_whatever_happens() -> None:
    async def main() -> None:
        stage = Stage(lambda node: ConnectionLost("reset"))
        async with stage.running() as calls:
            with pytest.raises(RequestTimedOut, match=r"5\.0 s, \d+ attempts; last on broker 1"):
                await calls.call(NodeTarget(1), REQUEST, timeout=5.0)
            assert elapsed() == pytest.approx(5.0, abs=0.01)

    run(main())


def test_the_deadline_holds_while_no_metadata_comes() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said(41))
        async with stage.running() as calls:
            stage.metadata_up = False
            with pytest.raises(RequestTimedOut, match="NOT_CONTROLLER"):
                await calls.call(ControllerTarget(), REQUEST, timeout=5.0, check=first_error)
            assert elapsed() == pytest.approx(5.0, abs=0.01)

    run(main())


def test_a_missing_broker_and_a_missing_controller_are_waited_for() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said())
        async with stage.running() as calls:
            with pytest.raises(RequestTimedOut, match="no broker 9 at the moment"):
                await calls.call(NodeTarget(9), REQUEST, timeout=2.0)
            stage.controller = -1
            stage.metadata.request_update()
            await stage.metadata.wait_newer(stage.metadata.view.version, 5.0)
            waiting = asyncio.create_task(calls.call(ControllerTarget(), REQUEST))
            await asyncio.sleep(2)
            assert not waiting.done()
            stage.controller = 2
            await waiting
        assert stage.asked == [2]

    run(main())


def test_a_broker_too_old_is_no_matter_of_trying_again() -> None:
    async def main() -> None:
        stage = Stage(lambda node: NoCommonVersion("CreateTopics"))
        async with stage.running() as calls:
            with pytest.raises(NoCommonVersion):
                await calls.call(AnyNode(), REQUEST)
        assert len(stage.asked) == 1

    run(main())


def test_an_error_made_by_the_check_is_raised_as_it_is() -> None:
    async def main() -> None:
        mine = NoCommonVersion("mine")
        stage = Stage(lambda node: said())
        async with stage.running() as calls:
            with pytest.raises(NoCommonVersion) as error:
                await calls.call(AnyNode(), REQUEST, check=lambda response: mine)
        assert error.value is mine

    run(main())


def test_the_end_of_the_client_reaches_calls_that_back_off() -> None:
    async def main() -> None:
        stage = Stage(lambda node: ConnectionLost("reset"), retry_backoff=30, retry_backoff_max=30)
        async with stage.running() as calls:
            waiting = asyncio.create_task(calls.call(AnyNode(), REQUEST))
            await turns(30)
            before = elapsed()
            calls.end(ClientClosed("closed"))
            with pytest.raises(ClientClosed):
                await waiting
            assert elapsed() == before

    run(main())


def test_a_cancelled_call_leaves_no_sleeper() -> None:
    async def main() -> None:
        stage = Stage(lambda node: ConnectionLost("reset"), retry_backoff=30, retry_backoff_max=30)
        async with stage.running() as calls:
            waiting = asyncio.create_task(calls.call(AnyNode(), REQUEST))
            await turns(30)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert not calls._end._waiters

    run(main())


def test_each_request_gets_no_more_than_the_time_that_is_left() -> None:
    async def main() -> None:
        stage = Stage(lambda node: Answer(RequestTimedOut("slow"), delay=3.0))
        timeouts = []
        send = stage.network.send

        def spy(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("api") is CreateTopicsRequest:
                timeouts.append(round(kwargs["timeout"], 2))
            return send(*args, **kwargs)

        stage.network.send = spy  # type: ignore[method-assign]
        async with stage.running() as calls:
            with pytest.raises(RequestTimedOut):
                await calls.call(AnyNode(), REQUEST, timeout=5.0)
        assert timeouts == [5.0, 1.9]

    run(main())


def test_a_callable_request_needs_its_api() -> None:
    async def main() -> None:
        stage = Stage(lambda node: said())
        async with stage.running() as calls:
            with pytest.raises(TypeError, match="api="):
                await calls.call(AnyNode(), lambda version: REQUEST)
            await calls.call(AnyNode(), lambda version: REQUEST, api=CreateTopicsRequest)

    run(main())
