"""Faults between clients and the broker that `--broker` names; broker_fixtures.py explains.

`proxy` stands before that broker. Clients are closed before it, with its rules removed; they go
through it if they are given `bootstrap=proxy.bootstrap`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.faults import FaultProxy
from tests.support.broker_fixtures import Broker
from tests.support.broker_fixtures import admin as admin
from tests.support.broker_fixtures import broker as broker
from tests.support.broker_fixtures import consumer as consumer
from tests.support.broker_fixtures import producer as producer
from tests.support.broker_fixtures import real_broker as real_broker
from tests.support.broker_fixtures import topic as topic


@pytest_asyncio.fixture
async def proxy(broker: Broker) -> AsyncIterator[FaultProxy]:
    """A proxy before the broker under test."""
    async with FaultProxy(broker.bootstrap) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def clients(proxy: FaultProxy) -> AsyncIterator[AsyncExitStack]:
    """The clients of a test, closed at its end in reverse order, when all rules are removed."""
    async with AsyncExitStack() as stack:
        try:
            yield stack
        finally:
            proxy.clear()
