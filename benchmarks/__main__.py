"""``python -m benchmarks``: kclient beside the other Python clients, on one real Apache Kafka.

See benchmarks/README.md for what is equal between the clients, what is counted and how to read it.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.about import about
from benchmarks.broker import NoBroker, broker
from benchmarks.cells import CELLS
from benchmarks.compare import differences, show_comparison
from benchmarks.entries import ENTRIES, KCLIENT
from benchmarks.floors import looked_at, read_floors, verdicts
from benchmarks.report import chart_subtitle, show, show_about, show_verdicts
from benchmarks.results import ROUNDS, Run, rounds_of
from benchmarks.runner import FEW, FEWER, Plan, Session, choose
from benchmarks.saved import NotASession, load, save
from benchmarks.topics import Topics
from kclient.errors import KafkaError

QUICK_ROUNDS = 3
QUICK_DIVIDED, QUICK_SCALE = 3, 0.5


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("--bootstrap", help="host:port of a broker; by default one is started")
    made.add_argument("--tls-bootstrap", help="its TLS listener, for the TLS cells")
    made.add_argument("--ca", help="PEM file of the authority that signed its certificate")
    made.add_argument("--quick", action="store_true", help="fewer cells, rounds and records")
    made.add_argument(
        "--only", metavar="PATTERN", help="cells or entries with this in their name, or this|that"
    )
    made.add_argument(
        "--rounds",
        type=positive,
        help=f"by default {ROUNDS}, but {FEW} for entries and {FEWER} for cells without a floor; "
        f"quick {QUICK_ROUNDS}",
    )
    made.add_argument("--records", type=positive, help="per run; by default as the cell says")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything, raw runs too")
    made.add_argument("--plots", type=Path, metavar="DIR", help="draw charts, PNG and SVG")
    made.add_argument("--show", type=Path, metavar="FILE", help="report (and plot) a saved session")
    made.add_argument(
        "--compare", type=Path, nargs=2, metavar="FILE", help="two saved sessions side by side"
    )
    made.add_argument(
        "--python",
        metavar="PROGRAM",
        help="the interpreter that runs all of this; kclient[bench] is installed there",
    )
    made.add_argument(
        "--profile", action="store_true", help="where kclient's time goes per record, by hop"
    )
    return made


def plan_for(options: argparse.Namespace) -> Plan:
    return Plan(
        choose(tuple(CELLS.values()), options.quick, options.only),
        rounds=options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS),
        every=None if options.rounds else looked_at(read_floors()),
        records=options.records,
        divided=QUICK_DIVIDED if options.quick else 1,
        scale=QUICK_SCALE if options.quick else 1.0,
    )


def measure(options: argparse.Namespace, plan: Plan) -> tuple[dict[str, Any], list[Run]]:
    """Return facts about the session and all runs; after an interruption, those made so far."""
    began = time.monotonic()

    def emit(text: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - began:5.0f} s] {text}\n")

    with (
        broker(options.bootstrap, options.tls_bootstrap, options.ca) as address,
        tempfile.TemporaryDirectory(prefix="kclient-bench-") as caches,
    ):
        topics = Topics(address.bootstrap, f"bench-{uuid.uuid4().hex[:6]}")
        topics.check()
        session = Session(address, plan, topics, emit, caches=caches)
        facts = about(address.version)
        facts["small"] = small(options)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            session.run()
        except KeyboardInterrupt:
            facts["interrupted"] = True
        finally:
            session.drop(sorted(topics.alive))
        facts["seconds"] = round(time.monotonic() - began)
    return facts, session.runs


def small(options: argparse.Namespace) -> bool:
    """Whether the session is smaller than those that floors are meant for."""
    return bool(options.quick or options.records or (options.rounds or ROUNDS) < ROUNDS)


def report(facts: dict[str, Any], runs: Sequence[Run]) -> None:
    """Tables and verdicts."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    chosen = {run.cell for run in runs}
    show_about(console, facts, runs)
    show(console, runs)
    found = verdicts([f for f in read_floors() if f.cell in chosen], runs)
    show_verdicts(console, found, small=facts.get("small", False) or rounds_of(runs) < ROUNDS)


def plot(folder: Path, facts: dict[str, Any], runs: Sequence[Run]) -> None:
    """Charts."""
    from benchmarks.plots import draw

    for path in draw(folder, runs, chart_subtitle(facts, runs)):
        sys.stdout.write(f"drawn: {path}\n")


def try_file(path: Path) -> None:
    """Raise OSError now, not after the session, if a file can't be written."""
    there = path.exists()
    with path.open("ab"):
        pass
    if not there:
        path.unlink()


def try_folder(path: Path) -> None:
    """The same for a folder, which is created."""
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path):
        pass


def refusal(options: argparse.Namespace) -> str | None:
    """Return why these options can't be followed, before anything is measured; None if they can."""
    if options.tls_bootstrap and not options.bootstrap:
        return "--tls-bootstrap needs --bootstrap: a broker that is started here has its own"
    if options.ca and not options.tls_bootstrap:
        return "--ca needs --tls-bootstrap: it is what signed that listener's certificate"
    for option, path, attempt in (
        ("--json", options.json, try_file),
        ("--plots", options.plots, try_folder),
    ):
        try:
            if path:
                attempt(path)
        except OSError as error:
            return f"{option} {path}: can't be written: {error.strerror}"
    if options.plots and importlib.util.find_spec("matplotlib") is None:
        return f"--plots {options.plots}: needs matplotlib: pip install 'kclient[bench]'"
    return None


def compare(paths: Sequence[Path]) -> int:
    first, second = (load(path)[1] for path in paths)
    names = (paths[0].stem, paths[1].stem)
    console = Console(width=None if sys.stdout.isatty() else 150)
    show_comparison(console, names, differences(first, second))
    return 0


def run_by(program: str, arguments: Sequence[str]) -> int:
    """Run the session with another interpreter, peers included; return its exit code."""
    try:
        # The last one of two options counts: the other interpreter must not start a third one.
        done = subprocess.run(
            [program, "-m", "benchmarks", *arguments, "--python", ""], check=False
        )
    except OSError as error:
        sys.stderr.write(f"--python {program}: can't be run: {error.strerror}\n")
        return 2
    return done.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(arguments)
    if options.python:
        return run_by(options.python, arguments)
    try:
        return _run(options)
    except (NoBroker, NotASession, KafkaError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except ImportError as error:
        sys.stderr.write(f"{error}: pip install 'kclient[bench]'\n")
        return 1


def _run(options: argparse.Namespace) -> int:
    refused = refusal(options)
    if refused is not None:
        sys.stderr.write(f"{refused}\n")
        return 2
    if options.compare:
        return compare(options.compare)
    if options.show:
        facts, runs = load(options.show)
        report(facts, runs)
        if options.plots:
            plot(options.plots, facts, runs)
        return 0
    if options.profile:
        from benchmarks.profiling.session import profile

        return profile(options)
    plan = plan_for(options)
    if not plan.cells:
        sys.stderr.write(f"no cell and no entry has {options.only!r} in its name\n")
        return 2
    facts, runs = measure(options, plan)
    try:
        report(facts, runs)
    finally:  # the terminal or a pipe may be closed; the runs, which took the time, must be saved
        if options.json:
            save(options.json, facts, runs)
    if options.plots:
        plot(options.plots, facts, runs)
    return 1 if ours_failed(runs) else 0


def ours_failed(runs: Sequence[Run]) -> bool:
    """Whether an entry of kclient failed; a peer's failure is shown, but isn't ours."""
    return any(ENTRIES[run.entry].client == KCLIENT and "error" in run.outcome for run in runs)


if __name__ == "__main__":
    sys.exit(main())
