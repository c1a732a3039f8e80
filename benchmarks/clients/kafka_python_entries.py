"""kafka-python's entries. Loaded in a worker process only; measures, and decides nothing.

Equal settings: acks=all, idempotent, the job's linger, batch size and codec, CRC checks on.
"""

from __future__ import annotations

import itertools
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks.job import POLL_RECORDS, Job, Outcome
from benchmarks.tally import Tally, Watch
from benchmarks.values import rows, windows

ACK_TIMEOUT = 60.0


def common(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap_servers": job.bootstrap}
    if job.ca:
        found |= {"security_protocol": "SSL", "ssl_cafile": job.ca}
    return found


def producer_for(job: Job) -> Any:
    return KafkaProducer(
        **common(job),
        acks="all",
        enable_idempotence=True,
        linger_ms=round(job.linger * 1000),
        batch_size=job.batch_size,
        compression_type=None if job.codec == "none" else job.codec,
    )


def send(job: Job) -> Outcome:
    watch, producer = Watch(), producer_for(job)
    _send(producer, job, job.warm_up)
    watch.start()
    count = _send(producer, job, job.records)
    watch.stop()
    producer.close()
    if count != job.records:
        raise ValueError(f"{count} of {job.records} records were acknowledged")
    return watch.outcome(job.records)


def _send(producer: Any, job: Job, count: int) -> int:
    """Keep futures and wait for them in order, each window after the next one was sent."""
    send, topic, done = producer.send, job.topic, 0
    before: list[Any] = []
    for chunk in itertools.chain(windows(job.size, count, job.window), ([],)):
        if job.plain:
            now = [send(topic, value) for value in chunk]
        else:
            now = [
                send(topic, value, key=key, headers=headers or [])
                for topic, value, key, headers in rows(job, chunk, done + len(before))
            ]
        if not chunk:
            producer.flush()
        for future in before:
            future.get(ACK_TIMEOUT)
        done += len(before)
        before = now
    return done


def poll(job: Job) -> Outcome:
    watch, tally = Watch(), Tally(job)
    consumer = KafkaConsumer(
        **common(job), auto_offset_reset="earliest", check_crcs=True, enable_auto_commit=False
    )
    consumer.assign(_places(job.warm_topics, job.warm_partitions))
    _poll(consumer, Tally(job), job.warm_up, Watch())
    places = _places(job.topics, job.partitions)
    watch.start()
    consumer.assign(places)
    _poll(consumer, tally, job.records, watch)
    watch.stop()
    consumer.close()
    tally.check(job.records)
    return watch.outcome(job.records)


def _poll(consumer: Any, tally: Tally, records: int, watch: Watch) -> None:
    while tally.count < records:
        for batch in consumer.poll(timeout_ms=10_000, max_records=POLL_RECORDS).values():
            tally.add([record.value for record in batch])
        watch.lap(tally.count)


def _places(topics: tuple[str, ...], partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in topics for index in range(partitions)]
