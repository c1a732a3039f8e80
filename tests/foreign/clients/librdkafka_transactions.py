"""librdkafka's transactions through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.foreign.clients.librdkafka_help import code_of, consumer, producer, read, take, write
from tests.foreign.scene import PATIENCE, Feature, Scene, equal, refusal, true
from tests.foreign.transactions import (
    BATCH,
    COPIED,
    COPIED_PARTITIONS,
    END,
    ENDS,
    PARTITIONS,
    expected,
    gives_up,
    values,
)


def transactional(scene: Scene, name: str) -> Producer:
    """A producer that has its transactional id."""
    made = producer(scene, **{"transactional.id": name})
    made.init_transactions(PATIENCE)
    return made


def _write(made: Producer, topic: str, partition: int, some: Sequence[bytes]) -> None:
    for value in some:
        made.produce(topic, value, partition=partition)


def _end(made: Producer, commit: bool) -> None:
    if commit:
        made.commit_transaction(PATIENCE)
    else:
        made.abort_transaction(PATIENCE)


def _to_the_end(scene: Scene, topic: str, level: str) -> list[list[Message]]:
    """The records of each partition up to the end that a reader of this level sees."""
    found: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    reader = consumer(scene, **{"isolation.level": level, "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE
    while len(ended) < PARTITIONS:
        true(time.monotonic() < deadline, f"only {ended} came to their end")
        for message in reader.consume(100, timeout=0.2):
            error = message.error()
            if error is None:
                found[message.partition()].append(message)
            else:
                equal(error.code(), KafkaError._PARTITION_EOF, "error")
                ended.add(message.partition())
    reader.close()
    return found


def transactions_commit(scene: Scene) -> object:
    """Five over three partitions; a sixth, open one holds ``read_committed`` back."""
    topic = scene.topic("transactions", PARTITIONS)
    made = transactional(scene, scene.name("id"))
    for number, commit in enumerate(ENDS):
        made.begin_transaction()
        for partition in range(PARTITIONS):
            _write(made, topic, partition, values(number, partition))
        if not commit:
            made.flush(PATIENCE)  # else they are purged and never sent
        _end(made, commit)
    made.begin_transaction()
    _end(made, True)  # an empty one
    made.begin_transaction()
    _write(made, topic, 0, [b"open"])
    equal(made.flush(PATIENCE), 0)
    seen: dict[str, object] = {}
    for level, more in (("read_uncommitted", [b"open"]), ("read_committed", [])):
        found = _to_the_end(scene, topic, level)
        for partition in range(PARTITIONS):
            wanted = expected(partition, level) + (more if partition == 0 else [])
            equal([m.value() for m in found[partition]], wanted, f"{level} {partition}")
        seen[level] = [m.offset() for m in found[0]]
    _end(made, True)
    (last,) = read(scene, topic, 1, start=END, **{"isolation.level": "read_committed"})
    equal([last.value(), last.offset()], [b"open", END])
    return seen


def _committed(reader: Consumer, topic: str, partitions: int = 1) -> list[int]:
    """Offsets that the group has committed; -1001 where it has none."""
    asked = [TopicPartition(topic, p) for p in range(partitions)]
    return [one.offset for one in reader.committed(asked, timeout=PATIENCE)]


def transactions_offsets(scene: Scene) -> object:
    """An abort leaves the committed offset; a commit moves it; who left the group can't."""
    source, target = scene.topic("source"), scene.topic("target")
    write(scene, source, [b"%d" % n for n in range(10)])
    reader = consumer(scene, **{"group.id": scene.name("group"), "auto.offset.reset": "earliest"})
    reader.subscribe([source])
    made = transactional(scene, scene.name("id"))

    def copy(commit: bool) -> list[int]:
        made.begin_transaction()
        for message in take(reader, 4):
            made.produce(target, message.value(), partition=0)
        positions = reader.position(reader.assignment())
        metadata = reader.consumer_group_metadata()
        made.send_offsets_to_transaction(positions, metadata, PATIENCE)
        made.flush(PATIENCE)
        _end(made, commit)
        return _committed(reader, source)

    seen: dict[str, object] = {"aborted": copy(False)}
    reader.seek(TopicPartition(source, 0, 0))
    seen["committed"] = [copy(True), copy(True)]
    stale = reader.consumer_group_metadata()
    reader.close()
    made.begin_transaction()
    error = refusal(
        lambda: made.send_offsets_to_transaction([TopicPartition(source, 0, 10)], stale, PATIENCE),
        KafkaException,
    )
    true(error.args[0].txn_requires_abort(), f"an abortable error: {error}")
    _end(made, False)
    seen["stale"] = code_of(error)
    found = read(scene, target, 8, **{"isolation.level": "read_committed"})
    equal([int(m.value()) for m in found], list(range(8)), "values")
    equal([seen["aborted"], seen["committed"]], [[-1001], [[4], [8]]])
    return seen


def transactions_fence(scene: Scene) -> object:
    """Its open transaction is aborted; all that it does is refused."""
    topic, name = scene.topic("fence"), scene.name("id")
    zombie = transactional(scene, name)
    zombie.begin_transaction()
    _write(zombie, topic, 0, [b"zombie"])
    equal(zombie.flush(PATIENCE), 0)
    second = transactional(scene, name)
    _write(zombie, topic, 0, [b"late"])
    late = refusal(lambda: zombie.flush(PATIENCE), KafkaException)
    error = refusal(lambda: zombie.commit_transaction(PATIENCE), KafkaException)
    true(error.args[0].fatal(), f"a fatal error: {error}")
    second.begin_transaction()
    _write(second, topic, 0, [b"second"])
    _end(second, True)
    found = read(scene, topic, 1, **{"isolation.level": "read_committed"})
    equal([m.value() for m in found], [b"second"])
    every = read(scene, topic, 2, **{"isolation.level": "read_uncommitted"})
    equal([m.value() for m in every], [b"zombie", b"second"])
    return {
        "record": code_of(late),
        "commit": code_of(error),
        "at": [m.offset() for m in every],
    }


class _Copier:
    """A member of the group with a producer; steps of several take turns in one thread."""

    def __init__(self, scene: Scene, source: str, target: str, group: str, name: str) -> None:
        self._source, self._target = source, target
        self._moved = False
        self._number = 0
        self.reader = consumer(
            scene,
            **{
                "group.id": group,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "isolation.level": "read_committed",
            },
        )
        self.reader.subscribe([source], on_assign=self._move, on_revoke=self._move)
        self._made = transactional(scene, name)

    def _move(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._moved = True

    def step(self) -> None:
        """One transaction, unless there is nothing to copy."""
        self._moved = False
        some = [one for one in self.reader.consume(BATCH, timeout=0.2) if one.error() is None]
        if not some:
            return
        self._number += 1
        self.begin([(one.partition(), one.value()) for one in some])
        if self._moved or gives_up(self._number):
            return self._give_up()
        ends = {one.partition(): one.offset() + 1 for one in some}
        offsets = [TopicPartition(self._source, p, end) for p, end in ends.items()]
        try:
            metadata = self.reader.consumer_group_metadata()
            self._made.send_offsets_to_transaction(offsets, metadata, PATIENCE)
            self._made.commit_transaction(PATIENCE)
        except KafkaException as error:
            true(error.args[0].txn_requires_abort(), f"an abortable error: {error}")
            self._give_up()

    def begin(self, some: Sequence[tuple[int, bytes]]) -> None:
        """Open a transaction with these values in their partitions."""
        self._made.begin_transaction()
        for partition, value in some:
            self._made.produce(self._target, value, partition=partition)
        equal(self._made.flush(PATIENCE), 0)

    def _give_up(self) -> None:
        self._made.abort_transaction(PATIENCE)
        for one in self.reader.committed(self.reader.assignment(), timeout=PATIENCE):
            one.offset = max(one.offset, 0)
            self.reader.seek(one)


def transactions_copy(scene: Scene) -> object:
    """Two copiers at a time; one is replaced in the middle of a transaction."""
    source = scene.topic("source", COPIED_PARTITIONS)
    target = scene.topic("target", COPIED_PARTITIONS)
    for p in range(COPIED_PARTITIONS):
        write(scene, source, [b"%d" % n for n in range(p, COPIED, COPIED_PARTITIONS)], partition=p)
    group, one, two = scene.name("group"), scene.name("one"), scene.name("two")
    place = (scene, source, target, group)
    copiers = [_Copier(*place, one), _Copier(*place, two)]
    share = COPIED // COPIED_PARTITIONS
    deadline = time.monotonic() + 2 * PATIENCE
    left = False
    while (done := _committed(copiers[0].reader, source, COPIED_PARTITIONS)) != (
        [share] * COPIED_PARTITIONS
    ):
        true(time.monotonic() < deadline, f"only {done} copied")
        for copier in copiers:
            copier.step()
        if not left and sum(max(offset, 0) for offset in done) >= COPIED // 3:
            left = True
            gone = copiers.pop()
            gone.begin([(p, b"lost") for p in range(COPIED_PARTITIONS)])
            gone.reader.close()
            copiers.append(_Copier(*place, two))
    for copier in copiers:
        copier.reader.close()
    found = read(scene, target, COPIED, COPIED_PARTITIONS, **{"isolation.level": "read_committed"})
    equal(sorted(int(m.value()) for m in found), list(range(COPIED)), "values")
    true(left, "one was replaced")
    return len(found)


PLAYED: tuple[Feature, ...] = (
    transactions_commit,
    transactions_offsets,
    transactions_fence,
    transactions_copy,
)
