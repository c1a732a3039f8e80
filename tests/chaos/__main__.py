"""``python -m tests.chaos``: break three real nodes under a load, and report the outcome.

    python -m tests.chaos                       # as in CI: 200,000 records, 3 kills, 100 cuts
    python -m tests.chaos --minutes 10          # faults at a steady rhythm for ten minutes
    python -m tests.chaos --records 2000000 --kills 12 --stops 6 --cuts 500

Ends with 0 if nothing is wrong, and 1 if a record is lost, doubled, out of order or reported
wrongly, if the run is not the one that was asked for, or if the nodes don't come up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.plan import Wishes
from tests.chaos.report import Result, as_json, figures, passed, text
from tests.chaos.run import run
from tests.support.nodes import three_nodes

COMPRESSIONS = ("mix", "none", "gzip", "snappy", "lz4", "zstd")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    wishes = Wishes(
        minutes=options.minutes,
        records=options.records,
        kills=options.kills,
        stops=options.stops,
        cuts=options.cuts,
        seed=options.seed,
        partitions=options.partitions,
        producers=options.producers,
        compression=options.compression,
    )
    begun = time.monotonic()

    def emit(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:6.1f} s  {line}\n")
        sys.stdout.flush()

    emit(f"seed {wishes.seed}: starting three nodes of {options.version}")
    try:
        with quiet(options.verbose), three_nodes(options.version, purpose="chaos") as nodes:
            started = time.monotonic() - begun
            emit("they are up")
            result = asyncio.run(run(wishes, nodes, emit))
    except Exception:
        traceback.print_exc()
        sys.stdout.write(f"FAILED: the run with seed {wishes.seed} did not come to an end\n")
        return 1
    result.seconds = {"nodes": started, **result.seconds, "all": time.monotonic() - begun}
    return _show(result, options.json)


@contextlib.contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """Let clients log errors only, unless more is wanted: nodes that go away are expected here."""
    log = logging.getLogger("kclient")
    level = log.level
    if not verbose:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _show(result: Result, path: Path | None) -> int:
    known = figures(result)
    good = passed(result, known)
    sys.stdout.write(text(result, known) + "\n")
    if path is not None:
        path.write_text(json.dumps(as_json(result, known), indent=1) + "\n")
    sys.stdout.write(f"{'passed' if good else 'FAILED'}: chaos with seed {result.wishes.seed}\n")
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    unset = "as many as there is time for with --minutes, else"
    parser.add_argument("--minutes", type=_positive, help="how long it lasts, about")
    parser.add_argument("--records", type=_count, help="to be acknowledged; without: 200,000")
    parser.add_argument("--kills", type=_count, help=f"leaders killed; {unset} 3")
    parser.add_argument("--stops", type=_count, help=f"leaders stopped for a while; {unset} none")
    parser.add_argument("--cuts", type=_count, help=f"connections cut; {unset} 100")
    parser.add_argument("--seed", type=int, default=1, help="what follows from chance")
    parser.add_argument("--partitions", type=_positive_count, default=12)
    parser.add_argument("--producers", type=_positive_count, default=7)
    parser.add_argument("--compression", choices=COMPRESSIONS, default="mix")
    parser.add_argument("--version", default="4.3.0", help="release of Apache Kafka")
    parser.add_argument("--verbose", action="store_true", help="show what clients log")
    parser.add_argument("--json", type=Path, help="write the report to this file, too")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _positive_count(text: str) -> int:
    value = _count(text)
    if not value:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0.0:
        raise argparse.ArgumentTypeError("must be over 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
