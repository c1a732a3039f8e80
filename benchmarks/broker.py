"""The one broker of a session: given by address, or an Apache Kafka 4.3.0 started here.

Starting needs a checkout (``tests.support.kafka`` fetches the jars and runs them with Java); an
installed package has only ``--bootstrap``. Errors are one sentence each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

RELEASE = "4.3.0"


class NoBroker(Exception):
    """There is no broker to measure against; the text states what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the broker is."""

    bootstrap: str
    tls_bootstrap: str | None
    ca: str | None
    version: str


@contextlib.contextmanager
def broker(bootstrap: str | None, tls_bootstrap: str | None, ca: str | None) -> Iterator[Address]:
    """The broker at an address, or one of our own that ends with the block.

    Raises:
        NoBroker: No address was given, and no broker can be started.
    """
    if bootstrap is not None:
        yield Address(bootstrap, tls_bootstrap, ca, "as found at --bootstrap")
        return
    try:
        from tests.support import kafka, tls
    except ImportError as error:
        raise NoBroker(
            "--bootstrap is needed: a broker can only be started from a checkout of the project "
            f"({error})"
        ) from error
    try:
        running = kafka.acquire(RELEASE)
        certificate = str(tls.certificate())
    except (RuntimeError, OSError) as error:
        raise NoBroker(
            f"Apache Kafka {RELEASE} could not be started, so give --bootstrap: {error}"
        ) from error
    try:
        yield Address(running.bootstrap, running.tls_bootstrap, certificate, RELEASE)
    finally:
        kafka.release(RELEASE)
