"""What ``Consumer.run`` refuses: at once where that can be known, and never by waiting for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.consumer.handlers.retries import Retries, RetryTopic
from kclient.errors import HandlerFailed, InvalidArgument
from kclient.serializers import JsonSerializer
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import GROUP, SETTINGS

ONCE = Retries(max_attempts=1)


async def failing(record: object) -> None:
    raise ValueError("never")


async def fine(record: object) -> None:
    pass


@contextlib.asynccontextmanager
async def scene(*topics: str, **settings: Any) -> AsyncIterator[tuple[Cluster, Any, Any]]:
    """Ten records, a consumer in a group, and a producer."""
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 10, 1)
        cluster.create_topic("dead", partitions=1)
        given = {"group": GROUP, **SETTINGS, **settings}
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(cluster.bootstrap, *topics, **given) as consumer,
        ):
            yield cluster, consumer, producer


@pytest.mark.parametrize("way", ["by name", "by pattern", "by hand", "alone"])
def test_a_dead_letter_topic_that_is_read_is_refused_at_once(way: str) -> None:
    async def main() -> None:
        topics = () if way in ("by pattern", "by hand") else (T, "dead")
        settings: dict[str, Any] = {"pattern": ".*"} if way == "by pattern" else {}
        if way in ("alone", "by hand"):
            settings["group"] = None
        async with scene(*topics, **settings) as (_, consumer, producer):
            if way == "by hand":
                consumer.assign([kclient.TopicPartition("dead", 0)])
            with pytest.raises(InvalidArgument, match=r"dead_letter_topic='dead'.* reads it"):
                await consumer.run(fine, dead_letter_topic="dead", producer=producer)
            assert consumer.run_health() is None

    run_virtually(main())


@pytest.mark.parametrize(
    "wanted",
    [
        {"dead_letter_topic": "nowhere"},
        {"dead_letter_topic": "dead", "retry_topics": [RetryTopic("nowhere", 1.0)]},
    ],
)
def test_a_topic_that_does_not_exist_is_found_out_before_a_record_is_handled(
    wanted: dict[str, Any],
) -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, producer):
            called = 0

            async def handle(record: object) -> None:
                nonlocal called
                called += 1

            with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
                async with asyncio.timeout(20):
                    await consumer.run(handle, producer=producer, **wanted)
            assert called == 0
            async with asyncio.timeout(20):  # and the consumer can be used on
                assert await consumer.poll(timeout=None)

    run_virtually(main())


def test_a_close_does_not_wait_until_the_topics_are_found() -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, producer):
            run = asyncio.create_task(
                consumer.run(fine, dead_letter_topic="nowhere", producer=producer)
            )
            await asyncio.sleep(1)
            begun = the_loop().time()
            await consumer.close()
            await run
            assert the_loop().time() - begun < 1

    run_virtually(main())


def test_a_sender_of_the_user_may_return_partitions_without_await() -> None:
    class Wrapped:
        def __init__(self, producer: Any) -> None:
            self.send = producer.send

        def partitions_for(self, topic: str) -> set[int]:
            return {0}

    async def main() -> None:
        async with scene(T) as (_, consumer, producer):
            handled = asyncio.Event()

            async def handle(record: object) -> None:
                handled.set()

            run = asyncio.create_task(
                consumer.run(handle, dead_letter_topic="dead", producer=Wrapped(producer))
            )
            await handled.wait()
            await consumer.close()
            await run

    run_virtually(main())


def test_a_topic_that_brokers_make_by_themselves_will_do() -> None:
    async def main() -> None:
        async with Cluster(brokers=1, auto_create_topics=True) as cluster:
            fill(cluster, 3, 1)
            async with (
                kclient.Producer(cluster.bootstrap, allow_auto_create_topics=True) as producer,
                kclient.Consumer(cluster.bootstrap, T, group=GROUP, **SETTINGS) as consumer,
            ):
                run = asyncio.create_task(
                    consumer.run(failing, retries=ONCE, dead_letter_topic="new", producer=producer)
                )
                await until(lambda: "new" in cluster.topics and cluster.end_offset("new", 0) == 3)
                await consumer.close()
                await run

    run_virtually(main())


def test_a_dead_letter_topic_that_is_deleted_ends_the_run() -> None:
    async def main() -> None:
        async with scene(T) as (cluster, consumer, producer):
            begun = asyncio.Event()

            async def handle(record: object) -> None:
                begun.set()
                await asyncio.sleep(5)
                raise ValueError("never")

            run = asyncio.create_task(
                consumer.run(handle, retries=ONCE, dead_letter_topic="dead", producer=producer)
            )
            await begun.wait()
            cluster.delete_topic("dead")
            with pytest.raises(HandlerFailed, match="can't be sent to dead") as caught:
                async with asyncio.timeout(300):  # the producer's delivery_timeout, and a bit
                    await run
            assert caught.value.offset == 0

    run_virtually(main())


def test_an_unreachable_cluster_of_the_producer_holds_up_no_records() -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, _), Cluster(brokers=1) as other:
            other.create_topic("dead", partitions=1)
            handled: list[int] = []

            async def handle(record: Any) -> None:
                handled.append(record.offset)

            async with kclient.Producer(other.bootstrap) as producer:
                await other.crash(1)
                run = asyncio.create_task(
                    consumer.run(handle, dead_letter_topic="dead", producer=producer)
                )
                await until(lambda: len(handled) == 10)
                await consumer.close()
                await run
                await other.restart(1)

    run_virtually(main())


@pytest.mark.parametrize("how", ["new", "closed", "key_serializer", "value_serializer"])
def test_a_producer_that_can_not_send_records_as_they_are_is_refused_at_once(how: str) -> None:
    async def main() -> None:
        async with scene(T) as (cluster, consumer, _):
            given: Any = {how: JsonSerializer()} if "serializer" in how else {}
            producer = kclient.Producer(cluster.bootstrap, client_id="relay", **given)
            words = {"new": "was not started", "closed": "is closed"}.get(how, f"has a {how}")
            if how != "new":
                await producer.start()
            if how == "closed":
                await producer.close()
            with pytest.raises(InvalidArgument, match=rf"producer can't be used: relay.*{words}"):
                await consumer.run(fine, dead_letter_topic="dead", producer=producer)
            await producer.close()

    run_virtually(main())


@pytest.mark.parametrize("call", ["unsubscribe", "close"])
def test_what_would_wait_for_the_handler_is_refused_in_it(call: str) -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, _):

            async def handle(record: object) -> None:
                await getattr(consumer, call)()

            begun = the_loop().time()
            with pytest.raises(HandlerFailed) as caught:
                await consumer.run(handle, retries=ONCE)
            assert isinstance(caught.value.__cause__, InvalidArgument)
            assert f"{call}() can't be awaited in a handler" in str(caught.value.__cause__)
            assert the_loop().time() - begun < 5

    run_virtually(main())


def test_a_task_of_a_handler_may_unsubscribe() -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, _):
            tasks: list[asyncio.Task[None]] = []

            async def handle(record: object) -> None:
                if not tasks:
                    tasks.append(asyncio.create_task(consumer.unsubscribe()))
                    await asyncio.sleep(1)

            run = asyncio.create_task(consumer.run(handle))
            await until(lambda: tasks)
            await tasks[0]
            assert not consumer.assignment
            run.cancel()
            await asyncio.wait([run])

    run_virtually(main())


def test_an_iterator_made_before_takes_nothing_from_the_handlers() -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, _):
            records = aiter(consumer)
            assert (await anext(records)).offset == 0
            handled: list[int] = []

            async def handle(record: Any) -> None:
                handled.append(record.offset)

            run = asyncio.create_task(consumer.run(handle))
            await asyncio.sleep(0.1)
            for _ in range(3):
                with pytest.raises(InvalidArgument, match=r"while run.. is under way"):
                    await anext(records)
            await asyncio.sleep(5)
            assert handled == list(range(1, 10))
            run.cancel()
            await asyncio.wait([run])

    run_virtually(main())


def test_a_run_does_not_begin_while_another_task_polls() -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, _):
            while await consumer.poll(timeout=3):
                pass
            polling = asyncio.create_task(consumer.poll(timeout=None))
            await asyncio.sleep(1)
            with pytest.raises(InvalidArgument, match="while another task polls"):
                await consumer.run(fine)
            polling.cancel()
            await asyncio.wait([polling])

    run_virtually(main())


def test_a_run_can_not_be_awaited_in_a_callback() -> None:
    async def main() -> None:
        async with scene(T) as (_, consumer, _):

            async def assigned(_: object) -> None:
                await consumer.run(fine)

            consumer.subscribe(T, on_assigned=assigned)
            with pytest.raises(InvalidArgument, match=r"run.. can't be awaited in a callback"):
                async with asyncio.timeout(30):
                    while True:
                        await consumer.poll()

    run_virtually(main())
