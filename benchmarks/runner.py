"""Runs the cells: round after round, each run in a process of its own.

Within a round the entries of a cell run one after the other, beginning with another one each round,
so that compared runs are close in time and no entry is always first. Topics are made and checked
here, outside of the measured processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.amounts import READING, records_for, warm_up_for
from benchmarks.broker import Address
from benchmarks.cells import Cell
from benchmarks.entries import ENTRIES, KCLIENT, Entry
from benchmarks.job import Job, Outcome
from benchmarks.results import Run
from benchmarks.topics import Topics
from kclient.errors import KafkaError

RUN_TIMEOUT = 120.0
WRITING = (
    *("produce", "latency", "end to end", "hold writing"),
    *("transactions", "produce in transactions"),
)
FEW = 3
"""Rounds of entries without a floor in cells where other entries have one."""
FEWER = 2
"""Rounds of cells without a floor."""
MANY_PARTITIONS = 100
"""Topics with this many are kept between rounds: creating them takes a second or more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run."""

    cells: tuple[Cell, ...]
    rounds: int = 5
    every: frozenset[tuple[str, str]] | None = None
    """Cells and entries that run in every round, all others only in the first few; None for all."""
    records: int | None = None
    """Records of every run, if given; not in cells whose amounts are part of what they measure."""
    divided: int = 1
    """Amounts of cells are divided by this."""
    scale: float = 1.0
    """Factor for the amounts that cells have per entry."""


@dataclass
class Session:
    """One broker, its topics, and the runs so far."""

    address: Address
    plan: Plan
    topics: Topics
    emit: Callable[[str], None] = lambda text: None
    build: str | None = None
    """kclient's build, as the first worker that isn't to be pure reports it."""
    files: str | None = None
    """Hash of kclient's files, as the first worker reports it."""
    caches: str | None = None
    """Folder of the workers' byte code."""
    runs: list[Run] = field(default_factory=list)
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def run(self) -> list[Run]:
        """Run all rounds of all cells; the runs include entries that can't run, with the reason."""
        for number in range(self.plan.rounds):
            for at, cell in enumerate(self.plan.cells):
                if number and not any(self._wanted(cell, name, number) for name in cell.entries):
                    continue
                self.emit(
                    f"round {number + 1} of {self.plan.rounds}, "
                    f"cell {at + 1} of {len(self.plan.cells)}: {cell.name}"
                )
                self.runs += self._round(cell, number)
        return self.runs

    def _round(self, cell: Cell, number: int) -> Iterator[Run]:
        first = number % len(cell.entries)
        made: tuple[str, ...] = ()
        for name in (*cell.entries[first:], *cell.entries[:first]):
            if not self._wanted(cell, name, number) or self._gave_up(cell, name):
                continue
            if cell.tls and not (self.address.tls_bootstrap and self.address.ca):
                reason = "no TLS listener: give --tls-bootstrap and --ca"
                yield Run(cell.name, name, number, {"missing": reason})
                continue
            job = self.job(cell, ENTRIES[name])
            try:
                if cell.workload in WRITING:
                    made = made or self._target(cell, job)
                    outcome = self._written(replace(job, topics=made))
                else:
                    outcome = run_job(self.with_topics(cell, job), self.caches)
            except KafkaError as error:
                outcome = {"error": f"its topics could not be made or read: {error}"}
            yield Run(cell.name, name, number, self._same_build(job, outcome))
        if made and cell.name not in self.kept:
            self.drop(made)

    def drop(self, names: Iterable[str]) -> None:
        """Delete topics. A failure is reported only, so that what was measured isn't lost."""
        try:
            self.topics.delete(names)
        except KafkaError as error:
            self.emit(f"topics could not be deleted: {error}")

    def _wanted(self, cell: Cell, entry: str, number: int) -> bool:
        """Whether an entry runs in this round."""
        every = self.plan.every
        if every is None or (cell.name, entry) in every:
            return True
        beside = any((cell.name, other) in every for other in cell.entries)
        return number < min(FEW if beside else FEWER, cell.rounds)

    def _gave_up(self, cell: Cell, entry: str) -> bool:
        """Whether an entry is missing here, or has failed twice: then it isn't run again."""
        mine = [run.outcome for run in self.runs if (run.cell, run.entry) == (cell.name, entry)]
        failed = sum("error" in outcome for outcome in mine)
        return failed > 1 or any("missing" in outcome for outcome in mine)

    def job(self, cell: Cell, entry: Entry) -> Job:
        plan = self.plan
        records = records_for(cell, entry, plan.records, plan.divided, plan.scale)
        base = Job(
            entry.name,
            (self.address.tls_bootstrap or "") if cell.tls else self.address.bootstrap,
            records,
            ca=self.address.ca if cell.tls else None,
            tuned=entry.tuned,
        )
        return replace(base, **{**cell.settings, "warm_up": warm_up_for(cell, records)})

    def _target(self, cell: Cell, job: Job) -> tuple[str, ...]:
        """Return empty topics to write to."""
        if cell.name not in self.kept:
            made = self.topics.make(cell.topics, job.partitions)
            if job.partitions < MANY_PARTITIONS and cell.topics == 1:
                return made
            self.kept[cell.name] = made
        return self.kept[cell.name]

    def _written(self, job: Job) -> Outcome:
        """Run a job that writes, and check that the topics grew by exactly its records.

        And by a marker at most per partition for each of its transactions.
        """
        before = self.topics.end_offsets(job.topics, job.partitions)
        outcome = run_job(job, self.caches)
        grown = self.topics.end_offsets(job.topics, job.partitions) - before
        wanted = outcome.pop("written", job.records + job.warm_up)
        markers = outcome.pop("transactions", 0) * job.partitions
        if "cpu" in outcome and not wanted <= grown <= wanted + markers:
            return {"error": f"the topic grew by {grown} records instead of {wanted}"}
        return outcome

    def _same_build(self, job: Job, outcome: Outcome) -> Outcome:
        """Fail a run if kclient was rebuilt meanwhile: the session would mix two builds."""
        found = outcome.get("build")
        if found is None:
            return outcome
        self.files = self.files or outcome.get("files")
        if outcome.get("files") != self.files:
            return {"error": "kclient's files changed while the session ran"}
        if self.build is None and not job.pure:
            self.build = found
        wanted = "pure" if job.pure else self.build
        if found != wanted:
            return {"error": f"kclient's build was {found}, that of the session is {wanted}"}
        return outcome

    def with_topics(self, cell: Cell, job: Job) -> Job:
        """Add filled topics to read, and a small one of the same kind to warm up on."""
        if cell.workload == "idle":
            if cell.name not in self.kept:
                self.kept[cell.name] = self.topics.make(1, job.partitions)
            return replace(job, topics=self.kept[cell.name])
        if cell.workload not in READING:
            return job
        source = self.topics.source(job, "read", cell.topics, job.records, job.partitions)
        if not job.spread:
            warm = self.topics.source(job, "warm", 1, job.warm_up, job.partitions)
            return replace(job, topics=source, warm_topics=warm, warm_partitions=job.partitions)
        # Responses grow with the number of partitions, up to 50 MiB. New buffers of that size
        # cause page faults; the comparison is about how a client runs after that.
        warm = self.topics.source(job, "warm", cell.topics, job.records // 2, job.partitions)
        return replace(
            job,
            topics=source,
            warm_topics=warm,
            warm_up=job.records // 2,
            warm_partitions=job.partitions,
        )


def worker_environment(job: Job, caches: str | None = None) -> dict[str, str]:
    """Return our environment without the variables that would change the figures.

    Byte code is cached, in the session's folder if there is one, whatever the user's shell sets:
    otherwise imports would be measured as compilations.
    """
    dropped = ("KCLIENT_PURE", "PYTHONDONTWRITEBYTECODE", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    if job.pure:
        environment["KCLIENT_PURE"] = "1"
    if caches is not None:
        environment["PYTHONPYCACHEPREFIX"] = caches
    return environment


def run_job(job: Job, caches: str | None = None) -> Outcome:
    """Run one job in a new process; the outcome of a failure has its last line of output."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.worker"],
            input=job.to_json(),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT,
            check=False,
            env=worker_environment(job, caches),
            cwd=Path(__file__).parents[1],
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no end within {RUN_TIMEOUT:.0f} s"}
    return _outcome(done.stdout, done.stderr, done.returncode)


def _outcome(stdout: str, stderr: str, code: int) -> Outcome:
    words = stderr.strip().splitlines()
    for line in reversed(stdout.splitlines()):
        if not line.startswith("{"):
            continue
        try:
            found: Outcome = json.loads(line)
        except ValueError:
            break
        if code and "error" not in found:
            return {"error": f"ended with code {code} after its figures: {' '.join(words[-1:])}"}
        return found
    return {"error": (words or [f"ended with code {code} and no word"])[-1]}


def choose(cells: Sequence[Cell], quick: bool, only: str | None) -> tuple[Cell, ...]:
    """Return the cells of a session; ``only`` selects by a part of the name of cell or
    entry, or by one of several such parts, with ``|`` between them.

    A quick session leaves out tuned and slow entries, and peers in cells that measure growth.
    """
    found = []
    for cell in cells:
        if quick and not cell.quick and only is None:
            continue
        if quick:
            cell = replace(
                cell, entries=tuple(name for name in cell.entries if _is_quick(cell, name))
            )
        if only is not None and not _named(only, cell.name):
            entries = tuple(entry for entry in cell.entries if _named(only, entry))
            if not entries:
                continue
            cell = replace(cell, entries=entries)
        found.append(cell)
    return tuple(found)


def _named(only: str, name: str) -> bool:
    return any(part in name.lower() for part in only.lower().split("|"))


def _is_quick(cell: Cell, name: str) -> bool:
    entry = ENTRIES[name]
    if cell.settings.get("spread"):
        return entry.client == KCLIENT
    return not (entry.tuned or entry.slow)
