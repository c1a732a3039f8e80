"""What the reader learns: counts, order per key, and the figures of the closing report."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from kclient import ConsumerRecord

LATE_MINUTES = 15
MIN_FLIGHTS = 100


class Report:
    """Takes records as they are read; ``problems`` reports lost and repeated ones, and disorder."""

    def __init__(self, flights: int) -> None:
        self.records = 0
        self.per_key: Counter[bytes | None] = Counter()
        self.out_of_order = 0
        self.twice = 0
        # A set of so many numbers would hold the loop for 10 ms and more each time that it grows.
        self._seen = bytearray(flights)
        self._last: dict[bytes, int] = {}
        self._arrived = 0
        self._late = 0
        self._routes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._days: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, records: Iterable[ConsumerRecord[bytes | None, bytes | None]]) -> None:
        for record in records:
            self._add(record.key, json.loads(record.value or b"{}"))

    def _add(self, key: bytes | None, flight: dict[str, object]) -> None:
        n = flight["n"]
        assert isinstance(n, int)
        self.records += 1
        self.per_key[key] += 1
        self.twice += self._seen[n]
        self._seen[n] = 1
        if key is not None:
            if n <= self._last.get(key, -1):
                self.out_of_order += 1
            self._last[key] = n
        delay = flight["arrival_delay"]
        if isinstance(delay, int):
            self._arrived += 1
            self._late += delay > LATE_MINUTES
            for sums in (
                self._routes[f"{flight['from']} - {flight['to']}"],
                self._days[str(flight["day"])],
            ):
                sums[0] += 1
                sums[1] += delay

    def problems(self, sent: Counter[bytes | None]) -> list[str]:
        """What is wrong with what was read, given the count of records sent per key."""
        found = []
        if self.records != sent.total():
            found.append(f"{sent.total():,} records were sent, {self.records:,} were read")
        if self.twice:
            found.append(f"{self.twice:,} records were read twice")
        if self.per_key != sent:
            found.append(f"{len(sent - self.per_key | self.per_key - sent):,} keys differ in count")
        if self.out_of_order:
            found.append(f"{self.out_of_order:,} records came out of their key's order")
        return found

    def show(self, console: Console) -> None:
        """Print flights, the late share, the ten worst routes and the worst day."""
        share = self._late / max(1, self._arrived)
        console.print(
            f"{self.records:,} flights of {len(self.per_key) - (None in self.per_key):,} planes; "
            f"{share:.1%} of those that arrived were over {LATE_MINUTES} minutes late"
        )
        table = Table(title=f"Ten worst routes (of at least {MIN_FLIGHTS} flights)")
        table.add_column("route")
        table.add_column("flights", justify="right")
        table.add_column("mean arrival delay, minutes", justify="right")
        usual = {name: sums for name, sums in self._routes.items() if sums[0] >= MIN_FLIGHTS}
        for name, (flights, delay) in sorted(usual.items(), key=_mean, reverse=True)[:10]:
            table.add_row(name, f"{flights:,}", f"{delay / flights:.1f}")
        console.print(table)
        if self._days:
            day, (flights, delay) = max(self._days.items(), key=_mean)
            console.print(f"Worst day: {day}, {delay / flights:.0f} minutes late on the mean")


def _mean(item: tuple[str, list[int]]) -> float:
    flights, delay = item[1]
    return delay / flights
