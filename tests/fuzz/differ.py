"""Reads mutants with both builds and compares all that can be seen; one process of the fuzz test.

Run as ``python -m tests.fuzz.differ SEED COUNT FILE``. The mutant at work stands in FILE, so that
whoever started this can tell which one ended the process. Any difference, and any exception that is
not CorruptRecord (or DecompressionFailed, which is one), is printed with the mutant, and ends it.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from kclient.errors import CorruptRecord, DecompressionFailed
from kclient.record import legacy, reader
from kclient.record.implementation import Implementation, load
from kclient.types import TimestampType
from tests.fuzz.mutants import INFLATED_CAP, VARINTS, mutant, seeds

ADDRESS_SPACE = 3 << 30
"""Bytes that the process may ask for: an allocation by a lying size must fail here."""

ERRORS = (CorruptRecord.__name__, DecompressionFailed.__name__)
DOORS = 2
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
    reader.codec = legacy.codec = build
    store = build.ColumnStore()
    try:
        for batch in reader.read_batches(data):
            again = type(batch)(batch._view)
            for look in (batch.check_crc, batch.needs_thread, batch.control_type):
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
            if not isinstance(again, legacy.LegacyBatch):
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
    """What the inner doors say, which batches would keep from some arguments."""
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


def main(seed: int, count: int, scratch: Path) -> None:
    """Compare ``count`` mutants; a summary of what they led to is the last line."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    builds = (load("pure"), load("cython"))
    source = random.Random(seed)
    pool = seeds()
    outcomes: Counter[str] = Counter()
    with scratch.open("wb", buffering=0) as file:
        for number in range(count):
            data = mutant(source, pool)
            if source.random() < 0.1:
                data = source.choice(VARINTS) + data[source.choice((0, 61)) :]
            file.seek(0)
            file.truncate()
            file.write(data)
            inner = source.getrandbits(64)
            try:
                pure, compiled = (
                    [*seen(build, data), *seen_inside(build, random.Random(inner), data)]
                    for build in builds
                )
            except BaseException as error:
                sys.stdout.write(f"seed {seed} number {number}: {error!r}\n{data.hex()}\n")
                raise
            if pure != compiled:
                parts = [(p, c) for p, c in zip(pure, compiled, strict=False) if p != c]
                sys.stdout.write(
                    f"seed {seed} number {number} differs: {parts[:1]}\n{data.hex()}\n"
                )
                sys.exit(1)
            refused = any(type(part) is tuple and part[0] in ERRORS for part in pure[:-DOORS])
            outcomes["refused" if refused else "sound"] += 1
    sys.stdout.write(f"{outcomes['sound']} {outcomes['refused']}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
