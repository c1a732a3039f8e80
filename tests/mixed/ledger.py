"""The reports of one group's members: what they own, since when, and which records they read.

``process`` adds lines as they come, ``scenario`` looks at it, ``judge`` reads it in the end. Times
are those of the monotonic clock, which all processes have in common. It judges nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of a partition that a member was given."""

    at: float
    member: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Span:
    """A member's ownership of a partition, as it reported it."""

    member: str
    partition: int
    since: float
    until: float
    runs: tuple[Run, ...]


@dataclass(slots=True)
class _Open:
    since: float
    runs: list[Run] = field(default_factory=list)


class Ledger:
    """Everything that members reported.

    Attributes:
        reads: Partition -> the runs of all members, as they came.
        latest: Member and partition -> the run that came last.
        spans: Ownerships that are over; `close` ends the others.
        errors: Errors that members reported.
        led: How often a member reported that it computed its assignment itself, as the leader.
        up: Member -> since when its program runs, if it reports that: starting it is the machine's
            time.
        tail: Member -> the last lines that weren't about records.
    """

    def __init__(self) -> None:
        self.reads: dict[int, list[Run]] = defaultdict(list)
        self.latest: dict[tuple[str, int], Run] = {}
        self.spans: list[Span] = []
        self.errors: list[tuple[float, str, str]] = []
        self.tail: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=40))
        self.led = 0
        self.up: dict[str, float] = {}
        self._open: dict[str, dict[int, _Open]] = {}
        self._begun: list[float] = []

    def owned(self, member: str) -> frozenset[int] | None:
        """What a member reports to own; None if it reports nothing of that kind."""
        have = self._open.get(member)
        return None if have is None else frozenset(have)

    def moved(self, since: float) -> int:
        """How often a partition was given to a member from an instant on."""
        return sum(at >= since for at in self._begun)

    def assigned(self, member: str, at: float, partitions: Iterable[int]) -> None:
        """It was given partitions, beside those that it has."""
        have = self._open.setdefault(member, {})
        for partition in partitions:
            if partition not in have:
                have[partition] = _Open(at)
                self._begun.append(at)

    def gone(self, member: str, at: float, partitions: Iterable[int]) -> None:
        """Partitions were revoked from it, or lost."""
        have = self._open.setdefault(member, {})
        for partition in partitions:
            if (one := have.pop(partition, None)) is not None:
                self.spans.append(Span(member, partition, one.since, at, tuple(one.runs)))

    def read(self, member: str, at: float, partition: int, first: int, last: int) -> None:
        """It got records."""
        run = Run(at, member, first, last)
        self.reads[partition].append(run)
        self.latest[member, partition] = run
        mine = self._open.get(member, {}).get(partition)
        if mine is not None:
            mine.runs.append(run)

    def error(self, member: str, at: float, text: str) -> None:
        """It met an error."""
        self.errors.append((at, member, text))

    def ended(self, member: str, at: float) -> None:
        """Its process has ended, so it owns nothing."""
        if member in self._open:
            self.gone(member, at, list(self._open[member]))
            del self._open[member]

    def close(self) -> None:
        """End all ownerships: the run is over."""
        for member in list(self._open):
            self.ended(member, math.inf)
