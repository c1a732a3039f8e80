"""A consumer from start to close, and its errors, on every kind of broker."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.errors import (
    BackgroundTaskDied,
    BootstrapFailed,
    ClientClosed,
    InvalidArgument,
    InvalidConfig,
    WrongContext,
)
from kclient.hooks import Event, Fetched
from kclient.types import TopicPartition
from tests.behaviours.reading import offsets, read, write

START = "earliest"


async def test_before_start_it_says_how_to_start(broker, topic) -> None:
    back = kclient.Consumer(broker.bootstrap, await topic())
    partition = TopicPartition("t", 0)
    for call in (
        lambda: back.assign([partition]),
        lambda: back.seek(partition, 0),
        lambda: back.pause(),
        lambda: aiter(back),
    ):
        with pytest.raises(ClientClosed, match="async with"):
            call()
    for waiting in (
        back.poll(),
        back.poll_arrow(),
        back.position(partition),
        back.end_offsets([partition]),
        back.partitions_for("t"),
    ):
        with pytest.raises(ClientClosed, match="async with"):
            await waiting
    await back.close()


async def test_after_close_everything_raises(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset=START)
    await back.close()
    for waiting in (back.poll(), back.poll_arrow(), back.partitions_for("t")):
        with pytest.raises(ClientClosed, match="closed"):
            await waiting
    with pytest.raises(ClientClosed):
        back.assign([])
    with pytest.raises(ClientClosed):
        await back.start()
    assert not back.health().ok


async def test_closing_twice_and_at_once_is_fine(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset=START)
    await asyncio.gather(back.close(), back.close())
    await back.close()


async def test_closing_is_quick_though_a_fetch_is_parked(topic, consumer) -> None:
    name = await topic()
    back = await consumer(name, auto_offset_reset=START, fetch_max_wait=10.0)
    await back.position(TopicPartition(name, 0))
    assert await back.poll(timeout=0.1) == []
    loop = asyncio.get_running_loop()
    began = loop.time()
    await back.close()
    assert loop.time() - began < 5.0


async def test_closing_ends_those_who_wait(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset=START)

    async def loop() -> str:
        async for _ in back:
            pass
        return "ended"

    polling = asyncio.ensure_future(back.poll(timeout=None))
    arrow = asyncio.ensure_future(back.poll_arrow(timeout=None))
    iterating = asyncio.ensure_future(loop())
    await asyncio.sleep(0.05)
    await back.close()
    for waiting in (polling, arrow):
        with pytest.raises(ClientClosed):
            await waiting
    assert await iterating == "ended"


async def test_a_cancelled_start_leaves_nothing_open(broker, topic) -> None:
    back = kclient.Consumer(broker.bootstrap, await topic())
    starting = asyncio.ensure_future(back.start())
    await asyncio.sleep(0.001)
    starting.cancel()
    await asyncio.wait([starting])
    await back.close()
    with pytest.raises(ClientClosed):
        await back.poll()


async def test_a_cancelled_close_closes_all_the_same(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset=START)
    closing = asyncio.ensure_future(back.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await back.close()
    assert back.health().client.state == "closed"


async def test_a_topic_that_does_not_exist_is_named(broker) -> None:
    async with asyncio.timeout(20.0):
        with pytest.raises(UnknownTopicOrPartition, match="no-such-topic"):
            async with kclient.Consumer(broker.bootstrap, "no-such-topic"):
                pass


async def test_partitions_that_do_not_exist_are_named_and_the_others_go_on(
    topic, producer, consumer
) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 5)
    back = await consumer(auto_offset_reset=START)
    missing = [TopicPartition(name, 7), TopicPartition("no-such-topic", 0)]
    back.assign([TopicPartition(name, 0), *missing])
    seen: list[Any] = []
    named = set()
    async with asyncio.timeout(30.0):
        while len(named) < 2:
            try:
                seen += await back.poll(timeout=5.0)
            except UnknownTopicOrPartition as error:
                named.add(error.topic_partition)
    assert named == set(missing)
    assert offsets(seen) == {0: [0, 1, 2, 3, 4]}


async def test_nobody_there_is_one_error_with_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(BootstrapFailed, match=address):
            async with kclient.Consumer(address, "t", bootstrap_timeout=0.5):
                pass


async def test_absurd_settings_are_refused_by_name(broker) -> None:
    for settings in (
        {"fetch_max_wait": -1.0},
        {"max_poll_records": 0},
        {"auto_offset_reset": "first"},
        {"isolation_level": "serializable"},
        {"fetch_max_wait": 40.0},
        {"buffer_memory": "64m"},
    ):
        [field] = settings
        with pytest.raises(InvalidConfig, match=field):
            kclient.Consumer(broker.bootstrap, "t", **settings)
    with pytest.raises(InvalidConfig, match="max_poll_records"):
        kclient.Consumer(broker.bootstrap, "t", max_poll_record=5)
    with pytest.raises(InvalidArgument, match="not a topic name"):
        kclient.Consumer(broker.bootstrap, "a topic")


async def test_what_needs_a_group_is_refused_by_type_without_one(broker, topic, consumer) -> None:
    with pytest.raises(InvalidConfig, match="group='' can't be used"):
        kclient.Consumer(broker.bootstrap, "t", group="")
    back = await consumer(await topic())
    for call in (back.commit, back.unsubscribe, lambda: back.committed([])):
        with pytest.raises(InvalidConfig, match="this consumer has no group"):
            await call()


async def test_bad_arguments_are_refused_and_the_consumer_stays_usable(
    topic, producer, consumer
) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"])
    back = await consumer(name, auto_offset_reset=START)
    partition = TopicPartition(name, 0)
    for call in (
        lambda: back.assign(partition),
        lambda: back.assign([(name, "0")]),
        lambda: back.seek(partition, -1),
        lambda: back.seek(name, 0),
    ):
        with pytest.raises(InvalidArgument):
            call()
    for waiting in (
        back.poll(0),
        back.poll(timeout=-1),
        back.offsets_for_times({partition: -5}),
        back.partitions_for("a topic"),
        back.close(timeout=-1),
    ):
        with pytest.raises(InvalidArgument):
            await waiting
    assert len(await read(back, 1)) == 1


async def test_another_loop_is_refused_by_name(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset=START)

    def elsewhere() -> None:
        with pytest.raises(WrongContext, match="thread"):
            asyncio.run(back.poll())

    await asyncio.to_thread(elsewhere)
    assert await back.poll(timeout=0) == []


async def test_an_internal_task_that_dies_is_heard_of_at_once(topic, consumer) -> None:
    back = await consumer(await topic(), auto_offset_reset=START)
    await back.poll(timeout=0.1)
    waiting = asyncio.ensure_future(back.poll(timeout=None))
    await asyncio.sleep(0.01)
    [victim] = [one for one in asyncio.all_tasks() if one.get_name().startswith("kclient:fetch")]
    victim.cancel()
    async with asyncio.timeout(1.0):
        with pytest.raises(BackgroundTaskDied, match="fetch"):
            await waiting
    with pytest.raises(BackgroundTaskDied):
        await back.poll()


async def test_health_reports_how_it_is(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"v"] * 10)
    back = await consumer(name, auto_offset_reset=START)
    await read(back, 4)
    health = back.health()
    [part] = health.partitions.values()
    assert health.ok
    assert (part.phase, part.position, part.lag, part.paused) == ("FETCHING", 4, 6, False)
    assert health.lag == 6
    assert health.last_fetch_age is not None
    assert health.last_fetch_age < 10.0
    assert health.last_error is None
    assert "kclient:offsets" in health.client.tasks


async def test_metrics_count_what_was_handed_over(topic, producer, consumer) -> None:
    name = await topic()
    await write(await producer(), name, [b"x" * 100] * 50)
    back = await consumer(name, auto_offset_reset=START)
    await read(back, 20)
    left = 10
    async for _ in back:
        left -= 1
        if not left:
            break
    metrics = back.metrics()
    assert metrics["consumer.records"] == 30
    assert metrics["consumer.fetched_bytes"] > 5000
    assert metrics["consumer.fetches"] >= 1
    assert metrics["consumer.partitions"] == 1
    assert metrics["consumer.lag"] == 20


async def test_observers_hear_of_fetches(topic, producer, consumer) -> None:
    class Watcher:
        def __init__(self) -> None:
            self.fetched: list[Fetched] = []

        def observe(self, event: Event) -> None:
            if isinstance(event, Fetched):
                self.fetched.append(event)

    name = await topic()
    await write(await producer(), name, [b"v"] * 5)
    watcher = Watcher()
    await read(await consumer(name, auto_offset_reset=START, observers=[watcher]), 5)
    assert sum(event.size_bytes for event in watcher.fetched) > 0


async def test_an_idle_consumer_asks_little(topic, consumer) -> None:
    name = await topic(partitions=3)
    back = await consumer(name, auto_offset_reset=START, fetch_max_wait=0.2)
    await back.poll(timeout=0.3)
    before = back.metrics()["network.requests"]
    await back.poll(timeout=1.0)
    brokers = back.health().client.brokers
    assert back.metrics()["network.requests"] - before <= 8 * brokers
