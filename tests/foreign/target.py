"""What the clients play on: the embedded cluster in a child process, or Apache Kafka.

The tests of this folder and `python -m tests.foreign` ask for one. It knows nothing of clients.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import kafka, raw_admin

EMBEDDED_BROKERS = 3
EMBEDDED = {"embedded": 2, "embedded-v1": 1, "embedded-secured": 2}
"""The embedded clusters, with their level of the feature ``transaction.version``."""
SECURED = "embedded-secured"
_START_TIMEOUT = 30.0
_END_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Target:
    """A broker or cluster that is up.

    Attributes:
        bootstrap: Its addresses.
        brokers: How many.
        end_versions: Returns the versions of EndTxn that clients have sent since its last call;
            None for Apache Kafka, which doesn't tell.
        ca_file: PEM of the authority to trust, where clients must log in, over TLS.
    """

    bootstrap: str
    brokers: int
    end_versions: Callable[[], list[int]] | None = None
    ca_file: str | None = None


@contextlib.contextmanager
def target(broker: str) -> Iterator[Target]:
    """What ``broker`` names.

    That is "embedded", "embedded-v1" with version 1 of the transaction protocol,
    "embedded-secured" with TLS and logins, a release of Apache Kafka, or the address of a broker.
    """
    if broker in EMBEDDED:
        with _embedded(EMBEDDED[broker], secured=broker == SECURED) as served:
            yield served
    elif ":" in broker:
        yield at(broker)
    else:
        running = kafka.acquire(broker)
        try:
            yield at(running.bootstrap)
        finally:
            kafka.release(broker)


def at(bootstrap: str) -> Target:
    """Brokers that are up already."""
    raw_admin.wait_ready(bootstrap, _START_TIMEOUT)
    return Target(bootstrap, len(raw_admin.metadata(bootstrap, []).brokers))


@contextlib.contextmanager
def _embedded(transaction_version: int, *, secured: bool) -> Iterator[Target]:
    command = [sys.executable, "-m", "tests.foreign.served", "--brokers", str(EMBEDDED_BROKERS)]
    command += ["--transaction-version", str(transaction_version)]
    command += ["--secured"] if secured else []
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        said, asked = child.stdout, child.stdin
        assert said is not None and asked is not None

        def end_versions() -> list[int]:
            asked.write("\n")
            asked.flush()
            versions: list[int] = json.loads(said.readline())
            return versions

        try:
            line = said.readline()
            if not line:
                raise RuntimeError("the embedded cluster didn't come up; why is on standard error")
            bootstrap, authority = json.loads(line)
            ca_file = Path(folder) / "ca.pem"
            ca_file.write_text(authority or "")
            trusted = str(ca_file) if authority else None
            yield Target(bootstrap, EMBEDDED_BROKERS, end_versions, trusted)
        finally:
            asked.close()
            try:
                child.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
    if child.returncode:
        raise RuntimeError(f"the embedded cluster ended with status {child.returncode}")
