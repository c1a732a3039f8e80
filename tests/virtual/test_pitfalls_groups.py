"""Pitfalls of groups, commits and coordinators: whole consumers on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import CommitFailed, FencedInstanceId
from kclient.group.consumer_protocol import encode_subscription
from kclient.hooks import MemberSubscription
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.unit.testing.group_calls import join, sync
from tests.unit.testing.raw_peer import RawPeer
from tests.virtual.consumer_scene import P, Q, T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader, settled

BY_HAND = {**SETTINGS, "enable_auto_commit": False}


def consumer_of(cluster: Cluster, **settings: Any) -> Any:
    """A consumer in the group, not started."""
    return kclient.Consumer(cluster.bootstrap, T, group=GROUP, **{**SETTINGS, **settings})


async def offset_of(consumer: Any, partition: TopicPartition = P) -> int | None:
    """What is committed."""
    found = (await consumer.committed([partition]))[partition]
    return None if found is None else int(found.offset)


# 34: a rebalance drops what was fetched of revoked partitions, and keeps the others


def test_pitfall_34_data_of_revoked_partitions_is_dropped_and_of_others_kept() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 200, 2)
            async with consumer_of(
                cluster, partition_assignment_strategy=COOPERATIVE, enable_auto_commit=False
            ) as first:
                await until(lambda: len(first.assignment) == 2)
                await first.poll(max_records=5, timeout=None)
                second = Reader(cluster, partition_assignment_strategy=COOPERATIVE)
                with cluster.faults.hold("Fetch", times=None):
                    await second.start()
                    # Each call hands something over at once, of what waits from before.
                    while len(first.assignment) != 1:
                        await first.poll(max_records=1, timeout=0.1)
                        await asyncio.sleep(0.05)
                    [kept] = first.assignment
                fetched: list[Any] = []
                while len(fetched) < 100:
                    fetched += await first.poll(timeout=1.0)
                assert {record.topic_partition for record in fetched} == {kept}
                offsets = [record.offset for record in fetched]
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                await until(lambda: second.seen == 200)
                await second.stop()

    run_virtually(main())


# 36: commits during a rebalance


def test_pitfall_36_a_commit_is_tried_again_while_the_group_rebalances() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with consumer_of(cluster, enable_auto_commit=False) as consumer:
                await consumer.poll(max_records=5, timeout=None)
                cluster.faults.error(
                    "OffsetCommit", ErrorCode.REBALANCE_IN_PROGRESS, times=2, topic=T
                )
                await consumer.commit()
                assert await offset_of(consumer) == 5

    run_virtually(main())


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_pitfall_36_a_removed_member_has_lost_its_partitions_and_joins_at_once(
    code: ErrorCode,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            reader = await Reader(cluster, enable_auto_commit=False).start()
            await until(lambda: reader.seen == 20)
            cluster.faults.error("OffsetCommit", code, topic=T)
            with pytest.raises(CommitFailed) as caught:
                await reader.consumer.commit()
            assert caught.value.partitions == (P,)
            assert not caught.value.fatal
            await until(lambda: [what for what, _ in reader.diary][1:] == ["lost", "assigned"])
            await reader.consumer.commit({P: 3})
            assert await offset_of(reader.consumer) == 3
            await reader.stop()

    run_virtually(main())


# 37: overlapping commits


@pytest.mark.parametrize("trouble", ["slow", "lost answer", "refused once"])
def test_pitfall_37_an_earlier_commit_never_undoes_a_later_one(trouble: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with consumer_of(cluster, enable_auto_commit=False) as consumer:
                await consumer.poll(timeout=None)
                if trouble == "slow":
                    cluster.faults.delay("OffsetCommit", 2.0)
                elif trouble == "lost answer":
                    cluster.faults.lose_answers("OffsetCommit")
                else:
                    cluster.faults.error(
                        "OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, topic=T
                    )
                early = consumer.commit_nowait({P: 5})
                await asyncio.sleep(0.01)
                late = consumer.commit_nowait({P: 15})
                await asyncio.gather(early, late)
                assert await offset_of(consumer) == 15

    run_virtually(main())


# 38: the coordinator moves in the midst of a commit


def test_pitfall_38_a_commit_follows_its_coordinator_without_a_rebalance() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 1)
            reader = await Reader(cluster, enable_auto_commit=False).start()
            await until(lambda: reader.seen == 20)
            for target in (1, 2, 3, 1):
                cluster.move_coordinator(GROUP, target)
                await reader.consumer.commit({P: target})
                assert await offset_of(reader.consumer) == target
            await asyncio.sleep(20.0)
            assert [what for what, _ in reader.diary] == ["assigned"]
            await reader.stop()

    run_virtually(main())


# 40: a topic is given before the view knows it


def test_pitfall_40_a_topic_that_metadata_does_not_know_yet_is_kept_and_read() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 1, 1)
            reader = await Reader(cluster, pattern="f.*", metadata_max_age=300.0).start()
            await settled(reader, partitions=1)
            other = Reader(cluster, pattern="f.*", metadata_max_age=1.0)
            cluster.create_topic("ferries", partitions=2)
            for broker in cluster.brokers.values():
                broker.freeze_metadata()
            cluster.create_topic("flags", partitions=2)
            for broker in cluster.brokers.values():
                broker.thaw_metadata()
            await other.start()  # it knows both, and leads or makes the leader look
            await until(
                lambda: len(reader.consumer.assignment) + len(other.consumer.assignment) == 5
            )
            cluster.append("flags", 1, batch(0, 1))
            cluster.append("ferries", 1, batch(0, 1))
            await until(lambda: reader.seen + other.seen >= 3)
            await reader.stop()
            await other.stop()

    run_virtually(main())


# 41: no committed offset is known


@pytest.mark.parametrize("how", ["error", "left out", "lost", "unstable"])
def test_pitfall_41_nothing_begins_before_the_committed_offset_is_known(how: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            async with consumer_of(cluster, enable_auto_commit=False) as consumer:
                await until(lambda: len(consumer.assignment) == 2)
                await consumer.commit({P: 7, Q: 9})
            if how == "error":
                cluster.faults.error("OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=5)
            elif how == "unstable":
                cluster.faults.error(
                    "OffsetFetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, times=5, topic=T
                )
            elif how == "lost":
                cluster.faults.lose_answers("OffsetFetch", 3)
            else:
                cluster.faults.rewrite("OffsetFetch", leave_one_out, times=3)
            first: dict[int, int] = {}
            async with consumer_of(cluster) as consumer:
                while len(first) < 2:
                    try:
                        records = await consumer.poll(timeout=1.0)
                    except kclient.KafkaError:
                        continue  # it may be raised, but nothing may begin
                    for record in records:
                        first.setdefault(record.partition, record.offset)
            assert first == {0: 7, 1: 9}

    run_virtually(main())


def leave_one_out(request: Any, answer: Any) -> Any:
    """The last partition of each topic isn't there."""
    for topic in (one for group in answer.groups for one in group.topics):
        del topic.partitions[-1:]
    return answer


# 55: a JoinGroup that waits blocks nothing


def test_pitfall_55_while_a_join_waits_commits_and_heartbeats_go_on() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            options = {
                "partition_assignment_strategy": COOPERATIVE,
                "enable_auto_commit": False,
                "max_poll_interval": 60.0,
            }
            first = await Reader(cluster, **options).start()
            await settled(first, partitions=2)
            address = cluster.bootstrap
            async with RawPeer.to(address) as slow:
                # A member that joins and never again: the others wait for it until its time is up.
                asked = await slow.call(cooperative(""), 9)
                joining = asyncio.create_task(slow.call(cooperative(asked.member_id), 9))
                await joining
                first.consumer.rejoin("a test")
                await asyncio.sleep(2.0)
                begun = the_loop().time()
                await first.consumer.commit({P: 5})
                assert the_loop().time() - begun < 1.0
                assert await offset_of(first.consumer) == 5
            await first.stop()

    run_virtually(main())


def cooperative(member_id: str) -> Any:
    """A join of a raw member that offers what the readers do."""
    wish = encode_subscription(MemberSubscription((T,)))
    return join(GROUP, member_id, protocols=(COOPERATIVE,), metadata=wish, session_ms=30_000)


# 56: leaving


@pytest.mark.parametrize("trouble", ["moved", "unknown", "lost answer"])
def test_pitfall_56_close_has_left_though_the_coordinator_moved(trouble: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 20, 4)
            first, second = await Reader(cluster).start(), await Reader(cluster).start()
            await settled(first, second)
            if trouble == "moved":
                cluster.move_coordinator(GROUP, cluster.coordinator(GROUP) % 3 + 1)
            elif trouble == "unknown":
                cluster.faults.error("LeaveGroup", ErrorCode.UNKNOWN_MEMBER_ID, after=True)
            else:
                cluster.faults.lose_answers("LeaveGroup")
            begun = the_loop().time()
            await first.stop()
            assert the_loop().time() - begun < 5.0
            await settled(second)
            assert the_loop().time() - begun < 6.0  # the session is 6 s: it wasn't waited for
            await second.stop()

    run_virtually(main())


# 57: two with one instance id


def test_pitfall_57_a_fenced_instance_ends_for_good_and_does_not_steal_back() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            first = await Reader(cluster, group_instance_id="a").start()
            await settled(first, partitions=2)
            second = await Reader(cluster, group_instance_id="a").start()
            await until(lambda: any(isinstance(one, FencedInstanceId) for one in first.errors))
            await asyncio.sleep(60.0)
            assert {type(error) for error in first.errors} == {FencedInstanceId}
            assert "'a'" in str(first.errors[0]) or "a" in str(first.errors[0])
            assert [what for what, _ in second.diary] == ["assigned"]
            assert second.owned == [0, 1]
            await first.stop()
            await second.stop()

    run_virtually(main())


# 58: what peers send is not trusted


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"\x00\x03" + b"\xff" * 40, b"\x7f\xff" + b"\x00" * 9]
)
def test_pitfall_58_a_leader_assigns_though_a_peer_sends_nonsense(metadata: bytes) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            first = await Reader(cluster).start()
            await settled(first, partitions=2)
            async with RawPeer.to(cluster.bootstrap) as peer:
                request = nonsense("", metadata)
                asked = await peer.call(request, 9)
                joined = await peer.call(nonsense(asked.member_id, metadata), 9)
                assert joined.error_code == ErrorCode.NONE
                share = await peer.call(
                    sync(GROUP, joined.generation_id, joined.member_id),
                    5,
                )
                assert share.error_code == ErrorCode.NONE
                await until(lambda: len(first.reported("assigned")) == 2)
                assert first.reported("assigned")[-1] == [0, 1]
                assert first.errors == []
            await first.stop()

    run_virtually(main())


def nonsense(member_id: str, metadata: bytes) -> Any:
    """A join of a member whose subscription can't be read."""
    return join(GROUP, member_id, metadata=metadata, session_ms=30_000)
