"""More corners of consumers in groups: what is finished, what is waited for, what is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument, ProtocolError
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import QUICK, P, T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader


def consumer_of(cluster: Cluster, **settings: Any) -> Any:
    """A consumer in the group, not started."""
    return kclient.Consumer(cluster.bootstrap, T, group=GROUP, **{**SETTINGS, **settings})


async def where_next_begins(cluster: Cluster, **settings: Any) -> int:
    """The offset of the first record that the next member is given."""
    async with consumer_of(cluster, enable_auto_commit=False, **settings) as again:
        [record] = await again.poll(max_records=1, timeout=30.0)
        return int(record.offset)


def test_a_log_that_is_cut_behind_the_position_finishes_nothing() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 40, 1, per_batch=5)
            with pytest.raises(ZeroDivisionError):
                async with consumer_of(cluster, metadata_max_age=0.2) as consumer:
                    await consumer.poll(max_records=5, timeout=None)
                    cluster.log(T, broker=2).truncate(20)
                    cluster.move_leader(T, 0, 2)
                    cluster.append(T, 0, batch(20, 10))
                    await asyncio.sleep(3.0)
                    raise ZeroDivisionError
            assert await where_next_begins(cluster) == 0

    run_virtually(main())


def test_a_seek_finishes_nothing_and_commits_no_position() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 40, 1)
            with pytest.raises(ZeroDivisionError):
                async with consumer_of(cluster) as consumer:
                    await consumer.poll(max_records=5, timeout=None)
                    consumer.seek(P, 30)
                    raise ZeroDivisionError
            assert await where_next_begins(cluster) == 0

    run_virtually(main())


def test_the_epoch_of_a_commit_is_that_of_its_offset() -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 30, 1)
            cluster.move_leader(T, 0, 2)
            cluster.append(T, 0, batch(30, 30))
            with pytest.raises(ZeroDivisionError):
                async with consumer_of(cluster) as consumer:
                    await until(lambda: consumer.assignment)
                    await consumer.poll(max_records=5, timeout=None)
                    async for record in consumer:
                        if record.offset == 50:
                            raise ZeroDivisionError
            assert await where_next_begins(cluster, auto_offset_reset="none") == 50

    run_virtually(main())


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_unsubscribing_waits_for_no_other_task(turns: int, strategy: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            async with consumer_of(cluster, partition_assignment_strategy=strategy) as consumer:
                await until(lambda: len(consumer.assignment) == 2)
                await consumer.poll(max_records=1, timeout=None)
                consumer.rejoin("a test")
                for _ in range(turns):
                    await asyncio.sleep(0)
                begun = the_loop().time()
                await consumer.unsubscribe()
                assert the_loop().time() - begun < 5.0

    run_virtually(main())


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_a_consumer_that_was_too_slow_gets_nothing_more_while_it_leaves(strategy: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 400, 2)
            async with consumer_of(
                cluster, max_poll_interval=10.0, partition_assignment_strategy=strategy
            ) as consumer:
                await until(lambda: len(consumer.assignment) == 2)
                cluster.faults.delay("LeaveGroup", 0.9, after=True)
                records = aiter(consumer)
                await anext(records)
                await asyncio.sleep(11.1)
                with pytest.raises(kclient.errors.MaxPollExceeded):
                    await anext(records)

    run_virtually(main())


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("how", ["for", "poll"])
def test_a_callback_that_commits_does_not_commit_the_record_that_failed(
    auto: bool, how: str
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)

            async def gone(partitions: Any) -> None:
                await consumer.commit()

            consumer = consumer_of(cluster, on_revoked=gone, enable_auto_commit=auto)
            with pytest.raises(ZeroDivisionError):
                async with consumer:
                    if how == "poll":
                        await consumer.poll(timeout=None)
                        raise ZeroDivisionError
                    async for record in consumer:
                        if record.offset == 5:
                            raise ZeroDivisionError
            assert await where_next_begins(cluster) == (0 if how == "poll" else 5)

    run_virtually(main())


async def test_a_full_buffer_of_a_slow_user_is_no_stall() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T, partitions=5)
        for partition in range(4):
            for first in range(0, 2_000, 100):
                cluster.append(T, partition, batch(first, 100, value_bytes=1_000))
        settings = {**QUICK, "buffer_memory": 1024 * 1024, "request_timeout": 10.0}
        async with kclient.Consumer(cluster.bootstrap, T, **settings) as consumer:
            for _ in range(20):
                await consumer.poll(max_records=5, timeout=5.0)
                await asyncio.sleep(15.0)


def test_unsubscribing_lets_handlers_end() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            reported: list[str] = []

            async def handle(record: Any) -> None:
                try:
                    await asyncio.sleep(5.0)
                    reported.append("done")
                except asyncio.CancelledError:
                    reported.append("cancelled")
                    raise

            async with consumer_of(cluster) as consumer:
                run = asyncio.create_task(consumer.run(handle))
                await until(lambda: consumer.assignment)
                await asyncio.sleep(3.0)
                await consumer.unsubscribe()
                assert reported == ["done", "done"]
                with pytest.raises(kclient.errors.NoPosition):
                    await run

    run_virtually(main())


def test_an_unreadable_assignment_is_reported_and_makes_no_storm() -> None:
    async def main() -> None:
        def junk(request: Any, response: Any) -> Any:
            response.assignment = b"\xff\xff"
            return response

        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            with cluster.faults.rewrite("SyncGroup", junk, times=None):
                async with consumer_of(cluster) as consumer:
                    with pytest.raises(ProtocolError):
                        await consumer.poll(timeout=60.0)
                    await asyncio.sleep(60.0)
                    assert consumer.health().group.rebalances < 15

    run_virtually(main())


def test_calls_that_would_wait_for_the_callback_are_refused_in_it() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            refused: list[str] = []

            async def came(partitions: Any) -> None:
                for call in (consumer.poll, consumer.close, consumer.unsubscribe):
                    with pytest.raises(InvalidArgument, match="callback of a rebalance"):
                        await call()
                    refused.append(call.__name__)
                with pytest.raises(InvalidArgument, match="callback of a rebalance"):
                    aiter(consumer)

            consumer = consumer_of(cluster, on_assigned=came)
            async with consumer:
                assert await consumer.poll(timeout=None)
            assert refused == ["poll", "close", "unsubscribe"]

    run_virtually(main())


async def test_a_consumer_that_did_not_join_can_not_rejoin() -> None:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 20, 1)
        async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as consumer:
            consumer.assign([P])
            with pytest.raises(InvalidArgument, match="nothing is subscribed to"):
                consumer.rejoin()
            assert await consumer.poll(timeout=30.0)


def test_errors_of_callbacks_outlive_their_listener() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)

            def came(partitions: Any) -> None:
                raise ZeroDivisionError

            async with consumer_of(cluster, on_assigned=came) as consumer:
                await until(lambda: consumer.assignment)
                await asyncio.sleep(1.0)
                consumer.subscribe(T, on_assigned=lambda partitions: None)
                with pytest.raises(ZeroDivisionError):
                    await consumer.poll(timeout=30.0)

    run_virtually(main())


def test_a_topic_that_is_deleted_holds_up_neither_commits_nor_rebalances() -> None:
    async def main() -> None:
        async with (
            Cluster(brokers=3) as cluster,
            kclient.Producer(cluster.bootstrap) as producer,
        ):
            fill(cluster, 5, 1)
            cluster.create_topic("gone", partitions=1)
            await producer.send("gone", b"x")
            settings = {**SETTINGS, "auto_commit_interval": 1.0}
            async with kclient.Consumer(
                cluster.bootstrap, T, "gone", group=GROUP, **settings
            ) as consumer:

                async def loop() -> None:
                    while True:
                        try:
                            await consumer.poll(timeout=0.2)
                        except kclient.KafkaError as error:
                            assert error.retriable or error.topic_partition is not None

                task = asyncio.create_task(loop())
                await asyncio.sleep(2.0)
                cluster.delete_topic("gone")
                await asyncio.sleep(5.0)
                await producer.send(T, b"x", partition=0)
                await asyncio.sleep(3.0)
                assert (await consumer.committed([P]))[P].offset == 6
                async with consumer_of(cluster) as other:
                    begun = the_loop().time()
                    while not consumer_has_moved(other):
                        await other.poll(timeout=0.5)
                        assert the_loop().time() - begun < 40.0
                task.cancel()

    def consumer_has_moved(other: Any) -> bool:
        return bool(other.health().group.joined)

    run_virtually(main())


@pytest.mark.parametrize("auto", [True, False])
def test_a_callback_may_commit_in_a_task_of_its_own(auto: bool) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)

            async def gone(partitions: Any) -> None:
                await asyncio.create_task(consumer.commit())

            consumer = consumer_of(cluster, on_revoked=gone, enable_auto_commit=auto)
            with pytest.raises(ZeroDivisionError):
                async with consumer:
                    async for record in consumer:
                        if record.offset == 5:
                            raise ZeroDivisionError
            assert await where_next_begins(cluster) == 5

    run_virtually(main())


def test_what_came_after_a_loss_can_be_committed() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with consumer_of(cluster, enable_auto_commit=False) as consumer:
                assert len(await consumer.poll(timeout=None)) == 20
                await consumer.commit()
                cluster.faults.error("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
                polling = asyncio.create_task(consumer.poll(timeout=None))
                await asyncio.sleep(20.0)
                cluster.append(T, 0, batch(20, 5))
                assert len(await polling) == 5
                await consumer.commit()
                assert (await consumer.committed([P]))[P].offset == 25

    run_virtually(main())


def test_handlers_go_on_in_a_topic_that_was_recreated_while_they_had_enough() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 50, 1)
            handled: list[int] = []
            go = asyncio.Event()

            async def handle(record: Any) -> None:
                await go.wait()
                handled.append(record.offset)

            async with consumer_of(
                cluster, metadata_max_age=1.0, partition_assignment_strategy=COOPERATIVE
            ) as consumer:
                run = asyncio.create_task(consumer.run(handle, max_in_flight=4, concurrency=2))
                await asyncio.sleep(5.0)
                cluster.delete_topic(T)
                fill(cluster, 20, 1)
                await asyncio.sleep(3.0)
                go.set()
                await until(lambda: len(handled) >= 20)
                run.cancel()
                await asyncio.wait([run])

    run_virtually(main())


async def test_a_commit_in_flight_outlives_the_assignment_by_hand() -> None:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 20, 1)
        async with kclient.Consumer(
            cluster.bootstrap, group=GROUP, **{**SETTINGS, "enable_auto_commit": False}
        ) as consumer:
            consumer.assign([P])
            await consumer.poll(max_records=3, timeout=None)
            commit = consumer.commit_nowait()
            consumer.unassign()
            await commit
            assert (await consumer.committed([P]))[P].offset == 3


@pytest.mark.parametrize(
    "lags", [1, *(pytest.param(lags, marks=pytest.mark.long) for lags in (2, 3))]
)
@pytest.mark.parametrize("how", ["pattern", "names"])
def test_a_broker_that_lags_behind_makes_no_rebalances(how: str, lags: int) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("e.a", partitions=2)
            settings: dict[str, Any] = {"metadata_max_age": 5.0}
            if how == "pattern":
                readers = [Reader(cluster, pattern="e[.].*", **settings) for _ in range(3)]
                for reader in readers:
                    await reader.start()
                await asyncio.sleep(20.0)
            cluster.brokers[lags].freeze_metadata()
            cluster.create_topic("e.b", partitions=4)
            if how == "names":
                readers = [Reader(cluster, "e.a", "e.b", **settings) for _ in range(3)]
                for reader in readers:
                    await reader.start()
            await asyncio.sleep(60.0)
            reported = [len(reader.diary) for reader in readers]
            assert sum(len(reader.consumer.assignment) for reader in readers) == 6
            await asyncio.sleep(60.0)
            assert [len(reader.diary) for reader in readers] == reported
            for reader in readers:
                await reader.stop()

    run_virtually(main())


@pytest.mark.parametrize("how", ["pattern", "names"])
def test_a_topic_that_is_deleted_leaves_the_group(how: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("e.a", partitions=2)
            cluster.create_topic("e.b", partitions=2)
            topics = () if how == "pattern" else ("e.a", "e.b")
            settings: dict[str, Any] = {"pattern": "e[.].*"} if how == "pattern" else {}
            reader = await Reader(cluster, *topics, metadata_max_age=5.0, **settings).start()
            await until(lambda: len(reader.consumer.assignment) == 4)
            cluster.delete_topic("e.b")
            await until(lambda: len(reader.consumer.assignment) == 2)
            assert {one.topic for one in reader.consumer.assignment} == {"e.a"}
            await reader.stop()

    run_virtually(main())


@pytest.mark.parametrize("age", [0.3, 20.0])
@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", COOPERATIVE])
def test_a_deleted_topic_leaves_a_pattern_subscription_the_same_way_whatever_the_assignor(
    strategy: str, age: float, read: bool
) -> None:
    """It is revoked once, poll raises nothing, and a new topic of the name is read."""

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            for topic in ("e.a", "e.b"):
                cluster.create_topic(topic, partitions=2)
            how = {"partition_assignment_strategy": strategy, "metadata_max_age": age}
            reader = await Reader(cluster, pattern="e[.].*", **how).start()
            await until(lambda: len(reader.consumer.assignment) == 4 and reader.diary)
            if read:
                await until(lambda: set(reader.consumer.positions().values()) == {0})
            reader.diary.clear()
            cluster.delete_topic("e.b")
            await until(lambda: len(reader.consumer.assignment) == 2)
            await asyncio.sleep(60.0)
            assert reader.errors == []
            assert reader.consumer.health().ok
            [(first, revoked), (then, _)] = reader.diary
            assert (first, then) == ("revoked", "assigned")
            assert [part for part in revoked if part.topic == "e.b"] == [
                TopicPartition("e.b", 0),
                TopicPartition("e.b", 1),
            ]
            cluster.create_topic("e.b", partitions=1)
            cluster.append("e.b", 0, batch(0, 5))
            await until(lambda: reader.seen == 5)
            await reader.stop()

    run_virtually(main())


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_a_topic_that_is_deleted_before_it_has_a_position_leaves_a_pattern_subscription(
    strategy: str,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            for topic in ("e.a", "e.b"):
                cluster.create_topic(topic, partitions=3)
            held = cluster.faults.hold("ListOffsets", topic="e.b", times=None)
            how = {"partition_assignment_strategy": strategy, "metadata_max_age": 2.0}
            reader = await Reader(cluster, pattern="e[.].*", **how).start()
            await until(lambda: len(reader.consumer.assignment) == 6 and held.held)
            cluster.delete_topic("e.b")
            held.release()
            deleted = the_loop().time()
            await until(lambda: len(reader.consumer.assignment) == 3)
            assert the_loop().time() - deleted < 15.0
            assert reader.errors == []
            await reader.stop()

    run_virtually(main())


@pytest.mark.parametrize("end", ["close in time", "close too late", "cancelled"])
def test_a_task_that_a_callback_returned_is_not_cancelled(end: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 5, 1)
            event, tasks = asyncio.Event(), list[asyncio.Task[bool]]()

            def revoked(partitions: Any) -> asyncio.Task[bool]:
                tasks.append(asyncio.create_task(event.wait()))
                return tasks[0]

            consumer = consumer_of(cluster, on_revoked=revoked)
            await consumer.start()
            await consumer.poll(timeout=10.0)
            if end == "close in time":
                the_loop().call_later(1.0, event.set)
            closing = asyncio.create_task(consumer.close(30.0 if end == "close in time" else 2.0))
            if end == "cancelled":
                await until(lambda: tasks)
                closing.cancel()
            await asyncio.wait([closing])
            await until(lambda: consumer._engine.core.closed)
            await asyncio.sleep(5.0)
            event.set()
            assert await tasks[0]

    run_virtually(main())
