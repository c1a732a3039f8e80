"""Corners in which consumers of groups stood still, or went back: each of them was met once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import ClientClosed, CommitFailed, InvalidArgument
from kclient.group.assignors import chosen
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import QUICK, P, Q, T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader


def consumer_of(cluster: Cluster, **settings: Any) -> Any:
    """A consumer in the group, not started."""
    return kclient.Consumer(cluster.bootstrap, T, group=GROUP, **{**SETTINGS, **settings})


def refuse(topic: str, data: bytes | None) -> int:
    raise ValueError("no")


def number(topic: str, data: bytes | None) -> int:
    if data == b"bad":
        raise ValueError("no")
    return int(data or b"0")


@pytest.mark.parametrize("how", ["poll", "async for"])
async def test_two_partitions_that_begin_badly_send_each_record_once(how: str) -> None:
    async with (
        Cluster(brokers=1) as cluster,
        kclient.Producer(cluster.bootstrap) as producer,
    ):
        cluster.create_topic(T, partitions=2)
        cluster.create_topic("dead", partitions=1)
        for partition in (0, 1):
            for value in (b"bad", b"1", b"2"):
                await producer.send(T, value, partition=partition)
        async with kclient.Consumer(
            cluster.bootstrap,
            T,
            value_deserializer=number,
            bad_records=kclient.DeadLetters("dead", producer),
            **QUICK,
        ) as consumer:
            await asyncio.sleep(2.0)
            got: list[int] = []
            async with asyncio.timeout(20):
                while how == "poll" and len(got) < 4:
                    got += [record.value for record in await consumer.poll()]
                if how == "async for":
                    async for record in consumer:
                        got.append(record.value)
                        if len(got) == 4:
                            break
        assert sorted(got) == [1, 1, 2, 2]
        assert len(cluster.records("dead")) == 2


def test_a_loop_that_is_given_bad_records_only_holds_up_no_rebalance() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            async with consumer_of(cluster, value_deserializer=refuse, bad_records="skip") as first:

                async def loop() -> None:
                    async for record in first:
                        raise AssertionError(record)

                task = asyncio.create_task(loop())
                await until(lambda: first.metrics().get("consumer.bad_records", 0) >= 40)
                await asyncio.sleep(10.0)
                assert (await first.committed([P]))[P].offset == 20
                second = await Reader(cluster).start()
                await until(lambda: second.owned, 10.0)
                await second.stop()
                task.cancel()

    run_virtually(main())


def test_a_commit_in_a_callback_of_a_loss_fails_at_once() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            reported: list[tuple[str, float]] = []

            async def gone(partitions: Any) -> None:
                reported.append(("gone", the_loop().time()))
                await consumer.commit()

            def came(partitions: Any) -> None:
                reported.append(("came", the_loop().time()))

            consumer = consumer_of(
                cluster, enable_auto_commit=False, on_revoked=gone, on_assigned=came
            )
            async with consumer:
                await consumer.poll(timeout=None)
                cluster.faults.error("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
                with pytest.raises(CommitFailed):
                    await consumer.poll(timeout=30.0)
                await until(lambda: len(reported) == 3)
                (_, lost), (_, back) = reported[1:]
                assert back - lost < 10.0

    run_virtually(main())


def test_a_callback_that_waits_for_a_task_that_it_cancelled_harms_nothing() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)

            async def gone(partitions: Any) -> None:
                work = asyncio.create_task(asyncio.sleep(100))
                await asyncio.sleep(0)
                work.cancel()
                await work

            async with consumer_of(cluster, on_revoked=gone) as consumer:
                await consumer.poll(timeout=None)
                second = await Reader(cluster).start()
                with pytest.raises(InvalidArgument, match="on_revoked let the CancelledError"):
                    for _ in range(20):
                        await consumer.poll(timeout=1.0)
                await until(lambda: second.owned and consumer.assignment)
                await second.stop()

    run_virtually(main())


async def test_a_consumer_that_unassigned_may_subscribe() -> None:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 5, 1)
        async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as consumer:
            consumer.assign([P])
            with pytest.raises(InvalidArgument, match="assigned by hand"):
                consumer.subscribe(T)
            consumer.unassign()
            consumer.subscribe(T)
            assert len(await consumer.poll(timeout=30.0)) == 5


class Mine:
    """An assignor of the user's that fails somewhere."""

    name = "mine"
    cooperative = False

    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.range = chosen(("range",))[0]

    def user_data(self, topics: Any) -> bytes | None:
        if self.fails == "user_data":
            raise ZeroDivisionError
        return None

    def assign(self, cluster: Any, members: Any) -> Any:
        return self.range.assign(cluster, members)

    def assigned(self, partitions: Any, generation: int) -> None:
        if self.fails == "assigned":
            raise ZeroDivisionError


@pytest.mark.parametrize("fails", ["user_data", "assigned"])
def test_an_assignor_that_raises_is_reported_and_the_group_goes_on(fails: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with consumer_of(
                cluster, partition_assignment_strategy=(Mine(fails),)
            ) as consumer:
                with pytest.raises(ZeroDivisionError):
                    await consumer.poll(timeout=30.0)
                assert len(await consumer.poll(timeout=30.0)) > 0

    run_virtually(main())


def test_nothing_is_handed_over_after_the_session_however_long_a_callback_takes() -> None:
    async def main() -> None:
        async with Cluster(brokers=2) as cluster:
            fill(cluster, 2000, 2)
            begun: list[float] = []

            async def gone(partitions: Any) -> None:
                begun.append(the_loop().time())
                await asyncio.sleep(30.0)

            late: list[Any] = []
            async with consumer_of(
                cluster, partition_assignment_strategy=COOPERATIVE, on_revoked=gone
            ) as consumer:
                await until(lambda: len(consumer.assignment) == 2)

                async def loop() -> None:
                    while True:
                        records = await consumer.poll(max_records=2, timeout=1.0)
                        if begun and the_loop().time() > begun[0] + 8.0:
                            late.extend(records)
                        await asyncio.sleep(0.2)

                task = asyncio.create_task(loop())
                second = await Reader(cluster, partition_assignment_strategy=COOPERATIVE).start()
                await until(lambda: begun)
                cluster.faults.drop("Heartbeat", times=None)
                await asyncio.sleep(28.0)
                assert late == []
                cluster.faults.clear()
                task.cancel()
                await second.stop()

    run_virtually(main())


def test_a_record_of_before_is_not_committed_where_the_offset_is_not_known_yet() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 100, 1)
            async with consumer_of(cluster, enable_auto_commit=False) as consumer:
                old = await consumer.poll(max_records=10, timeout=None)
                cluster.faults.error("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
                other = await Reader(cluster).start()
                await until(lambda: other.seen >= 100)
                with cluster.faults.hold("OffsetFetch", times=None):
                    await other.stop()
                    await until(lambda: consumer.assignment)
                    with pytest.raises(CommitFailed):
                        await consumer.commit(old[4])
                assert (await consumer.committed([P]))[P].offset == 100

    run_virtually(main())


def test_commits_of_a_recreated_topic_are_made() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 50, 1)
            async with consumer_of(
                cluster,
                enable_auto_commit=False,
                metadata_max_age=5.0,
                partition_assignment_strategy=COOPERATIVE,
            ) as consumer:
                got: list[Any] = []
                while len(got) < 50:
                    got += await consumer.poll(timeout=1.0)
                await consumer.commit()
                cluster.delete_topic(T)
                fill(cluster, 20, 1)
                got = []
                async with asyncio.timeout(120):
                    while len(got) < 20:
                        try:
                            got += await consumer.poll(timeout=1.0)
                        except kclient.KafkaError as error:
                            assert not error.fatal
                await consumer.commit(got[4])
                found = (await consumer.committed([P]))[P]
                assert found is not None and found.offset == 5

    run_virtually(main())


async def test_another_client_that_is_closed_does_not_end_a_loop_in_silence() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("dead", partitions=1)
        fill(cluster, 5, 1)
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(
                cluster.bootstrap,
                T,
                value_deserializer=refuse,
                bad_records=kclient.DeadLetters("dead", producer),
                **QUICK,
            ) as consumer,
        ):
            await producer.close()
            with pytest.raises(ClientClosed, match="bad_records: a record can't be sent to dead"):
                async for _ in consumer:
                    pass


def test_a_commit_that_is_cancelled_cancels_no_other() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with consumer_of(cluster, enable_auto_commit=False) as consumer:
                await until(lambda: consumer.assignment)
                with cluster.faults.hold("OffsetCommit", times=None):
                    tasks = [
                        asyncio.create_task(consumer.commit({P: index % 20}))
                        for index in range(1_500)
                    ]
                    await asyncio.sleep(0.1)
                    for task in tasks[1_200:1_300]:
                        task.cancel()
                    await asyncio.sleep(0.1)
                done = await asyncio.gather(*tasks, return_exceptions=True)
                cancelled = [i for i, one in enumerate(done) if one is not None]
                assert cancelled == list(range(1_200, 1_300))

    run_virtually(main())


async def test_a_loop_that_passes_over_records_yields_to_other_tasks() -> None:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 20_000, 1, per_batch=1_000)
        refused, turns, others = 0, 0, None

        async def other() -> None:
            nonlocal turns
            while refused < 20_000:
                turns += 1
                await asyncio.sleep(0)

        def refuse_all(topic: str, data: bytes | None) -> int:
            nonlocal refused, others
            if not refused:
                others = asyncio.create_task(other())
            refused += 1
            raise ValueError("no")

        async with kclient.Consumer(
            cluster.bootstrap, T, value_deserializer=refuse_all, bad_records="skip", **QUICK
        ) as consumer:

            async def loop() -> None:
                async for _ in consumer:
                    pass

            task = asyncio.create_task(loop())
            await until(lambda: refused == 20_000)
            task.cancel()
            assert turns >= 20


@pytest.mark.parametrize("end", ["raises", "is cancelled", "is closed"])
def test_of_a_loop_all_but_the_record_in_hand_is_finished(end: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            counts = {0: 0, 1: 0}

            async def loop(consumer: Any) -> None:
                async for record in consumer:
                    if sum(counts.values()) == 27:
                        if end == "raises":
                            raise ZeroDivisionError
                        await asyncio.sleep(1_000)
                    counts[record.partition] += 1

            consumer = consumer_of(cluster)
            try:
                async with consumer:
                    task = asyncio.create_task(loop(consumer))
                    await until(lambda: sum(counts.values()) == 27)
                    await asyncio.sleep(0.1)
                    if end == "is closed":
                        await consumer.close()
                    task.cancel()
                    await task
            except (ZeroDivisionError, asyncio.CancelledError):
                pass
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as other:
                found = await other.committed([P, Q])
            assert {one.partition: at.offset for one, at in found.items() if at} == counts

    run_virtually(main())


def test_a_commit_of_lost_partitions_only_raises_until_the_next_call() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            async with consumer_of(
                cluster, enable_auto_commit=False, max_poll_interval=10.0
            ) as consumer:
                await consumer.poll(timeout=None)
                await asyncio.sleep(15.0)
                with pytest.raises(CommitFailed, match="flights-0 among them, were lost"):
                    await consumer.commit()
                with pytest.raises(kclient.errors.MaxPollExceeded):
                    await consumer.poll()
                assert len(await consumer.poll(timeout=None)) == 20
                await consumer.commit()
                assert (await consumer.committed([P]))[P].offset == 20

    run_virtually(main())


async def test_what_can_not_be_committed_is_refused_by_name() -> None:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 5, 1)
        async with kclient.Consumer(cluster.bootstrap, group=GROUP, **SETTINGS) as consumer:
            consumer.assign([P])
            for wrong, word in (
                (P, "TopicPartition can't be committed"),
                ({P: kclient.OffsetAndMetadata(1, leader_epoch="x")}, "leader_epoch"),  # type: ignore[arg-type]
                ({P: kclient.OffsetAndMetadata(1, metadata=b"x")}, "metadata"),  # type: ignore[arg-type]
            ):
                with pytest.raises(InvalidArgument, match=word):
                    await consumer.commit(wrong)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="reason=5"):
                consumer.rejoin(5)  # type: ignore[arg-type]


async def test_a_poll_beside_handlers_is_refused() -> None:
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 5, 1)
        async with kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS) as consumer:

            async def handle(record: Any) -> None:
                with pytest.raises(InvalidArgument, match="while run"):
                    await consumer.poll(timeout=0)
                with pytest.raises(InvalidArgument, match="while run"):
                    aiter(consumer)
                done.set()

            done = asyncio.Event()
            run = asyncio.create_task(consumer.run(handle))
            await done.wait()
        await run
