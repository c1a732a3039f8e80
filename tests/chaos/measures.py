"""How the load met the faults: what was acknowledged right behind each, and how soon.

``report`` shows it and compares it with the requirements. Works on the ledger's columns, after the
run; knows nothing of clusters.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.chaos.ledger import Account, Fate, Ledger

WINDOW = 5.0
"""Seconds behind a fault that its window has."""
_LONGEST = 60.0
"""Seconds behind a fault in which the first acknowledgement is looked for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that broke.

    Attributes:
        kind: "kill", "stop" or "cut".
        at: When, as the ledger's times.
        partitions: Those affected: the leader was away, or at the connection's other end.
        producer: The owner of the connection; empty: all were affected.
        how: More about it, for people.
        counts: Whether it is one of those that were asked for: of cuts, those with a Produce
            request in flight.
    """

    kind: str
    at: float
    node: int
    partitions: frozenset[int]
    producer: str = ""
    how: str = ""
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Window:
    """The five seconds behind a fault.

    Attributes:
        offered: Records that were handed to clients in them.
        acked: How many of those were acknowledged in them, too.
    """

    fault: Fault
    offered: int
    acked: int

    @property
    def share(self) -> float:
        """Acknowledged of offered; none of none is 0."""
        return self.acked / self.offered if self.offered else 0.0


def windows(ledger: Ledger, faults: Iterable[Fault]) -> list[Window]:
    """What was offered and acknowledged in the five seconds behind each fault that counts."""
    found = []
    for fault in faults:
        if not fault.counts:
            continue
        offered = acked = 0
        end = fault.at + WINDOW
        for account in ledger.accounts:
            first, last = (bisect_left(account.offered, when) for when in (fault.at, end))
            offered += last - first
            for number in range(first, last):
                if account.fate[number] == Fate.OK and account.resolved[number] <= end:
                    acked += 1
        found.append(Window(fault, offered, acked))
    return found


def share_within(ledger: Ledger, faults: Iterable[Fault]) -> float:
    """Of all acknowledged records, how many were within five seconds behind some fault."""
    begins = sorted(fault.at for fault in faults if fault.counts)
    acked = within = 0
    for account in ledger.accounts:
        for number, fate in enumerate(account.fate):
            if fate != Fate.OK:
                continue
            acked += 1
            when = account.resolved[number]
            behind = bisect_left(begins, when)
            within += behind > 0 and when - begins[behind - 1] <= WINDOW
    return within / acked if acked else 0.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from a fault until records that were offered behind it were acknowledged.

    Attributes:
        first: On any partition that it concerned.
        last: On all of these; None where some had no record, or none that was acknowledged.
        slowest: Of each producer's first, the latest; None where one had none.
        who: That producer.
    """

    fault: Fault
    first: float | None
    last: float | None
    slowest: float | None
    who: str


def recoveries(ledger: Ledger, faults: Iterable[Fault]) -> list[Recovery]:
    """How soon it went on behind each fault that counts."""
    return [_recovery(ledger, one) for one in faults if one.counts and one.partitions]


def _recovery(ledger: Ledger, fault: Fault) -> Recovery:
    best: dict[int, float] = {}
    firsts: list[tuple[float, str]] = []
    for account in ledger.accounts:
        if fault.producer in ("", account.name):
            mine: dict[int, float] = {}
            _first_acks(account, fault, mine)
            firsts.append((min(mine.values(), default=math.inf) - fault.at, account.name))
            for partition, when in mine.items():
                best[partition] = min(when, best.get(partition, when))
    slowest, who = max(firsts, default=(math.inf, ""))
    return Recovery(
        fault,
        min(best.values()) - fault.at if best else None,
        max(best.values()) - fault.at if len(best) == len(fault.partitions) else None,
        slowest if slowest < math.inf else None,
        who,
    )


def _first_acks(account: Account, fault: Fault, best: dict[int, float]) -> None:
    """Note in ``best`` when each partition of the fault first had a record acknowledged."""
    missing = set(fault.partitions)
    for number in range(bisect_left(account.offered, fault.at), len(account)):
        offered = account.offered[number]
        if offered > (fault.at + _LONGEST if missing else max(best.values())):
            return  # nothing that was offered later can be earlier
        partition = account.partition[number]
        if partition not in fault.partitions or account.fate[number] != Fate.OK:
            continue
        missing.discard(partition)
        when = account.resolved[number]
        best[partition] = min(when, best.get(partition, when))


def spread(values: Sequence[float]) -> str:
    """Least, median and most, in seconds."""
    if not values:
        return "none"
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{least:.2f} / {middle:.2f} / {most:.2f} s"
