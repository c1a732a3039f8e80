"""The fate of each record: when it was offered, when its outcome was reported, and which one.

``load`` records it, ``judge`` and ``measures`` read it. Columns of numbers instead of objects:
millions of records fit, and the collector has nothing to walk. Nothing is judged here.
"""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from dataclasses import dataclass, field


class Fate(enum.IntEnum):
    """The outcome of a record that its sender saw."""

    PENDING = 0
    OK = 1
    NOT_WRITTEN = 2
    MAYBE_WRITTEN = 3
    UNSAID = 4
    """It failed, and the error doesn't say whether it may have been written."""


@dataclass(slots=True)
class Account:
    """The records of one producer, by their numbers.

    Attributes:
        offered: When each was handed to the client; ascending.
        resolved: When its outcome was reported; 0 before.
        fate: That outcome.
        partition: Where it was acknowledged; -1 elsewhere.
        offset: At which offset; -1 where unknown.
        refused: Those that the client never took.
        why: Of failures, the error's name.
        again: Those whose outcome was reported more than once, and how often again.
    """

    name: str
    offered: array[float] = field(default_factory=lambda: array("d"))
    resolved: array[float] = field(default_factory=lambda: array("d"))
    fate: bytearray = field(default_factory=bytearray)
    partition: array[int] = field(default_factory=lambda: array("h"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    refused: set[int] = field(default_factory=set)
    why: dict[int, str] = field(default_factory=dict)
    again: dict[int, int] = field(default_factory=dict)
    acked: int = 0

    def __len__(self) -> int:
        return len(self.fate)

    def offer(self, now: float) -> int:
        """The next record is handed to the client; gives its number."""
        self.offered.append(now)
        self.resolved.append(0.0)
        self.fate.append(Fate.PENDING)
        self.partition.append(-1)
        self.offset.append(-1)
        return len(self.fate) - 1

    def ok(self, number: int, now: float, partition: int, offset: int) -> None:
        """It was acknowledged."""
        if self._resolve(number, now, Fate.OK):
            self.partition[number] = partition
            self.offset[number] = offset
            self.acked += 1

    def fail(self, number: int, now: float, why: str, maybe_written: object) -> None:
        """It failed; ``maybe_written`` is the error's attribute."""
        fate = Fate.MAYBE_WRITTEN if maybe_written else Fate.NOT_WRITTEN
        if self._resolve(number, now, fate if isinstance(maybe_written, bool) else Fate.UNSAID):
            self.why[number] = why

    def _resolve(self, number: int, now: float, fate: Fate) -> bool:
        if self.fate[number] != Fate.PENDING:
            self.again[number] = self.again.get(number, 0) + 1
            return False
        self.fate[number] = fate
        self.resolved[number] = now
        return True


@dataclass(slots=True)
class Ledger:
    """All producers of a run; a producer's number is its place in ``accounts``."""

    accounts: list[Account] = field(default_factory=list)

    def open(self, name: str) -> Account:
        """One more producer."""
        account = Account(name)
        self.accounts.append(account)
        return account

    @property
    def offered(self) -> int:
        """Records that were handed to clients."""
        return sum(len(account) for account in self.accounts)

    @property
    def acked(self) -> int:
        """Records that were acknowledged."""
        return sum(account.acked for account in self.accounts)

    def failures(self) -> Counter[str]:
        """How many failed, by error and by its ``maybe_written``."""
        counts: Counter[str] = Counter()
        for account in self.accounts:
            for number, why in account.why.items():
                counts[f"{why}, {Fate(account.fate[number]).name.lower().replace('_', ' ')}"] += 1
        return counts
