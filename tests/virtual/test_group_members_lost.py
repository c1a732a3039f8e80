"""Requests of a member, and responses to them, that get lost on a connection that stays."""

from __future__ import annotations

import asyncio

import pytest

from kclient.testing import RequestInfo, run_virtually
from tests.virtual.members import Worker, settled, until, working

SESSION, INTERVAL = 10.0, 3.0
SOON = SESSION + 5.0
REBALANCE = 300.0


def wish(worker: Worker) -> None:
    """Have the group rebalance: a member whose metadata is unchanged may keep its generation."""
    worker.names.append("odd")
    worker.member.rejoin("a test")


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_lost_response_is_requested_again_within_the_session(api: str) -> None:
    """No member is lost, and none waits for the rebalance timeout."""

    async def main() -> None:
        async with working(2, rebalance_timeout=REBALANCE) as (cluster, workers):
            lost = cluster.faults.drop(api, client_id="w0", after=True)
            wish(workers[1])
            await until(lambda: lost.hits == 1)
            await until(lambda: all(w.count("assigned") >= 2 for w in workers), SOON)
            await until(lambda: settled(workers), SOON)
            assert not any("lost" in worker.calls for worker in workers)

    run_virtually(main())


def test_a_join_of_our_own_that_never_arrives_is_made_again_within_the_session() -> None:
    """The group is stable, and so no heartbeat is refused."""

    async def main() -> None:
        async with working(2, rebalance_timeout=REBALANCE) as (cluster, workers):
            lost = cluster.faults.drop("JoinGroup", client_id="w0")
            wish(workers[0])
            await until(lambda: lost.hits == 1)
            await until(lambda: all(w.count("assigned") >= 2 for w in workers), SOON)
            assert not any("lost" in worker.calls for worker in workers)

    run_virtually(main())


def test_a_join_that_never_arrives_holds_the_others_up_for_a_session_and_no_longer() -> None:
    async def main() -> None:
        async with working(2, rebalance_timeout=REBALANCE) as (cluster, workers):
            first, second = workers
            lost = cluster.faults.drop("JoinGroup", client_id="w0")
            wish(second)
            await until(lambda: lost.hits == 1)
            await until(lambda: second.count("assigned") == 2, SESSION + 2 * INTERVAL)
            given = second.at[second.calls.index("assigned", second.calls.index("assigned") + 1)]
            await until(lambda: settled(workers), SESSION)
            assert first.at[first.calls.index("lost")] <= given + INTERVAL + 0.1

    run_virtually(main())


def test_a_sync_that_never_arrives_is_made_again_within_the_session() -> None:
    async def main() -> None:
        async with working(2, rebalance_timeout=REBALANCE) as (cluster, workers):
            lost = cluster.faults.drop("SyncGroup", client_id="w0")
            wish(workers[1])
            await until(lambda: lost.hits == 1)
            await until(lambda: all(w.count("assigned") >= 2 for w in workers), SOON)
            assert not any("lost" in worker.calls for worker in workers)

    run_virtually(main())


def has_id(asked: RequestInfo) -> bool:
    """The first JoinGroup of a member has no member id, and gets its response at once."""
    return bool(asked.request.member_id)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_new_member_is_in_soon_whatever_is_lost(api: str, *, after: bool) -> None:
    async def main() -> None:
        async with working(rebalance_timeout=REBALANCE) as (cluster, (worker,)):
            joined = Worker(cluster, "new", rebalance_timeout=REBALANCE)
            lost = cluster.faults.drop(api, client_id="new", after=after, when=has_id)
            await joined.start()
            await until(lambda: lost.hits == 1)
            await until(lambda: settled([worker, joined]), 2 * SESSION + 5.0)
            await joined.stop()

    run_virtually(main())


@pytest.mark.parametrize("after", [False, True])
def test_the_first_join_that_is_lost_is_made_again_soon(*, after: bool) -> None:
    """The coordinator responds at once, with an id."""

    async def main() -> None:
        async with working(rebalance_timeout=REBALANCE) as (cluster, (worker,)):
            joined = Worker(cluster, "new", rebalance_timeout=REBALANCE)
            lost = cluster.faults.drop("JoinGroup", client_id="new", after=after)
            await joined.start()
            await until(lambda: lost.hits == 1)
            await until(lambda: settled([worker, joined]), SOON)
            await joined.stop()

    run_virtually(main())


@pytest.mark.parametrize("after", [False, True])
def test_a_member_that_is_removed_while_its_join_is_lost_knows_it_soon(*, after: bool) -> None:
    """What it held may be another member's by now: no two owners for a rebalance timeout."""

    async def main() -> None:
        async with working(2, rebalance_timeout=20.0) as (cluster, workers):
            first, second = workers
            lost = cluster.faults.drop("JoinGroup", client_id="w0", after=after, times=None)
            wish(second)
            await until(lambda: lost.hits)
            await until(lambda: ("assign", ["w1"]) in second.reported, 60.0)
            given = second.at[second.reported.index(("assign", ["w1"]))]
            await until(lambda: "lost" in first.calls)
            assert first.at[first.calls.index("lost")] <= given + INTERVAL + 0.1
            cluster.faults.remove(lost)
            await until(lambda: settled(workers), 60.0)

    run_virtually(main())


def test_a_waiting_join_is_left_alone_for_as_long_as_others_are_waited_for() -> None:
    async def main() -> None:
        async with working(2, rebalance_timeout=REBALANCE) as (cluster, workers):
            first, second = workers
            second.slow["prepare"] = lambda: asyncio.sleep(200)
            before = len(cluster.requests.of("JoinGroup"))
            rebalances = first.member.health().rebalances
            new = Worker(cluster, "new", rebalance_timeout=REBALANCE)
            await new.start()
            await until(lambda: second.count("assigned") == 2, 250.0)
            assert len(cluster.requests.of("JoinGroup")) == before + 4  # the new one's are two
            assert not any("lost" in worker.calls for worker in workers)
            await until(lambda: settled([*workers, new]))
            assert first.member.health().rebalances == rebalances + 1
            await new.stop()

    run_virtually(main())
