"""``close`` of a consumer in a group is bounded in every state of the world; R16 of the promises.

It returns within its timeout and a second, on virtual time; every waiter in the consumer is
notified; nothing is left behind. Where all is well what was finished is committed, and the others
own the partitions a moment later.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from typing import Any

import pytest

import kclient
from kclient.clock import SystemClock
from kclient.errors import ClientClosed, CommitFailed, KafkaError, RequestTimedOut
from kclient.network.dialer import SocketAddress, TcpDialer
from kclient.testing import Cluster, run_virtually
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.virtual.cancelling import client_timers
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader, settled

TIMEOUTS = (0.0, 0.7, 5.0)


class State(enum.Enum):
    """State of the world when close is called."""

    HEALTHY = "all is well"
    FROZEN = "all brokers take bytes and say nothing, as under SIGSTOP"
    COORDINATOR_FROZEN = "the coordinator does, the others are well"
    REFUSED = "brokers are gone, and their ports refuse"
    BOOTSTRAPPING = "the consumer looks for a first broker, in vain so far"
    DNS_HANGS = "the look-up of the first broker's name hangs"
    FINDING = "no coordinator is found yet"
    JOINING = "the JoinGroup waits at the broker"
    STARTING = "the offsets that were committed are being asked for"
    REBALANCING = "partitions are to be given up once the user comes"
    REVOKING_HANGS = "on_revoked never returns"
    ASSIGNING_HANGS = "on_assigned never returns"
    COORDINATOR_MOVES = "another broker leads the group since a moment ago"
    COMMITTING = "a commit is under way, and isn't answered"
    RUNNING = "handlers of run() are at work, and don't end"
    CONCURRENT = "several callers close at once"


HELD = {
    State.FINDING: "FindCoordinator",
    State.JOINING: "JoinGroup",
    State.STARTING: "OffsetFetch",
    State.COMMITTING: "OffsetCommit",
}


async def _for_ever(_: object) -> None:
    await asyncio.Event().wait()


async def _hanging(host: str, port: int) -> Sequence[SocketAddress]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


class World:
    """A cluster and a member, brought into a state."""

    def __init__(self, state: State) -> None:
        self.cluster = Cluster(brokers=3)
        self.state = state
        self.waiting: list[asyncio.Task[Any]] = []
        self.peer: Any = None
        self.starts = state in (State.BOOTSTRAPPING, State.DNS_HANGS)

    def _make(self) -> Any:
        settings: dict[str, Any] = {"bootstrap_timeout": 60.0}
        bootstrap = self.cluster.bootstrap
        if self.state is State.DNS_HANGS:
            settings["dialer"] = TcpDialer(SystemClock(), resolver=_hanging)
            bootstrap = "kafka.example:9092"
        elif self.state is State.REVOKING_HANGS:
            settings["on_revoked"] = _for_ever
        elif self.state is State.ASSIGNING_HANGS:
            settings["on_assigned"] = _for_ever
        return kclient.Consumer(bootstrap, T, group=GROUP, **SETTINGS, **settings)

    async def set_up(self) -> None:
        """Make the state."""
        net, faults = the_loop().network, self.cluster.faults
        fill(self.cluster, 20, 4)
        self.client = self._make()
        if self.state is State.BOOTSTRAPPING:
            net.blackhole("broker-1")
            net.refuse("broker-2")
            net.refuse("broker-3")
        if self.starts:
            self._wait(self.client.start(), "start")
            await asyncio.sleep(0.3)
            return
        held = None
        if self.state in HELD and self.state is not State.COMMITTING:
            held = faults.hold(HELD[self.state], times=None)
        await self.client.start()
        if held is None and self.state is not State.ASSIGNING_HANGS:
            assert await self.client.poll(5, timeout=None)
        await self._bring_about()
        if self.state is State.COMMITTING:
            held = faults.hold("OffsetCommit", times=None)
            self._wait(self.client.commit(), "commit")
        if held is not None:
            await until(lambda: held.held)
        if self.state is State.RUNNING:
            self._wait(self.client.run(_for_ever), "run")
        elif self.state is not State.REBALANCING:
            self._wait(self._read(), "reader")
        await asyncio.sleep(0.3)

    async def _bring_about(self) -> None:
        cluster, net = self.cluster, the_loop().network
        match self.state:
            case State.FROZEN:
                net.freeze()
            case State.COORDINATOR_FROZEN:
                net.freeze(f"broker-{cluster.coordinator(GROUP)}")
            case State.REFUSED:
                for node_id in cluster.brokers:
                    await cluster.crash(node_id)
            case State.COORDINATOR_MOVES:
                cluster.move_coordinator(GROUP, cluster.coordinator(GROUP) % 3 + 1)
            case State.REBALANCING:
                self.peer = kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS)
                await self.peer.start()
                membership = self.client._engine.group.membership
                await until(lambda: membership.state.name == "PREPARING")

    async def _read(self) -> None:
        async for _ in self.client:
            pass

    def _wait(self, call: Any, name: str) -> None:
        self.waiting.append(asyncio.get_running_loop().create_task(call, name=name))

    async def close(self, timeout: float) -> list[float]:
        """Seconds that each caller's close took."""
        count = 5 if self.state is State.CONCURRENT else 1
        return list(await asyncio.gather(*(self._timed(timeout) for _ in range(count))))

    async def _timed(self, timeout: float) -> float:
        began = the_loop().time()
        await self.client.close(timeout)
        return the_loop().time() - began


@pytest.mark.parametrize("timeout", TIMEOUTS)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
def test_close_of_a_member_is_bounded_in_every_state(state: State, timeout: float) -> None:
    reported: list[str] = []

    async def main() -> None:
        loop = the_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context)))
        world = World(state)
        async with world.cluster:
            await world.set_up()
            for took in await world.close(timeout):
                assert took <= timeout + 1.0
            if world.waiting:
                _, hanging = await asyncio.wait(world.waiting, timeout=0.01)
                assert not hanging
            for task in world.waiting:
                error = task.exception()
                notices = (ClientClosed, CommitFailed, RequestTimedOut)
                assert error is None or isinstance(error, notices), repr(error)
            with pytest.raises(ClientClosed):
                await world.client.poll()
            for refused in (world.client.commit(), world.client.unsubscribe()):
                with pytest.raises(ClientClosed):
                    await refused
            assert world.client.health().client.tasks == ()
            loop.network.heal()
            if world.peer is not None:
                await world.peer.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert client_timers(loop) == []
            await asyncio.sleep(0.01)
            assert loop.network.links == []

    run_virtually(main(), limit=600.0)
    assert reported == []


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_where_all_is_well_others_own_the_partitions_and_go_on_where_the_user_was(
    strategy: str,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 4)
            settings: Any = {"partition_assignment_strategy": strategy}
            first, second = Reader(cluster, **settings), Reader(cluster, **settings)
            await first.start()
            await second.start()
            await settled(first, second)
            await until(lambda: first.seen + second.seen >= 80)
            await until(
                lambda: first.consumer._engine.polled_records.active_polls
            )  # all is finished
            owned = [TopicPartition(T, index) for index in first.owned]
            began = the_loop().time()
            await first._end_task()
            await first.consumer.close()
            left = cluster.requests.of("LeaveGroup")
            assert len(left) == 1
            await settled(second)
            assert the_loop().time() - began <= 3.0
            found = await second.consumer.committed(owned)
            assert all(isinstance(one, OffsetAndMetadata) for one in found.values())
            assert [one.offset for one in found.values() if one] == [20] * len(owned)
            await asyncio.sleep(2.0)
            assert first.seen + second.seen == 80
            await second.stop()

    run_virtually(main())


def test_a_close_in_the_midst_of_a_rebalance_commits_what_was_finished() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 1)
            part = TopicPartition(T, 0)
            world = World(State.REBALANCING)
            world.cluster = cluster
            cluster.faults.clear()
            world.client = kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS)
            await world.client.start()
            assert await world.client.poll(5, timeout=None)
            assert await world.client.poll(5, timeout=None)
            await world._bring_about()
            await world.client.close()
            found = await world.peer.committed([part])
            assert found == {part: OffsetAndMetadata(5, 0)}
            await world.peer.close()

    run_virtually(main())


def test_a_listener_may_query_the_coordinator_while_the_consumer_closes() -> None:
    notices: list[int | KafkaError] = []

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 1)
            part = TopicPartition(T, 0)

            async def revoked(_: object) -> None:
                try:
                    await consumer.commit({part: 7})
                    notices.append((await consumer.committed([part]))[part].offset)
                except KafkaError as error:
                    notices.append(error)

            consumer: Any = kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, on_revoked=revoked, **SETTINGS
            )
            async with consumer:
                assert await consumer.poll(5, timeout=None)

    run_virtually(main())
    assert notices == [7]


@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_close_during_the_leave_after_a_late_poll_reports_what_is_lost(
    timeout: float,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 4)
            member = Reader(cluster, max_poll_interval=10.0)
            await member.start()
            await settled(member)
            await member._end_task()
            cluster.faults.hold("LeaveGroup", times=None)
            await until(lambda: cluster.requests.of("LeaveGroup"))
            await member.consumer.close(timeout)
            assert member.diary[-1] == ("lost", [TopicPartition(T, index) for index in range(4)])
            assert member.owned == []

    run_virtually(main())


def test_a_close_waits_for_on_lost_behind_a_callback_that_hangs() -> None:
    """No poll came for ``max_poll_interval``, as ``on_assigned`` doesn't end."""
    notices: list[str] = []

    async def lost(_: object) -> None:
        await asyncio.sleep(0.1)
        notices.append("lost")

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 4)
            member = Reader(cluster, max_poll_interval=10.0, on_assigned=_for_ever, on_lost=lost)
            await member.start()
            await until(lambda: member.consumer.health().callback)
            await member._end_task()
            await until(lambda: cluster.requests.of("LeaveGroup"))
            await member.consumer.close(5.0)
            assert notices == ["lost"]

    run_virtually(main())
