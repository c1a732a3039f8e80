"""kafka-python's transactions, and its admin client on them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kafka.errors import KafkaError

from tests.foreign.clients.kafka_python_help import (
    administering,
    common,
    consuming,
    producing,
    read,
    take,
    write,
)
from tests.foreign.scene import PATIENCE, Feature, Scene, equal, refusal, true, until
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
from tests.interop.peers.kafka_python_peer import kafka

_COMMITTED = {"isolation_level": "read_committed"}


@contextlib.contextmanager
def transactional(scene: Scene, name: str) -> Iterator[Any]:
    """A producer that has its transactional id."""
    with producing(scene, transactional_id=name) as made:
        made.init_transactions()
        yield made


def _write(made: Any, topic: str, partition: int, some: Sequence[bytes]) -> list[int]:
    sent = [made.send(topic, value, partition=partition) for value in some]
    made.flush(timeout=PATIENCE)
    return [one.get(timeout=PATIENCE).offset for one in sent]


def _end(made: Any, commit: bool) -> None:
    if commit:
        made.commit_transaction()
    else:
        made.abort_transaction()


def transactions_commit(scene: Scene) -> object:
    """Five over three partitions; a sixth, open one holds ``read_committed`` back."""
    topic = scene.topic("transactions", PARTITIONS)
    where = kafka.TopicPartition(topic, 0)
    seen: dict[str, object] = {}
    with transactional(scene, scene.name("id")) as made:
        for number, commit in enumerate(ENDS):
            made.begin_transaction()
            for partition in range(PARTITIONS):
                _write(made, topic, partition, values(number, partition))
            _end(made, commit)
        made.begin_transaction()
        _end(made, True)  # an empty one
        made.begin_transaction()
        equal(_write(made, topic, 0, [b"open"]), [END])
        for level, end in (("read_uncommitted", END + 1), ("read_committed", END)):
            wanted = {p: expected(p, level) for p in range(PARTITIONS)}
            count = sum(map(len, wanted.values()))
            with consuming(scene, isolation_level=level) as reader:
                reader.assign([kafka.TopicPartition(topic, p) for p in range(PARTITIONS)])
                reader.seek_to_beginning()
                equal(reader.end_offsets([where])[where], end, f"end for {level}")
                found = take(reader, count + (level == "read_uncommitted"))
                equal(reader.poll(timeout_ms=300), {}, f"more for {level}")
            closed = [m for m in found if m.value != b"open"]
            for p in range(PARTITIONS):
                equal([m.value for m in closed if m.partition == p], wanted[p], f"{level} {p}")
            seen[level] = [m.offset for m in closed if m.partition == 0]
        _end(made, True)
    (last,) = read(scene, topic, 1, start=END, **_COMMITTED)
    equal([last.value, last.offset], [b"open", END])
    return seen


def transactions_offsets(scene: Scene) -> object:
    """An abort leaves the committed offset; a commit moves it; who left the group can't."""
    source, target, group = scene.topic("source"), scene.topic("target"), scene.name("group")
    write(scene, source, [b"%d" % n for n in range(10)])
    where = kafka.TopicPartition(source, 0)
    settings = {"group_id": group, "auto_offset_reset": "earliest", **_COMMITTED}
    with transactional(scene, scene.name("id")) as made:
        with consuming(scene, source, **settings) as reader:

            def copy(commit: bool) -> int | None:
                made.begin_transaction()
                _write(made, target, 0, [m.value for m in take(reader, 4)])
                ends = {where: kafka.OffsetAndMetadata(reader.position(where), "", -1)}
                made.send_offsets_to_transaction(ends, reader.group_metadata())
                _end(made, commit)
                found: int | None = reader.committed(where)
                return found

            seen: dict[str, object] = {"aborted": copy(False)}
            reader.seek(where, 0)
            seen["committed"] = [copy(True), copy(True)]
            stale = reader.group_metadata()
        made.begin_transaction()
        ends = {where: kafka.OffsetAndMetadata(10, "", -1)}
        error = refusal(lambda: made.send_offsets_to_transaction(ends, stale), KafkaError)
        _end(made, False)
        seen["stale"] = type(error).__name__
    found = read(scene, target, 8, **_COMMITTED)
    equal([int(m.value) for m in found], list(range(8)), "values")
    equal([seen["aborted"], seen["committed"]], [None, [4, 8]])
    return seen


def transactions_fence(scene: Scene) -> object:
    """Its open transaction is aborted; all that it does is refused."""
    topic, name = scene.topic("fence"), scene.name("id")
    with producing(scene, transactional_id=name) as zombie:
        zombie.init_transactions()
        zombie.begin_transaction()
        _write(zombie, topic, 0, [b"zombie"])
        with transactional(scene, name) as second:
            late = refusal(lambda: _write(zombie, topic, 0, [b"late"]), KafkaError)
            error = refusal(zombie.commit_transaction, KafkaError)
            second.begin_transaction()
            _write(second, topic, 0, [b"second"])
            _end(second, True)
    equal([m.value for m in read(scene, topic, 1, **_COMMITTED)], [b"second"])
    every = read(scene, topic, 2, isolation_level="read_uncommitted")
    equal([m.value for m in every], [b"zombie", b"second"])
    return {
        "record": type(late).__name__,
        "commit": type(error).__name__,
        "at": [m.offset for m in every],
    }


def _copy_some(scene: Scene, source: str, target: str, group: str, limit: int) -> bool:
    """One copier: so many transactions, then it leaves one open. Returns whether all is copied."""
    share = COPIED // COPIED_PARTITIONS
    partitions = [kafka.TopicPartition(source, p) for p in range(COPIED_PARTITIONS)]
    settings = {"group_id": group, "auto_offset_reset": "earliest", **_COMMITTED}
    made = kafka.KafkaProducer(**common(scene), transactional_id=f"{group}-id")
    made.init_transactions()
    with consuming(scene, source, **settings) as reader:
        for number in range(limit):
            done = [reader.committed(one) or 0 for one in partitions]
            if done == [share] * COPIED_PARTITIONS:
                made.close(timeout=PATIENCE)
                return True
            made.begin_transaction()
            some = take(reader, min(BATCH, COPIED - sum(done)))
            for m in some:
                made.send(target, m.value, partition=m.partition)
            ends = {
                kafka.TopicPartition(source, m.partition): kafka.OffsetAndMetadata(
                    m.offset + 1, "", -1
                )
                for m in some
            }
            made.send_offsets_to_transaction(ends, reader.group_metadata())
            _end(made, not gives_up(number))
            if gives_up(number):
                for one, offset in zip(partitions, done, strict=True):
                    reader.seek(one, offset)
        made.begin_transaction()
        for p in range(COPIED_PARTITIONS):
            _write(made, target, p, [b"lost"])
    made.close(timeout=0)
    return False


def transactions_copy(scene: Scene) -> object:
    """Copiers one after the other, each with the transactional id of the one before it."""
    source = scene.topic("source", COPIED_PARTITIONS)
    target = scene.topic("target", COPIED_PARTITIONS)
    for p in range(COPIED_PARTITIONS):
        write(scene, source, [b"%d" % n for n in range(p, COPIED, COPIED_PARTITIONS)], partition=p)
    group, copiers = scene.name("group"), 1
    deadline = time.monotonic() + 2 * PATIENCE
    while not _copy_some(scene, source, target, group, limit=9):
        true(time.monotonic() < deadline, f"{copiers} copiers didn't copy all")
        copiers += 1
    found = read(scene, target, COPIED, COPIED_PARTITIONS, **_COMMITTED)
    equal(sorted(int(m.value) for m in found), list(range(COPIED)), "values")
    true(copiers > 2, "several copiers")
    return copiers


def transactions_describe(scene: Scene) -> object:
    """An open one and a complete one; the unknown one; producers of the partition."""
    topic, name, done = scene.topic("described", 2), scene.name("open"), scene.name("done")
    partitions = [kafka.TopicPartition(topic, p) for p in range(2)]
    seen: dict[str, object] = {}
    with transactional(scene, done) as other, administering(scene) as client:
        other.begin_transaction()
        _write(other, topic, 0, [b"other"])
        _end(other, True)
        with transactional(scene, name) as made:
            made.begin_transaction()
            for p in range(2):
                _write(made, topic, p, [b"open"])
            described = client.describe_transactions([name, done])
            one = described[name]
            equal(one.topic_partitions, set(partitions))
            true(one.transaction_start_time_ms > 0, "it has begun")
            seen["open"] = [one.state.value, one.transaction_timeout_ms]
            seen["done"] = [described[done].state.value, len(described[done].topic_partitions)]
            listed = {
                t.transactional_id: t for of in client.list_transactions().values() for t in of
            }
            equal([listed[name].producer_id, listed[name].state], [one.producer_id, one.state])
            for filters in (
                {"state_filters": ["Ongoing"]},
                {"producer_id_filters": [one.producer_id]},
                {"transactional_id_pattern": f"{name[:-1]}."},
            ):
                some = client.list_transactions(**filters).values()
                ids = {t.transactional_id for of in some for t in of}
                true(name in ids and done not in ids, f"{filters}: {ids}")
            long = client.list_transactions(duration_filter_ms=10**6)
            seen["long"] = [t for of in long.values() for t in of if t.transactional_id == name]
            active = client.describe_producers(partitions)[partitions[0]].active_producers
            states = {p.producer_id: p for p in active}
            seen["producers"] = len(states)
            mine = states[one.producer_id]
            equal(mine.producer_epoch, one.producer_epoch)
            seen["mine"] = [mine.current_transaction_start_offset, mine.last_sequence]
            equal([h for h in client.find_hanging_transactions() if topic in str(h)], [])
            _end(made, False)
        unknown = refusal(lambda: client.describe_transactions(["foreign-missing"]), KafkaError)
        seen["unknown"] = type(unknown).__name__

        def ended() -> bool:  # it is answered before its markers are written
            state = client.describe_transactions([name])[name].state.value
            true(state in ("PrepareAbort", "CompleteAbort"), state)
            return bool(state == "CompleteAbort")

        until(ended, "CompleteAbort")
    equal([seen["open"], seen["mine"]], [["Ongoing", 60_000], [2, 0]])
    return seen


PLAYED: tuple[Feature, ...] = (
    transactions_commit,
    transactions_offsets,
    transactions_fence,
    transactions_copy,
    transactions_describe,
)
