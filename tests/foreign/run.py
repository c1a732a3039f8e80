"""Runs the program of one foreign client to its end and reads the outcomes that it reports.

The tests of this folder and `python -m tests.foreign` call it. A feature that the program didn't
reach, because it hung or died, has failed; the end of its standard error is in the report.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.foreign.features import FEATURES
from tests.foreign.login import MECHANISMS
from tests.foreign.target import Target

CLIENTS = ("librdkafka", "kafka_python", "java", "aiokafka", "franz_go", "kcat")
CI_CLIENTS = CLIENTS[:3]
"""Those that CI runs; the others only `python -m tests.foreign`."""
SECURED_FEATURES = (
    *("cluster.describe", "topics.create", "configs.alter", "produce.records"),
    *("produce.idempotent", "consume.assign", "groups.commit", "groups.rebalance"),
    *("transactions.commit", "transactions.offsets", "transactions.describe", "load"),
)
"""What CI plays over TLS with logins."""
_LIMIT = 400.0
"""Seconds for all features of one client."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one feature went.

    Attributes:
        feature: Its name.
        status: "unable" means that the client reports the feature as missing.
        why: The error, or what it lacks.
        seen: What the client saw.
        seconds: How long it took.
    """

    feature: str
    status: Literal["ok", "failed", "unable"]
    why: str = ""
    seen: Any = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """All outcomes of one client.

    Attributes:
        client: Its name.
        version: Its version, as it reports it.
        outcomes: By feature.
        end_versions: The versions of EndTxn that it sent; None where the brokers don't tell.
    """

    client: str
    version: str
    outcomes: dict[str, Outcome]
    end_versions: tuple[int, ...] | None = None


def run(client: str, target: Target, only: Sequence[str] = ()) -> Report:
    """Play a client's features, by default all, on ``target``."""
    command = [sys.executable, "-m", f"tests.foreign.clients.{client}"]
    command += ["--bootstrap", target.bootstrap, "--brokers", str(target.brokers)]
    if target.ca_file is not None:
        command += ["--ca", target.ca_file, "--mechanism", MECHANISMS.get(client, "SCRAM-SHA-512")]
    if only:
        command += ["--only", *only]
    if target.end_versions is not None:
        target.end_versions()  # those of the client before it
    with tempfile.TemporaryFile("w+") as reported, tempfile.TemporaryFile("w+") as said:
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=reported, stderr=said, timeout=_LIMIT
            ).returncode
        except subprocess.TimeoutExpired:
            ended = -1
        reported.seek(0)
        said.seek(0)
        lines, words = reported.read().splitlines(), said.read()[-6000:]
    report = outcomes_of(client, lines, words, ended, only or tuple(FEATURES))
    if target.end_versions is None:
        return report
    return replace(report, end_versions=tuple(target.end_versions()))


def outcomes_of(
    client: str, lines: Sequence[str], said: str, ended: int, wanted: Sequence[str]
) -> Report:
    """Read the outcomes that a program reported.

    Args:
        client: Its name.
        lines: What it wrote to standard output.
        said: The end of what it wrote to standard error.
        ended: Its exit status.
        wanted: The features that it was to play.
    """
    version = "?"
    outcomes: dict[str, Outcome] = {}
    for line in lines:
        try:
            one = json.loads(line)
        except ValueError:  # it ended in the middle of a line
            continue
        name, why = one["feature"], one.get("error") or one.get("why") or ""
        if name == "version":
            version = str(one["seen"])
        else:
            seen, seconds = one.get("seen"), one.get("seconds", 0.0)
            outcomes[name] = Outcome(name, one["status"], why, seen, seconds)
    for name in wanted:
        if name not in outcomes:
            why = f"not reached; status {ended}{f': {said}' if said else ''}"
            outcomes[name], said = Outcome(name, "failed", why), ""
    return Report(client, version, outcomes)
