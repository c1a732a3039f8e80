"""A close or an unsubscribe while partitions are being reassigned revokes all of them.

What is finished is committed. What the reassignment waits for may take longer than the close has:
handlers, offsets that the coordinator doesn't return, callbacks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader

PARTITIONS = [TopicPartition(T, index) for index in range(4)]
LATE = {"auto_commit_interval": 900.0}
"""Settings with which only a close or an unsubscribe commits anything."""


class Diary:
    """Records the calls of a consumer's callbacks."""

    def __init__(self) -> None:
        self.has: set[TopicPartition] = set()
        self.revoked: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self.slow = 0.0
        self.slow_to_revoke = 0.0

    async def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self.has.update(partitions)
        await asyncio.sleep(self.slow)

    async def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.revoked += partitions
        self.has.difference_update(self.revoked)
        await asyncio.sleep(self.slow_to_revoke)

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self.lost += partitions

    def consumer(self, cluster: Cluster, strategy: str) -> Any:
        settings = {**SETTINGS, **LATE, "partition_assignment_strategy": strategy}
        return kclient.Consumer(
            cluster.bootstrap,
            T,
            group=GROUP,
            on_assigned=self.on_assigned,
            on_revoked=self.on_revoked,
            on_lost=self.on_lost,
            **settings,
        )


async def committed(cluster: Cluster) -> list[int | None]:
    async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS) as consumer:
        found: Mapping[TopicPartition, Any] = await consumer.committed(PARTITIONS)
        return [None if found[one] is None else found[one].offset for one in PARTITIONS]


async def closed_within(consumer: Any, timeout: float) -> None:
    """Close it in under nine tenths of ``timeout``: LeaveGroup needs some of it."""
    begun = the_loop().time()
    await consumer.close(timeout)
    assert the_loop().time() - begun < 0.9 * timeout


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_handlers_that_outlive_a_close_in_a_rebalance_prevent_no_other_commits(
    strategy: str,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 4)
            diary = Diary()
            consumer = diary.consumer(cluster, strategy)

            async def handle(record: Any) -> None:
                if record.offset == 5:
                    await asyncio.sleep(60)

            async with consumer:
                run = asyncio.create_task(consumer.run(handle))
                await asyncio.sleep(6)
                second = Reader(cluster, partition_assignment_strategy=strategy, **LATE)
                await second.start()
                await asyncio.sleep(3)
                assert not diary.revoked
                await closed_within(consumer, 5.0)
                await asyncio.wait([run])
            assert sorted(diary.revoked) == PARTITIONS
            assert not diary.lost
            assert await committed(cluster) == [5] * 4
            await second.stop()

    run_virtually(main())


async def two(cluster: Cluster, diary: Diary) -> tuple[Any, Reader, Sequence[TopicPartition]]:
    """A consumer that has read all of its half, and the owner of the other half."""
    fill(cluster, 20, 4)
    consumer = diary.consumer(cluster, COOPERATIVE)
    await consumer.start()
    second = Reader(cluster, partition_assignment_strategy=COOPERATIVE)
    await second.start()
    await polled(consumer, 20)
    assert len(second.owned) == len(diary.has) == 2
    diary.revoked.clear()
    return consumer, second, sorted(diary.has)


async def polled(consumer: Any, seconds: float) -> None:
    """Poll for so long, and finish what was handed over last."""
    end = the_loop().time() + seconds
    while the_loop().time() < end:
        await consumer.poll(timeout=0.5)


async def add_and_read(cluster: Cluster, consumer: Any, kept: Sequence[TopicPartition]) -> None:
    """Records come to the partitions that are kept, and are read."""
    for partition in kept:
        cluster.append(T, partition.partition, batch(20, 5))
    await polled(consumer, 8)


def expected(kept: Sequence[TopicPartition], offset: int) -> list[int]:
    return [offset if one in kept else 20 for one in PARTITIONS]


def test_a_close_while_offsets_of_what_was_added_are_missing_commits_what_was_kept() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            diary = Diary()
            consumer, second, kept = await two(cluster, diary)
            unstable = cluster.faults.error(
                "OffsetFetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, times=None
            )
            await second.stop()
            await add_and_read(cluster, consumer, kept)
            await closed_within(consumer, 10.0)
            cluster.faults.remove(unstable)
            assert set(kept) <= set(diary.revoked)
            assert not diary.lost
            assert await committed(cluster) == expected(kept, 25)

    run_virtually(main())


def test_a_close_while_a_callback_takes_its_time_commits_what_was_kept() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            diary = Diary()
            consumer, second, kept = await two(cluster, diary)
            diary.slow = 60.0
            await second.stop()
            await add_and_read(cluster, consumer, kept)
            await closed_within(consumer, 10.0)
            assert sorted(diary.revoked) == PARTITIONS
            assert not diary.lost
            assert await committed(cluster) == expected(kept, 25)

    run_virtually(main())


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_a_listener_that_a_close_cuts_off_is_not_called_again_for_the_same_partitions(
    strategy: str,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 4)
            diary = Diary()
            consumer = diary.consumer(cluster, strategy)
            diary.slow_to_revoke = 60.0
            await consumer.start()
            await polled(consumer, 8)
            second = Reader(cluster, partition_assignment_strategy=strategy, **LATE)
            await second.start()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(8):
                    await polled(consumer, 8)
            given_up = list(diary.revoked)
            assert given_up
            await closed_within(consumer, 10.0)
            assert sorted(diary.revoked) == PARTITIONS
            assert diary.revoked[: len(given_up)] == given_up
            assert not diary.lost
            assert await committed(cluster) == [20] * 4
            await second.stop()

    run_virtually(main())


class Protocol:
    """Of a ``GroupMember``, slow to begin with what it is given."""

    name, type = "any", "connect"

    def __init__(self) -> None:
        self.reported: list[str] = []

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Sequence[Any]) -> Mapping[str, bytes]:
        return {member.member_id: b"" for member in members}

    async def on_assigned(self, _: object) -> None:
        self.reported.append("assigned")
        await asyncio.sleep(1000)

    def on_revoked(self, _: object) -> None:
        self.reported.append("revoked")


def test_a_member_that_is_closed_while_it_begins_with_something_releases_it() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            protocol = Protocol()
            member = kclient.GroupMember(cluster.bootstrap, group=GROUP, protocol=protocol)
            await member.start()
            await until(lambda: protocol.reported == ["assigned"])
            await closed_within(member, 10.0)
            assert protocol.reported == ["assigned", "revoked"]

    run_virtually(main())


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_an_unsubscribe_waits_for_no_offsets_of_what_was_just_given(strategy: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 4)
            cluster.faults.error("OffsetFetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, times=None)
            diary = Diary()
            consumer = diary.consumer(cluster, strategy)
            await consumer.start()
            await polled(consumer, 5)
            began = the_loop().time()
            await consumer.unsubscribe()
            assert the_loop().time() - began < 0.1
            assert not diary.has | set(diary.revoked) | set(diary.lost)  # it received nothing
            await consumer.close()

    run_virtually(main())


def test_a_member_without_metadata_whose_rebalance_a_close_meets_ends_at_once() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            protocol = Protocol()
            protocol.metadata = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
            member = kclient.GroupMember(cluster.bootstrap, group=GROUP, protocol=protocol)
            await member.start()
            await asyncio.sleep(5)
            began = the_loop().time()
            await member.close()
            assert the_loop().time() - began < 0.1

    run_virtually(main())
