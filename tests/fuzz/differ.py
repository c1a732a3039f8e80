"""Record batches: both builds read each mutant, and all that can be seen must be the same.

Any difference, and any exception that is not CorruptRecord (or DecompressionFailed, which is one),
is a failure. The codec's inner functions are called as well, with arguments that batches never
pass to them.
"""

from __future__ import annotations

import random
from typing import Any

from kclient.errors import CorruptRecord, DecompressionFailed
from kclient.record import message_set, record_batch
from kclient.record.implementation import Implementation, load
from kclient.types import TimestampType
from tests.fuzz.mutants import INFLATED_CAP, mutant, seeds
from tests.fuzz.targets import Broken, Mutant, Verdict

ERRORS = (CorruptRecord.__name__, DecompressionFailed.__name__)
ENTRY_POINTS = 2
"""How many things ``seen_inside`` finds."""

BATCH_FIELDS = (
    "base_offset",
    "last_offset",
    "next_offset",
    "partition_leader_epoch",
    "magic",
    "codec",
    "timestamp_type",
    "is_transactional",
    "is_control",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
    "base_timestamp",
    "max_timestamp",
    "size_bytes",
    "crc",
)


def said(error: CorruptRecord) -> tuple[Any, ...]:
    return (type(error).__name__, str(error), error.offset, error.topic_partition)


def row(record: Any) -> tuple[Any, ...]:
    return (
        *(record.topic, record.partition, record.offset, record.timestamp, record.key),
        *(record.value, record.headers, record.timestamp_type, record.leader_epoch),
    )


def columns(store: Any) -> tuple[Any, ...]:
    rows = store.rows
    sides = [
        (side.ends[: rows + 1], side.data[: side.ends[rows]], side.present[:rows])
        for side in (store.keys, store.values)
    ]
    fixed = (store.offsets[:rows], store.timestamps[:rows], store.header_ends[: rows + 1])
    return (
        rows,
        *fixed,
        sides,
        store.header_names,
        store.header_values,
        store.size_bytes,
        store.key_nulls,
        store.value_nulls,
        store.last_offset,
    )


def seen(build: Implementation, data: bytes) -> list[Any]:
    """All that can be seen of ``data`` through one build."""
    found: list[Any] = []
    record_batch.codec = message_set.codec = build
    store = build.ColumnStore()
    try:
        for batch in message_set.read_batches(data):
            again = type(batch)(batch._view)
            for look in (batch.check_crc, batch.needs_thread, batch.control_types):
                try:
                    found.append(look())
                except CorruptRecord as error:
                    found.append(said(error))
            try:
                batch.inflate(INFLATED_CAP)
                found += [getattr(batch, name) for name in BATCH_FIELDS]
                found += map(
                    row, batch.records("t", 1, start_offset=batch.base_offset + 1, limit=4)
                )
                found += map(row, batch.records("t", 1))
                found.append(batch.exhausted)
            except CorruptRecord as error:
                found.append(said(error))
            if not isinstance(again, message_set.LegacyBatch):
                try:
                    again.inflate(INFLATED_CAP)
                    again.fill(store, limit=3)
                    again.fill(store, start_offset=again.base_offset + 2)
                except CorruptRecord as error:
                    found.append(said(error))
    except CorruptRecord as error:
        found.append(said(error))
    found.append(columns(store))
    return found


def seen_inside(build: Implementation, source: random.Random, data: bytes) -> list[Any]:
    """The results of inner functions, also for arguments that batches never pass to them."""
    found: list[Any] = []
    edges = (0, 1, 5, -1, 2**31 - 1, 2**62, 2**63 - 1 - 2**31)
    origin = build.Origin("t", 0, TimestampType.CREATE_TIME, None)
    pos = source.randrange(len(data) + 1)
    left = source.choice((1, 2, 3, 10**6))
    stamps = (source.choice((0, -(2**63), 2**63 - 1)), source.choice((None, -1, 2**63 - 1)))
    last_delta, start = source.choice(edges[:5]), source.choice(edges)
    arguments = (pos, left, source.choice((0, 2**62)), last_delta, *stamps)
    try:
        records, *cursor = build.decode_records(data, *arguments, origin, start, 50)
        found.append([*map(row, records), *cursor])
    except CorruptRecord as error:
        found.append(said(error))
    try:
        found.append(build.decode_headers(data[pos:]))
    except CorruptRecord as error:
        found.append(said(error))
    return found


class Batches:
    """The target; see the docstring of the file."""

    traced = False

    def __init__(self) -> None:
        self._pool = seeds()
        self._builds = (load("pure"), load("cython"))

    def mutant(self, source: random.Random) -> Mutant:
        """Of batches that brokers stored, and of our own."""
        made = mutant(source, self._pool)
        return Mutant(made.operator, made.repaired, made.data, "batches", source.getrandbits(64))

    def judge(self, mutant: Mutant) -> Verdict:
        """Read it twice."""
        data = mutant.data
        pure, compiled = (
            [*seen(build, data), *seen_inside(build, random.Random(mutant.extra), data)]
            for build in self._builds
        )
        if pure != compiled:
            parts = [(p, c) for p, c in zip(pure, compiled, strict=False) if p != c]
            raise Broken(f"the builds differ: {parts[:1]}")
        said = [
            part[0] for part in pure[:-ENTRY_POINTS] if type(part) is tuple and part[0] in ERRORS
        ]
        # Before the columns, which come last, there is something if a batch could be opened.
        reached = len(pure) > ENTRY_POINTS + 1 + len(said)
        return Verdict(said[0] if said else "sound", reached)


def make() -> Batches:
    """The target."""
    return Batches()
