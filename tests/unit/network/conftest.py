"""Fixtures of the network tests: clients that are closed at the end, and what they told."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest_asyncio

from kclient.clock import SystemClock
from kclient.config import NetworkConfig
from kclient.hooks import Counters, Dialer, Event, Hooks
from kclient.network import NetworkClient
from tests.unit.network.scripted_broker import ScriptedBroker

CLOSE_TIMEOUT = 5.0


class Recorder:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event, /) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


class Bench:
    """Makes clients of a test and keeps what they told."""

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
        """A started client with these bootstrap addresses."""
        addresses = [b.address if isinstance(b, ScriptedBroker) else b for b in brokers]
        client = NetworkClient(
            NetworkConfig(bootstrap=tuple(addresses), **settings),
            clock=SystemClock(),
            dialer=dialer,
            hooks=Hooks([self.recorder]),
            counters=self.counters,
            rng=random.Random(1),
            on_fault=on_fault or self.faults.append,
        )
        await client.start()
        self._stack.push_async_callback(client.close, CLOSE_TIMEOUT)
        return client


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    """The bench of one test; its clients are closed at the end, and no listener may have failed."""
    async with AsyncExitStack() as stack:
        bench = Bench(stack)
        yield bench
    assert bench.faults == []
