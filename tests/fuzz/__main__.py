"""The fuzzer's command: ``python -m tests.fuzz``, with ``--long`` for much more than CI does.

    python -m tests.fuzz                                       as CI: fixed seed, 200,000 mutants
    python -m tests.fuzz --long --seed 7 --mutants 5000000     other mutants, many of them
    python -m tests.fuzz --target fetch --target clients --mutants 50000
    python -m tests.fuzz.portion TARGET SEED NUMBER 1          one of them again

It prints counts by operator and outcome; ``--report PATH`` keeps them as JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.campaign import COUNTS, Found, portions, run, scaled
from tests.fuzz.tally import Tally

LONG = 5_000_000


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--long", action="store_true", help=f"{LONG:,} mutants if not said")
    parser.add_argument("--seed", type=int, default=0, help="0 is that of CI")
    parser.add_argument("--mutants", type=int, help="about how many in all")
    parser.add_argument("--target", action="append", choices=list(COUNTS), help="only these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--report", type=Path, help="write the counts to this file as JSON")
    return parser.parse_args()


def main() -> int:
    """Run it."""
    asked = arguments()
    mutants = asked.mutants or (LONG if asked.long else None)
    counts = {name: COUNTS[name] for name in asked.target or COUNTS}
    if mutants is not None:
        counts = scaled(mutants, asked.target)
    tally = Tally()
    status = 0
    try:
        for portion, part in run(list(portions(counts, asked.seed)), asked.jobs):
            tally.merge(part)
            sys.stderr.write(
                f"{portion.target} {portion.first} to {portion.first + portion.count}\n"
            )
    except Found as found:
        sys.stderr.write(f"{found}\n")
        status = 1
    sys.stdout.write(f"{tally.table()}\n")
    if asked.report is not None:
        asked.report.write_text(tally.to_json() + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
