"""`python -m tests.foreign`: the matrix of foreign clients and what they did.

    python -m tests.foreign [--broker embedded|embedded-v1|embedded-secured|4.3.0|HOST:PORT]
        [--clients NAME ...] [--only FEATURE ...] [--seen FILE] [--against FILE]

``--seen`` keeps what each client saw, ``--against`` compares it with what was kept on another
broker: a difference is one that the scripts themselves don't judge. Exits 1 where something failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.foreign.features import FEATURES
from tests.foreign.run import CLIENTS, Report, run
from tests.foreign.target import target

_WORDS = {"ok": "ok", "unable": "-", "failed": "FAILED"}


def matrix(reports: Sequence[Report], rows: Sequence[str]) -> str:
    """The matrix as a table in Markdown."""
    lines = [
        "| feature | " + " | ".join(one.client for one in reports) + " |",
        "|---|" + "---|" * len(reports),
        "| version | " + " | ".join(one.version for one in reports) + " |",
    ]
    if any(one.end_versions is not None for one in reports):
        spoken = (", ".join(map(str, one.end_versions or ())) for one in reports)
        lines.append("| EndTxn | " + " | ".join(spoken) + " |")
    for row in rows:
        words = [_WORDS[one.outcomes[row].status] for one in reports]
        lines.append(f"| {row}: {FEATURES[row]} | " + " | ".join(words) + " |")
    return "\n".join(lines)


def notes(reports: Sequence[Report]) -> str:
    """What clients can't do, and what failed."""
    return "\n".join(
        f"{report.client} {one.feature} {one.status}: {one.why.strip()}"
        for report in reports
        for one in report.outcomes.values()
        if one.status != "ok"
    )


def compare(reports: Sequence[Report], kept: dict[str, dict[str, object]]) -> str:
    """What clients saw otherwise than in another run."""
    lines = []
    for report in reports:
        for name, one in report.outcomes.items():
            other = kept.get(report.client, {}).get(name)
            if one.status == "ok" and other is not None and one.seen != other:
                lines.append(
                    f"{report.client} {name} differs:\n  here  {json.dumps(one.seen)}\n"
                    f"  there {json.dumps(other)}"
                )
    return "\n".join(lines)


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.foreign")
    parser.add_argument("--broker", default="embedded")
    parser.add_argument("--clients", nargs="*", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--only", nargs="*", choices=FEATURES, default=())
    parser.add_argument("--seen", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    with target(options.broker) as place:
        reports = [run(client, place, options.only) for client in options.clients]
    write = sys.stdout.write
    write(matrix(reports, options.only or tuple(FEATURES)) + "\n\n" + notes(reports) + "\n")
    if options.seen:
        kept = {
            one.client: {name: outcome.seen for name, outcome in one.outcomes.items()}
            for one in reports
        }
        options.seen.write_text(json.dumps(kept, indent=1, sort_keys=True))
    if options.against:
        write(compare(reports, json.loads(options.against.read_text())) + "\n")
    statuses = [one.status for report in reports for one in report.outcomes.values()]
    times = {one.client: sum(o.seconds for o in one.outcomes.values()) for one in reports}
    reported = ", ".join(f"{client} {seconds:.1f} s" for client, seconds in times.items())
    failed = statuses.count("failed")
    write(f"{statuses.count('ok')} ok, {failed} failed, {statuses.count('unable')} ")
    write(f"not in the client; {reported}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
