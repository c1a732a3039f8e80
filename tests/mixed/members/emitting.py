"""What all member programs have in common: their command line, and the lines that they report.

A line is an object in JSON: "what" is one of `up`, `assigned`, `revoked`, `lost`, `read`,
`committed`, `error`, `left`; "at" the monotonic clock, which all processes of a machine share.
`read` is reported before what was read may be committed, so a member that is killed in between has
reported it. A program ends when its standard input does, as its owner has then died.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterable

COMMIT_EVERY = 0.5
"""Seconds between two commits of programs that commit by themselves."""


def arguments() -> argparse.Namespace:
    """The command line of a member."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True, help="the client id")
    parser.add_argument("--assignor", required=True)
    parser.add_argument("--session", type=float, required=True, help="seconds")
    parser.add_argument("--heartbeat", type=float, required=True, help="seconds")
    parser.add_argument("--request-timeout", type=float, required=True, help="seconds")
    parser.add_argument("--way", default="", help="how it reads and commits, where there are more")
    options = parser.parse_args()
    threading.Thread(target=_end_with_the_owner, daemon=True).start()
    return options


def emit(what: str, partitions: Iterable[int] = (), **more: object) -> None:
    """Write one line."""
    line: dict[str, object] = {"what": what, "at": time.monotonic(), **more}
    parts = sorted(partitions)
    if parts or what in ("assigned", "revoked", "lost"):
        line["partitions"] = parts
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def report_read(places: Iterable[tuple[int, int]]) -> None:
    """Report the records, as (partition, offset), that the client returned, in gapless runs."""
    runs: list[list[int]] = []
    latest: dict[int, list[int]] = {}
    for partition, offset in places:
        run = latest.get(partition)
        if run is not None and offset == run[2] + 1:
            run[2] = offset
        else:
            latest[partition] = run = [partition, offset, offset]
            runs.append(run)
    if runs:
        emit("read", runs=runs)


def report_error(error: BaseException, where: str) -> None:
    """Report an error that the program survives."""
    emit("error", where=where, error=f"{type(error).__name__}: {error}"[:500])


def _end_with_the_owner() -> None:
    sys.stdin.read()
    os._exit(3)
