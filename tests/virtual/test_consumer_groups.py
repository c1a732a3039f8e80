"""Consumers in a group, on virtual time: who gets what, what is committed, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.errors import CommitFailed, MaxPollExceeded
from kclient.testing import Cluster, run_virtually
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader, settled

STRATEGIES = ["range", "roundrobin", "sticky", COOPERATIVE]


@asynccontextmanager
async def group(
    readers: int, count: int = 20, partitions: int = 4, **settings: Any
) -> AsyncIterator[tuple[Cluster, list[Reader]]]:
    """A cluster with a filled topic, and members that have shared it out."""
    async with Cluster(brokers=3) as cluster:
        fill(cluster, count, partitions)
        members = [Reader(cluster, **settings) for _ in range(readers)]
        for member in members:
            await member.start()
        if members:
            await settled(*members, partitions=partitions)
        try:
            yield cluster, members
        finally:
            for member in members:
                await member.stop()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_the_partitions_and_read_all_records(strategy: str) -> None:
    async def main() -> None:
        async with group(3, partition_assignment_strategy=strategy) as (_, members):
            await until(lambda: sum(member.seen for member in members) >= 80)
            for member in members:
                for offsets in member.offsets.values():
                    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
            assert sorted(index for member in members for index in member.owned) == [0, 1, 2, 3]

    run_virtually(main())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_leaves_hands_over_without_a_record_read_twice_or_skipped(strategy: str) -> None:
    async def main() -> None:
        async with group(2, partition_assignment_strategy=strategy) as (cluster, members):
            await until(lambda: sum(member.seen for member in members) >= 80)
            first, second = members
            await first.stop()
            begun = the_loop().time()
            await settled(second)
            assert the_loop().time() - begun < 3.0  # it has left: no session has to run out
            for index in range(4):
                cluster.append(T, index, batch(20, 5))
            await until(lambda: first.seen + second.seen >= 100)
            read: dict[TopicPartition, list[int]] = {}
            for member in members:
                for partition, offsets in member.offsets.items():
                    read.setdefault(partition, []).extend(offsets)
            assert all(sorted(offsets) == list(range(25)) for offsets in read.values())

    run_virtually(main())


def test_an_eager_rebalance_revokes_all_and_a_cooperative_one_what_moves() -> None:
    async def main(strategy: str) -> tuple[list[list[int]], list[list[int]]]:
        async with group(1, partition_assignment_strategy=strategy) as (cluster, [first]):
            second = await Reader(cluster, partition_assignment_strategy=strategy).start()
            await until(lambda: len(second.owned) == 2)
            await settled(first, second)
            told = first.told("revoked"), first.told("assigned")
            await second.stop()
            return told

    revoked, assigned = run_virtually(main("range"))
    assert revoked == [[0, 1, 2, 3]]
    assert assigned in ([[0, 1, 2, 3], [0, 1]], [[0, 1, 2, 3], [2, 3]])
    revoked, assigned = run_virtually(main(COOPERATIVE))
    assert len(revoked) == 1 and len(revoked[0]) == 2
    assert assigned[0] == [0, 1, 2, 3] and all(more == [] for more in assigned[1:])


def test_what_was_committed_is_where_the_next_member_begins() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            part = TopicPartition(T, 0)
            settings = {**SETTINGS, "enable_auto_commit": False}
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **settings) as consumer:
                records = await consumer.poll(max_records=7, timeout=None)
                await consumer.commit()
                assert await consumer.committed([part]) == {part: OffsetAndMetadata(7, 0)}
                await consumer.commit({part: 3})
                await consumer.commit(records[4])
                await consumer.commit(records[1])
                found = await consumer.committed([part])
                assert found[part] is not None and found[part].offset == 5
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **settings) as consumer:
                [record] = await consumer.poll(max_records=1, timeout=None)
                assert record.offset == 5

    run_virtually(main())


def test_auto_commit_takes_only_what_an_earlier_call_handed_over() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            part = TopicPartition(T, 0)
            consumer = kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, **{**SETTINGS, "auto_commit_interval": 1.0}
            )
            await consumer.start()
            await consumer.poll(max_records=5, timeout=None)
            await consumer.poll(max_records=5, timeout=None)
            await asyncio.sleep(30.0)
            assert await consumer.committed([part]) == {part: None}
            await consumer.poll(max_records=5, timeout=None)
            await asyncio.sleep(0.5)
            assert (await consumer.committed([part]))[part].offset == 10
            await consumer.close()
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS) as again:
                [record] = await again.poll(max_records=1, timeout=None)
                assert record.offset == 10  # the last five were handed over, maybe not finished

    run_virtually(main())


def test_a_body_that_ends_well_counts_as_finished_and_one_that_raises_does_not() -> None:
    async def main(fails: bool) -> int:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            part = TopicPartition(T, 0)
            try:
                async with kclient.Consumer(
                    cluster.bootstrap, T, group=GROUP, **SETTINGS
                ) as consumer:
                    async for record in consumer:
                        if record.offset == 6:
                            if fails:
                                raise ZeroDivisionError
                            break
            except ZeroDivisionError:
                pass
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as consumer:
                found = (await consumer.committed([part]))[part]
                return -1 if found is None else int(found.offset)

    assert run_virtually(main(fails=False)) == 7
    assert run_virtually(main(fails=True)) == 6


def test_a_member_that_works_too_long_leaves_is_told_and_comes_back() -> None:
    async def main() -> None:
        async with group(2, max_poll_interval=10.0) as (_, [first, second]):
            late = asyncio.Event()

            async def work(records: list[Any]) -> None:
                if not late.is_set():
                    late.set()
                    await asyncio.sleep(25.0)

            first.work = work
            begun = the_loop().time()
            await late.wait()
            await settled(second)
            assert the_loop().time() - begun < 12.0
            assert first.told("lost") == [[0, 1]] or first.told("lost") == [[2, 3]]
            await settled(first, second)
            assert [type(error) for error in first.errors] == [MaxPollExceeded]
            assert "max_poll_interval is 10 s" in str(first.errors[0])

    run_virtually(main())


def test_slow_user_code_costs_no_membership_within_max_poll_interval() -> None:
    async def main() -> None:
        async with group(2) as (_, [first, second]):
            rebalances = len(second.diary)

            async def work(records: list[Any]) -> None:
                await asyncio.sleep(120.0)

            first.work = work
            await asyncio.sleep(100.0)
            assert len(second.diary) == rebalances
            first.work = None

    run_virtually(main())


def test_commits_of_partitions_that_went_away_are_typed_and_not_fatal() -> None:
    async def main() -> None:
        async with group(1, enable_auto_commit=False) as (cluster, [first]):
            await until(lambda: first.seen >= 80)
            second = await Reader(cluster, enable_auto_commit=False).start()
            await settled(first, second)
            gone = TopicPartition(T, second.owned[0])
            kept = TopicPartition(T, first.owned[0])
            with pytest.raises(CommitFailed) as caught:
                await first.consumer.commit({gone: 5, kept: 5})
            assert caught.value.partitions == (gone,)
            found = await first.consumer.committed([gone, kept])
            assert found[gone] is None and found[kept] is not None
            await second.stop()
            await settled(first)

    run_virtually(main())


def test_a_pattern_takes_in_topics_that_come_later() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic("orders-eu", partitions=2)
            cluster.create_topic("ferries", partitions=2)
            reader = await Reader(cluster, pattern="orders-.*", metadata_max_age=5.0).start()
            await settled(reader, partitions=2)
            cluster.create_topic("orders-us", partitions=1)
            await until(lambda: len(reader.consumer.assignment) == 3)
            assert {part.topic for part in reader.consumer.assignment} == {
                "orders-eu",
                "orders-us",
            }
            await reader.stop()

    run_virtually(main())


def test_new_partitions_are_shared_out() -> None:
    async def main() -> None:
        async with group(2, metadata_max_age=5.0) as (cluster, members):
            async with kclient.Producer(cluster.bootstrap) as producer:
                cluster.add_partitions(T, 6)
                await settled(*members, partitions=6)
                await producer.send(T, b"v", partition=5)
            await until(lambda: any(TopicPartition(T, 5) in one.offsets for one in members))

    run_virtually(main())


def test_listeners_may_seek_commit_and_pause_without_a_deadlock() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 2)

            async def assigned(partitions: Any) -> None:
                for partition in partitions:
                    consumer.seek(partition, 15)
                await consumer.commit()
                consumer.pause(partitions[0])

            async def revoked(partitions: Any) -> None:
                await consumer.commit()

            consumer = kclient.Consumer(
                cluster.bootstrap,
                T,
                group=GROUP,
                on_assigned=assigned,
                on_revoked=revoked,
                **SETTINGS,
            )
            async with consumer:
                records = await consumer.poll(timeout=None)
                assert {(one.partition, one.offset) for one in records} == {
                    (1, offset) for offset in range(15, 20)
                }
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as consumer:
                found = await consumer.committed([TopicPartition(T, 0), TopicPartition(T, 1)])
                assert [one.offset for one in found.values()] == [15, 20]

    run_virtually(main())


def test_what_a_listener_raises_reaches_the_next_poll_and_the_group_goes_on() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 5, 1)

            def assigned(partitions: Any) -> None:
                raise ZeroDivisionError("of the user")

            async with kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, on_assigned=assigned, **SETTINGS
            ) as consumer:
                with pytest.raises(ZeroDivisionError, match="of the user"):
                    await consumer.poll(timeout=None)
                assert len(await consumer.poll(timeout=None)) == 5

    run_virtually(main())


def test_unsubscribing_gives_everything_up_and_subscribing_joins_again() -> None:
    async def main() -> None:
        async with group(2) as (_, [first, second]):
            await first.consumer.unsubscribe()
            await settled(second)
            assert first.owned == []
            first.consumer.subscribe(T)
            await settled(first, second)

    run_virtually(main())


def test_static_members_come_back_without_a_rebalance() -> None:
    async def main() -> None:
        async with group(1, group_instance_id="a") as (cluster, [first]):
            second = await Reader(cluster, group_instance_id="b").start()
            await settled(first, second)
            diary = len(first.diary)
            for _ in range(3):
                await second.stop()
                second = await Reader(cluster, group_instance_id="b").start()
                await settled(first, second)
            assert len(first.diary) == diary
            await second.stop()

    run_virtually(main())


def test_a_poll_that_waits_hears_at_once_that_it_can_not_be_a_member() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 5, 2)
            first = await Reader(cluster, partition_assignment_strategy="range").start()
            await settled(first, partitions=2)
            async with kclient.Consumer(
                cluster.bootstrap,
                T,
                group=GROUP,
                **{**SETTINGS, "partition_assignment_strategy": "roundrobin"},
            ) as other:
                begun = the_loop().time()
                with pytest.raises(kclient.errors.InconsistentGroupProtocol):
                    await other.poll(timeout=900.0)
                assert the_loop().time() - begun < 5.0
            await first.stop()

    run_virtually(main())


def test_a_poll_that_waits_hears_at_once_what_a_callback_raised() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic(T, partitions=1)

            def assigned(partitions: Any) -> None:
                raise ZeroDivisionError("of the user")

            async with kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, on_assigned=assigned, **SETTINGS
            ) as consumer:
                begun = the_loop().time()
                with pytest.raises(ZeroDivisionError):
                    await consumer.poll(timeout=900.0)
                assert the_loop().time() - begun < 5.0

    run_virtually(main())


def test_a_name_without_a_topic_is_told_and_the_others_are_read() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 5, 1)
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as consumer:
                consumer.subscribe(T, "not-there")
                assert len(await consumer.poll(timeout=None)) == 5
                begun = the_loop().time()
                with pytest.raises(kclient.errors.UnknownTopicOrPartition, match="not-there"):
                    for _ in range(60):
                        assert await consumer.poll(timeout=1.0) == []
                assert the_loop().time() - begun < 30.0
                for _ in range(30):  # it isn't told again soon
                    await consumer.poll(timeout=1.0)
                cluster.append(T, 0, batch(5, 5))
                assert len(await consumer.poll(timeout=None)) == 5

    run_virtually(main())
