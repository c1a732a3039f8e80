"""kafka-python: records out and in, and the play of all its features."""

from __future__ import annotations

import time

from kafka.errors import KafkaError, MessageSizeTooLargeError

from tests.foreign.clients import (
    kafka_python_admin,
    kafka_python_groups,
    kafka_python_transactions,
)
from tests.foreign.clients.kafka_python_help import (
    administering,
    consuming,
    producing,
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
from tests.interop.peers.kafka_python_peer import KafkaPythonPeer, kafka
from tests.interop.peers.sample import CODECS, samples, writable_by

_PARTITIONS = 3


def produce_records(scene: Scene) -> object:
    """All kinds that it can write."""
    topic = scene.topic("records", _PARTITIONS)
    wanted = writable_by(KafkaPythonPeer(), samples(_PARTITIONS))
    with producing(scene, linger_ms=20) as made:
        sent = [
            made.send(
                topic,
                one.value,
                key=one.key,
                partition=one.partition,
                timestamp_ms=one.timestamp,
                headers=list(one.headers),
            )
            for one in wanted
        ]
        reported = [one.get(timeout=PATIENCE) for one in sent]
    found = read(scene, topic, len(wanted), _PARTITIONS)
    for partition in range(_PARTITIONS):
        mine = [one for one in wanted if one.partition == partition]
        equal(
            [one.offset for one in reported if one.partition == partition], list(range(len(mine)))
        )
        equal(
            [
                (m.key, m.value, tuple(map(tuple, m.headers)), m.timestamp, m.timestamp_type)
                for m in found
                if m.partition == partition
            ],
            [(s.key, s.value, s.headers, s.timestamp, 0) for s in mine],
        )
    return len(found)


def produce_codecs(scene: Scene) -> object:
    """All five."""
    seen = {}
    for codec in CODECS:
        topic = scene.topic(f"codec-{codec}")
        values = [b"%d" % n * 100 for n in range(200)]
        kind = None if codec == "none" else codec
        write(scene, topic, values, compression_type=kind, linger_ms=50)
        equal([m.value for m in read(scene, topic, 200)], values, codec)
        seen[codec] = len(values)
    return seen


def produce_idempotent(scene: Scene) -> object:
    """Small batches, several in flight."""
    topic = scene.topic("idempotent")
    values = [b"%d" % n for n in range(1000)]
    offsets = write(scene, topic, values, batch_size=500)
    equal(offsets, list(range(1000)))
    equal([m.value for m in read(scene, topic, 1000)], values)
    return len(offsets)


def produce_acks(scene: Scene) -> object:
    """Unacknowledged, by the leader, by all."""
    for acks in (0, 1, "all"):
        topic = scene.topic(f"acks-{acks}")
        plain = {} if acks == "all" else {"enable_idempotence": False}
        offsets = write(scene, topic, [b"a", b"b", b"c"], acks=acks, **plain)
        if acks != 0:  # without responses it makes offsets up
            equal(offsets, [0, 1, 2])
        equal([m.value for m in read(scene, topic, 3)], [b"a", b"b", b"c"])
    return "0, 1, all"


def produce_large(scene: Scene) -> object:
    """Records of nearly 1 MB."""
    topic = scene.topic("large")
    values = [bytes([n]) * 1_000_000 for n in range(5)]
    write(scene, topic, values)
    found = read(scene, topic, 5)
    true([m.value for m in found] == values, "the records came back as they were")
    return [len(m.value) for m in found]


def produce_refuse(scene: Scene) -> object:
    """Too large for the topic; a partition that isn't there."""
    topic = scene.topic("refuse", max_message_bytes=1000)
    large = refusal(lambda: write(scene, topic, [b"x" * 5000]), MessageSizeTooLargeError)
    missing = refusal(lambda: write(scene, topic, [b"x"], partition=7), KafkaError, ValueError)
    good = write(scene, topic, [b"fits"])
    return {"large": type(large).__name__, "partition": type(missing).__name__, "good": good}


def produce_auto_create(scene: Scene) -> object:
    """The first record makes the topic."""
    topic = scene.name("auto")
    write(scene, topic, [b"first"])
    return [m.value.decode() for m in read(scene, topic, 1)]


def consume_assign(scene: Scene) -> object:
    """Both isolation levels; a partition that rests."""
    topic = scene.topic("assign", 2)
    for partition in (0, 1):
        write(scene, topic, [b"%d" % n for n in range(10)], partition=partition)
    for level in ("read_uncommitted", "read_committed"):
        equal(len(read(scene, topic, 20, 2, isolation_level=level)), 20, level)
    with consuming(scene) as reader:
        zero, one = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 1)
        reader.assign([zero, one])
        reader.seek(zero, 4)
        reader.seek(one, 0)
        reader.pause(one)
        equal([(m.partition, m.offset) for m in take(reader, 6)], [(0, n) for n in range(4, 10)])
        reader.resume(one)
        equal([(m.partition, m.offset) for m in take(reader, 10)], [(1, n) for n in range(10)])
        seen = [reader.position(zero), reader.position(one), reader.highwater(one)]
    equal(seen, [10, 10, 10])
    return seen


def consume_seek(scene: Scene) -> object:
    """To an offset, by time, to both ends."""
    topic = scene.topic("seek")
    write(scene, topic, [b"%d" % n for n in range(10)], first_time=FIRST_TIME)
    where = kafka.TopicPartition(topic, 0)
    seen = {}
    with consuming(scene) as reader:
        reader.assign([where])
        reader.seek_to_beginning(where)
        seen["beginning"] = take(reader, 1)[0].offset
        reader.seek(where, 7)
        seen["offset"] = take(reader, 1)[0].offset
        reader.seek(where, reader.offsets_for_times({where: FIRST_TIME + 3500})[where].offset)
        seen["time"] = take(reader, 1)[0].offset
        reader.seek_to_end(where)
        seen["end"] = reader.position(where)
        write(scene, topic, [b"last"])
        seen["next"] = take(reader, 1)[0].offset
    equal(seen, {"beginning": 0, "offset": 7, "time": 4, "end": 10, "next": 10})
    return seen


def consume_reset(scene: Scene) -> object:
    """Where to go from an offset that isn't there."""
    topic = scene.topic("reset")
    write(scene, topic, [b"0", b"1", b"2"])
    where = kafka.TopicPartition(topic, 0)
    first = read(scene, topic, 1, start=100, auto_offset_reset="earliest")
    with consuming(scene, auto_offset_reset="none") as reader:
        reader.assign([where])
        reader.seek(where, 100)
        none = refusal(lambda: take(reader, 1), KafkaError)
    with consuming(scene, auto_offset_reset="latest") as reader:
        reader.assign([where])
        reader.seek(where, 100)
        deadline = time.monotonic() + PATIENCE
        while reader.position(where) == 100:
            reader.poll(timeout_ms=100)
            true(time.monotonic() < deadline, "the position moved")
        latest = reader.position(where)
    equal([first[0].offset, latest], [0, 3])
    return {"earliest": first[0].offset, "latest": latest, "none": type(none).__name__}


def offsets_list(scene: Scene) -> object:
    """By the consumer and by the admin client."""
    topic = scene.topic("offsets")
    write(scene, topic, [b"%d" % n for n in range(10)], first_time=FIRST_TIME)
    where = kafka.TopicPartition(topic, 0)
    with consuming(scene) as reader:
        seen = {
            "beginning": reader.beginning_offsets([where])[where],
            "end": reader.end_offsets([where])[where],
            "time": list(reader.offsets_for_times({where: FIRST_TIME + 3500})[where]),
            "late": reader.offsets_for_times({where: FIRST_TIME + 10**6})[where],
        }
    equal([seen["beginning"], seen["end"], seen["time"][0], seen["late"]], [0, 10, 4, None])
    with administering(scene) as client:
        for name in ("EARLIEST", "LATEST", "MAX_TIMESTAMP", "EARLIEST_LOCAL", "LATEST_TIERED"):
            spec = getattr(kafka.admin.OffsetSpec, name)
            try:
                seen[name] = list(client.list_partition_offsets({where: spec})[where])
            except KafkaError as error:
                seen[name] = type(error).__name__
        other = {kafka.TopicPartition(topic, 9): kafka.admin.OffsetSpec.LATEST}
        seen["missing"] = type(
            refusal(lambda: client.list_partition_offsets(other), KafkaError)
        ).__name__
    equal([seen["EARLIEST"][0], seen["LATEST"][0], seen["MAX_TIMESTAMP"][0]], [0, 10, 9])
    return seen


def load(scene: Scene) -> object:
    """20,000 records of 100 bytes."""
    topic, count = scene.topic("load", 3), 20_000
    with producing(scene, linger_ms=20, compression_type="lz4") as made:
        for n in range(count):
            made.send(topic, b"%099d" % n, partition=n % 3)
        made.flush(timeout=PATIENCE)
    found = read(scene, topic, count, 3)
    equal(sorted(int(m.value) for m in found), list(range(count)))
    return len(found)


_OWN: tuple[Feature, ...] = (
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

if __name__ == "__main__":
    others = (kafka_python_admin, kafka_python_groups, kafka_python_transactions)
    played = by_name((*_OWN, *(one for other in others for one in other.PLAYED)))
    play(kafka.__version__, played, {})
