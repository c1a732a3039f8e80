"""The result of a run, for people and as JSON, and whether it is what was asked for.

``run`` makes a ``Result``, ``__main__`` prints it. A run passes if nothing is wrong with the
outcomes that clients saw, and if it was the run asked for: all faults, with the load meeting them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.judge import Verdict
from tests.chaos.ledger import Fate, Ledger
from tests.chaos.measures import (
    Fault,
    Recovery,
    Window,
    recoveries,
    share_within,
    spread,
    windows,
)
from tests.chaos.plan import Wishes

LEAST_SHARE = 0.10
"""Of the records in five seconds behind a fault, and of all: acknowledged there."""
MOST_POOR = 0.02
"""Of a hundred cuts so many may be behind that: where one coincides with another fault, or with
seconds that the machine gave to others, it doesn't show whether the rest was tried under load."""
SHOWN, KEPT = 10, 500
WIDTH = 250
"""Characters of a line about a violation: some records are large."""


@dataclass(slots=True)
class Result:
    """One run.

    Attributes:
        seconds: By step: "nodes", "load", "heal", "read", "judge".
        cut_short: Why it ended before all was reached; empty where it didn't.
        reader_errors: What consumers' polls raised.
        found: Records in the logs.
        cuts_made: How many connections the proxy cut, by its own count.
        peak_mib: Most memory that this process took.
    """

    wishes: Wishes
    ledger: Ledger
    faults: list[Fault]
    verdict: Verdict
    seconds: dict[str, float] = field(default_factory=dict)
    cut_short: str = ""
    reader_errors: Counter[str] = field(default_factory=Counter)
    found: int = 0
    cuts_made: int = 0
    peak_mib: int = 0

    def count(self, kind: str) -> int:
        """How many faults of a kind counted."""
        return sum(fault.kind == kind and fault.counts for fault in self.faults)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is computed of a result, once."""

    windows: list[Window]
    recoveries: list[Recovery]
    share: float


def figures(result: Result) -> Figures:
    """Compute them."""
    return Figures(
        windows(result.ledger, result.faults),
        recoveries(result.ledger, result.faults),
        share_within(result.ledger, result.faults),
    )


def shortfalls(result: Result, known: Figures) -> list[str]:
    """Return where the run falls short of what was asked for; empty if nowhere."""
    wishes = result.wishes.complete()
    found = [result.cut_short] if result.cut_short else []
    if result.ledger.acked < (wishes.records or 1):
        found.append(f"{result.ledger.acked:,} records acknowledged of {wishes.records or 1:,}")
    for kind, wanted in (("kill", wishes.kills), ("stop", wishes.stops), ("cut", wishes.cuts)):
        if result.count(kind) < (wanted or 0):
            found.append(f"{result.count(kind)} {kind}s of {wanted}")
    if result.cuts_made < result.count("cut"):
        found.append(f"the proxy cut {result.cuts_made} connections only")
    if not known.windows:
        found.append("no fault at all")
    elif known.share < LEAST_SHARE:
        found.append(f"only {known.share:.1%} of all acknowledgements came within 5 s of a fault")
    poor = [one for one in known.windows if one.share < LEAST_SHARE]
    poor_cuts = sum(one.fault.kind == "cut" for one in poor)
    for one in poor:
        fault = one.fault
        if fault.kind != "cut" or poor_cuts > MOST_POOR * result.count("cut"):
            found.append(
                f"{fault.kind} of node {fault.node} at {fault.at:.1f} s: {one.acked} of "
                f"{one.offered} records offered within 5 s were acknowledged in them"
            )
    if result.count("kill") + result.count("stop") and not result.ledger.failures():
        found.append("no record failed: whether failures are honest was not tried")
    return found


def text(result: Result, known: Figures) -> str:
    """The report for people."""
    verdict, ledger = result.verdict, result.ledger
    shares = [one.share for one in known.windows]
    uncounted = sum(not fault.counts for fault in result.faults)
    lines = [
        f"chaos, seed {result.wishes.seed}: {ledger.acked:,} records acknowledged of "
        f"{ledger.offered:,} offered by {len(ledger.accounts)} producers, {result.found:,} in "
        f"the logs, {verdict.report.delivered:,} given to consumers",
        f"faults: {result.count('kill')} kills, {result.count('stop')} stops, "
        f"{result.count('cut')} cuts with a Produce in flight ({uncounted} others)",
        f"within 5 s behind a fault: {known.share:.1%} of all acknowledgements; of the records "
        f"offered in a window, at least {min(shares, default=0.0):.1%} were acknowledged in it",
    ]
    for kind in ("kill", "stop", "cut"):
        lines += _recovered(kind, [one for one in known.recoveries if one.fault.kind == kind])
    lines += [f"knives: {_counted(_knives(result))}", f"failures: {_counted(ledger.failures())}"]
    lines.append(f"told to consumers: {_counted(result.reader_errors)}")
    steps = ", ".join(f"{step} {took:.1f}" for step, took in result.seconds.items())
    lines.append(f"seconds: {steps}; at most {result.peak_mib} MiB")
    if verdict.report.violations:
        lines += [line[:WIDTH] for line in str(verdict.report).splitlines()]
    else:
        lines.append(
            f"history: 0 lost, 0 doubled, 0 reordered; of {verdict.report.failed:,} records "
            f"reported not written none was found, of {verdict.report.unknown:,} nobody knew"
        )
    lines += [f"WRONG {line}" for line in _wrong(verdict)]
    lines += [f"WRONG not what was asked for: {line}" for line in shortfalls(result, known)]
    return "\n".join(lines)


def _recovered(kind: str, found: list[Recovery]) -> list[str]:
    """How soon it went on behind the faults of a kind."""
    if not found:
        return []
    firsts = [one.first for one in found if one.first is not None]
    lasts = [one.last for one in found if one.last is not None]
    slowest = [one.slowest for one in found if one.slowest is not None]
    without = len(found) - len(firsts)
    whose = max(found, key=lambda one: one.slowest or math.inf).who
    return [
        f"recovery behind a {kind} (min / median / max): first acknowledgement {spread(firsts)}; "
        f"on all its partitions {spread(lasts)}; of each producer {spread(slowest)}, last {whose}"
        + (f"; {without} without any" if without else "")
    ]


def as_json(result: Result, known: Figures) -> dict[str, Any]:
    """The report for programs."""
    return {
        "passed": passed(result, known),
        "wishes": asdict(result.wishes),
        "offered": result.ledger.offered,
        "acked": result.ledger.acked,
        "found": result.found,
        "fates": {
            account.name: {fate.name: account.fate.count(fate) for fate in Fate}
            for account in result.ledger.accounts
        },
        "failures": dict(result.ledger.failures()),
        "counts": {kind: result.count(kind) for kind in ("kill", "stop", "cut")},
        "share_of_all": known.share,
        "least_share_of_a_window": min((one.share for one in known.windows), default=0.0),
        "windows": [
            {"kind": one.fault.kind, "at": one.fault.at, "offered": one.offered, "acked": one.acked}
            for one in known.windows
        ],
        "recoveries": [
            {
                "kind": one.fault.kind,
                "how": one.fault.how,
                "at": one.fault.at,
                "node": one.fault.node,
                "first": one.first,
                "last": one.last,
                "slowest": one.slowest,
                "who": one.who,
            }
            for one in known.recoveries
        ],
        "violation_count": len(result.verdict.report.violations),
        "violations": [str(one)[:WIDTH] for one in result.verdict.report.violations[:KEPT]],
        "wrong": _wrong(result.verdict),
        "shortfalls": shortfalls(result, known),
        "seconds": result.seconds,
        "peak_mib": result.peak_mib,
    }


def passed(result: Result, known: Figures) -> bool:
    """Whether all is as it must be."""
    return bool(result.verdict) and not shortfalls(result, known)


def _wrong(verdict: Verdict) -> list[str]:
    """What is wrong beside the history checker's violations."""
    found = list(verdict.unread)
    if verdict.unsaid:
        found.append(
            f"{len(verdict.unsaid)} failures don't say whether the record may have been written: "
            + "; ".join(verdict.unsaid[:SHOWN])
        )
    return found


def _knives(result: Result) -> Counter[str]:
    return Counter(fault.how for fault in result.faults if fault.kind == "cut")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} x {what}" for what, count in counts.most_common()) or "none"
