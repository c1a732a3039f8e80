"""What the clients play on: the embedded cluster in a child process, or Apache Kafka.

The tests of this folder and `python -m tests.foreign` ask for one. It knows nothing of clients.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import kafka, raw_admin

EMBEDDED_BROKERS = 3
_START_TIMEOUT = 30.0
_END_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Target:
    """A broker or cluster that is up.

    Attributes:
        bootstrap: Its addresses.
        brokers: How many.
    """

    bootstrap: str
    brokers: int


@contextlib.contextmanager
def target(broker: str) -> Iterator[Target]:
    """What ``broker`` names: "embedded", a release of Apache Kafka, or the address of one."""
    if broker == "embedded":
        with _embedded() as served:
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
def _embedded() -> Iterator[Target]:
    command = [sys.executable, "-m", "tests.foreign.served", "--brokers", str(EMBEDDED_BROKERS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            bootstrap = child.stdout.readline().strip()
            if not bootstrap:
                raise RuntimeError("the embedded cluster didn't come up; why is on standard error")
            yield Target(bootstrap, EMBEDDED_BROKERS)
        finally:
            child.stdin.close()
            try:
                child.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
    if child.returncode:
        raise RuntimeError(f"the embedded cluster ended with status {child.returncode}")
