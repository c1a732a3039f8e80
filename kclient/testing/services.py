"""What all brokers of an embedded cluster share: its inside, faults, requests, clock and networks.

Made by ``Cluster``, read by ``Broker``. It opens nothing and serves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from kclient.clock import Clock
from kclient.testing.faults import Faults
from kclient.testing.inside import Inside
from kclient.testing.memory_net import MemoryNet
from kclient.testing.request_log import RequestLog

if TYPE_CHECKING:
    from kclient.testing.broker import Broker

LOOPBACK = "127.0.0.1"
"""Where brokers listen if nothing else is said."""

INNER = 0
"""The number of connections from other brokers; those of clients count from 1."""


class Services:
    """What all brokers of a cluster share.

    Attributes:
        inside: How they hold together.
        network: Where clients find them; None for sockets.
        loop: In which the cluster was started.
        inner_network: Where they find each other; None for sockets.
        brokers: All of them, by node id.
    """

    def __init__(
        self,
        inside: Inside,
        faults: Faults,
        requests: RequestLog,
        clock: Clock,
        rng: random.Random,
        network: MemoryNet | None = None,
    ) -> None:
        self.inside = inside
        self.faults = faults
        self.requests = requests
        self.clock = clock
        self.rng = rng
        self.network = network
        self.inner_network: MemoryNet | None = None
        self.brokers: dict[int, Broker] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._now = 0.0
        self._connections = INNER
        self._producer_ids = -1

    @property
    def is_running(self) -> bool:
        """The caller is in the cluster's loop."""
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self.loop
        return False

    def running(self) -> asyncio.AbstractEventLoop:
        """The loop that the cluster was started in."""
        return self.loop or asyncio.get_running_loop()

    def now(self) -> float:
        """Monotonic seconds; while no loop runs, those of the last call."""
        with contextlib.suppress(RuntimeError):
            self._now = self.clock.now()
        return self._now

    def next_connection(self) -> int:
        """A number for a new connection of a client."""
        self._connections += 1
        return self._connections

    def new_producer_id(self) -> int:
        """An id that no producer has."""
        self._producer_ids += 1
        return self._producer_ids
