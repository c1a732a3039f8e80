"""Counts of mutants by target, operator and outcome: added up, printed, kept as JSON."""

from __future__ import annotations

import json
from collections import Counter

from tests.fuzz.targets import Mutant, Verdict


class Tally:
    """The counts of mutants by their outcome.

    Attributes:
        counts: (target, operator, outcome) -> how many.
        repaired: Target -> mutants with lengths and CRCs made right.
        reached: Target -> mutants of which a field of the body was read.
        cpu_seconds: That it took.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.repaired: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.cpu_seconds = 0.0

    def add(self, target: str, mutant: Mutant, verdict: Verdict) -> None:
        """Count one, or all that it stands for."""
        ways = verdict.ways
        if ways is None:
            ways = ((mutant.operator, mutant.repaired, verdict.reached),)
        for operator, repaired, reached in ways:
            self.counts[target, operator, verdict.outcome] += 1
            self.repaired[target] += repaired
            self.reached[target] += reached

    def merge(self, other: Tally) -> None:
        """Count all of another one."""
        self.counts.update(other.counts)
        self.repaired.update(other.repaired)
        self.reached.update(other.reached)
        self.cpu_seconds += other.cpu_seconds

    def total(self, target: str | None = None) -> int:
        """How many mutants, of one target or of all."""
        return sum(n for (name, _, _), n in self.counts.items() if target in (None, name))

    def outcomes(self, target: str) -> Counter[str]:
        """Outcome -> how many, of one target."""
        found: Counter[str] = Counter()
        for (name, _, outcome), count in self.counts.items():
            if name == target:
                found[outcome] += count
        return found

    def operators(self, target: str) -> Counter[str]:
        """Operator -> how many, of one target."""
        found: Counter[str] = Counter()
        for (name, operator, _), count in self.counts.items():
            if name == target:
                found[operator] += count
        return found

    @property
    def targets(self) -> list[str]:
        """Those that were counted."""
        return sorted({name for name, _, _ in self.counts})

    def to_json(self) -> str:
        """All of it in one line."""
        return json.dumps(
            {
                "mutants": self.total(),
                "cpu_seconds": round(self.cpu_seconds, 1),
                "repaired": dict(sorted(self.repaired.items())),
                "reached": dict(sorted(self.reached.items())),
                "counts": [[*key, count] for key, count in sorted(self.counts.items())],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Tally:
        """The opposite of ``to_json``."""
        read = json.loads(text)
        tally = cls()
        tally.repaired.update(read["repaired"])
        tally.reached.update(read["reached"])
        tally.counts.update({(a, b, c): count for a, b, c, count in read["counts"]})
        tally.cpu_seconds = read["cpu_seconds"]
        return tally

    def table(self) -> str:
        """For people: a block for each target, a line for each operator."""
        lines = [f"{self.total():,} mutants, {self.cpu_seconds:.0f} s of CPU"]
        for target in self.targets:
            lines += ["", *self._block(target)]
        return "\n".join(lines)

    def _block(self, target: str) -> list[str]:
        total, outcomes = self.total(target), sorted(self.outcomes(target))
        repaired, reached = self.repaired[target] / total, self.reached[target] / total
        operators = self.operators(target)
        width = max(map(len, operators))
        widths = [max(8, len(outcome)) for outcome in outcomes]
        lines = [
            f"{target}: {total:,} mutants, {repaired:.0%} repaired, {reached:.0%} reached a field",
            f"  {'':{width}}  "
            + "  ".join(f"{o:>{w}}" for o, w in zip(outcomes, widths, strict=True)),
        ]
        for operator in (*sorted(operators), "all"):
            of_all = self.outcomes(target)
            cells = [
                of_all[o] if operator == "all" else self.counts[target, operator, o]
                for o in outcomes
            ]
            row = "  ".join(f"{n:>{w},}" for n, w in zip(cells, widths, strict=True))
            lines.append(f"  {operator:{width}}  {row}")
        return lines
