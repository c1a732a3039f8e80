"""Members that get errors or nonsense: what may pass is tried again, and reported."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import kclient
from kclient.broker_errors import GroupAuthorizationFailed
from kclient.error_codes import ErrorCode
from kclient.errors import KafkaError, ProtocolError
from kclient.group.member import MemberState
from kclient.network import RequestFuture
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import fill
from tests.virtual.group_scene import Reader
from tests.virtual.group_scene import settled as readers_settled
from tests.virtual.members import Worker, settled, until, working
from tests.virtual.pool import Pool, member_of

FORBIDDEN = ErrorCode.GROUP_AUTHORIZATION_FAILED
ADMISSION = ["FindCoordinator", "JoinGroup", "SyncGroup"]
HANGING = 20.0
"""Seconds: the rebalance timeout of the scene, for which an assign may take."""


def garble(worker: Worker, name: str) -> list[str]:
    """Make the next good response to a request of ``worker`` unreadable."""
    done: list[str] = []
    send = worker.coordinator.send

    def sending(node_id: int, request: Any, *, api: Any, **options: Any) -> Any:
        sent = send(node_id, request, api=api, **options)
        if api.NAME != name or done:
            return sent
        done.append(name)
        spoilt: RequestFuture[Any] = RequestFuture()
        sent.add_listener(lambda _: spoilt.fail(ProtocolError("5 bytes too many")))
        return spoilt

    worker.coordinator.send = sending  # type: ignore[method-assign]
    return done


def requests_of(cluster: Cluster, api: str, client_id: str) -> list[Any]:
    return [one for one in cluster.requests.of(api) if one.client_id == client_id]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        *((api, FORBIDDEN) for api in ADMISSION),
        ("FindCoordinator", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("FindCoordinator", ErrorCode.INVALID_REQUEST),
        ("JoinGroup", ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("SyncGroup", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_refusal_that_passes_ends_no_membership(api: str, code: ErrorCode) -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            newcomer = Worker(cluster, "new")
            refused = cluster.faults.error(api, code, times=None)
            await newcomer.start()
            await until(lambda: refused.hits)
            await asyncio.sleep(2)
            cluster.faults.remove(refused)
            await until(lambda: settled([*workers, newcomer]), 30)
            assert [w.failure for w in (*workers, newcomer)] == [None] * 3
            await newcomer.stop()

    run_virtually(main())


@pytest.mark.parametrize("api", ADMISSION)
def test_each_refused_attempt_is_reported_and_they_become_rare(api: str) -> None:
    async def main() -> None:
        async with working(1) as (cluster, (first,)):
            refused = cluster.faults.error(api, FORBIDDEN, times=None, client_id="new")
            newcomer = Worker(cluster, "new")
            await newcomer.start()
            await asyncio.sleep(600)
            assert 18 <= len(newcomer.troubles) <= 36
            assert {type(one) for one in newcomer.troubles} == {GroupAuthorizationFailed}
            health = newcomer.member.health()
            assert not health.joined
            assert "GROUP_AUTHORIZATION_FAILED" in str(health.last_error)
            cluster.faults.remove(refused)
            await until(lambda: settled([first, newcomer]), 60)
            assert newcomer.member.health().last_error is None
            await newcomer.stop()

    run_virtually(main())


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_member_that_is_refused_while_it_holds_something_is_not_well(api: str) -> None:
    async def main() -> None:
        async with working(1) as (cluster, (worker,)):
            assert worker.member.joined
            refused = cluster.faults.error(api, FORBIDDEN, times=None)
            worker.member.rejoin("a test")
            await until(lambda: worker.troubles)
            assert not worker.member.joined
            assert not worker.member.health().joined
            cluster.faults.remove(refused)
            await until(lambda: settled([worker]), 30)
            assert worker.member.joined

    run_virtually(main())


def test_a_heartbeat_that_is_refused_is_sent_again_and_a_line_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            refused = cluster.faults.error("Heartbeat", FORBIDDEN, times=None)
            await asyncio.sleep(5)
            assert refused.hits > 2
            assert "GROUP_AUTHORIZATION_FAILED" in str(workers[0].member.health().last_error)
            cluster.faults.remove(refused)
            await asyncio.sleep(20)
            assert settled(workers)
            for worker in workers:
                assert worker.count("lost") == worker.count("failed") == 0
                assert worker.count("assigned") <= 2
                assert worker.member.health().last_error is None

    with caplog.at_level(logging.WARNING, "kclient.group"):
        run_virtually(main())
    lines = [r.getMessage() for r in caplog.records if "it is sent again" in r.getMessage()]
    assert len(lines) == 2


def test_a_session_that_is_over_as_heartbeats_were_refused_names_them() -> None:
    async def main() -> None:
        async with working(1) as (cluster, (worker,)):
            refused = cluster.faults.error("Heartbeat", FORBIDDEN, times=None)
            await until(lambda: worker.count("lost"), 15)
            lost = next(detail for what, detail in worker.reported if what == "lost")
            assert "GROUP_AUTHORIZATION_FAILED" in str(lost)
            cluster.faults.remove(refused)
            await until(lambda: settled([worker]), 60)

    run_virtually(main())


def test_the_users_calls_raise_a_refusal_and_then_go_on() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            refused = cluster.faults.error("JoinGroup", FORBIDDEN, times=None)
            async with member_of(cluster) as member:
                for _ in range(2):
                    with pytest.raises(GroupAuthorizationFailed, match="READ on the group"):
                        await member.joined(60.0)
                assert not member.health().ok
                assert member.health().failure is None
                cluster.faults.remove(refused)
                assert (await member.joined(60.0)).data == b"a"
                assert member.health().ok

    run_virtually(main())


@pytest.mark.parametrize("api", ADMISSION)
def test_a_consumer_that_was_refused_for_a_while_reads_on(api: str) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 4)
            refused = cluster.faults.error(api, FORBIDDEN, times=None)
            reader = await Reader(cluster).start()
            await asyncio.sleep(2)
            assert any(isinstance(one, GroupAuthorizationFailed) for one in reader.errors)
            assert not reader.consumer.health().ok
            cluster.faults.remove(refused)
            await readers_settled(reader)
            await until(lambda: reader.seen == 80)
            assert reader.consumer.health().ok
            await reader.stop()

    run_virtually(main())


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_an_unreadable_response_is_requested_again(api: str) -> None:
    async def main() -> None:
        async with working(3) as (_, workers):
            leader = next(w for w in workers if w.member.health().is_leader)
            done = garble(leader, api)
            leader.member.rejoin("a test")
            await until(lambda: done)
            await asyncio.sleep(1)
            await until(lambda: settled(workers), 15)
            assert [w.failure for w in workers] == [None] * 3
            assert not any(w.count("lost") for w in workers)

    run_virtually(main())


def test_what_can_not_be_written_is_reported_at_once() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            worker = Worker(cluster, "w")
            worker.names = ["x" * 40_000]
            await worker.start()
            await until(lambda: worker.failure is not None, 5)
            assert isinstance(worker.failure, ProtocolError)
            await worker.stop()

    run_virtually(main())


@pytest.mark.parametrize("static", [False, True])
def test_a_member_that_can_not_go_on_leaves_so_that_no_other_waits_for_it(*, static: bool) -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            names = {"group_instance_id": "s"} if static else {}
            leaving = Worker(cluster, "leaving", **names)
            await leaving.start()
            await until(lambda: settled([*workers, leaving]))
            cluster.faults.error(
                "SyncGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, client_id="leaving"
            )
            leaving.member.rejoin("a test")
            await until(lambda: leaving.failure is not None)
            await until(lambda: settled(workers), 60.0 if static else 5.0)
            assert len(requests_of(cluster, "LeaveGroup", "leaving")) == (0 if static else 1)
            await leaving.stop()
            assert len(requests_of(cluster, "LeaveGroup", "leaving")) == (0 if static else 1)

    run_virtually(main())


def test_a_leave_group_without_a_response_holds_up_no_close() -> None:
    async def main() -> None:
        async with working(1) as (cluster, (worker,)):
            cluster.faults.error("SyncGroup", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            silent = cluster.faults.hold("LeaveGroup", times=None)
            worker.member.rejoin("a test")
            await until(lambda: silent.hits)
            began = worker.core.clock.now()
            await worker.stop(2.0)
            assert worker.core.clock.now() - began < 2.5
            cluster.faults.remove(silent)

    run_virtually(main())


def test_a_member_whose_name_is_anothers_now_sends_no_leave_group_for_it() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            older = Worker(cluster, "older", group_instance_id="s")
            newer = Worker(cluster, "newer", group_instance_id="s")
            await older.start()
            await until(lambda: settled([older]))
            await newer.start()
            await until(lambda: older.failure is not None)
            await older.stop(send_leave=True)
            await asyncio.sleep(20)
            assert settled([newer])
            assert not cluster.requests.of("LeaveGroup")
            await newer.stop()

    run_virtually(main())


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_member_that_is_fenced_amid_a_rebalance_sends_no_leave_group(api: str) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            worker = Worker(cluster, "w", group_instance_id="s")
            await worker.start()
            await until(lambda: settled([worker]))
            cluster.faults.error(api, ErrorCode.FENCED_INSTANCE_ID)
            worker.member.rejoin("a test")
            await until(lambda: worker.failure is not None)
            await worker.stop(send_leave=True)
            assert not cluster.requests.of("LeaveGroup")

    run_virtually(main())


def test_a_static_member_whose_first_join_broke_off_is_no_ghost_after_it_left() -> None:
    """The coordinator knows it by its name, and it has no id to leave with."""

    async def main() -> None:
        async with working(1, rebalance_timeout=60.0) as (cluster, (first,)):
            first.slow["prepare"] = lambda: asyncio.sleep(20)
            newcomer = Worker(cluster, "new", group_instance_id="s")
            parked = cluster.faults.on("JoinGroup", lambda _: None, client_id="new")
            await newcomer.start()
            await until(lambda: parked.hits)
            await asyncio.sleep(1)
            away = cluster.faults.error(
                "FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None
            )
            node_id = newcomer.coordinator.node_id
            assert node_id is not None
            newcomer.coordinator.lost(node_id, KafkaError("a test"))
            await asyncio.sleep(1)
            assert newcomer.state is MemberState.JOINING
            cluster.faults.remove(away)
            await newcomer.member.leave("a test", send_leave=True)
            assert len(requests_of(cluster, "LeaveGroup", "new")) == 1
            await until(lambda: first.count("assigned") == 2, 25)
            assert settled([first])
            await newcomer.stop()

    run_virtually(main())


def _unoffered(_: Any, answer: Any) -> Any:
    if not answer.error_code:
        answer.protocol_name = "zzz"
    return answer


def _no_generation(_: Any, answer: Any) -> Any:
    if not answer.error_code:
        answer.generation_id = -1
    return answer


@pytest.mark.parametrize("lie", [_unoffered, _no_generation])
def test_a_nonsensical_response_to_a_join_is_tried_again_and_reported(lie: Any) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            lying = cluster.faults.rewrite("JoinGroup", lie, times=None)
            worker = Worker(cluster, "w")
            await worker.start()
            await asyncio.sleep(60)
            assert lying.hits
            assert 4 <= len(worker.troubles) <= 9
            assert isinstance(worker.troubles[0], ProtocolError)
            assert not worker.count("assign")
            cluster.faults.remove(lying)
            await until(lambda: settled([worker]), 60)
            await worker.stop()

    run_virtually(main())


def test_an_assign_that_hangs_is_abandoned_and_another_member_leads() -> None:
    async def main() -> None:
        async with working(2) as (_, workers):
            leader, other = sorted(workers, key=lambda w: not w.member.health().is_leader)
            leader.slow["assign"] = asyncio.Event().wait
            leader.member.rejoin("a test")
            await until(lambda: leader.troubles, HANGING + 5)
            assert "longer than the rebalance timeout, 20 s" in str(leader.troubles[0])
            leader.slow.clear()
            await until(lambda: settled(workers), 60)
            assert other.member.health().is_leader

    run_virtually(main())


@pytest.mark.parametrize("end", ["leave", "close", "over"])
def test_an_assign_that_hangs_is_broken_off_when_its_membership_ends(end: str) -> None:
    async def main() -> None:
        async with working(1) as (_, (worker,)):
            worker.slow["assign"] = asyncio.Event().wait
            worker.member.rejoin("a test")
            await until(lambda: worker.count("assign") == 2)
            worker.slow.clear()
            if end == "leave":
                await worker.member.leave("a test")
                worker.member.rejoin("again")
            elif end == "over":
                worker.member.over(KafkaError("a test"), forget_id=True)
            else:
                began = worker.core.clock.now()
                await worker.stop()
                assert worker.core.clock.now() - began < 0.5
                return
            await until(lambda: settled([worker]), 15)
            assert (worker.calls.count("lost") == 1) == (end == "over")

    run_virtually(main())


def test_a_useless_assignment_is_requested_again_ever_more_rarely() -> None:
    async def main() -> None:
        async with working(2) as (_, workers):
            first, second = workers
            second.useless = KafkaError("it can't be read")
            before = second.count("assigned")
            second.member.rejoin("a test")
            await asyncio.sleep(120)
            assert 5 <= second.count("assigned") - before <= 9
            assert not any(w.count("lost") for w in workers)
            second.useless = None
            await until(lambda: first.member.generation and settled(workers), 60)
            assigned = second.count("assigned")
            await asyncio.sleep(120)
            assert second.count("assigned") <= assigned + 1

    run_virtually(main())


def test_a_member_waiting_after_a_useless_assignment_holds_up_no_other_and_may_leave() -> None:
    async def main() -> None:
        async with working(2) as (cluster, workers):
            first, second = workers
            second.useless = KafkaError("it can't be read")
            second.member.rejoin("a test")
            await asyncio.sleep(100)  # the waits are long by now
            at = second.at[-1]
            await until(lambda: second.at[-1] > at, 60)
            second.useless = None
            await asyncio.sleep(0.1)
            newcomer = Worker(cluster, "new")
            await newcomer.start()
            await until(lambda: settled([*workers, newcomer]), 5)
            second.useless = KafkaError("it can't be read")
            first.member.rejoin("a test")
            await asyncio.sleep(5)
            await second.member.leave("a test")
            await asyncio.sleep(100)
            assert second.state is MemberState.OUTSIDE
            assert settled([first, newcomer])
            second.member.rejoin("again")
            await until(lambda: second.state is MemberState.STABLE)
            began = second.core.clock.now()
            await second.stop()
            assert second.core.clock.now() - began < 0.5
            await newcomer.stop()

    run_virtually(main())


@pytest.mark.parametrize("leave", ["x", 1, 0, ""])
def test_a_close_with_an_invalid_argument_is_refused_and_closes_nothing(leave: Any) -> None:
    async def main() -> None:
        async with Cluster() as cluster, member_of(cluster) as member:
            with pytest.raises(kclient.errors.InvalidArgument, match=f"leave={leave!r}.*True, F"):
                await member.close(leave=leave)
            assert (await member.joined()).data == b"a"

    run_virtually(main())


def test_metadata_that_raises_is_reported_once_in_a_rebalance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            async with member_of(cluster, pool) as member:
                await member.joined()
                pool.acts["metadata"] = _raise
                busy = cluster.faults.error("JoinGroup", ErrorCode.UNKNOWN_SERVER_ERROR, times=3)
                member.rejoin("a test")
                with pytest.raises(ZeroDivisionError):
                    await member.wait_for_rebalance(30.0)
                assert (await member.wait_for_rebalance(30.0)).data == b"a"
                assert busy.hits == 3
                assert pool.reported.count("metadata") > 5

    run_virtually(main())
    lines = [r for r in caplog.records if "metadata() of the group" in r.getMessage()]
    assert len(lines) == 1


def _raise() -> None:
    raise ZeroDivisionError("a bug of the user")


@pytest.mark.parametrize("slow", [False, True], ids=["at_once", "after_on_assigned"])
def test_a_waiter_for_assignments_gets_the_last_one_before_the_close(*, slow: bool) -> None:
    """However quick the close is that comes in the same moment."""

    async def main() -> None:
        async with Cluster() as cluster:
            pool = Pool()
            member = member_of(cluster, pool)
            await member.start()
            seen: list[int] = []

            async def iterate() -> None:
                async for assignment in member.assignments():
                    seen.append(assignment.generation)  # noqa: PERF401 - looked at meanwhile

            iterating = asyncio.ensure_future(iterate())
            first = (await member.joined()).generation
            begun = asyncio.Event()

            async def on_assigned() -> None:
                begun.set()
                if slow:
                    await asyncio.sleep(0.5)

            pool.acts["on_assigned"] = on_assigned
            member.rejoin("a test")
            await begun.wait()
            await member.close()
            await iterating
            assert seen == [first, first + 1]
            assert [one async for one in member.assignments()] == []
            with pytest.raises(kclient.errors.ClientClosed):
                await member.joined()

    run_virtually(main())
