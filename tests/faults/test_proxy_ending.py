"""The proxy's own end: ``close`` waits for each session, and none may be left behind for good."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults import FaultProxy
from tests.faults.session import Session
from tests.support.broker_fixtures import Broker


async def test_a_session_that_is_cut_as_the_broker_accepts_it_comes_to_its_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Session.back_made

    def cut_at_once(self: Session, transport: asyncio.Transport) -> None:
        made(self, transport)
        self.cut()

    async with asyncio.timeout(10), FaultProxy(broker.bootstrap) as proxy:
        host, port = proxy.bootstrap.split(",")[0].split(":")
        with monkeypatch.context() as patch:
            patch.setattr(Session, "back_made", cut_at_once)
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.read() == b""
            writer.close()
