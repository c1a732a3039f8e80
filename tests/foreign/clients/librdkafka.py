"""librdkafka through confluent-kafka: records out and in, and the play of all its features."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

from tests.foreign.clients import librdkafka_admin, librdkafka_groups, librdkafka_transactions
from tests.foreign.clients.librdkafka_help import (
    code_of,
    consumer,
    produce,
    producer,
    read,
    take,
    write,
)
from tests.foreign.scene import (
    FIRST_TIME,
    PATIENCE,
    Feature,
    Scene,
    by_name,
    equal,
    play,
    refusal,
    true,
)
from tests.interop.peers.sample import CODECS, samples

_PARTITIONS = 3
_TAIL_2 = -2002
"""librdkafka's RD_KAFKA_OFFSET_TAIL(2), which its Python binding doesn't name."""


def produce_records(scene: Scene) -> object:
    """Nulls, empty bytes, headers of all kinds."""
    topic = scene.topic("records", _PARTITIONS)
    wanted = samples(_PARTITIONS)
    made = producer(scene, **{"linger.ms": 20})
    reported: list[Message] = []
    for one in wanted:
        made.produce(
            topic,
            one.value,
            key=one.key,
            partition=one.partition,
            timestamp=one.timestamp,
            headers=list(one.headers),
            on_delivery=lambda error, message: reported.append(error or message),
        )
    equal(made.flush(PATIENCE), 0, "left in the queue")
    offsets = sorted((one.partition(), one.offset()) for one in reported)
    equal(offsets, [(p, o) for p in range(_PARTITIONS) for o in range(len(wanted) // 3)])
    found = read(scene, topic, len(wanted), _PARTITIONS)
    for partition in range(_PARTITIONS):
        equal(
            [
                (m.key(), m.value(), tuple(m.headers() or ()), m.timestamp())
                for m in found
                if m.partition() == partition
            ],
            [
                (s.key, s.value, s.headers, (confluent_kafka.TIMESTAMP_CREATE_TIME, s.timestamp))
                for s in wanted
                if s.partition == partition
            ],
        )
    return len(found)


def produce_codecs(scene: Scene) -> object:
    """All five, and the topic's own."""
    seen = {}
    for codec in CODECS:
        topic = scene.topic(f"codec-{codec}")
        values = [b"%d" % n * 100 for n in range(200)]
        write(scene, topic, values, **{"compression.type": codec, "linger.ms": 50})
        found = read(scene, topic, 200)
        equal([m.value() for m in found], values, codec)
        seen[codec] = len(found)
    topic = scene.topic("codec-topic", compression_type="zstd")
    write(scene, topic, [b"x" * 1000] * 10, **{"compression.type": "gzip", "linger.ms": 50})
    equal(len(read(scene, topic, 10)), 10)
    return seen


def produce_idempotent(scene: Scene) -> object:
    """Several batches at once in flight, in order."""
    topic = scene.topic("idempotent")
    values = [b"%d" % n for n in range(3000)]
    write(scene, topic, values, **{"enable.idempotence": True, "batch.num.messages": 50})
    found = read(scene, topic, len(values))
    equal([m.value() for m in found], values)
    return [found[0].offset(), found[-1].offset()]


def produce_acks(scene: Scene) -> object:
    """Unacknowledged, by the leader, by all."""
    seen = {}
    for acks in ("0", "1", "all"):
        topic = scene.topic(f"acks-{acks}")
        offsets = write(scene, topic, [b"a", b"b", b"c"], acks=acks, **{"linger.ms": 20})
        equal([m.value() for m in read(scene, topic, 3)], [b"a", b"b", b"c"])
        seen[acks] = offsets
    return seen


def produce_large(scene: Scene) -> object:
    """Records of nearly 1 MB."""
    topic = scene.topic("large")
    values = [bytes([n]) * 990_000 for n in range(5)]
    write(scene, topic, values)
    found = read(scene, topic, 5)
    true([m.value() for m in found] == values, "the records came back as they were")
    return [len(m.value()) for m in found]


def produce_refuse(scene: Scene) -> object:
    """Too large for the topic; a partition that isn't there."""
    topic = scene.topic("refuse", max_message_bytes=1000)
    return {
        "large": _delivery_error(scene, topic, b"x" * 5000),
        "partition": _delivery_error(scene, topic, b"x", partition=7),
        "good": write(scene, topic, [b"fits"]),
    }


def _delivery_error(scene: Scene, topic: str, value: bytes, **more: Any) -> str:
    made = producer(scene, **{"message.timeout.ms": 10_000})
    reported = produce(made, topic, [value], **more)
    error = reported[0]
    true(isinstance(error, confluent_kafka.KafkaError), f"an error, not {error}")
    return str(error.name())


def produce_auto_create(scene: Scene) -> object:
    """The first record makes the topic."""
    topic = scene.name("auto")
    write(scene, topic, [b"first"])
    found = read(scene, topic, 1)
    return [m.value().decode() for m in found]


def consume_assign(scene: Scene) -> object:
    """Both isolation levels; a partition that rests."""
    topic = scene.topic("assign", 2)
    write(scene, topic, [b"%d" % n for n in range(10)], partition=0)
    write(scene, topic, [b"%d" % n for n in range(10)], partition=1)
    for level in ("read_uncommitted", "read_committed"):
        found = read(scene, topic, 20, 2, **{"isolation.level": level})
        equal(len(found), 20, level)
    reader = consumer(scene)
    both = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0)]
    reader.assign(both)
    reader.pause([both[1]])
    first = take(reader, 6)
    equal({m.partition() for m in first}, {0}, "the partitions read")
    equal([m.offset() for m in first], [4, 5, 6, 7, 8, 9])
    reader.resume([both[1]])
    equal([m.offset() for m in take(reader, 10)], list(range(10)))
    positions = [p.offset for p in reader.position(both)]
    reader.close()
    equal(positions, [10, 10])
    return positions


def consume_seek(scene: Scene) -> object:
    """To an offset, by time, to both ends."""
    topic = scene.topic("seek")
    produced = producer(scene)
    for n in range(10):
        produced.produce(topic, b"%d" % n, partition=0, timestamp=FIRST_TIME + 1000 * n)
    equal(produced.flush(PATIENCE), 0)
    reader = consumer(scene)
    reader.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    seen = {"beginning": take(reader, 1)[0].offset()}
    reader.seek(TopicPartition(topic, 0, 7))
    seen["offset"] = take(reader, 1)[0].offset()
    (found,) = reader.offsets_for_times(
        [TopicPartition(topic, 0, FIRST_TIME + 3500)], timeout=PATIENCE
    )
    reader.seek(found)
    seen["time"] = take(reader, 1)[0].offset()
    reader.assign([TopicPartition(topic, 0, _TAIL_2)])
    seen["tail"] = take(reader, 1)[0].offset()
    reader.close()
    reader = consumer(scene, **{"enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_END)])
    equal(_first(lambda: reader.poll(0.2)).error().name(), "_PARTITION_EOF")
    write(scene, topic, [b"last"])
    seen["end"] = take(reader, 1)[0].offset()
    reader.close()
    equal(seen, {"beginning": 0, "offset": 7, "time": 4, "tail": 8, "end": 10})
    return seen


def consume_reset(scene: Scene) -> object:
    """Where to go from an offset that isn't there."""
    topic = scene.topic("reset")
    write(scene, topic, [b"0", b"1", b"2"])
    first = read(scene, topic, 1, start=100, **{"auto.offset.reset": "earliest"})
    reader = consumer(scene, **{"auto.offset.reset": "error"})
    reader.assign([TopicPartition(topic, 0, 100)])
    message = _first(lambda: reader.poll(0.2))
    reader.close()
    reader = consumer(scene, **{"auto.offset.reset": "latest", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 100)])
    end = _first(lambda: reader.poll(0.2))
    reader.close()
    seen = {
        "earliest": first[0].offset(),
        "latest": [end.error().name(), end.offset()],
        "none": message.error().name(),
    }
    equal(
        seen,
        {"earliest": 0, "latest": ["_PARTITION_EOF", 3], "none": "_AUTO_OFFSET_RESET"},
    )
    return seen


def _first(poll: Callable[[], Message | None]) -> Message:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        message = poll()
        if message is not None:
            return message
    raise AssertionError("nothing came")


def load(scene: Scene) -> object:
    """20,000 records of 100 bytes."""
    topic = scene.topic("load", 3)
    count = 20_000
    made = producer(scene, **{"linger.ms": 20, "compression.type": "lz4"})
    for n in range(count):
        made.produce(topic, b"%099d" % n, partition=n % 3)
        made.poll(0)
    equal(made.flush(PATIENCE), 0)
    found = read(scene, topic, count, 3)
    equal(sorted(int(m.value()) for m in found), list(range(count)))
    return len(found)


def offsets_list(scene: Scene) -> object:
    """By the consumer and by the admin client."""
    topic = scene.topic("offsets")
    made = producer(scene)
    for n in range(10):
        made.produce(topic, b"%d" % n, partition=0, timestamp=FIRST_TIME + 1000 * n)
    equal(made.flush(PATIENCE), 0)
    reader = consumer(scene)
    marks = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE)
    asked = [TopicPartition(topic, 0, FIRST_TIME + 3500 + late) for late in (0, 10**6)]
    by_time = [reader.offsets_for_times([one], timeout=PATIENCE)[0].offset for one in asked]
    missing = refusal(
        lambda: reader.get_watermark_offsets(TopicPartition(topic, 9), timeout=5.0), KafkaException
    )
    reader.close()
    admin = librdkafka_admin.list_offsets(scene, topic)
    equal([marks, by_time], [(0, 10), [4, -1]])
    return {"marks": marks, "time": by_time, "missing": code_of(missing), "admin": admin}


def _features() -> dict[str, Feature]:
    own: Sequence[Feature] = (
        produce_records,
        produce_codecs,
        produce_idempotent,
        produce_acks,
        produce_large,
        produce_refuse,
        produce_auto_create,
        consume_assign,
        consume_seek,
        consume_reset,
        offsets_list,
        load,
    )
    others = (librdkafka_admin, librdkafka_groups, librdkafka_transactions)
    return by_name((*own, *(one for other in others for one in other.PLAYED)))


UNABLE = {
    "cluster.versions": "librdkafka asks for them, and doesn't tell",
    "cluster.log_dirs": "no DescribeLogDirs",
    "transactions.describe": "no ListTransactions, DescribeTransactions or DescribeProducers",
}


if __name__ == "__main__":
    play(f"{confluent_kafka.libversion()[0]}", _features(), UNABLE)
