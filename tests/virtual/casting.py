"""The clients of one simulated run: their settings, and what happened to them.

``simulation`` makes one ``Cast`` per run; the workers of ``producing`` and ``consuming`` make their
clients with it, including each replacement.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import kclient
from kclient.hooks import ConnectionOpened, Event

BOOTSTRAP_TIMEOUT = 4.0
"""Seconds within which a client must be connected, or fail."""
API_TIMEOUT = 20.0
"""Seconds that a call takes with its retries, and after which a consumer reports a stall."""


class Reconnects:
    """Counts connections to brokers that had one before; an observer of one client."""

    def __init__(self) -> None:
        self.count = 0
        self._known: set[tuple[int, str]] = set()

    def observe(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, ConnectionOpened):
            self.count += (event.node_id, event.lane) in self._known
            self._known.add((event.node_id, event.lane))


class Cast:
    """All clients of one run."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._observers: list[Reconnects] = []
        self._clients: list[Any] = []

    def producer(self, settings: dict[str, Any]) -> kclient.Producer[Any, Any]:
        """A producer, not started yet."""
        made: Any = kclient.Producer(self._bootstrap, observers=[self._observer()], **settings)
        self._clients.append(made)
        return made

    def consumer(
        self, topics: Sequence[str], settings: dict[str, Any]
    ) -> kclient.Consumer[Any, Any]:
        """A consumer of whole topics, or of none; not started yet."""
        made: Any = kclient.Consumer(
            self._bootstrap, *topics, observers=[self._observer()], **settings
        )
        self._clients.append(made)
        return made

    @property
    def reconnects(self) -> int:
        """Connections reopened to brokers that had one before."""
        return sum(observer.count for observer in self._observers)

    @property
    def retries(self) -> int:
        """Batches and fetches that had to be sent again."""
        names = ("producer.retries", "consumer.fetch_failures")
        return sum(int(one.metrics().get(name, 0)) for one in self._clients for name in names)

    def _observer(self) -> Reconnects:
        self._observers.append(Reconnects())
        return self._observers[-1]


def producer_settings(rng: random.Random) -> dict[str, Any]:
    """Draw the settings of one producer."""
    short = rng.random() < 0.25  # of memory
    return {
        **_common_settings(rng),
        "idempotence": rng.random() < 0.9,
        "compression": rng.choice(("none", "none", "lz4", "gzip")),
        "batch_size": rng.choice((150, 500, 4_000) if short else (150, 500, 2_000, 65_536)),
        "linger": rng.choice((0.0, 0.0, 0.005, 0.05)),
        "max_in_flight": rng.choice((1, 3, 5, 5)),
        "buffer_memory": 4_000 if short else 32 << 20,
        "delivery_timeout": rng.choice((0.3, 1.0, 3.0, 120.0, 120.0, 120.0)),
        "max_block": rng.choice((0.5, 60.0, None)),
    }


def consumer_settings(rng: random.Random) -> dict[str, Any]:
    """Draw the settings of one consumer."""
    return {
        **_common_settings(rng),
        "auto_offset_reset": "earliest",
        "isolation_level": rng.choice(("read_uncommitted", "read_committed")),
        "fetch_max_wait": rng.choice((0.1, 0.5, 0.5)),
        "max_partition_fetch_bytes": rng.choice((200, 5_000, 1 << 20)),
        "buffer_memory": rng.choice((5_000, 64 << 20)),
    }


def _common_settings(rng: random.Random) -> dict[str, Any]:
    return {
        "bootstrap_timeout": BOOTSTRAP_TIMEOUT,
        "api_timeout": API_TIMEOUT,
        "request_timeout": rng.choice((1.0, 3.0, 10.0)),
        "connection_setup_timeout": 1.0,
        "connection_setup_timeout_max": rng.choice((1.0, 4.0)),
        "retry_backoff": rng.choice((0.01, 0.1)),
        "metadata_max_age": rng.choice((1.0, 300.0)),
    }
