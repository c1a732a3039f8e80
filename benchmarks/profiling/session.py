"""``--profile``: runs entries of kclient unprofiled and under py-spy, and shows microseconds by
hop.

py-spy stops the process ``RATE`` times per second and reads the Python and the native stack from
outside: there is no hook in the code that would make cheap functions look expensive. What is shown
is a hop's share of the samples, times the CPU of the unprofiled runs. Used by ``__main__``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.broker import broker
from benchmarks.cells import CELLS
from benchmarks.entries import ENTRIES
from benchmarks.job import Job
from benchmarks.profiling.hops import IN_HOPS, OUT_HOPS, REST
from benchmarks.profiling.stacks import Tally, count
from benchmarks.runner import Plan, Session, run_job, worker_environment
from benchmarks.topics import Topics

OUT_ENTRIES = ("kclient send", "kclient enqueue_nowait", "kclient send_many")
IN_ENTRIES = ("kclient poll", "kclient async for", "kclient poll_arrow")
GROUPS = (("produce: base", OUT_ENTRIES, OUT_HOPS), ("consume: base", IN_ENTRIES, IN_HOPS))
RECORDS = 1_000_000
RATE, ROUNDS, TOP = 500, 3, 12


@dataclass(frozen=True, slots=True)
class Profile:
    """One entry: CPU per record without and with the profiler, and where the samples were."""

    entry: str
    cpu_us: float
    profiled_us: float
    tally: Tally

    def microseconds(self, hop: str) -> float:
        return self.tally.hops[hop] / max(1, self.tally.total) * self.cpu_us


def profile(options: argparse.Namespace) -> int:
    """Profile the chosen entries and show the result; return the exit status."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        sys.stderr.write("--profile needs py-spy: pip install 'kclient[bench]'\n")
        return 1
    groups = chosen(options.only)
    if not groups:
        known = ", ".join((*OUT_ENTRIES, *IN_ENTRIES))
        sys.stderr.write(f"--only {options.only}: --profile has {known}\n")
        return 2
    console = Console(width=None if sys.stdout.isatty() else 150)
    with broker(options.bootstrap, None, None) as address:
        topics = Topics(address.bootstrap, f"bench-{uuid.uuid4().hex[:6]}")
        plan = Plan((), records=options.records or RECORDS)
        session = Session(address, plan, topics, lambda text: None)
        try:
            for cell, entries, hops in groups:
                show(console, [_profile(session, spy, cell, entry) for entry in entries], hops)
        finally:
            session.drop(sorted(topics.alive))
    return 0


def chosen(only: str | None) -> list[tuple[str, list[str], dict[str, str]]]:
    """Return cells with their entries that have ``only`` in the name, and their hops."""
    found = []
    for cell, entries, hops in GROUPS:
        mine = [entry for entry in entries if (only or "").lower() in entry.lower()]
        if mine:
            found.append((cell, mine, hops))
    return found


def _profile(session: Session, spy: str, cell_name: str, entry: str) -> Profile:
    cell = CELLS[cell_name]
    job = session.job(cell, ENTRIES[entry])
    if cell.workload == "produce":
        job = replace(job, topics=session.topics.make(1, job.partitions))
    else:
        job = session.with_topics(cell, job)
    plain = [run_job(job) for _ in range(ROUNDS)]
    for outcome in plain:
        if "cpu_us" not in outcome:
            raise SystemExit(f"{entry}: {outcome.get('error') or outcome.get('missing')}")
    tally, spied = _spy(spy, job, out=cell.workload == "produce")
    session.drop(job.topics if cell.workload == "produce" else ())
    return Profile(entry, statistics.median(one["cpu_us"] for one in plain), spied, tally)


def _spy(spy: str, job: Job, out: bool) -> tuple[Tally, float]:
    """Run ``job`` under py-spy; return the samples, and the CPU per record of that run."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "stacks"
        command = [spy, "record", "--native", "--full-filenames", "--rate", str(RATE)]
        command += ["--format", "raw", "--output", str(raw), "--"]
        command += [sys.executable, "-m", "benchmarks.worker"]
        done = subprocess.run(
            command,
            input=job.to_json(),
            capture_output=True,
            text=True,
            check=False,
            env=worker_environment(job),
            cwd=Path(__file__).parents[2],
        )
        if not raw.exists():
            words = done.stderr.strip().splitlines() or ["no word"]
            raise SystemExit(f"py-spy made no profile (it may need root or ptrace): {words[-1]}")
        lines = raw.read_text(encoding="utf-8").splitlines()
    return count(lines, out), _profiled_cost(done.stdout)


def _profiled_cost(output: str) -> float:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            cost: float = json.loads(line).get("cpu_us", 0.0)
            return cost
    return 0.0


def show(console: Console, found: list[Profile], hops: dict[str, str]) -> None:
    """Print a row per hop and a column per entry, then the functions with the most samples."""
    table = Table(title="CPU us/record by hop", title_style="bold", title_justify="left")
    table.add_column("hop")
    for one in found:
        table.add_column(one.entry, justify="right")
    for number, name in hops.items():
        table.add_row(f"{number:>2} {name}", *[_cell(one, number) for one in found])
    table.add_section()
    for name in REST:
        table.add_row(name, *[_cell(one, name) for one in found])
    table.add_section()
    sums = [sum(one.microseconds(hop) for hop in one.tally.hops) for one in found]
    table.add_row("sum", *[f"{value:.3f}" for value in sums])
    table.add_row("unprofiled runs", *[f"{one.cpu_us:.3f}" for one in found])
    table.add_row("the profiled run", *[f"{one.profiled_us:.3f}" for one in found])
    table.add_row("samples", *[f"{one.tally.total:,}" for one in found])
    console.print(table)
    for one in found:
        _show_functions(console, one)


def _cell(one: Profile, hop: str) -> str:
    value = one.microseconds(hop)
    return f"{value:.3f}" if value else ""


def _show_functions(console: Console, one: Profile) -> None:
    top: Counter[str] = one.tally.functions
    console.print(f"[bold]{one.entry}[/]: where the samples were")
    for name, samples in top.most_common(TOP):
        share = samples / max(1, one.tally.total)
        console.print(f"  {share * one.cpu_us:7.3f} us  {share:4.0%}  {name}", highlight=False)
