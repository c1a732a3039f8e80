"""Finds what is wrong with what the members of a group did. Sans-IO; knows no process or broker.

``scenario`` calls it in the end. Records may be read twice, since a group reads at least once; none
may be left out, by the group or by one member while it owns a partition, and no two members may own
the same partition.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.mixed.ledger import Ledger, Run, Span


@dataclass(frozen=True, slots=True)
class Absence:
    """A member that was stopped or asked to leave: others may own its partitions from then on.

    Attributes:
        leaves: It was asked to leave, so what it is given afterwards may be another's at once.
    """

    member: str
    since: float
    leaves: bool = False


def missing(reads: Iterable[Run], end: int) -> list[tuple[int, int]]:
    """The offsets below ``end`` that no member read, as (first, last)."""
    found, due = [], 0
    for run in sorted(reads, key=lambda one: one.first):
        if run.first > due:
            found.append((due, min(run.first, end) - 1))
        due = max(due, run.last + 1)
        if due >= end:
            return found
    return [*found, (due, end - 1)] if due < end else found


def skips(span: Span) -> list[str]:
    """Where a member skipped records that it had not been given; going back is allowed."""
    found, due = [], None
    for run in span.runs:
        if due is not None and run.first > due:
            found.append(
                f"{span.member} skipped {due} to {run.first - 1} of partition {span.partition}"
            )
        due = run.last + 1
    return found


def doubled(spans: Sequence[Span], absences: Iterable[Absence]) -> list[str]:
    """Where two members owned a partition at the same time.

    Of a member that was stopped, what it owned then counts until then; of one that was asked to
    leave, what a rebalance still gave it afterwards doesn't count.
    """
    stops: dict[str, list[float]] = defaultdict(list)
    asked: dict[str, float] = {}
    for absence in absences:
        stops[absence.member].append(absence.since)
        if absence.leaves:
            asked[absence.member] = absence.since
    by_partition: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
    for span in spans:
        if span.since > asked.get(span.member, math.inf):
            continue
        cuts = [at for at in stops[span.member] if span.since <= at]
        until = min([span.until, *cuts])
        by_partition[span.partition].append((span.since, until, span.member))
    found = []
    for partition, owned in by_partition.items():
        latest: tuple[float, str] | None = None
        for since, until, member in sorted(owned):
            if latest is not None and since < latest[0]:
                found.append(
                    f"partition {partition} was {member}'s {latest[0] - since:.3f} s before it "
                    f"was no longer {latest[1]}'s"
                )
            if latest is None or until > latest[0]:
                latest = until, member
    return found


def wrongs(
    ledger: Ledger,
    ends: Mapping[int, int],
    absences: Iterable[Absence],
    exact: Collection[str],
) -> list[str]:
    """Everything that is wrong.

    Args:
        ledger: Closed.
        ends: Where the partitions end.
        absences: Which member was stopped, or asked to leave, when.
        exact: The members whose reports on ownership are exact in time.
    """
    found = []
    for partition, end in ends.items():
        for first, last in missing(ledger.reads[partition], end):
            found.append(f"nobody read {first} to {last} of partition {partition}, of {end}")
    spans = [span for span in ledger.spans if span.member in exact]
    for span in spans:
        found += skips(span)
    return found + doubled(spans, absences)


def repeated(ledger: Ledger, ends: Mapping[int, int]) -> int:
    """How many records were read again."""
    read = sum(run.last - run.first + 1 for runs in ledger.reads.values() for run in runs)
    for partition, end in ends.items():
        left = sum(last - first + 1 for first, last in missing(ledger.reads[partition], end))
        read -= end - left
    return read


def silence(spans: Iterable[Span], absences: Iterable[Absence]) -> float:
    """The longest time in which an owner was given nothing of a partition, while it could run."""
    stops: dict[str, list[float]] = defaultdict(list)
    for absence in absences:
        stops[absence.member].append(absence.since)
    longest = 0.0
    for span in spans:
        times = [span.since, *(run.at for run in span.runs)]
        if math.isfinite(span.until):
            times.append(span.until)
        for since, until in pairwise(times):
            if not any(since <= at <= until for at in stops[span.member]):
                longest = max(longest, until - since)
    return longest
