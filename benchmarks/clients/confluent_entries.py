"""confluent-kafka's entries. Loaded in a worker process only; measures, and decides nothing.

Equal settings: acks=all, idempotent, the job's linger, batch size and codec, CRC checks on. The
tuned ones follow librdkafka's chapter on throughput: longer linger, more and larger batches, deep
queues; for reading, a deep queue and large fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from benchmarks.job import POLL_RECORDS, Job, Outcome
from benchmarks.tally import Tally, Watch
from benchmarks.values import rows, windows

POLL_EVERY = 1_000
"""Records between two polls for delivery reports."""
SPACE_WAIT = 0.1
Write = Callable[[Any, Job, int], int]


def common(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": job.bootstrap}
    if job.ca:
        found |= {"security.protocol": "SSL", "ssl.ca.location": job.ca}
    return found


def producer_settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": job.linger * 1000,
        "batch.size": job.batch_size,
        "compression.type": job.codec,
    }
    if job.tuned:
        settings |= {
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1024 * 1024,
        }
    return common(job) | settings


def consumer_settings(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "group.id": "benchmarks",
        "enable.auto.commit": False,
        "check.crcs": True,
        "auto.offset.reset": "earliest",
    }
    if job.tuned:
        settings |= {
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1024 * 1024,
            "max.partition.fetch.bytes": 8 * 1024 * 1024,
        }
    return common(job) | settings


def _written(job: Job, write: Write) -> Outcome:
    watch, producer = Watch(), Producer(producer_settings(job))
    if write(producer, job, job.warm_up) != job.warm_up:
        raise ValueError("the warm-up was not acknowledged whole")
    watch.start()
    count = write(producer, job, job.records)
    watch.stop()
    if count != job.records:
        raise ValueError(f"{count} of {job.records} records were acknowledged")
    return watch.outcome(job.records)


def _callback(producer: Any, job: Job, count: int) -> int:
    acked, produce, topic = 0, producer.produce, job.topic

    def done(error: Any, message: Message) -> None:
        nonlocal acked
        if error is not None:
            raise ValueError(str(error))
        acked += 1

    if not job.plain:
        return _callback_rows(producer, job, count)
    for chunk in windows(job.size, count, POLL_EVERY):
        for value in chunk:
            try:
                produce(topic, value, on_delivery=done)
            except BufferError:
                _when_there_is_space(producer, topic, value, on_delivery=done)
        producer.poll(0)
    producer.flush()
    return acked


def _callback_rows(producer: Any, job: Job, count: int) -> int:
    acked, produce, first = 0, producer.produce, 0

    def done(error: Any, message: Message) -> None:
        nonlocal acked
        if error is not None:
            raise ValueError(str(error))
        acked += 1

    for chunk in windows(job.size, count, POLL_EVERY):
        for topic, value, key, headers in rows(job, chunk, first):
            try:
                produce(topic, value, key=key, headers=headers, on_delivery=done)
            except BufferError:
                _when_there_is_space(
                    producer, topic, value, key=key, headers=headers, on_delivery=done
                )
        first += len(chunk)
        producer.poll(0)
    producer.flush()
    return acked


def _silent(producer: Any, job: Job, count: int) -> int:
    produce, topic = producer.produce, job.topic
    for chunk in windows(job.size, count, POLL_EVERY):
        for value in chunk:
            try:
                produce(topic, value)
            except BufferError:
                _when_there_is_space(producer, topic, value)
        producer.poll(0)
    if producer.flush():
        raise ValueError("flush left records behind")
    return count


def _when_there_is_space(producer: Any, topic: str, value: bytes, **rest: Any) -> None:
    while True:
        producer.poll(SPACE_WAIT)
        try:
            producer.produce(topic, value, **rest)
        except BufferError:
            continue
        return


def _batch(producer: Any, job: Job, count: int) -> int:
    """Send lists of dicts, made from the values here: the entry accepts nothing else."""
    for chunk in windows(job.size, count, POLL_EVERY):
        if job.keyed:
            messages: list[dict[str, Any]] = [
                {"value": value, "key": key} for _, value, key, _ in rows(job, chunk)
            ]
        else:
            messages = [{"value": value} for value in chunk]
        while producer.produce_batch(job.topic, messages) < len(messages):
            messages = [message for message in messages if message.pop("_error", None)]
            producer.poll(SPACE_WAIT)
        producer.poll(0)
    if producer.flush():
        raise ValueError("flush left records behind")
    return count


def places(topics: tuple[str, ...], partitions: int) -> list[TopicPartition]:
    return [
        TopicPartition(t, index, OFFSET_BEGINNING) for t in topics for index in range(partitions)
    ]


def consume(job: Job) -> Outcome:
    watch, tally = Watch(), Tally(job)
    consumer = Consumer(consumer_settings(job))
    consumer.assign(places(job.warm_topics, job.warm_partitions))
    _consume(consumer, Tally(job), job.warm_up, Watch())
    there = places(job.topics, job.partitions)
    watch.start()
    consumer.assign(there)
    _consume(consumer, tally, job.records, watch)
    watch.stop()
    consumer.close()
    tally.check(job.records)
    return watch.outcome(job.records)


def _consume(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    while tally.count < records:
        wanted = min(POLL_RECORDS, records - tally.count)
        messages = consumer.consume(wanted, timeout=10)
        tally.add([message.value() for message in messages])
        watch.lap(len(messages))


def produce_callback(job: Job) -> Outcome:
    return _written(job, _callback)


def produce_silent(job: Job) -> Outcome:
    return _written(job, _silent)


def produce_batch(job: Job) -> Outcome:
    return _written(job, _batch)
