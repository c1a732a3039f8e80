"""What is wrong with the reads of a history: each consumer's steps against all logs.

A consumer that was placed at an offset must be given every record from there on, once, in order,
until it is placed elsewhere. A seek to the end places it at an unknown offset, though not below
what was acknowledged before; from the first record that it is given, the same holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tests.history.record import (
    END,
    Acknowledged,
    Delivered,
    History,
    Logs,
    Pause,
    Place,
    Position,
    Seek,
    Written,
)
from tests.history.violations import Kind, Report


class Reader:
    """One consumer's walk through one partition.

    Attributes:
        expected: The next record is the first one at or behind this offset.
        exact: False right behind a seek to the end: the next one may lie further on.
        given: Offsets that were given since it was placed.
    """

    __slots__ = ("exact", "expected", "given", "paused")

    def __init__(self) -> None:
        self.expected = 0
        self.exact = True
        self.given: set[int] = set()
        self.paused = False

    def place(self, offset: int, *, exact: bool) -> None:
        """It goes on at ``offset``."""
        self.expected = offset
        self.exact = exact
        self.given.clear()


class Reads:
    """All consumers of one history."""

    def __init__(self, logs: Logs, report: Report) -> None:
        self._report = report
        self._readers: dict[tuple[str, Place], Reader] = {}
        self._acknowledged: dict[Place, int] = {}
        self._logs = logs
        self._offsets = {
            place: [record.offset for record in records] for place, records in logs.items()
        }
        self._records: dict[Place, Mapping[int, Written]] = {
            place: {record.offset: record for record in records} for place, records in logs.items()
        }

    def walk(self, history: History) -> None:
        """Follow all events."""
        for number, event in history.events:
            if isinstance(event, Acknowledged):
                known = self._acknowledged.get(event.place, 0)
                self._acknowledged[event.place] = max(known, event.offset + 1)
            elif isinstance(event, Seek):
                to_end = event.offset == END
                floor = self._acknowledged.get(event.place, 0)
                self._reader(event).place(floor if to_end else event.offset, exact=not to_end)
            elif isinstance(event, Pause):
                self._reader(event).paused = event.paused
            elif isinstance(event, Delivered):
                self._delivered(number, event)
            else:
                self._position(number, event)

    def finish(self, finished: Mapping[str, Sequence[Place]]) -> None:
        """Those of ``finished`` read on until nothing more came: nothing may be left for them."""
        for consumer, places in finished.items():
            for place in places:
                reader = self._readers.get((consumer, place))
                if reader is None or not reader.exact:
                    continue
                left = self._between(place, reader.expected, None)
                if left:
                    self._report.add(
                        Kind.UNSEEN,
                        f"{consumer} stays before {place}@{left[0]}, {len(left)} records are left",
                    )

    def _reader(self, event: Seek | Pause | Delivered | Position) -> Reader:
        return self._readers.setdefault((event.consumer, event.place), Reader())

    def _delivered(self, number: int, event: Delivered) -> None:
        consumer, place, record = event
        reader, report = self._reader(event), self._report
        report.delivered += 1
        where = f"{consumer} #{number} {place}@{record.offset}"
        there = self._records.get(place, {}).get(record.offset)
        if there != record:
            report.add(Kind.POLL_PHANTOM, f"{where} is {record}, the log has {there}")
        if reader.paused:
            report.add(Kind.POLL_PAUSED, where)
        if record.offset in reader.given:
            report.add(Kind.POLL_DOUBLED, where)
        elif record.offset < reader.expected:
            report.add(Kind.POLL_NONMONOTONIC, f"{where} is below {reader.expected}")
        elif reader.exact:
            self._skipped(f"{where} comes", place, reader.expected, record.offset)
        reader.given.add(record.offset)
        reader.expected = max(reader.expected, record.offset + 1)
        reader.exact = True

    def _position(self, number: int, event: Position) -> None:
        consumer, place, offset = event
        reader = self._reader(event)
        where = f"{consumer} #{number} says {place}@{offset}"
        if offset < reader.expected:
            self._report.add(Kind.POSITION_WRONG, f"{where}, below {reader.expected}")
        elif reader.exact:
            self._skipped(where, place, reader.expected, offset)
        if offset > reader.expected:
            reader.expected = offset
        reader.exact = True

    def _skipped(self, where: str, place: Place, first: int, end: int) -> None:
        skipped = self._between(place, first, end)
        if skipped:
            self._report.add(
                Kind.POLL_SKIP, f"{where} but {skipped[0]} ({len(skipped)} records) was not given"
            )

    def _between(self, place: Place, first: int, end: int | None) -> list[int]:
        offsets = self._offsets.get(place, [])
        stop = len(offsets) if end is None else bisect_left(offsets, end)
        return offsets[bisect_left(offsets, first) : stop]
