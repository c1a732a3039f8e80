"""What runs of ``group_run`` found in the client, each in the smallest scene that shows it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

import kclient
from kclient.testing import Cluster, run_virtually
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.virtual.consumer_scene import T, fill, the_loop
from tests.virtual.group_scene import GROUP, SETTINGS

PART = TopicPartition(T, 0)


def test_a_commit_waits_for_an_earlier_one_of_the_same_offsets() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            settings = {**SETTINGS, "enable_auto_commit": False}
            async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **settings) as consumer:
                await consumer.poll(max_records=5, timeout=None)
                cluster.faults.delay("OffsetCommit", 1.0)
                begun = the_loop().time()
                for _ in range(3):
                    consumer.commit_nowait()
                await consumer.commit()
                assert the_loop().time() - begun >= 1.0
                assert await consumer.committed([PART]) == {PART: OffsetAndMetadata(5, 0)}
                assert cluster.requests.count("OffsetCommit") == 1

    run_virtually(main())


def test_partitions_are_revoked_once_commits_in_flight_are_acknowledged() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            seen: list[int] = []

            async def revoked(partitions: object) -> None:
                [found] = (await consumer.committed([PART])).values()
                seen.append(0 if found is None else found.offset)

            settings = {**SETTINGS, "auto_commit_interval": 0.5}
            consumer = kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, on_revoked=revoked, **settings
            )
            async with consumer:
                await consumer.poll(max_records=5, timeout=None)
                fault = cluster.faults.delay("OffsetCommit", 1.0)
                await asyncio.sleep(1.0)
                await consumer.poll(max_records=1, timeout=None)
                await fault.wait_hits()
                await consumer.unsubscribe()
            assert seen and seen[0] >= 5

    run_virtually(main())


def test_close_reports_what_it_revokes_though_no_broker_takes_its_commit() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            reported: list[object] = []

            async def revoked(partitions: object) -> None:
                await asyncio.sleep(0.1)
                reported.append(partitions)

            consumer = kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, on_revoked=revoked, **SETTINGS
            )
            async with consumer:
                await consumer.poll(max_records=5, timeout=None)
                cluster.faults.hang()
            assert reported == [[PART]]

    run_virtually(main())


def test_unsubscribe_while_the_session_ends_reports_the_loss_and_reading_resumes() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            reported: list[str] = []
            settings = {**SETTINGS, "auto_commit_interval": 60.0, "request_timeout": 2.0}
            async with kclient.Consumer(
                cluster.bootstrap,
                T,
                group=GROUP,
                on_assigned=lambda _: reported.append("assigned"),
                on_revoked=lambda _: reported.append("revoked"),
                on_lost=lambda _: reported.append("lost"),
                **settings,
            ) as consumer:
                await consumer.poll(max_records=5, timeout=None)
                await consumer.poll(max_records=5, timeout=None)
                with cluster.faults.hang():
                    await asyncio.sleep(4.0)
                    await consumer.unsubscribe()
                assert reported == ["assigned", "lost"]
                assert consumer.assignment == frozenset()
                consumer.subscribe(T)
                records: list[object] = []
                async with asyncio.timeout(60.0):
                    while not records:
                        with contextlib.suppress(kclient.errors.RequestTimedOut):
                            records = await consumer.poll(timeout=1.0)
                assert reported == ["assigned", "lost", "assigned"]

    run_virtually(main())


def test_unsubscribe_without_a_response_reports_the_loss_when_the_session_ends() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            reported: list[tuple[str, float]] = []

            def lost(partitions: object) -> None:
                reported.append(("lost", the_loop().time() - begun))

            def revoked(partitions: object) -> None:
                reported.append(("revoked", the_loop().time() - begun))

            settings = {**SETTINGS, "auto_commit_interval": 600.0}
            async with kclient.Consumer(
                cluster.bootstrap, T, group=GROUP, on_revoked=revoked, on_lost=lost, **settings
            ) as consumer:
                await consumer.poll(max_records=5, timeout=None)
                await consumer.poll(max_records=5, timeout=None)
                begun = the_loop().time()
                with cluster.faults.hang():
                    await consumer.unsubscribe()
            [(what, seconds)] = reported
            assert what == "lost" and seconds < SETTINGS["session_timeout"] + 1.0

    run_virtually(main())


def test_close_while_the_session_ends_reports_the_loss_at_once() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            reported: list[float] = []
            consumer = kclient.Consumer(
                cluster.bootstrap,
                T,
                group=GROUP,
                on_lost=lambda _: reported.append(the_loop().time() - begun),
                **{**SETTINGS, "auto_commit_interval": 600.0},
            )
            await consumer.start()
            await consumer.poll(max_records=5, timeout=None)
            await consumer.poll(max_records=5, timeout=None)
            begun = the_loop().time()
            with cluster.faults.hang():
                await asyncio.sleep(3.0)
                await consumer.close(60.0)
            assert len(reported) == 1 and reported[0] < SETTINGS["session_timeout"] + 1.0

    run_virtually(main())


def test_a_static_leader_that_is_back_gets_partitions_that_were_added_meanwhile() -> None:
    """The coordinator gives it what it had, without a rebalance (KIP-814)."""

    async def main() -> None:
        async with Cluster() as cluster:
            fill(cluster, 20, 1)
            settings = {**SETTINGS, "group_instance_id": "one", "session_timeout": 10.0}
            for partitions in (1, 2, 3):
                async with kclient.Consumer(
                    cluster.bootstrap, T, group=GROUP, **settings
                ) as consumer:
                    async with asyncio.timeout(5):
                        while len(consumer.assignment) < partitions:
                            await consumer.poll(timeout=0.1)
                cluster.add_partitions(T, partitions + 1)

    run_virtually(main())


class Sparse:
    """An application's assignor, whose result lacks a member that gets nothing."""

    name = "sparse"
    cooperative = False

    def user_data(self, topics: object) -> bytes | None:
        return None

    def assign(self, cluster: kclient.TopicsView, members: Iterable[str]) -> Any:
        parts = [TopicPartition(topic, 0) for topic in cluster.counts]
        return {member: parts for member in members if parts}

    def assigned(self, partitions: object, generation: int) -> None:
        pass


def test_an_assignor_may_leave_out_the_only_member() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            settings = {**SETTINGS, "metadata_max_age": 1.0}
            settings["partition_assignment_strategy"] = [Sparse()]
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **settings) as consumer:
                consumer.subscribe(pattern="later.*")
                assert await consumer.poll(timeout=5.0) == []
                assert not consumer.assignment
                cluster.create_topic("later")
                await consumer.poll(timeout=15.0)
                assert consumer.assignment == {TopicPartition("later", 0)}

    run_virtually(main())
