"""``python -m benchmarks``: kclient beside the other Python clients, on one real Apache Kafka.

See benchmarks/README.md for what is equal between the clients, what is counted and how to read it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.about import about
from benchmarks.broker import NoBroker, broker
from benchmarks.cells import CELLS
from benchmarks.doors import DOORS, KCLIENT
from benchmarks.floors import read_floors, verdicts
from benchmarks.report import show, show_verdicts
from benchmarks.results import Run
from benchmarks.runner import Plan, Session, choose
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
    """All runs, and what they ran on."""
    err = Console(stderr=True)
    began = time.monotonic()

    def tell(text: str) -> None:
        err.print(f"[{time.monotonic() - began:5.0f} s] {text}", markup=False, highlight=False)

    with broker(options.bootstrap, options.tls_bootstrap, options.ca) as address:
        topics = Topics(address.bootstrap, f"bench-{uuid.uuid4().hex[:6]}")
        session = Session(address, plan, topics, tell)
        facts = about(address.version)
        try:
            session.run()
        finally:
            topics.delete(sorted(topics.alive))
        facts["seconds"] = round(time.monotonic() - began)
    return facts, session.runs


def save(path: Path, facts: dict[str, Any], runs: Sequence[Run]) -> None:
    text = json.dumps({"about": facts, "runs": [run.to_dict() for run in runs]}, indent=1)
    path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    plan = plan_for(options)
    if not plan.cells:
        sys.stderr.write(f"no cell and no door has {options.only!r} in its name\n")
        return 2
    try:
        facts, runs = measure(options, plan)
    except (NoBroker, KafkaError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        save(options.json, facts, runs)
    console = Console(width=None if sys.stdout.isatty() else 160)
    show(console, runs)
    chosen = {cell.name for cell in plan.cells}
    floors = [floor for floor in read_floors() if floor.cell in chosen]
    show_verdicts(console, verdicts(floors, runs))
    return 1 if ours_failed(runs) else 0


def ours_failed(runs: Sequence[Run]) -> bool:
    """Whether a door of kclient failed; a peer's failure is shown, but isn't ours."""
    return any(DOORS[run.door].client == KCLIENT and "error" in run.outcome for run in runs)


if __name__ == "__main__":
    sys.exit(main())
