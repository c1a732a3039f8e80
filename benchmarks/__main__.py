"""``python -m benchmarks``: kclient beside the other Python clients, on one real Apache Kafka.

See benchmarks/README.md for what is equal between the clients, what is counted and how to read it.
"""

from __future__ import annotations

import argparse
import signal
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
from benchmarks.doors import DOORS, KCLIENT
from benchmarks.floors import read_floors, verdicts
from benchmarks.report import show, show_about, show_verdicts, subtitle
from benchmarks.results import Run
from benchmarks.runner import Plan, Session, choose
from benchmarks.saved import NotASession, load, save
from benchmarks.topics import Topics
from kclient.errors import KafkaError

QUICK_ROUNDS, ROUNDS = 3, 5
QUICK_SECONDS, SECONDS = 0.15, 0.3
QUICK_SCALE = 0.5


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("--bootstrap", help="host:port of a broker; by default one is started")
    made.add_argument("--tls-bootstrap", help="its TLS listener, for the TLS cells")
    made.add_argument("--ca", help="PEM file of the authority that signed its certificate")
    made.add_argument("--quick", action="store_true", help="fewer cells, rounds and records")
    made.add_argument("--only", metavar="PATTERN", help="cells or doors with this in their name")
    made.add_argument("--rounds", type=int, help=f"by default {ROUNDS}, quick {QUICK_ROUNDS}")
    made.add_argument("--records", type=int, help="per run; by default by the door's speed")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything, raw runs too")
    made.add_argument("--plots", type=Path, metavar="DIR", help="draw charts, PNG and SVG")
    made.add_argument("--show", type=Path, metavar="FILE", help="report (and plot) a saved session")
    made.add_argument(
        "--compare", type=Path, nargs=2, metavar="FILE", help="two saved sessions side by side"
    )
    made.add_argument(
        "--profile", action="store_true", help="where kclient's time goes per record, by hop"
    )
    return made


def plan_for(options: argparse.Namespace) -> Plan:
    return Plan(
        choose(tuple(CELLS.values()), options.quick, options.only),
        rounds=options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS),
        seconds=QUICK_SECONDS if options.quick else SECONDS,
        records=options.records,
        scale=QUICK_SCALE if options.quick else 1.0,
    )


def measure(options: argparse.Namespace, plan: Plan) -> tuple[dict[str, Any], list[Run]]:
    """All runs, and what they ran on; after an interruption what there is."""
    began = time.monotonic()

    def tell(text: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - began:5.0f} s] {text}\n")

    with (
        broker(options.bootstrap, options.tls_bootstrap, options.ca) as address,
        tempfile.TemporaryDirectory(prefix="kclient-bench-") as caches,
    ):
        topics = Topics(address.bootstrap, f"bench-{uuid.uuid4().hex[:6]}")
        topics.check()
        session = Session(address, plan, topics, tell, caches=caches)
        facts = about(address.version)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            session.run()
        except KeyboardInterrupt:
            facts["interrupted"] = True
        finally:
            topics.delete(sorted(topics.alive))
        facts["seconds"] = round(time.monotonic() - began)
    return facts, session.runs


def report(options: argparse.Namespace, facts: dict[str, Any], runs: Sequence[Run]) -> None:
    """Tables, verdicts, charts."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    chosen = {run.cell for run in runs}
    show_about(console, facts)
    show(console, runs)
    show_verdicts(console, verdicts([f for f in read_floors() if f.cell in chosen], runs))
    if options.plots:
        from benchmarks.plots import draw

        for path in draw(options.plots, runs, subtitle(facts)):
            console.print(f"drawn: {path}")


def compare(paths: Sequence[Path]) -> int:
    first, second = (load(path)[1] for path in paths)
    names = (paths[0].stem, paths[1].stem)
    console = Console(width=None if sys.stdout.isatty() else 150)
    show_comparison(console, names, differences(first, second))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except (NoBroker, NotASession, KafkaError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except ImportError as error:
        sys.stderr.write(f"{error}: pip install 'kclient[bench]'\n")
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.compare:
        return compare(options.compare)
    if options.show:
        report(options, *load(options.show))
        return 0
    if options.profile:
        from benchmarks.profiling.session import profile

        return profile(options)
    plan = plan_for(options)
    if not plan.cells:
        sys.stderr.write(f"no cell and no door has {options.only!r} in its name\n")
        return 2
    facts, runs = measure(options, plan)
    if options.json:
        save(options.json, facts, runs)
    report(options, facts, runs)
    return 1 if ours_failed(runs) else 0


def ours_failed(runs: Sequence[Run]) -> bool:
    """Whether a door of kclient failed; a peer's failure is shown, but isn't ours."""
    return any(DOORS[run.door].client == KCLIENT and "error" in run.outcome for run in runs)


if __name__ == "__main__":
    sys.exit(main())
