"""Static members that leave without a LeaveGroup, come back, and are replaced."""

from __future__ import annotations

import asyncio

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError
from kclient.group.member import MemberState
from kclient.testing import run_virtually
from tests.virtual.members import SETTINGS, Worker, settled, until, working

SESSION: float = SETTINGS["session_timeout"]


def test_a_member_that_left_and_was_replaced_does_not_take_its_name_back() -> None:
    async def main() -> None:
        async with working(1) as (cluster, (leader,)):
            older = Worker(cluster, "older", group_instance_id="s")
            newer = Worker(cluster, "newer", group_instance_id="s")
            await older.start()
            await until(lambda: settled([leader, older]))
            await older.member.leave("too slow")
            older.share = None
            await newer.start()
            await until(lambda: newer.stable)
            older.member.rejoin("back again")
            await until(lambda: older.state is MemberState.FAILED, 30.0)
            assert isinstance(older.failure, BrokerError)
            assert older.failure.code == ErrorCode.FENCED_INSTANCE_ID
            await asyncio.sleep(SESSION)
            assert newer.stable
            assert newer.failure is None
            await older.stop()
            await newer.stop()

    run_virtually(main())


@pytest.mark.parametrize("away", [1.0, 3 * SESSION])
def test_a_member_that_left_without_leave_group_comes_back(away: float) -> None:
    """Within its session as the member it was, later as a new member."""

    async def main() -> None:
        async with working(1) as (cluster, (leader,)):
            worker = Worker(cluster, "w", group_instance_id="s")
            await worker.start()
            await until(lambda: settled([leader, worker]))
            before, rebalances = worker.member.health().member_id, leader.count("assigned")
            await worker.member.leave("too slow")
            worker.share = None
            await asyncio.sleep(away)
            worker.member.rejoin("back again")
            await until(lambda: settled([leader, worker]), 30.0)
            assert (worker.member.health().member_id == before) == (away < SESSION)
            assert (leader.count("assigned") == rebalances) == (away < SESSION)
            await worker.stop()

    run_virtually(main())


@pytest.mark.parametrize("how", ["leave", "close"])
def test_a_static_member_that_is_to_leave_does_so_while_its_first_join_waits(
    how: str,
) -> None:
    async def main() -> None:
        async with working(1) as (cluster, (leader,)):
            leader.slow["prepare"] = lambda: asyncio.sleep(5)
            worker = Worker(cluster, "w", group_instance_id="s")
            await worker.start()
            await until(lambda: leader.count("prepare") == 2)
            assert worker.state is MemberState.JOINING
            if how == "leave":
                await worker.member.leave("a test", send_leave=True)
            else:
                await worker.stop(send_leave=True)
            (left,) = cluster.requests.of("LeaveGroup")
            assert left.request.members[0].group_instance_id == "s"
            await until(lambda: settled([leader]) and leader.count("assigned") == 2)
            assert leader.reported[-2] == ("assign", ["w0"])
            if how == "leave":
                await worker.stop()

    run_virtually(main())


def test_a_sync_that_is_refused_for_its_generation_again_and_again_is_not_made_in_a_rush() -> None:
    async def main() -> None:
        async with working(1) as (cluster, (worker,)):
            refused = cluster.faults.error("SyncGroup", ErrorCode.ILLEGAL_GENERATION, times=None)
            worker.member.rejoin("a test")
            await asyncio.sleep(20)
            assert 5 < refused.hits < 300
            cluster.faults.remove(refused)
            await until(lambda: settled([worker]), 30.0)

    run_virtually(main())
