"""One query for many partitions, with ListOffsets as the query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kclient.backoff import Backoff
from kclient.broker_errors import (
    NotLeaderOrFollower,
    OffsetNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from kclient.clock import SystemClock
from kclient.cluster.calls import Calls
from kclient.cluster.fanout import fan_out
from kclient.cluster.metadata import MetadataState
from kclient.cluster.offset_lookup import OffsetQuery, list_offsets
from kclient.cluster.updater import MetadataUpdater
from kclient.errors import (
    ClientClosed,
    ConnectionLost,
    InvalidArgument,
    KafkaError,
    NoCommonVersion,
    ProtocolError,
    RequestTimedOut,
)
from kclient.hooks import Counters, Hooks
from kclient.protocol.message import Request, Response
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.types import IsolationLevel, OffsetAndTimestamp, OffsetSpec, TopicPartition
from tests.unit.cluster.answers import A, answer, topic
from tests.unit.cluster.virtual import FakeNetwork, Steady, config, run, turns

LEADERS = {"t": [(1, 3), (2, 3), (1, 3)], "u": [(2, 3)], "leaderless": [(-1, 3)]}
T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
U0 = TopicPartition("u", 0)


class Offsets:
    """Brokers whose partitions have the offset 100 * leader + index, unless scripted otherwise."""

    def __init__(self, version: int = 7) -> None:
        self.leaders = {name: list(leaders) for name, leaders in LEADERS.items()}
        self.codes: dict[TopicPartition, list[int]] = {}
        self.lost: dict[int, int] = {}
        self.silent: set[TopicPartition] = set()
        self.topic_errors = {"secret": 29}
        self.asked: list[tuple[int, list[TopicPartition]]] = []
        self.requests: list[ListOffsetsRequest] = []
        self.network = FakeNetwork(self._script, version=12)
        self.network_version = version
        clock, counters, network = SystemClock(), Counters(), self.network
        state = MetadataState(config(), Backoff(0.1, 1.0), Steady())
        self.metadata = MetadataUpdater(
            state,
            network,  # type: ignore[arg-type]
            clock=clock,
            hooks=Hooks(),
            counters=counters,
        )
        self.calls = Calls(
            network,  # type: ignore[arg-type]
            self.metadata,
            config(),
            clock=clock,
            rng=Steady(),
            counters=counters,
        )
        send = network.send

        def versioned(node_id: int, request: Any, **options: Any) -> Any:
            network.version = version if options["api"] is ListOffsetsRequest else 12
            return send(node_id, request, **options)

        network.send = versioned  # type: ignore[method-assign]

    def _script(self, node: int, request: Request, version: int) -> Response | KafkaError:
        if isinstance(request, MetadataRequest):
            names = [t.name or "" for t in request.topics or []]
            return answer(
                *[
                    topic(n, self.leaders.get(n, ()), topic_id=A, error=self._topic_error(n))
                    for n in names
                ]
            )
        assert isinstance(request, ListOffsetsRequest)
        keys = [
            TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions
        ]
        self.asked.append((node, keys))
        self.requests.append(request)
        if self.lost.get(node, 0):
            self.lost[node] -= 1
            return ConnectionLost("reset", node_id=node)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=k.topic, partitions=[self._offset(k, node, version)])
                for k in keys
                if k not in self.silent
            ]
        )

    def _topic_error(self, name: str) -> int:
        return self.topic_errors.get(name, 0 if name in self.leaders else 3)

    def _offset(self, key: TopicPartition, node: int, version: int) -> ListOffsetsPartitionResponse:
        codes = self.codes.get(key, [])
        code = codes.pop(0) if codes else 0
        value = 100 * node + key.partition
        if version == 0:
            return ListOffsetsPartitionResponse(
                partition_index=key.partition, error_code=code, old_style_offsets=[value]
            )
        return ListOffsetsPartitionResponse(
            partition_index=key.partition,
            error_code=code,
            offset=-1 if code else value,
            timestamp=-1,
            leader_epoch=3 if version >= 4 else -1,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Callable[..., Any]]:
        task = asyncio.create_task(self.metadata.run())
        core: Any = SimpleNamespace(calls=self.calls)

        async def look_up(
            specs: Mapping[TopicPartition, OffsetSpec | int], **options: Any
        ) -> dict[TopicPartition, Any]:
            return dict(await list_offsets(core, specs, **options))

        try:
            await self.metadata.wait_newer(0, 5.0)
            yield look_up
        finally:
            task.cancel()
            await asyncio.wait([task])


def latest(*keys: TopicPartition) -> dict[TopicPartition, OffsetSpec | int]:
    return dict.fromkeys(keys, OffsetSpec.LATEST)


def test_each_leader_is_asked_once_about_all_of_its_partitions() -> None:
    async def main() -> None:
        brokers = Offsets()
        async with brokers.running() as look_up:
            found = await look_up(latest(T1, T0, T2, U0))
        assert list(found) == [T1, T0, T2, U0]
        assert {k: v.offset for k, v in found.items()} == {T1: 201, T0: 100, T2: 102, U0: 200}
        assert found[T0] == OffsetAndTimestamp(100, -1, 3)
        assert brokers.asked == [(2, [T1, U0]), (1, [T0, T2])]

    run(main())


def test_only_what_failed_is_asked_again() -> None:
    async def main() -> None:
        brokers = Offsets()
        brokers.codes[T2] = [78]  # OFFSET_NOT_AVAILABLE
        async with brokers.running() as look_up:
            found = await look_up(latest(T0, T2))
        assert found[T2].offset == 102
        assert brokers.asked == [(1, [T0, T2]), (1, [T2])]

    run(main())


def test_a_moved_leader_is_asked_after_a_refresh() -> None:
    async def main() -> None:
        brokers = Offsets()
        brokers.codes[T0] = [6]  # NOT_LEADER_OR_FOLLOWER
        async with brokers.running() as look_up:
            await brokers.metadata.wait_for_topic("t", 5.0)
            brokers.leaders["t"][0] = (2, 4)
            found = await look_up(latest(T0))
        assert found[T0].offset == 200
        assert brokers.asked == [(1, [T0]), (2, [T0])]
        assert brokers.requests[1].topics[0].partitions[0].current_leader_epoch == 4

    run(main())


def test_a_lost_connection_concerns_only_its_partitions() -> None:
    async def main() -> None:
        brokers = Offsets()
        brokers.lost = {1: 1}
        async with brokers.running() as look_up:
            found = await look_up(latest(T0, T1))
        assert (found[T0].offset, found[T1].offset) == (100, 201)
        assert brokers.asked == [(1, [T0]), (2, [T1]), (1, [T0])]

    run(main())


def test_errors_are_results_beside_what_was_found() -> None:
    async def main() -> None:
        brokers = Offsets()
        brokers.codes[T1] = [29]
        async with brokers.running() as look_up:
            found = await look_up(
                latest(T0, T1, TopicPartition("typo", 0), TopicPartition("secret", 0))
            )
        assert found[T0].offset == 100
        assert isinstance(found[T1], TopicAuthorizationFailed)
        assert found[T1].topic_partition == T1
        assert isinstance(found[TopicPartition("typo", 0)], UnknownTopicOrPartition)
        assert isinstance(found[TopicPartition("secret", 0)], TopicAuthorizationFailed)

    run(main())


def test_a_partition_that_never_succeeds_ends_at_the_deadline_with_its_story() -> None:
    async def main() -> None:
        brokers = Offsets()
        brokers.codes[T1] = [6] * 1000
        async with brokers.running() as look_up:
            found = await look_up(latest(T0, T1), timeout=10.0)
            assert asyncio.get_running_loop().time() == pytest.approx(10.0, abs=0.2)
        assert found[T0].offset == 100
        assert isinstance(found[T1], RequestTimedOut)
        assert isinstance(found[T1].__cause__, NotLeaderOrFollower)
        assert "ListOffsets of t-1" in str(found[T1])
        assert len(brokers.asked) <= 16

    run(main())


def test_a_partition_without_leader_is_waited_for_and_then_an_error() -> None:
    async def main() -> None:
        brokers = Offsets()
        key = TopicPartition("leaderless", 0)
        async with brokers.running() as look_up:
            found = await look_up(latest(key), timeout=3.0)
            assert isinstance(found[key], RequestTimedOut)
            assert "has no leader" in str(found[key])
            brokers.leaders["leaderless"] = [(2, 4)]
            assert (await look_up(latest(key), timeout=3.0))[key].offset == 200

    run(main())


def test_a_partition_left_out_of_the_response_is_an_error() -> None:
    async def main() -> None:
        brokers = Offsets()
        brokers.silent = {T0}
        async with brokers.running() as look_up:
            found = await look_up(latest(T0, T2))
        assert isinstance(found[T0], ProtocolError)
        assert found[T2].offset == 102

    run(main())


def test_what_the_question_calls_final_is_not_asked_again() -> None:
    async def main() -> None:
        class Impatient(OffsetQuery):
            def is_final(self, error: KafkaError) -> bool:
                return isinstance(error, OffsetNotAvailable)

        brokers = Offsets()
        brokers.codes[T0] = [78]
        query = Impatient(latest(T0), IsolationLevel.READ_UNCOMMITTED)
        async with brokers.running():
            found = await fan_out(brokers.calls, query, query.keys, 10.0)
        assert isinstance(found[T0], OffsetNotAvailable)
        assert len(brokers.asked) == 1

    run(main())


def test_a_spec_that_the_broker_is_too_old_for_does_not_harm_the_others() -> None:
    async def main() -> None:
        brokers = Offsets(version=6)
        async with brokers.running() as look_up:
            found = await look_up({T0: OffsetSpec.MAX_TIMESTAMP, T2: OffsetSpec.LATEST})
        assert isinstance(found[T0], NoCommonVersion)
        assert "Apache Kafka 3.0" in str(found[T0])
        assert found[T2].offset == 102

    run(main())


@pytest.mark.parametrize("version", range(12))
def test_every_version_gives_the_same(version: int) -> None:
    async def main() -> None:
        brokers = Offsets(version=version)
        async with brokers.running() as look_up:
            found = await look_up(latest(T0), isolation=IsolationLevel.READ_COMMITTED)
        assert found[T0].offset == 100
        request = brokers.requests[0]
        again = ListOffsetsRequest.decode(request.encode(version), version)
        assert again.topics[0].partitions[0].timestamp == -1
        assert again.isolation_level == (1 if version >= 2 else 0)

    run(main())


@pytest.mark.parametrize("spec", [-7, True, 1.5, "latest", None])
def test_a_spec_without_meaning_is_refused_at_once(spec: Any) -> None:
    async def main() -> None:
        brokers = Offsets()
        async with brokers.running() as look_up:
            with pytest.raises(InvalidArgument, match="t-0"):
                await look_up({T0: spec})
        assert not brokers.asked

    run(main())


def test_nothing_asked_is_nothing_found() -> None:
    async def main() -> None:
        async with Offsets().running() as look_up:
            assert await look_up({}) == {}

    run(main())


def test_the_end_of_the_client_is_raised_and_not_a_result() -> None:
    async def main() -> None:
        brokers = Offsets()
        brokers.codes[T0] = [78] * 1000
        async with brokers.running() as look_up:
            waiting = asyncio.create_task(look_up(latest(T0)))
            await turns(30)
            brokers.calls.end(ClientClosed("closed"))
            with pytest.raises(ClientClosed):
                await waiting

    run(main())
