"""Records labelled with their identity and destination, and the book of their fates.

A value holds its number, topic, partition, producer and a checksum, so that a misplaced or damaged
record is detected from its value, without trust in any client. The book keeps a few bytes per
record: there may be millions. ``tests.history`` judges more, such as order, and needs more memory
for it. Nothing here knows the proxy.
"""

from __future__ import annotations

import enum
import struct
import zlib
from array import array
from collections import Counter
from typing import Any

from kclient.errors import KafkaError

_LABEL = struct.Struct(">IHHB")
_CHECKSUM = struct.Struct(">I")
_SHOWN = 5
_FILLERS = [bytes([number]) * (number % 48) for number in range(256)]


class Fate(enum.IntEnum):
    """The outcome of a record that its sender saw."""

    PENDING = 0
    DELIVERED = 1
    IN_DOUBT = 2
    NOT_WRITTEN = 3


class Book:
    """All records of a run.

    Args:
        topics: Their names; records know them by their place here.
        records: How many there will be at most.

    Attributes:
        problems: Violations: how often each kind occurred.
        examples: Descriptions of the first few of each kind.
    """

    def __init__(self, topics: list[str], records: int) -> None:
        self.topics = topics
        self.problems: Counter[str] = Counter()
        self.examples: list[str] = []
        self._numbers = {name: number for number, name in enumerate(topics)}
        self._made = 0
        self._fates = bytearray(records)
        self._found = bytearray(records)
        self._offsets = array("q", bytes(8 * records))

    def make(self, topic: int, partition: int, producer: int) -> tuple[int, bytes]:
        """The next record: its number and value."""
        number = self._made
        self._made += 1
        filler = _FILLERS[number * 7 & 255]
        body = _LABEL.pack(number, topic, partition, producer) + filler
        return number, body + _CHECKSUM.pack(zlib.crc32(body))

    def note(self, number: int, delivery: Any) -> None:
        """A delivery is done: note its outcome."""
        if self._fates[number]:
            self._problem("settled twice", f"record {number}")
        error = delivery.exception()
        if error is None:
            self._fates[number] = Fate.DELIVERED
            self._offsets[number] = delivery.result().offset
        else:
            self.failed(number, error)

    def failed(self, number: int, error: KafkaError) -> None:
        """A record failed, or was never taken."""
        if error.maybe_written is None:
            self._problem("no word on whether it is written", f"record {number}: {error!r}")
        self._fates[number] = Fate.NOT_WRITTEN if error.maybe_written is False else Fate.IN_DOUBT

    def read(self, record: Any) -> None:
        """A record is in the log, as a consumer gave it."""
        value, where = record.value, f"{record.topic}-{record.partition}@{record.offset}"
        if zlib.crc32(value[:-4]) != _CHECKSUM.unpack(value[-4:])[0]:
            self._problem("corrupt", f"{value!r} at {where}")
            return
        number, topic, partition, producer = _LABEL.unpack_from(value)
        what = f"record {number} of producer {producer} for {self.topics[topic]}-{partition}"
        if (topic, partition) != (self._numbers.get(record.topic), record.partition):
            self._problem("misrouted", f"{what} at {where}")
        if self._found[number]:
            self._problem("doubled", f"{what}, again at {where}")
        self._found[number] = 1
        fate = self._fates[number]
        if fate == Fate.NOT_WRITTEN:
            self._problem("found, though reported as not written", f"{what} at {where}")
        elif fate == Fate.DELIVERED and self._offsets[number] not in (record.offset, -1):
            self._problem("at another offset", f"{what} at {where}, not {self._offsets[number]}")

    def close(self) -> Counter[Fate]:
        """All was read: find missing records; return how many records had which fate."""
        fates = Counter({fate: self._fates[: self._made].count(fate) for fate in Fate})
        if fates[Fate.PENDING]:
            self._problem("never settled", "some records", fates[Fate.PENDING])
        for number in range(self._made):
            if self._fates[number] == Fate.DELIVERED and not self._found[number]:
                self._problem("delivered and missing", f"record {number}")
        return fates

    def written_in_doubt(self) -> int:
        """How many of those in doubt are in the log."""
        return sum(
            found and fate == Fate.IN_DOUBT
            for fate, found in zip(self._fates, self._found, strict=True)
        )

    def _problem(self, kind: str, example: str, count: int = 1) -> None:
        self.problems[kind] += count
        if self.problems[kind] <= _SHOWN:
            self.examples.append(f"{kind}: {example}")
