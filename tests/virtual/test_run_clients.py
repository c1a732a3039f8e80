"""``Consumer.run`` of whole clients on virtual time: in groups, alone, with a producer beside."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import kclient
from kclient.errors import DeserializationFailed, InvalidArgument
from kclient.serializers import JsonDeserializer
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.virtual.consumer_scene import T, fill
from tests.virtual.group_scene import GROUP, SETTINGS

ALONE = {"auto_offset_reset": "earliest", "fetch_max_wait": 0.1}


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until ``condition`` holds; it is looked at twenty times a second."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it is cheap on virtual time
            await asyncio.sleep(0.05)


class Service:
    """A member whose handler takes some time, and what it saw."""

    def __init__(self, cluster: Cluster, seconds: float = 0.0, **settings: Any) -> None:
        self.seconds = seconds
        self.handled: list[tuple[int, int]] = []
        self.consumer: Any = kclient.Consumer(
            cluster.bootstrap, T, **{"group": GROUP, **SETTINGS, **settings}
        )
        self.task: asyncio.Task[None] | None = None

    async def handle(self, record: Any) -> None:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        self.handled.append((record.partition, record.offset))

    async def start(self, **options: Any) -> Service:
        await self.consumer.start()
        self.task = asyncio.create_task(self.consumer.run(self.handle, **options))
        return self

    async def stop(self, timeout: float = 60.0) -> None:
        await self.consumer.close(timeout)
        if self.task is not None:
            await self.task


@contextlib.asynccontextmanager
async def filled(count: int = 20, partitions: int = 4) -> AsyncIterator[Cluster]:
    async with Cluster(brokers=3) as cluster:
        fill(cluster, count, partitions)
        yield cluster


async def committed(cluster: Cluster, partitions: int = 4) -> list[int]:
    wanted = [TopicPartition(T, index) for index in range(partitions)]
    async with kclient.Consumer(cluster.bootstrap, group=GROUP) as consumer:
        found = await consumer.committed(wanted)
    return [0 if found[one] is None else found[one].offset for one in wanted]


def test_close_drains_and_commits_what_has_run(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with filled() as cluster:
            service = await Service(cluster, 2.0).start()
            await until(lambda: len(service.handled) >= 4)
            await asyncio.sleep(0.5)
            await service.stop()
            assert sorted(service.handled) == [(p, o) for p in range(4) for o in range(2)]
            assert await committed(cluster) == [2] * 4

    run_virtually(main())


def test_close_is_bounded_where_handlers_take_long() -> None:
    async def main() -> None:
        async with filled() as cluster:
            service = await Service(cluster, 500.0).start()
            await asyncio.sleep(20)
            begun = asyncio.get_running_loop().time()
            await service.stop(5.0)
            assert asyncio.get_running_loop().time() - begun <= 5.0
            assert service.handled == []
            assert await committed(cluster) == [0] * 4

    run_virtually(main())


def test_handlers_slower_than_max_poll_interval_are_named_and_the_member_stays() -> None:
    async def main() -> None:
        async with filled(2) as cluster:
            service = Service(cluster, 100.0, max_poll_interval=10.0)
            rebalances = 0

            def assigned(_: Any) -> None:
                nonlocal rebalances
                rebalances += 1

            await service.consumer.start()
            service.consumer.subscribe(T, on_assigned=assigned)
            service.task = asyncio.create_task(service.consumer.run(service.handle))
            await asyncio.sleep(60)
            before = rebalances
            assert len(service.consumer.run_health().slow) == 4
            assert not service.consumer.run_health().ok
            await until(lambda: len(service.handled) == 8, 400)
            assert rebalances == before
            assert service.consumer.run_health().ok
            await service.stop()
            assert await committed(cluster) == [2] * 4

    run_virtually(main())


def test_what_can_not_be_deserialized_is_a_dead_letter_and_the_others_go_on() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            for topic in (T, "dead"):
                cluster.create_topic(topic, partitions=1)
            values: list[Any] = []

            async def handle(record: Any) -> None:
                values.append(record.value)

            async with (
                kclient.Producer(cluster.bootstrap) as producer,
                kclient.Consumer(
                    cluster.bootstrap, T, value_deserializer=JsonDeserializer(), **ALONE
                ) as consumer,
                kclient.Consumer(cluster.bootstrap, "dead", **ALONE) as dead,
            ):
                for value in (b"1", b"{", b"2"):
                    await producer.send(T, value)
                run = asyncio.create_task(
                    consumer.run(handle, dead_letter_topic="dead", producer=producer)
                )
                (letter,) = await dead.poll(timeout=30.0)
                assert letter.value == b"{"
                assert dict(letter.headers)["kclient.exception"] == (
                    f"kclient.errors.{DeserializationFailed.__name__}".encode()
                )
                await until(lambda: values == [1, 2])
                await consumer.close()
                await run

    run_virtually(main())


@pytest.mark.parametrize("way", ["skip", "letters"])
def test_bad_records_follow_the_consumers_setting(way: str) -> None:
    async def main() -> None:
        async with filled(0, 1) as cluster, kclient.Producer(cluster.bootstrap) as producer:
            cluster.create_topic("dead", partitions=1)
            values: list[Any] = []

            async def handle(record: Any) -> None:
                values.append(record.value)

            for value in (b"1", b"{", b"2"):
                await producer.send(T, value)
            policy: Any = "skip" if way == "skip" else kclient.DeadLetters("dead", producer)
            async with kclient.Consumer(
                cluster.bootstrap,
                T,
                value_deserializer=JsonDeserializer(),
                bad_records=policy,
                group=GROUP,
                **SETTINGS,
            ) as consumer:
                run = asyncio.create_task(consumer.run(handle))
                await until(lambda: values == [1, 2])
                await consumer.close()
                await run
            letters = cluster.records("dead", 0)
            assert [record.value for record in letters] == ([b"{"] if way == "letters" else [])
            assert await committed(cluster, 1) == [3]

    run_virtually(main())


def test_partitions_that_the_user_paused_stay_so() -> None:
    async def main() -> None:
        async with filled(400, 2) as cluster:
            service = await Service(cluster, 0.01, group=None).start(max_in_flight=8)
            service.consumer.pause(TopicPartition(T, 0))
            await asyncio.sleep(60)
            handled = Counter(partition for partition, _ in service.handled)
            assert handled[1] == 400
            assert handled[0] <= 8
            service.consumer.resume(TopicPartition(T, 0))
            await until(lambda: len(service.handled) == 800)
            await service.stop()

    run_virtually(main())


def test_one_run_at_a_time() -> None:
    async def main() -> None:
        async with filled(1, 1) as cluster:
            service = await Service(cluster).start()
            await asyncio.sleep(1)
            with pytest.raises(InvalidArgument, match="under way"):
                await service.consumer.run(service.handle)
            await service.stop()

    run_virtually(main())


def test_a_commit_in_a_handler_is_of_what_is_finished() -> None:
    async def main() -> None:
        async with filled(10, 1) as cluster:
            service = Service(cluster, enable_auto_commit=False)

            async def handle(record: Any) -> None:
                if record.offset == 3:
                    await asyncio.sleep(30)
                elif record.offset == 9:
                    await service.consumer.commit()

            await service.consumer.start()
            task = asyncio.create_task(service.consumer.run(handle, ordering="none"))
            await asyncio.sleep(20)
            assert await committed(cluster, 1) == [3]
            await service.consumer.close(60)
            await task
            assert await committed(cluster, 1) == [3]

    run_virtually(main())


def test_a_consumer_without_a_group_is_drained_by_close_too() -> None:
    async def main() -> None:
        async with filled(5, 1) as cluster:
            service = await Service(cluster, 2.0, group=None).start()
            await until(lambda: len(service.handled) == 1)
            await asyncio.sleep(0.5)
            await service.stop(30.0)
            assert service.handled == [(0, 0), (0, 1)]

    run_virtually(main())
