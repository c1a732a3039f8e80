"""What can be wrong with a history: the kinds of violations, and the report of a check.

Made by ``writes`` and ``reads``, shown by the caller of the check. Values only.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

SHOWN = 5
"""Violations of one kind that a report spells out; the others are counted."""


class Kind(enum.Enum):
    """The kinds of violations."""

    LOST_WRITE = "a record was acknowledged and is not in the log"
    DUPLICATE = "a record of an idempotent producer is in the log more than once"
    REORDERED = "records of one producer and partition are in another order than they were sent in"
    FAILED_WRITE_FOUND = "a record that is said to be definitely not written is in the log (G1a)"
    WRONG_OFFSET = "a record was acknowledged with an offset at which something else is"
    MISROUTED = "a record is in another topic or partition than asked for or told"
    ALTERED = "a record has another key or other headers in the log than it was sent with"
    PHANTOM = "the log has a record that nobody sent"
    UNRESOLVED = "nobody was ever told what became of a record"
    RESOLVED_TWICE = "a record's fate was told twice"
    POLL_SKIP = "a consumer went past a record without having been given it"
    POLL_DOUBLED = "a consumer was given a record again without a seek"
    POLL_NONMONOTONIC = "a consumer was given an offset below its position"
    POLL_PAUSED = "a consumer was given a record of a paused partition"
    POLL_PHANTOM = "a consumer was given a record that is not in the log like that"
    POSITION_WRONG = "a position is not behind what was handed over"
    UNSEEN = "a consumer never came to a record, long after all was well again"


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation, and where."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.text}"


@dataclass(slots=True)
class Report:
    """All that a check found.

    Attributes:
        violations: In the order in which they were found.
        written: Records of the history that are in the logs.
        acknowledged: Sends that were acknowledged.
        failed: Sends that definitely did not happen.
        unknown: Sends without a definite outcome.
        delivered: Records that were given to consumers.
    """

    violations: list[Violation] = field(default_factory=list)
    written: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    delivered: int = 0

    def add(self, kind: Kind, text: str) -> None:
        """Add a violation."""
        self.violations.append(Violation(kind, text))

    @property
    def kinds(self) -> set[Kind]:
        """The kinds of violations that were found."""
        return {violation.kind for violation in self.violations}

    def __bool__(self) -> bool:
        """Whether nothing was found."""
        return not self.violations

    def __str__(self) -> str:
        counts = Counter(violation.kind for violation in self.violations)
        lines = [
            f"{len(self.violations)} violations in {self.acknowledged} acknowledged, "
            f"{self.failed} failed, {self.unknown} unknown writes and {self.delivered} reads"
        ]
        for kind, count in counts.items():
            lines.append(f"{kind.name} x {count}: {kind.value}")
            same = [one.text for one in self.violations if one.kind is kind]
            lines += [f"    {text}" for text in same[:SHOWN]]
        return "\n".join(lines)
