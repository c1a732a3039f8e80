"""From ``send`` to received: a producer and a consumer in one process, one record at a time.

All clients are in one module, which shows that their loops are equal. The consumer waits in a long
poll at the end of the topic while the record is sent. Loaded in workers only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.clients.latency import PATIENCE, timed, timed_without_loop
from benchmarks.clients.loops import run_on_loop
from benchmarks.job import Job, Outcome


def kclient(job: Job) -> Outcome:
    import kclient
    from benchmarks.clients.kclient_produce import producer_for

    places = [kclient.TopicPartition(job.topic, index) for index in range(job.partitions)]

    async def main() -> Outcome:
        consumer: Any = kclient.Consumer(job.bootstrap, auto_offset_reset="latest")
        async with producer_for(job) as producer, consumer:
            consumer.assign(places)
            for place in places:
                await consumer.position(place)

            async def one(value: bytes) -> None:
                delivery = producer.send(job.topic, value)
                found = await consumer.poll(timeout=PATIENCE)
                _same([record.value for record in found], value)
                await delivery

            return await timed(job, one)

    return run_on_loop(job, main)


def kclient_uvloop(job: Job) -> Outcome:
    return kclient(replace(job, loop="uvloop"))


def aiokafka(job: Job) -> Outcome:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    from benchmarks.clients.aiokafka_entries import common, producer_for

    places = [TopicPartition(job.topic, index) for index in range(job.partitions)]

    async def main() -> Outcome:
        consumer = AIOKafkaConsumer(
            **common(job), auto_offset_reset="latest", enable_auto_commit=False
        )
        async with producer_for(job) as producer, consumer:
            consumer.assign(places)
            for place in places:
                await consumer.position(place)

            async def one(value: bytes) -> None:
                future = await producer.send(job.topic, value)
                found = await consumer.getmany(timeout_ms=round(PATIENCE * 1000))
                _same([record.value for batch in found.values() for record in batch], value)
                await future

            return await timed(job, one)

    return run_on_loop(job, main)


def confluent(job: Job) -> Outcome:
    from confluent_kafka import Consumer, Producer, TopicPartition

    from benchmarks.clients.confluent_entries import consumer_settings, producer_settings

    producer = Producer(producer_settings(job))
    consumer = Consumer(consumer_settings(job))
    places = [TopicPartition(job.topic, index) for index in range(job.partitions)]
    consumer.assign([TopicPartition(p.topic, p.partition, _end(consumer, p)) for p in places])

    def one(value: bytes) -> None:
        producer.produce(job.topic, value)
        message = consumer.poll(PATIENCE)
        _same([message.value()] if message else [], value)
        producer.poll(0)

    outcome = timed_without_loop(job, one)
    consumer.close()
    return outcome


def _end(consumer: Any, place: Any) -> int:
    end: int = consumer.get_watermark_offsets(place, timeout=PATIENCE)[1]
    return end


def kafka_python(job: Job) -> Outcome:
    from kafka import KafkaConsumer, TopicPartition

    from benchmarks.clients.kafka_python_entries import common, producer_for

    producer = producer_for(job)
    consumer = KafkaConsumer(**common(job), auto_offset_reset="latest", enable_auto_commit=False)
    places = [TopicPartition(job.topic, index) for index in range(job.partitions)]
    consumer.assign(places)
    for place in places:
        consumer.position(place)

    def one(value: bytes) -> None:
        future = producer.send(job.topic, value)
        found: dict[Any, Any] = {}
        while not found:
            found = consumer.poll(timeout_ms=round(PATIENCE * 1000))
        _same([record.value for batch in found.values() for record in batch], value)
        future.get(PATIENCE)

    outcome = timed_without_loop(job, one)
    consumer.close()
    producer.close()
    return outcome


def _same(found: list[Any], value: bytes) -> None:
    if found != [value]:
        raise ValueError(f"received {len(found)} records, or not what was sent")
