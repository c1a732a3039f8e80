"""Handmade chaos runs for the tests: a ledger with logs and trails, without a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos.judge import Verdict, judge
from tests.chaos.ledger import Ledger
from tests.chaos.readers import Act, Trail
from tests.chaos.records import Recipe
from tests.chaos.rows import Rows
from tests.history import Written

PARTITIONS = 2
TOPIC = "chaos"


@dataclass
class Run:
    """Two producers, a topic of two partitions, one consumer; records go as their recipe has it."""

    recipe: Recipe = field(default_factory=lambda: Recipe(5, PARTITIONS))
    ledger: Ledger = field(default_factory=Ledger)
    logs: dict[int, list[Written]] = field(default_factory=lambda: {0: [], 1: []})
    trails: dict[int, Trail] = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.ledger.open("one")
        self.ledger.open("two")
        self.trails = {partition: Trail(self.recipe) for partition in range(PARTITIONS)}

    def written(self, producer: int, number: int, offset: int = 0) -> Written:
        """Return a record as it must arrive."""
        made = self.recipe.make(producer, number)
        return Written(offset, made.key, made.value, made.headers)

    def home(self, producer: int, number: int) -> int:
        """Return a record's partition: the requested one, or the first."""
        return self.recipe.make(producer, number).partition or 0

    def offer(self, producer: int = 0) -> int:
        """Offer one more record; return its number."""
        self.now += 0.01
        return self.ledger.accounts[producer].offer(self.now)

    def append(self, producer: int, number: int) -> int:
        """Append the record to its log; return the offset."""
        log = self.logs[self.home(producer, number)]
        log.append(self.written(producer, number, len(log)))
        return len(log) - 1

    def ack(self, producer: int, number: int, offset: int) -> None:
        """Acknowledge the record to its sender."""
        home = self.home(producer, number)
        self.ledger.accounts[producer].ok(number, self.now + 0.005, home, offset)

    def send(self, producer: int = 0) -> int:
        """Offer, append and acknowledge a record, as a healthy run does."""
        number = self.offer(producer)
        self.ack(producer, number, self.append(producer, number))
        return number

    def fail(self, number: int, maybe_written: object, producer: int = 0) -> None:
        """Fail the record at its sender."""
        account = self.ledger.accounts[producer]
        account.fail(number, self.now, "DeliveryTimedOut", maybe_written)

    def read(self) -> None:
        """Give the consumer every record that it lacks, and report its position."""
        for partition, log in self.logs.items():
            trail = self.trails[partition]
            for written in log[len(trail.given) :]:
                trail.take_written(written)
            trail.act(Act.POSITION, len(log))

    def rows(self) -> dict[int, Rows]:
        """Return the logs as they are read back."""
        found = {}
        for partition, log in self.logs.items():
            found[partition] = rows = Rows(self.recipe)
            for written in log:
                rows.put(written)
        return found

    def judge(self, ends: dict[int, int] | None = None) -> Verdict:
        """Return the judge's verdict on this run."""
        return judge(
            TOPIC,
            self.ledger,
            self.recipe,
            self.rows(),
            starts={0: 0, 1: 0},
            ends=ends or {partition: len(log) for partition, log in self.logs.items()},
            trails={"reader": self.trails},
        )
