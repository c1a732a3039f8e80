"""What the peers exchange: records with every kind of null, and the interface of a peer.

A peer writes samples to chosen partitions and reads partitions back from their beginning by manual
assignment. Blocking clients do so in threads, so that an embedded cluster can run in this loop.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

TIMEOUT = 30.0
"""Seconds for a peer to write or read one batch of samples."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The last one is the newest: since Apache Kafka 2.1."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One record, with what every client can express."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 1_700_000_000_000
    """Milliseconds since the epoch."""


class Peer(Protocol):
    """A client under comparison."""

    name: str

    def takes(self, sample: Sample) -> bool:
        """Whether it can write this record at all."""
        ...

    async def write(
        self, bootstrap: str, topic: str, samples: Sequence[Sample], codec: str
    ) -> None:
        """Write the samples in order, acknowledged by all replicas."""
        ...

    async def read(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sample]:
        """Read `count` records from the beginning of the partitions."""
        ...


def samples(partitions: int) -> list[Sample]:
    """Records with nulls, empty bytes, big and incompressible values, headers of all kinds."""
    rng = random.Random(2013)
    values = [None, b"", b"v", b"abc" * 5000, rng.randbytes(3000), "grüße".encode()]
    keys = [None, b"", b"k", rng.randbytes(40)]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("one", b"1"),),
        (("empty", b""), ("same", b"1"), ("same", b"2")),
        (("null", None),),
        (("ключ", rng.randbytes(200)),),
    ]
    made = [(key, value, entries) for key in keys for value in values for entries in headers]
    return [
        Sample(index % partitions, key, value, entries, 1_700_000_000_000 + index * 7)
        for index, (key, value, entries) in enumerate(made)
    ]


def writable_by(peer: Peer, chosen: Sequence[Sample]) -> list[Sample]:
    """Leave out what a peer refuses to write."""
    return [sample for sample in chosen if peer.takes(sample)]


def by_partition(records: Sequence[Sample]) -> dict[int, list[Sample]]:
    """Sort records by partition, keeping their order: all that Kafka promises about it."""
    found: dict[int, list[Sample]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record)
    return found
