"""The commits of one consumer, in virtual time: in order, in time, and never for another's."""

from __future__ import annotations

import asyncio

import pytest

import kclient
from kclient.broker_errors import GroupAuthorizationFailed
from kclient.error_codes import ErrorCode
from kclient.errors import CommitFailed, RequestTimedOut
from kclient.group.member import OUTSIDE
from kclient.testing import Cluster, run_virtually
from tests.virtual.commit_scene import COMMIT, P0, P1, STRANGER, at, scene
from tests.virtual.consumer_scene import P, fill, until
from tests.virtual.group_scene import GROUP, SETTINGS
from tests.virtual.relay import Asked, Relay, Session, network


def test_the_coordinator_moves_between_two_commits_whose_responses_are_lost() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(1)})
            held = here.cluster.faults.hold(COMMIT, after=True)
            here.cluster.faults.lose_answers(COMMIT, 1)
            first = here.commits.submit({P0: at(2)})
            await held.wait_hits()
            second = here.commits.submit({P0: at(3)})
            here.cluster.move_coordinator("g", here.cluster.coordinator("g") % 3 + 1)
            held.release()
            await asyncio.gather(first, second)
            assert await here.committed() == [3]

    run_virtually(main())


def test_cancelling_a_wait_abandons_the_waiter_only() -> None:
    async def main() -> None:
        async with scene() as here:
            held = here.cluster.faults.hold(COMMIT)
            waiting = asyncio.create_task(here.commit({P0: at(1)}))
            queued = asyncio.create_task(here.commit({P0: at(2)}))
            await held.wait_hits()
            waiting.cancel()
            queued.cancel()
            held.release()
            assert await here.commits.flush(here.now(10.0))
            assert await here.committed() == [2]

    run_virtually(main())


def test_a_commit_waits_for_the_rebalance_to_end_while_the_partition_stays_ours() -> None:
    async def main() -> None:
        async with scene() as here:
            rebalancing = here.cluster.faults.error(
                COMMIT, ErrorCode.REBALANCE_IN_PROGRESS, times=5
            )
            commit = asyncio.create_task(here.commit({P0: at(1)}))
            await rebalancing.wait_hits(2)
            here.generation = None
            await asyncio.sleep(5.0)
            assert rebalancing.hits == 2
            here.generation = OUTSIDE
            here.commits.wake()
            await commit
            assert await here.committed() == [1]

    run_virtually(main())


def test_a_revoked_partition_takes_its_commits_along() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(9), P1: at(9)})
            here.cluster.faults.error(COMMIT, ErrorCode.REBALANCE_IN_PROGRESS, times=None)
            commit = asyncio.create_task(here.commit({P0: at(10), P1: at(10)}))
            await asyncio.sleep(0.5)
            here.commits.forget([P0])
            here.cluster.faults.clear()
            with pytest.raises(CommitFailed) as caught:
                await commit
            assert caught.value.partitions == (P0,)
            assert await here.committed(P0, P1) == [9, 10]
            assert here.commits.queue.committed == {P1: 10}

    run_virtually(main())


def test_a_commit_has_its_outcome_in_time_whatever_the_coordinator_does() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(1)})
            with here.cluster.faults.hang():
                begun = here.now()
                slow = here.commits.submit({P0: at(2)}, timeout=5.0)
                await asyncio.sleep(1.0)
                quick = here.commits.submit({P0: at(3)}, timeout=2.0)
                with pytest.raises(RequestTimedOut):
                    await quick
                assert here.now() - begun == pytest.approx(3.0, abs=0.01)
                with pytest.raises(RequestTimedOut, match="may still"):
                    await slow
                assert here.now() - begun == pytest.approx(5.0, abs=0.01)
            await here.commit({P0: at(4)})
            assert await here.committed() == [4]

    run_virtually(main())


def test_a_record_that_is_committed_late_moves_nothing_back() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(9)})
            await here.commit({P0: at(5)}, at_least=True)
            assert await here.committed() == [9]
            await here.commit({P0: at(5)})
            assert await here.committed() == [5]

    run_virtually(main())


def test_a_failure_without_a_waiter_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with scene() as here:
            here.cluster.faults.error(COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=2)
            here.commits.submit({P0: at(1)})
            here.commits.submit({P0: at(2)})
            await here.commits.flush(here.now(10.0))
            with pytest.raises(GroupAuthorizationFailed):
                await here.commit({P0: at(3)})

    run_virtually(main())
    lines = [record for record in caplog.records if "not committed" in record.message]
    assert len(lines) == 1
    assert "commits=2" in lines[0].message


def test_a_failure_with_a_waiter_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with scene() as here:
            here.lost.add(P1)
            with pytest.raises(CommitFailed):
                await here.commit({P1: at(1)})
            with pytest.raises(CommitFailed):
                await here.commits.submit({P1: at(1)})
            await asyncio.wait([late := here.commits.submit({P1: at(1)})])
            assert isinstance(late.exception(), CommitFailed)
            assert here.core.counters.get("consumer.commit_failures") == 3

    run_virtually(main())
    assert [record for record in caplog.records if "not committed" in record.message] == []


def test_an_error_for_a_generation_that_is_over_is_not_reported() -> None:
    async def main() -> None:
        async with scene() as here:
            held = here.cluster.faults.hold(COMMIT)
            here.generation = STRANGER
            commit = asyncio.create_task(here.commit({P0: at(1)}))
            await held.wait_hits()
            here.generation = OUTSIDE  # the partition was kept
            held.release()
            await commit
            assert here.refusals == []
            assert await here.committed() == [1]

    run_virtually(main())


def test_a_consumer_that_is_no_member_fails_with_that_reason_at_its_deadline() -> None:
    async def main() -> None:
        async with scene() as here:
            here.generation = None
            with pytest.raises(RequestTimedOut, match="no member of its group"):
                await here.commit({P0: at(1)}, timeout=5.0)
            assert here.cluster.requests.count(COMMIT) == 0
            await asyncio.sleep(1.0)
            assert "kclient:commits" not in here.core.health().tasks

    run_virtually(main())


def test_nothing_is_set_where_nothing_is_to_be_done() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({})
            assert here.commits._timer is None
            await here.commit({P0: at(1)})
            assert here.commits._timer is None
            assert here.commits._task is None

    run_virtually(main())


@pytest.mark.parametrize("how", ["automatic", "explicit", "by hand"])
def test_an_older_commit_that_arrives_after_a_newer_one_does_not_stay(how: str) -> None:
    """Its connection ended before the response came, and the broker processes it all the same."""

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            relay, kept = Relay(), list[bytes]()

            def keep_the_first(_: Session, asked: Asked) -> list[bytes]:
                if asked.api_key == 8 and not kept:
                    kept.append(asked.frame)
                    return []
                return [asked.frame]

            relay.on_request = keep_the_first
            settings = {**SETTINGS, "request_timeout": 2.0, "enable_auto_commit": how != "by hand"}
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **settings) as consumer:
                consumer.assign([P])
                await consumer.poll(max_records=5, timeout=None)
                first = consumer.commit_nowait({P: 5})
                await until(lambda: kept)
                if how != "automatic":
                    await consumer.commit({P: 8})
                else:
                    await first
                    await consumer.poll(max_records=5, timeout=None)
                    await consumer.poll(max_records=5, timeout=None)
                    await asyncio.sleep(6.0)
                late = network().connect("relay-of-broker-1", 9092, asyncio.Protocol)[0]
                late.write(len(kept[0]).to_bytes(4, "big") + kept[0])
                await asyncio.sleep(0.5)
                found = (await consumer.committed([P]))[P]
                assert found is not None and found.offset == 5  # it did move it back
                if how != "by hand":
                    consumer.pause(P)
                    for _ in range(8):
                        await consumer.poll(timeout=1.0)
                    found = (await consumer.committed([P]))[P]
                    assert found is not None and found.offset > 5
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **settings) as consumer:
                found = (await consumer.committed([P]))[P]
                assert found is not None and found.offset >= 8

    run_virtually(main())


def test_what_an_older_commit_may_undo_is_not_committed_in_a_rush() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            settings = {**SETTINGS, "auto_commit_interval": 0.0}
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **settings) as consumer:
                consumer.assign([P])
                await consumer.poll(max_records=5, timeout=None)
                cluster.faults.lose_answers(COMMIT, 1)
                await consumer.commit({P: 3})
                cluster.requests.clear()
                for _ in range(10):
                    await consumer.poll(timeout=1.0)
                assert 1 <= cluster.requests.count(COMMIT) <= 20

    run_virtually(main())


def test_a_commit_that_waits_for_the_coordinator_is_not_sent_once_its_partition_is_lost() -> None:
    """Its next owner has committed more by then, maybe in the same generation."""

    async def main() -> None:
        async with scene() as here:
            here.cluster.faults.error(
                "FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=5
            )
            outcome = here.commits.submit({P0: at(7), P1: at(1)})
            await asyncio.sleep(0.01)
            here.lost.add(P0)
            here.commits.forget([P0])
            with pytest.raises(CommitFailed) as failed:
                await outcome
            assert failed.value.partitions == (P0,)
            assert await here.committed(P0, P1) == [None, 1]

    run_virtually(main())
