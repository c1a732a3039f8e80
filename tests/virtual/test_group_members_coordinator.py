"""Finding the coordinator and calling it while brokers move, hang, lie and lag. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kclient.broker_errors import GroupAuthorizationFailed
from kclient.cluster.coordinator import Coordinator
from kclient.cluster.core import ClientCore
from kclient.config import GroupMemberConfig
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerUnreachable, ConnectionLost, RequestTimedOut
from kclient.group.offsets import GroupOffsets
from kclient.network import Lane
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition

SETTINGS: dict[str, Any] = {"retry_backoff": 0.05, "retry_backoff_max": 0.2}


@asynccontextmanager
async def scene(brokers: int = 3) -> AsyncIterator[tuple[Cluster, ClientCore, Coordinator]]:
    async with Cluster(brokers=brokers) as cluster:
        core = ClientCore(GroupMemberConfig(bootstrap=cluster.bootstrap, **SETTINGS))
        await core.start()
        try:
            yield cluster, core, Coordinator(core, "g")
        finally:
            await core.close()


def within(core: ClientCore, seconds: float = 60.0) -> float:
    return core.clock.now() + seconds


async def ask_offsets(core: ClientCore, coordinator: Coordinator) -> None:
    """Have the coordinator return what is committed, which is nothing."""
    partition = TopicPartition("t", 0)
    assert await GroupOffsets(core, coordinator).fetch([partition]) == {partition: None}


def finds(core: ClientCore) -> float:
    """How often the coordinator was found."""
    return core.metrics()["group.coordinator_finds"]


def test_concurrent_lookups_use_one_request() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            found = await asyncio.gather(*(coordinator.find(within(core)) for _ in range(5)))
            assert set(found) == {cluster.coordinator("g")} == {coordinator.node_id}
            assert len([r for r in cluster.requests if r.api == "FindCoordinator"]) == 1
            assert finds(core) == 1

    run_virtually(main())


def test_a_lookup_that_is_cancelled_leaves_the_response_to_the_others() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            held = cluster.faults.hold("FindCoordinator")
            first = asyncio.ensure_future(coordinator.find(within(core)))
            second = asyncio.ensure_future(coordinator.find(within(core)))
            await held.wait_hits()
            first.cancel()
            held.release()
            assert await second == cluster.coordinator("g")
            assert held.hits == 1

    run_virtually(main())


def test_a_silent_broker_is_waited_for_a_moment_only() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            silent = cluster.faults.hold("FindCoordinator")
            began = core.clock.now()
            assert await coordinator.find(within(core)) == cluster.coordinator("g")
            assert silent.hits == 1
            assert core.clock.now() - began < 4.0

    run_virtually(main())


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_it_is_looked_up_again_while_there_is_none(code: int) -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            cluster.faults.error("FindCoordinator", code, times=4)
            assert await coordinator.find(within(core)) == cluster.coordinator("g")

    run_virtually(main())


def test_a_caller_without_permission_is_refused_at_once() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            cluster.faults.error("FindCoordinator", ErrorCode.GROUP_AUTHORIZATION_FAILED)
            with pytest.raises(GroupAuthorizationFailed, match="FindCoordinator for group g"):
                await coordinator.find(within(core))

    run_virtually(main())


def test_when_none_is_found_in_time_the_error_names_the_reason() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            cluster.faults.error("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None)
            began = core.clock.now()
            with pytest.raises(RequestTimedOut, match="COORDINATOR_NOT_AVAILABLE"):
                await coordinator.find(within(core, 2.0))
            assert core.clock.now() - began == pytest.approx(2.0, abs=0.01)

    run_virtually(main())


def test_a_coordinator_that_metadata_does_not_know_is_reached_all_the_same() -> None:
    """A broker that lags behind leaves the new one out of its responses."""

    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            home = cluster.coordinator("g") if cluster.coordinator("g") > 0 else 1
            leave_out(cluster, home)
            core.metadata.request_update()
            while core.metadata.view.broker(home) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            cluster.move_coordinator("g", home)
            assert await coordinator.find(within(core)) == home
            await ask_offsets(core, coordinator)

    run_virtually(main())


def leave_out(cluster: Cluster, broker: int) -> None:
    def without(_: Any, answer: Any) -> Any:
        answer.brokers = [one for one in answer.brokers if one.node_id != broker]
        return answer

    cluster.faults.rewrite("Metadata", without, times=None)


def test_calls_go_on_at_the_new_coordinator() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            await ask_offsets(core, coordinator)
            for broker in (2, 3, 1):
                cluster.move_coordinator("g", broker)
                await ask_offsets(core, coordinator)
                assert coordinator.node_id == broker

    run_virtually(main())


def test_calls_wait_for_a_coordinator_that_loads_and_are_sent_again() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            loading = cluster.faults.error(
                "OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3
            )
            await ask_offsets(core, coordinator)
            assert loading.hits == 3
            assert finds(core) == 1

    run_virtually(main())


def test_requests_to_a_silent_coordinator_are_sent_to_the_next_once_it_is_dropped() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            home = await coordinator.find(within(core))
            lost = cluster.faults.hold("OffsetFetch", broker=home)
            began = core.clock.now()
            asked = asyncio.ensure_future(ask_offsets(core, coordinator))
            await lost.wait_hits()
            cluster.move_coordinator("g", home % 3 + 1)
            coordinator.lost(home, BrokerUnreachable("silent"))
            await asked
            assert core.clock.now() - began < 1.0
            assert coordinator.node_id == home % 3 + 1

    run_virtually(main())


def test_a_request_that_must_not_be_repeated_fails_when_the_coordinator_is_dropped() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            home = await coordinator.find(within(core))
            cluster.faults.hold("Heartbeat")
            beat = coordinator.send(
                home, HeartbeatRequest(group_id="g"), api=HeartbeatRequest, lane=Lane.GROUP
            )
            with pytest.raises(ConnectionLost, match="asleep"):
                core_lost = asyncio.get_running_loop().call_later(
                    0.1, coordinator.lost, home, BrokerUnreachable("asleep")
                )
                await beat
            assert core_lost.when() <= core.clock.now()

    run_virtually(main())


def test_a_coordinator_confirms_itself_until_it_has_moved_or_hangs() -> None:
    async def main() -> None:
        async with scene() as (cluster, core, coordinator):
            home = await coordinator.find(within(core))
            await coordinator.confirm(home, within(core, 1.0))
            assert coordinator.node_id == home
            cluster.move_coordinator("g", home % 3 + 1)
            with pytest.raises(ConnectionLost, match="moved to broker"):
                await coordinator.confirm(home, within(core, 1.0))
            assert coordinator.node_id is None
            home = await coordinator.find(within(core))
            with cluster.faults.hang(broker=home):
                with pytest.raises(RequestTimedOut):
                    await coordinator.confirm(home, within(core, 1.0))
            assert coordinator.node_id is None

    run_virtually(main())
