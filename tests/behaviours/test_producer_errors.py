"""Each failure ends in one typed error in time, and the producer stays usable."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import kclient
from kclient.broker_errors import MessageTooLarge, UnknownTopicOrPartition
from kclient.errors import (
    BootstrapFailed,
    DeliveryTimedOut,
    FlushFailed,
    InvalidArgument,
    InvalidConfig,
    KafkaError,
    RecordTooLarge,
    SerializationFailed,
)
from tests.behaviours.test_producer_records import read


async def test_an_unknown_topic_fails_in_time_and_is_named(producer: Any) -> None:
    out = await producer(delivery_timeout=1.0)
    started = time.monotonic()
    with pytest.raises(UnknownTopicOrPartition, match="no-such-topic") as caught:
        await out.send("no-such-topic", b"v")
    assert 0.5 < time.monotonic() - started < 5.0
    assert caught.value.maybe_written is False


async def test_an_unknown_topic_does_not_hold_up_others(topic: Any, producer: Any) -> None:
    name, out = await topic(), await producer(delivery_timeout=2.0)
    lost = out.send("no-such-topic", b"v")
    metas = await asyncio.gather(*(out.send(name, b"v") for _ in range(50)))
    assert len(metas) == 50 and not lost.done()
    with pytest.raises(UnknownTopicOrPartition):
        await lost


async def test_enqueue_to_an_unknown_topic_fails_after_max_block(producer: Any) -> None:
    out = await producer(max_block=0.5)
    started = time.monotonic()
    with pytest.raises(UnknownTopicOrPartition, match="max_block"):
        await out.enqueue("no-such-topic", b"v")
    assert 0.3 < time.monotonic() - started < 5.0


async def test_records_sent_before_their_topic_exists_are_delivered(
    topic: Any, producer: Any, admin: Any
) -> None:
    out, ops = await producer(), await admin()
    name = (await topic()) + "-later"
    deliveries = [out.send(name, b"%d" % i, partition=0) for i in range(10)]
    await asyncio.sleep(0.2)
    await ops.create_topics([kclient.NewTopic(name, partitions=1)])
    async with asyncio.timeout(20):
        metas = await asyncio.gather(*deliveries)
    assert [meta.offset for meta in metas] == list(range(10))


@pytest.mark.parametrize("name", ["", "a b", "..", "ü", "x" * 250])
async def test_impossible_topic_names_are_refused_at_once(producer: Any, name: str) -> None:
    out = await producer()
    with pytest.raises(InvalidArgument, match="topic"):
        out.send(name, b"v")


async def test_wrong_types_are_refused_at_once_and_nothing_is_sent(
    topic: Any, producer: Any
) -> None:
    name, out = await topic(), await producer()
    for bad in ({"value": "text"}, {"value": b"v", "key": 5}, {"value": b"v", "headers": [1]}):
        with pytest.raises(SerializationFailed):
            out.send(name, **bad)
    assert (await out.send(name, b"v")).offset == 0
    for bad in ({"headers": ["ab", 1]}, {"headers": [("a", "b")]}, {"headers": [(1, b"b")]}):
        with pytest.raises(SerializationFailed):
            out.send(name, b"v", **bad)
    for strange in (5, ["t"], b"t", None):
        with pytest.raises(InvalidArgument, match="topic must be a str"):
            out.send(strange, b"v")
        with pytest.raises(InvalidArgument, match="topic must be a str"):
            await out.send_many(strange, [b"v"])
    for wrong in (-1, 2**63 - 1, 1.5):
        with pytest.raises(InvalidArgument, match="timestamp"):
            out.send(name, b"v", timestamp=wrong)
    assert (await out.send(name, b"v")).offset == 1


async def test_a_record_above_max_request_size_is_refused_at_once(
    topic: Any, producer: Any
) -> None:
    name, out = await topic(), await producer(max_request_size=10_000)
    with pytest.raises(RecordTooLarge, match="10,000"):
        out.send(name, b"x" * 10_000)
    assert (await out.send(name, b"x" * 9_000)).offset == 0


async def test_a_record_above_the_topics_limit_fails_alone(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(max_message_bytes=1000), await producer()
    outcomes = await asyncio.gather(
        *(out.send(name, b"x" * size) for size in (100, 2000, 100)), return_exceptions=True
    )
    assert isinstance(outcomes[1], MessageTooLarge) and outcomes[1].maybe_written is False
    assert [outcomes[0].offset, outcomes[2].offset] == [0, 1]
    assert len(await read(consumer, name, 2)) == 2


async def test_batches_above_the_topics_limit_are_split_in_order(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(max_message_bytes=2000), await producer(batch_size=30_000)
    values = [b"%03d" % i + b"." * 97 for i in range(300)]
    assert await out.send_many(name, values) == 300
    assert [record.value for record in await read(consumer, name, 300)] == values
    assert out.metrics()["producer.splits"] > 0


async def test_the_producer_works_on_after_refused_records(
    topic: Any, producer: Any, consumer: Any
) -> None:
    name, out = await topic(max_message_bytes=1000), await producer(linger=0.0)
    for i in range(5):
        with pytest.raises(MessageTooLarge):
            await out.send(name, b"x" * 2000)
        assert (await out.send(name, b"%d" % i)).offset == i
    assert [r.value for r in await read(consumer, name, 5)] == [b"%d" % i for i in range(5)]


async def test_a_compacted_topic_refuses_records_without_a_key(
    broker: Any, topic: Any, producer: Any
) -> None:
    name = await topic(cleanup_policy="compact")
    out = await producer(delivery_timeout=2.0)
    with pytest.raises(KafkaError) as caught:
        await out.send(name, b"v")
    if broker.version < (2, 4, 0):
        assert isinstance(caught.value, DeliveryTimedOut)  # CORRUPT_MESSAGE is retriable
    else:
        assert type(caught.value).__name__ == "InvalidRecord"
    assert caught.value.maybe_written is False
    assert (await out.send(name, b"v", key=b"k")).offset == 0


async def test_flush_raises_one_error_with_the_count(topic: Any, producer: Any) -> None:
    name, out = await topic(max_message_bytes=1000), await producer(linger=4.0)
    deliveries = [out.send(name, b"x" * 2000) for _ in range(3)]
    good = out.send(name, b"v")
    with pytest.raises(FlushFailed, match="3 records were not delivered") as caught:
        await out.flush()
    assert caught.value.count == 3
    assert all(isinstance(error, MessageTooLarge) for error in caught.value.errors)
    assert good.exception() is None and all(d.exception() for d in deliveries)
    await out.flush()  # raised once


async def test_flush_also_reports_earlier_failures_that_nobody_looked_at(
    topic: Any, producer: Any
) -> None:
    name, out = await topic(max_message_bytes=1000), await producer(linger=0.0)
    out.enqueue_nowait(name, b"x" * 2000)
    await out.send(name, b"v")  # sent after it: when this is written, that has failed
    assert out.metrics()["producer.unseen_failures"] == 1
    with pytest.raises(FlushFailed):
        await out.flush()


async def test_send_many_reports_what_failed(topic: Any, producer: Any) -> None:
    name, out = await topic(max_message_bytes=1000), await producer()
    with pytest.raises(FlushFailed) as caught:
        await out.send_many(name, [b"x" * 2000, b"y" * 2000])
    assert caught.value.count == 2


async def test_close_raises_what_it_could_not_deliver(topic: Any, broker: Any) -> None:
    name = await topic(max_message_bytes=1000)
    out = kclient.Producer(broker.bootstrap, linger=4.0)
    await out.start()
    delivery = out.send(name, b"x" * 2000)
    with pytest.raises(FlushFailed):
        await out.close()
    assert isinstance(delivery.exception(), MessageTooLarge)


async def test_close_is_bounded_and_says_what_was_not_written(topic: Any, broker: Any) -> None:
    await topic()
    out = kclient.Producer(broker.bootstrap)
    await out.start()
    delivery = out.send("no-such-topic", b"v")
    started = time.monotonic()
    with pytest.raises(FlushFailed):
        await out.close(timeout=0.5)
    assert time.monotonic() - started < 3.0
    error = delivery.exception()
    assert isinstance(error, kclient.errors.ClientClosed) and error.maybe_written is False


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 2},
        {"linger": -1},
        {"batch_size": 0},
        {"compression": "brotli"},
        {"max_in_flight": 6},
        {"acks": 1},
        {"compression": "gzip", "compression_level": 99},
        {"lingre": 1},
        {"transactional_id": ""},
    ],
)
async def test_absurd_settings_are_refused_before_anything_happens(settings: Any) -> None:
    with pytest.raises(InvalidConfig, match=next(reversed(settings))):
        kclient.Producer("localhost:9092", **settings)


async def test_a_refused_bootstrap_is_a_typed_error_in_time() -> None:
    out = kclient.Producer("127.0.0.1:1", bootstrap_timeout=0.5)
    with pytest.raises(BootstrapFailed, match=r"127\.0\.0\.1:1"):
        await out.start()
    with pytest.raises(kclient.errors.ClientClosed):
        out.send("t", b"v")
