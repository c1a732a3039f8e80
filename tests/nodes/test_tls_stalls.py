"""A broker that stalls under TLS (R22): clients close the connection in time, and reconnect.

One real broker with its TLS listener behind proxies that pass bytes as they are. All flights of a
handshake are tried at once, a client and a proxy for each.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kclient import Producer
from kclient.clock import SystemClock
from kclient.hooks import ConnectionClosed, DialTarget, RequestCompleted
from kclient.network.dialer import TcpDialer
from kclient.security import Security
from tests.faults import After, Delay, FaultProxy, Rule, Stall, Trickle
from tests.faults.passage import Side
from tests.faults.raw import Raw
from tests.nodes.diary import Diary
from tests.nodes.patience import patience_with
from tests.support import kafka, raw_admin, tls
from tests.support.kafka import RunningBroker

RELEASE = "4.3.0"
TIMEOUT = 1.5
"""Seconds for a request, and for the making of a connection."""
LIMIT = TIMEOUT + 1.0
STALLED = LIMIT + 1.0
FEWEST = 2
"""Records that each side of a handshake has at least."""
_TICKETS_WITHIN = 0.3
"""Seconds: some of a broker's records come behind the end of a handshake."""
SETTINGS: dict[str, Any] = {
    "request_timeout": TIMEOUT,
    "connection_setup_timeout": TIMEOUT,
    "connection_setup_timeout_max": TIMEOUT,
}
RULES: dict[str, Callable[[], Rule]] = {
    "a byte per second": lambda: Trickle(interval=1.0),
    "half a record, then silence": lambda: Stall(None, times=None),
    "ten seconds late": lambda: Delay(None, 10.0, times=None),
    "requests don't arrive": lambda: Stall(None, on="request", at=0, times=None),
}


class ByProxy:
    """A dialer whose connections all go through one proxy, whatever address is advertised."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._dialer = TcpDialer(SystemClock())
        host, _, port = proxy.bootstrap.rpartition(":")
        self._host, self._port = host, int(port)

    async def dial(
        self, target: DialTarget, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the proxy in the place of the target."""
        place = DialTarget(self._host, self._port, target.ssl_context, target.setup_timeout)
        return await self._dialer.dial(place, protocol_factory)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with kafka.private(RELEASE, "tls-stalls") as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"stalls-{secrets.token_hex(4)}"
    raw_admin.create_topic(broker.bootstrap, name)
    return name


def producer_behind(proxy: FaultProxy, diary: Diary) -> Producer[Any, Any]:
    return Producer(
        proxy.bootstrap,
        security=Security.tls(ca_file=tls.certificate()),
        dialer=ByProxy(proxy),
        observers=[diary],
        **SETTINGS,
    )


async def flights(broker: RunningBroker) -> dict[Side, int]:
    """How many records each side of a whole handshake has."""
    trusting = Security.tls(ca_file=tls.certificate()).ssl_context
    async with FaultProxy(broker.tls_bootstrap, opaque=True) as proxy:
        async with Raw(proxy.bootstrap, tls=trusting):
            (session,) = proxy.sessions()
            await asyncio.sleep(_TICKETS_WITHIN)
            sides: tuple[Side, Side] = ("request", "answer")
            return {on: session.pipe(on).units for on in sides}


async def stall_a_handshake(broker: RunningBroker, topic: str, on: Side, count: int) -> None:
    """A client at work has to reconnect, and each time the handshake stops at one flight."""
    where = f"behind {count} records of the {on}s"
    diary = Diary(where)
    async with (
        FaultProxy(broker.tls_bootstrap, opaque=True) as proxy,
        producer_behind(proxy, diary) as producer,
    ):
        await producer.send(topic, b"before")
        stall = proxy.add(After(count, "silent", on=on, unit="frames", times=None))
        for session in proxy.sessions():
            session.cut()
        async with patience_with(proxy) as patience:
            waiting = producer.send(topic, b"during")
            await asyncio.sleep(STALLED)
            assert not waiting.done(), f"it is written, stalled {where}"
            assert stall.hits > 0, where
            assert patience.ended > 0, f"no connection was given up {where}"
            assert patience.longest <= LIMIT, f"one was kept {patience.longest:.2f} s {where}"
            proxy.clear()
        await waiting


async def test_a_handshake_that_stalls_at_any_flight_is_abandoned_in_time(
    broker: RunningBroker, topic: str
) -> None:
    records = await flights(broker)
    assert min(records.values()) >= FEWEST, records
    async with asyncio.TaskGroup() as group:
        for on, last in records.items():
            for count in range(last + 1):
                group.create_task(stall_a_handshake(broker, topic, on, count))


async def stall_a_request(broker: RunningBroker, topic: str, kind: str) -> None:
    """A request in flight gets no whole response on a connection that works."""
    diary = Diary(kind)
    async with (
        FaultProxy(broker.tls_bootstrap, opaque=True) as proxy,
        producer_behind(proxy, diary) as producer,
    ):
        await producer.send(topic, b"before")
        bad = time.monotonic()
        stall = proxy.add(RULES[kind]())
        async with patience_with(proxy) as patience:
            waiting = producer.send(topic, b"during")
            await asyncio.sleep(STALLED)
            assert not waiting.done(), f"it is written: {kind}"
            assert stall.hits > 0, kind
            assert patience.longest <= LIMIT, f"one was kept {patience.longest:.2f} s: {kind}"
            failed = [one for one in diary.of(RequestCompleted, bad) if one.error is not None]
            assert "Produce" in [one.api for one in failed], f"no request failed: {kind}"
            assert max(one.seconds for one in failed) <= LIMIT, f"too late: {kind}, {failed}"
            closed = diary.of(ConnectionClosed, bad, bad + LIMIT)
            lanes = [one.lane for one in closed if one.established]
            assert "produce" in lanes, f"its connection was kept: {kind}"
            proxy.clear()
        await waiting


async def test_a_request_that_stalls_under_tls_fails_in_time(
    broker: RunningBroker, topic: str
) -> None:
    async with asyncio.TaskGroup() as group:
        for kind in RULES:
            group.create_task(stall_a_request(broker, topic, kind))
