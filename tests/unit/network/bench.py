"""The bench of the network tests: clients, and small helpers to observe and block them.

`Bench` makes clients and keeps what they report; `Held` is a script whose responses wait for the
test; `CapacityWaiter` is a listener that can be waited on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from kclient.clock import SystemClock
from kclient.config import NetworkConfig
from kclient.hooks import Counters, Dialer, Event, Hooks
from kclient.network import Lane, NetworkClient, RequestFuture
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.unsupervised import Unsupervised
from tests.unit.network.scripted_broker import (
    API_VERSIONS,
    Received,
    ScriptedBroker,
    Session,
    good_answer,
)

FIRST = -1
"""Id of the first bootstrap node."""
CLOSE_TIMEOUT = 5.0


class Recorder:
    """An observer that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event, /) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


class _Keeper(Unsupervised):
    def __init__(self, on_fault: Callable[[Exception], None]) -> None:
        self._on_fault = on_fault

    def listener_failed(self, error: Exception) -> None:
        self._on_fault(error)


class Bench:
    """Makes clients of a test and keeps what they report."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.recorder = Recorder()
        self.counters = Counters()
        self.faults: list[Exception] = []

    async def client(
        self,
        *brokers: ScriptedBroker | tuple[str, int],
        dialer: Dialer | None = None,
        on_fault: Callable[[Exception], None] | None = None,
        **settings: Any,
    ) -> NetworkClient:
        """Start a client with these bootstrap addresses."""
        addresses = [b.address if isinstance(b, ScriptedBroker) else b for b in brokers]
        client = NetworkClient(
            NetworkConfig(bootstrap=tuple(addresses), **settings),
            clock=SystemClock(),
            dialer=dialer,
            hooks=Hooks([self.recorder]),
            counters=self.counters,
            rng=random.Random(1),
            supervisor=_Keeper(on_fault or self.faults.append),
        )
        await client.start()
        self._stack.push_async_callback(client.close, CLOSE_TIMEOUT)
        return client


async def outcome(future: RequestFuture[Any]) -> Any:
    """Return the value or the error."""
    try:
        return await future
    except Exception as error:
        return error


async def all_answered(futures: list[RequestFuture[Any]]) -> bool:
    """Return whether every request got its response."""
    return all([isinstance(await future, MetadataResponse) for future in futures])


async def connected(client: NetworkClient, node_id: int = FIRST, lane: Lane = Lane.GENERAL) -> None:
    await client.send(node_id, MetadataRequest(), lane=lane)


class WriteTap:
    """Records what is written to a transport."""

    def __init__(self, transport: asyncio.Transport, writes: list[bytes]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, data: bytes) -> None:
        self._writes.append(data)
        self._transport.write(data)


class Held:
    """A script that holds requests until the test releases them."""

    def __init__(self) -> None:
        self.held: list[tuple[Session, Received]] = []

    def __call__(self, session: Session, request: Received) -> None:
        if request.api_key == API_VERSIONS:
            good_answer(session, request)
        else:
            self.held.append((session, request))

    def release(self, count: int | None = None) -> None:
        released, self.held = self.held[:count], self.held[len(self.held[:count]) :]
        for session, request in released:
            good_answer(session, request)


class CapacityWaiter:
    """A capacity listener that can be waited on."""

    def __init__(self, client: NetworkClient) -> None:
        self.calls: list[tuple[int, Lane]] = []
        self._event = asyncio.Event()
        client.add_ready_listener(self)

    def __call__(self, node_id: int, lane: Lane) -> None:
        self.calls.append((node_id, lane))
        self._event.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10.0):
            while not condition():
                self._event.clear()
                await self._event.wait()
