"""State shared by all brokers of a cluster: control plane, faults, request log, clock, networks.

Made by ``Cluster``, read by ``Broker``. It knows whether the cluster is started, and in which loop;
calls that change the cluster go through ``check`` or ``changes_cluster`` first. It opens no
listener and serves no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from kclient.clock import Clock
from kclient.errors import ClientClosed, WrongContext
from kclient.testing.control_plane import ControlPlane
from kclient.testing.faults import Faults
from kclient.testing.listeners import INNER
from kclient.testing.memory_net import MemoryNet
from kclient.testing.request_log import RequestLog

if TYPE_CHECKING:
    from kclient.testing.broker import Broker
    from kclient.testing.cluster_security import ClusterSecurity
    from kclient.testing.cluster_topics import ClusterTopics

LOOPBACK = "127.0.0.1"
"""Default host of brokers."""


START = "start() it, or use it in 'async with', or in 'with' where it has a thread"
"""Hint of errors about a cluster that isn't started."""
_ANOTHER = "make a cluster inside the same asyncio.run as its clients"


def _elsewhere() -> WrongContext:
    return WrongContext(
        "the cluster was started in another event loop, or its loop runs in another thread",
        hint="from other threads use a kclient.testing.ThreadedCluster",
    )


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    return _get_running_loop() is loop


@dataclass(eq=False, repr=False)
class SharedState:
    """State that all brokers of a cluster share.

    Attributes:
        control_plane: The control plane.
        network: The network for clients; None for sockets.
        security: How clients are let in; None for everyone.
        loop: The loop in which the cluster was started.
        inner_network: The network between brokers; None for sockets.
        brokers: All brokers, by node id.
        is_open: The cluster is started, and not closed since.
    """

    control_plane: ControlPlane
    faults: Faults
    requests: RequestLog
    clock: Clock
    rng: random.Random
    network: MemoryNet | None = None
    security: ClusterSecurity | None = None
    inner_network: MemoryNet | None = None
    brokers: dict[int, Broker] = field(default_factory=dict)
    loop: asyncio.AbstractEventLoop | None = None
    is_open: bool = False
    _now: float = 0.0
    _connections: int = INNER
    _producer_ids: int = -1

    @property
    def is_running(self) -> bool:
        """Whether the caller runs in the cluster's loop."""
        return self.loop is not None and self.loop.is_running() and _is_current(self.loop)

    def check(self) -> None:
        """Raise ClientClosed unless the cluster is started, WrongContext outside its loop."""
        if not _is_current(self._opened()):
            raise _elsewhere()

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """For a call that changes the cluster at once: in the loop, or between two runs of it.

        Raises:
            ClientClosed: The cluster isn't started.
            WrongContext: Its loop runs in another thread, or another one runs in this.
        """
        loop = self._opened()
        if _is_current(loop):
            yield
            return
        if loop.is_running() or _get_running_loop() is not None:
            raise _elsewhere()
        _set_running_loop(loop)  # timers and tasks are set in it, and begin when it runs again
        try:
            yield
        finally:
            _set_running_loop(None)

    def _opened(self) -> asyncio.AbstractEventLoop:
        loop = self.loop
        if not self.is_open or loop is None:
            raise ClientClosed("the cluster isn't started", hint=START)
        if loop.is_closed():
            raise ClientClosed("the loop that the cluster was started in is closed", hint=_ANOTHER)
        return loop

    def running(self) -> asyncio.AbstractEventLoop:
        """The loop that the cluster was started in."""
        return self.loop or asyncio.get_running_loop()

    def now(self) -> float:
        """Monotonic seconds; while no loop runs, the result of the last call."""
        with contextlib.suppress(RuntimeError):
            self._now = self.clock.now()
        return self._now

    def next_connection(self) -> int:
        """The number of a new connection of a client."""
        self._connections += 1
        return self._connections

    def new_producer_id(self) -> int:
        """A producer id that is not in use."""
        self._producer_ids += 1
        return self._producer_ids


P = ParamSpec("P")
T = TypeVar("T")


A = TypeVar("A", bound="ClusterTopics")


def changes_cluster(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[A, P], T]:
    """Decorate a method that changes a cluster: it works while that is started, see ``acting``."""

    @functools.wraps(method)
    def act(self: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._shared.acting():
            return method(self, *args, **kwargs)

    return act
