"""A member of a group while time passes: sessions, coordinators that move or hang, slow hosts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, RequestTimedOut
from kclient.group.member import MemberState
from kclient.testing import Cluster, VirtualLoop, run_virtually
from tests.virtual.members import G, Worker, settled, until, working

INTERVAL, SESSION = 3.0, 10.0


def beats(cluster: Cluster, worker: Worker) -> list[float]:
    """When the heartbeats of a worker came to the brokers."""
    return [r.at for r in cluster.requests.of("Heartbeat") if r.client_id == worker.name]


def gaps(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def block(loop: VirtualLoop, seconds: float) -> None:
    """Time passes and nothing can run, as under ``time.sleep``."""
    loop._now += seconds


def rebalances(workers: Sequence[Worker]) -> int:
    return sum(worker.member.health().rebalances for worker in workers)


def elsewhere(cluster: Cluster) -> int:
    return cluster.coordinator(G) % len(cluster.brokers) + 1


# Heartbeats


def test_heartbeats_come_every_interval_for_as_long_as_nothing_happens() -> None:
    async def main() -> None:
        async with working() as (cluster, (worker,)):
            before = len(beats(cluster, worker))
            await asyncio.sleep(600)
            found = gaps(beats(cluster, worker)[before:])
            assert len(found) > 190
            assert max(found) < INTERVAL * 1.05
            assert min(found) > INTERVAL * 0.95
            assert worker.calls == ["prepare", "assign", "assigned"]
            counted = {k: v for k, v in worker.core.metrics().items() if k.startswith("group.")}
            assert counted == {"group.rebalances": 1, "group.coordinator_finds": 1}

    run_virtually(main())


def test_a_heartbeat_follows_each_assignment_at_once() -> None:
    """A coordinator that was loaded again responds to joins and syncs; they prolong no session."""

    async def main() -> None:
        async with working(2) as (cluster, workers):
            follower = next(w for w in workers if not w.member.health().is_leader)
            await asyncio.sleep(INTERVAL / 2)
            follower.member.rejoin("which is answered out of the stable group")
            before, generation = follower.count("assigned"), follower.member.generation
            await until(lambda: follower.count("assigned") > before)
            assert follower.member.generation == generation
            given = follower.at[-1]
            await asyncio.sleep(INTERVAL / 10)
            assert [at for at in beats(cluster, follower) if at >= given]

    run_virtually(main())


@pytest.mark.parametrize("call", ["prepare", "assigned", "assign"])
def test_heartbeats_go_on_while_user_code_takes_longer_than_the_session(call: str) -> None:
    """R20: by 1.5 intervals at most."""

    async def main() -> None:
        async with working(2, rebalance_timeout=60.0) as (cluster, workers):
            slow = next(w for w in workers if w.member.health().is_leader)
            slow.slow[call] = lambda: asyncio.sleep(35)
            before = len(beats(cluster, slow))
            workers[0].member.rejoin("a test")
            await until(lambda: slow.calls.count(call) > 1)
            await asyncio.sleep(34)
            during = beats(cluster, slow)[before:]
            assert len(during) > 8
            assert max(gaps(during)) <= 1.5 * INTERVAL
            await until(lambda: settled(workers))
            assert "lost" not in slow.calls

    run_virtually(main())


def test_a_loop_that_was_blocked_is_named_with_figures(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with working() as (_, (worker,)):
            await asyncio.sleep(1)
            block(loop, 7.5)
            await asyncio.sleep(1)
            health = worker.member.health()
            assert health.late_heartbeats == 1
            assert 5.0 < health.longest_block < 6.0
            assert worker.stable
            assert "lost" not in worker.calls

    with caplog.at_level(logging.WARNING, "kclient.group"):
        run_virtually(main())
    (line,) = [r.getMessage() for r in caplog.records if "late" in r.getMessage()]
    assert "5.5 s late: the event loop was blocked" in line
    assert "session_timeout=10.0 s" in line


def test_a_loop_that_was_blocked_past_the_session_costs_the_assignment_and_it_joins_again() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with working(2) as (_, workers):
            block(loop, 30.0)
            await asyncio.sleep(0.5)
            assert all("lost" in worker.calls for worker in workers)
            await until(lambda: settled(workers))
            assert workers[0].member.health().longest_block > 25

    run_virtually(main())


# Coordinators


def test_a_coordinator_that_moves_costs_no_rebalance() -> None:
    """R8: the generation goes with it."""

    async def main() -> None:
        async with working(3) as (cluster, workers):
            before = rebalances(workers)
            for _ in range(6):
                cluster.move_coordinator(G, elsewhere(cluster))
                await asyncio.sleep(20)
            assert rebalances(workers) == before
            assert settled(workers)
            for worker in workers:
                assert "lost" not in worker.calls
                assert max(gaps(beats(cluster, worker))) <= 1.5 * INTERVAL

    run_virtually(main())


def test_a_coordinator_that_freezes_costs_no_rebalance_once_the_group_is_elsewhere() -> None:
    async def main() -> None:
        async with working(3, session_timeout=30.0) as (cluster, workers):
            before = rebalances(workers)
            home = cluster.coordinator(G)
            with cluster.faults.hang(broker=home):
                await asyncio.sleep(6)
                cluster.move_coordinator(G, elsewhere(cluster))
                await asyncio.sleep(24)
                assert rebalances(workers) == before
                assert settled(workers)
            await asyncio.sleep(60)
            assert rebalances(workers) == before
            assert not any("lost" in worker.calls for worker in workers)

    run_virtually(main())


def test_a_coordinator_that_is_restarted_costs_no_rebalance() -> None:
    async def main() -> None:
        async with working(3, brokers=1) as (cluster, workers):
            before = rebalances(workers)
            with cluster.faults.unavailable(broker=1):
                await asyncio.sleep(4)
            await asyncio.sleep(60)
            assert rebalances(workers) == before
            assert not any("lost" in worker.calls for worker in workers)

    run_virtually(main())


def test_connections_that_break_cost_no_rebalance() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        async with working(3) as (_, workers):
            before = rebalances(workers)
            for _ in range(20):
                loop.network.cut()
                await asyncio.sleep(1.7)
            assert rebalances(workers) == before
            assert not any("lost" in worker.calls for worker in workers)

    run_virtually(main())


@pytest.mark.parametrize("trouble", ["hang", "unavailable"])
def test_the_assignment_is_lost_without_a_response_for_a_session_and_regained_later(
    trouble: str,
) -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            last = [beats(cluster, worker)[-1:] for worker in workers]
            began = asyncio.get_running_loop().time()
            with getattr(cluster.faults, trouble)():
                await until(lambda: all("lost" in worker.calls for worker in workers))
                for worker, sent in zip(workers, last, strict=True):
                    at = worker.at[worker.calls.index("lost")]
                    heard = max([began - INTERVAL, *sent])
                    assert heard + SESSION - 0.1 <= at <= began + SESSION + 0.1
                    (error,) = [detail for what, detail in worker.reported if what == "lost"]
                    assert isinstance(error, RequestTimedOut)
                    assert "session_timeout is 10.0 s" in str(error)
                await asyncio.sleep(60)
                assert [worker.count("lost") for worker in workers] == [1, 1]
                assert worker.member.generation is None
            healed = asyncio.get_running_loop().time()
            await until(lambda: settled(workers))
            assert asyncio.get_running_loop().time() - healed < SESSION + 5 + 20

    run_virtually(main())


def test_a_session_that_ends_while_the_host_prepares_interrupts_it_and_is_lost() -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            interrupted = asyncio.Event()
            first = workers[0]
            first.slow["prepare"] = interrupted.wait
            first.member.rejoin("a test")
            await until(lambda: first.state is MemberState.PREPARING)
            with cluster.faults.hang():
                await until(lambda: "interrupt" in first.calls)
                assert "lost" not in first.calls[-2:]
                interrupted.set()
                await until(lambda: "lost" in first.calls)
            first.slow.clear()
            await until(lambda: settled(workers))

    run_virtually(main())


@pytest.mark.parametrize("trouble", ["hang", "move"])
def test_a_join_that_waits_at_a_former_coordinator_is_made_at_the_next_one(
    trouble: str,
) -> None:
    """The rebalance may last for minutes: no member waits as long for a broker that is frozen."""

    async def main() -> None:
        async with working(2, rebalance_timeout=300.0) as (cluster, workers):
            first, second = workers
            held = asyncio.Event()
            second.slow["prepare"] = held.wait
            first.member.rejoin("a test")
            await until(lambda: second.state is MemberState.PREPARING)
            await until(lambda: first.state is MemberState.JOINING)
            home = cluster.coordinator(G)
            began = asyncio.get_running_loop().time()
            frozen = cluster.faults.hang(broker=home) if trouble == "hang" else None
            await asyncio.sleep(1)
            cluster.move_coordinator(G, elsewhere(cluster))
            held.set()
            await until(lambda: settled(workers))
            assert asyncio.get_running_loop().time() - began < SESSION + 5
            assert not any("lost" in worker.calls for worker in workers)
            if frozen is not None:
                cluster.faults.remove(frozen)

    run_virtually(main())


def test_a_join_may_wait_for_longer_than_any_request() -> None:
    async def main() -> None:
        async with working(2, rebalance_timeout=120.0, request_timeout=5.0) as (cluster, workers):
            first, second = workers
            second.slow["prepare"] = lambda: asyncio.sleep(100)
            joins = len(cluster.requests.of("JoinGroup"))
            first.member.rejoin("a test")
            await until(lambda: second.count("prepare") == 2)
            await until(lambda: settled(workers) and second.count("assigned") == 2, 150)
            assert len(cluster.requests.of("JoinGroup")) == joins + 2
            assert not any("lost" in worker.calls for worker in workers)

    run_virtually(main())


# Rebalances


def test_a_new_member_is_given_its_id_first() -> None:
    """KIP-394."""

    async def main() -> None:
        async with working() as (cluster, (worker,)):
            first, second = cluster.requests.of("JoinGroup")
            assert first.errors == [ErrorCode.MEMBER_ID_REQUIRED]
            assert first.request.member_id == ""
            assert second.request.member_id == worker.member.health().member_id

    run_virtually(main())


def test_reasons_reach_the_coordinator() -> None:
    """KIP-800."""

    async def main() -> None:
        async with working() as (cluster, (worker,)):
            worker.member.rejoin("the number of tasks changed")
            await until(lambda: worker.count("assigned") == 2)
            await worker.member.leave("going for lunch")
            assert cluster.requests.of("JoinGroup")[-1].request.reason == (
                "the number of tasks changed"
            )
            (left,) = cluster.requests.of("LeaveGroup")
            assert left.request.members[0].reason == "going for lunch"

    run_virtually(main())


def test_what_is_requested_during_a_rebalance_is_not_lost() -> None:
    async def main() -> None:
        async with working() as (_, (worker,)):
            for call in ("prepare", "assign", "assigned"):
                before = worker.count("assigned")
                worker.slow = {call: lambda: asyncio.sleep(1)}
                worker.member.rejoin("first")
                seen = worker.count(call)
                await until(lambda: worker.count(call) > seen)  # noqa: B023
                worker.names = ["even", call]
                worker.member.rejoin("second")
                worker.slow = {}
                await asyncio.sleep(10)
                # Before JoinGroup it is brought by the same rebalance, later by one more.
                more = 1 if call == "prepare" else 2
                assert worker.count("assigned") == before + more

    run_virtually(main())


def test_a_leader_that_can_not_assign_leaves_so_that_another_one_leads() -> None:
    async def main() -> None:
        async with working(3) as (_, workers):
            leader = next(w for w in workers if w.member.health().is_leader)
            leader.wrong = RequestTimedOut("no idea")
            leader.member.rejoin("a test")
            others = [w for w in workers if w is not leader]
            before = leader.count("assign")
            await until(lambda: leader.count("assign") > before)
            began = asyncio.get_running_loop().time()
            await until(lambda: settled(others) and others[0].count("assigned") > 1)
            assert asyncio.get_running_loop().time() - began < INTERVAL + 1  # no session is over
            await until(lambda: settled(workers), 60)
            assert not leader.member.health().is_leader

    run_virtually(main())


def test_a_lonely_leader_that_can_not_assign_tries_again_ever_more_rarely() -> None:
    async def main() -> None:
        async with working() as (_, (worker,)):
            worker.wrong = RequestTimedOut("no idea")
            worker.member.rejoin("a test")
            await asyncio.sleep(120)
            assert 5 <= worker.count("assign") <= 12
            worker.wrong = None
            await until(lambda: worker.stable)

    run_virtually(main())


def test_a_sync_that_comes_too_late_joins_again_without_revoking_twice() -> None:
    async def main() -> None:
        async with working() as (cluster, (worker,)):
            cluster.faults.error("SyncGroup", ErrorCode.REBALANCE_IN_PROGRESS)
            worker.member.rejoin("a test")
            await until(lambda: worker.count("assigned") == 2)
            assert worker.count("prepare") == 2
            assert worker.count("assign") == 3
            assert "lost" not in worker.calls

    run_virtually(main())


def test_a_lost_response_to_a_sync_is_requested_again_without_another_rebalance() -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            lost = cluster.faults.lose_answers("SyncGroup")
            joins = len(cluster.requests.of("JoinGroup"))
            workers[0].member.rejoin("a test")
            await until(lambda: lost.hits == 1)
            await until(lambda: all(w.count("assigned") >= 2 and w.stable for w in workers))
            assert len(cluster.requests.of("JoinGroup")) == joins + 2

    run_virtually(main())


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "Heartbeat"])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_after_every_error_it_is_a_member_again(api: str, code: ErrorCode) -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            fault = cluster.faults.error(api, code, times=2, client_id="w0")
            workers[0].member.rejoin("a test")
            await until(lambda: fault.hits == 2)
            await asyncio.sleep(1)
            await until(lambda: settled(workers), 60)
            gone = code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            assert ("lost" in workers[0].calls) == gone
            assert "lost" not in workers[1].calls

    run_virtually(main())


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_an_unrecoverable_error_is_reported_once_and_what_was_held_is_lost(
    api: str, code: ErrorCode
) -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            first, second = workers
            cluster.faults.error(api, code, client_id="w0")
            first.member.rejoin("a test")
            await until(lambda: first.failure is not None)
            assert isinstance(first.failure, BrokerError)
            assert first.failure.code == code
            assert first.calls[-2:] == ["lost", "failed"]
            joins = len([r for r in cluster.requests.of("JoinGroup") if r.client_id == "w0"])
            first.member.rejoin("in vain")
            await first.member.leave("in vain, too")
            await until(lambda: second.stable)
            await asyncio.sleep(60)
            after = [r for r in cluster.requests.of("JoinGroup") if r.client_id == "w0"]
            assert len(after) == joins

    run_virtually(main())


def test_a_static_member_is_not_fenced_by_itself_when_the_coordinator_moves_amid_a_rebalance() -> (
    None
):
    """The id that it was given last isn't in the log yet: the next coordinator knows another."""

    async def main() -> None:
        async with working(2) as (cluster, workers):
            before = Worker(cluster, "before", group_instance_id="s")
            await before.start()
            await until(lambda: settled([*workers, before]))
            await before.stop()
            leader, other = sorted(workers, key=lambda w: not w.member.health().is_leader)
            other.slow["prepare"] = lambda: asyncio.sleep(3)
            leader.member.rejoin("a test")
            await until(lambda: other.calls[-1] == "prepare")
            after = Worker(cluster, "after", group_instance_id="s")
            held = cluster.faults.hold("SyncGroup", times=None)
            await after.start()
            await until(lambda: held.hits == 3)
            cluster.move_coordinator(G, elsewhere(cluster))
            held.release()
            cluster.faults.remove(held)
            await until(lambda: settled([*workers, after]), 60)
            assert after.failure is None
            await after.stop()

    run_virtually(main())
