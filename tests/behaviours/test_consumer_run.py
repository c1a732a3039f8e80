"""``Consumer.run`` on every kind of broker: order, commits, hand-overs, retries, dead letters."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import Any

import pytest

import kclient
from kclient.consumer.dead_letters import failure_of
from kclient.consumer.handlers.retries import Retries, RetryTopic
from kclient.errors import HandlerFailed
from kclient.types import TopicPartition
from tests.behaviours.reading import READ_TIMEOUT, read, write

SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout": 6.0,
    "heartbeat_interval": 0.5,
    "fetch_max_wait": 0.1,
}
ONCE = Retries(max_attempts=1)


class Handler:
    """A handler that notes the values it is called with, and fails on some."""

    def __init__(self, *bad: bytes, seconds: float = 0.0) -> None:
        self.bad = bad
        self.seconds = seconds
        self.values: list[bytes] = []
        self.news = asyncio.Event()
        self.running: Counter[Any] = Counter()
        self.most = 0

    async def __call__(self, record: Any) -> None:
        self.running[record.key] += 1
        self.most = max(self.most, self.running[record.key])
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running[record.key] -= 1
        if record.value in self.bad:
            raise ValueError("a bad value")
        self.values.append(record.value)
        self.news.set()

    async def until(self, count: int) -> None:
        """Wait until ``count`` different values were handled."""
        async with asyncio.timeout(READ_TIMEOUT):
            while len(set(self.values)) < count:
                self.news.clear()
                await self.news.wait()


async def started(consumer: Any, handler: Handler, **options: Any) -> asyncio.Task[None]:
    return asyncio.create_task(consumer.run(handler, **options))


async def committed(broker: Any, group: str, topic: str, partitions: int) -> list[int]:
    wanted = [TopicPartition(topic, index) for index in range(partitions)]
    async with kclient.Consumer(broker.bootstrap, group=group) as consumer:
        found = await consumer.committed(wanted)
    return [-1 if found[one] is None else found[one].offset for one in wanted]


@pytest.mark.parametrize("ordering", ["partition", "key", "none"])
async def test_all_records_are_handled_in_order_and_committed(
    broker, topic, producer, consumer, ordering: str
) -> None:
    name, group = await topic(partitions=3), f"run-{secrets.token_hex(4)}"
    out = await producer()
    for number in range(120):
        await out.enqueue(name, b"%d" % number, key=b"%d" % (number % 7))
    await out.flush()
    back = await consumer(name, group=group, **SETTINGS)
    handler = Handler(seconds=0.002)
    run = await started(back, handler, ordering=ordering, concurrency=16)
    await handler.until(120)
    await back.close()
    await run
    assert len(handler.values) == 120
    if ordering != "none":
        assert handler.most == 1
        for key in range(7):
            numbers = [int(value) for value in handler.values if int(value) % 7 == key]
            assert numbers == sorted(numbers)
    assert sum(await committed(broker, group, name, 3)) == 120


async def test_a_second_member_takes_over_and_nothing_is_handled_twice(
    broker, topic, producer, consumer
) -> None:
    name, group = await topic(partitions=4), f"run-{secrets.token_hex(4)}"
    await write(await producer(), name, [b"%d" % number for number in range(400)], 4)
    first = await consumer(name, group=group, **SETTINGS)
    one, two = Handler(seconds=0.02), Handler(seconds=0.02)
    runs = [await started(first, one)]
    await one.until(8)
    second = await consumer(name, group=group, **SETTINGS)
    runs.append(await started(second, two))
    await two.until(8)
    await first.close()
    async with asyncio.timeout(READ_TIMEOUT):
        while len(set(one.values) | set(two.values)) < 400:
            two.news.clear()
            await two.news.wait()
    await second.close()
    await asyncio.gather(*runs)
    assert len(one.values) + len(two.values) == 400
    assert await committed(broker, group, name, 4) == [100] * 4


async def test_a_record_that_fails_for_good_is_not_committed_and_run_raises(
    broker, topic, producer, consumer
) -> None:
    name, group = await topic(), f"run-{secrets.token_hex(4)}"
    await write(await producer(), name, [b"0", b"1", b"2"])
    back = await consumer(name, group=group, **SETTINGS)
    with pytest.raises(HandlerFailed, match="offset 1 of"):
        await back.run(Handler(b"1"), retries=ONCE)
    assert await committed(broker, group, name, 1) == [1]
    assert [record.value for record in await read(back, 2)] == [b"1", b"2"]


async def test_a_bad_record_goes_through_a_retry_topic_to_the_dead_letters(
    broker, topic, producer, consumer
) -> None:
    name, again, dead = await topic(), await topic(), await topic()
    group, out = f"run-{secrets.token_hex(4)}", await producer()
    await out.send(name, b"good", key=b"k")
    await out.send(name, b"bad", key=b"k", headers=[("trace", b"7")])
    await out.send(name, b"fine", key=b"k")
    back = await consumer(name, again, group=group, **SETTINGS)
    letters = await consumer(dead, auto_offset_reset="earliest")
    run = await started(
        back,
        Handler(b"bad"),
        ordering="key",
        retries=Retries(max_attempts=2, backoff=0.01),
        retry_topics=[RetryTopic(again, 0.3)],
        dead_letter_topic=dead,
        producer=out,
    )
    (letter,) = await read(letters, 1)
    await back.close()
    await run
    assert (letter.key, letter.value) == (b"k", b"bad")
    assert ("trace", b"7") in letter.headers
    failure = failure_of(letter)
    assert failure is not None
    assert (failure.topic, failure.partition, failure.offset) == (name, 0, 1)
    assert (failure.attempts, failure.exception) == (4, "ValueError")
    assert await committed(broker, group, name, 1) == [3]
    assert await committed(broker, group, again, 1) == [1]


async def test_a_cancelled_run_leaves_the_rest_to_the_next(
    broker, topic, producer, consumer
) -> None:
    name, group = await topic(), f"run-{secrets.token_hex(4)}"
    await write(await producer(), name, [b"%d" % number for number in range(50)])
    back = await consumer(name, group=group, **SETTINGS)
    handler = Handler(seconds=0.01)
    run = await started(back, handler)
    await handler.until(5)
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled()
    run = await started(back, handler)
    await handler.until(50)
    await back.close()
    await run
    assert handler.values == [b"%d" % number for number in range(50)]
    assert await committed(broker, group, name, 1) == [50]
