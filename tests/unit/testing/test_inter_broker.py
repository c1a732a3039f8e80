"""Requests of brokers to each other: their order, and what becomes of them when one fails."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from kclient.protocol.message import Request, Response
from kclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kclient.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from kclient.testing import Cluster, run_virtually
from kclient.testing.broker import Broker
from kclient.testing.inter_broker import Peers
from kclient.testing.listeners import Address
from tests.unit.testing.transaction_calls import add_partitions, markers

TIMEOUT = 2.0
"""Of the requests of brokers."""
Scene = Callable[["Desk"], Awaitable[None]]


class Desk:
    """A broker, number 1 of three, that sends requests, and what came of them.

    Attributes:
        came: (name, whether there was a response) of each request that ended, in order.
    """

    def __init__(self, cluster: Cluster, node_id: int = 1) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[node_id]
        self.came: list[tuple[str, bool]] = []

    def mark(self, name: str, to: int = 2, peers: Peers | None = None) -> None:
        """Write a marker of producer 5 on a broker."""
        self._call(name, to, markers((5, 0), ("t", 0)), 2, WriteTxnMarkersResponse, peers)

    def verify(self, name: str, to: int = 2) -> None:
        """Verify a partition on a broker."""
        request = add_partitions("x", (5, 0), ("t", 0), version=5, verify_only=True)
        self._call(name, to, request, 5, AddPartitionsToTxnResponse, None)

    def _call(
        self,
        name: str,
        to: int,
        request: Request,
        version: int,
        answer: type[Response],
        peers: Peers | None,
    ) -> None:
        def done(response: Response | None) -> None:
            self.came.append((name, response is not None))

        (peers or self.broker.peers).call(to, request, version, answer, done)

    async def until(self, count: int) -> list[tuple[str, bool]]:
        """Wait until so many requests ended."""
        while len(self.came) < count:  # noqa: ASYNC110 - callbacks have no event
            await asyncio.sleep(0.001)
        return self.came

    @property
    def served(self) -> int:
        """How many requests for markers arrived."""
        return self.cluster.requests.count("WriteTxnMarkers")


def at_three_brokers(scene: Scene) -> Callable[[], None]:
    """Run it on virtual time, with three brokers."""

    @functools.wraps(scene)
    def run() -> None:
        async def main() -> None:
            configs = {"request.timeout.ms": int(TIMEOUT * 1000)}
            async with Cluster(3, broker_configs=configs) as cluster:
                cluster.create_topic("t", partitions=1)
                await scene(Desk(cluster))

        run_virtually(main(), limit=300)

    del run.__wrapped__  # type: ignore[attr-defined]  # else pytest looks for a fixture
    return run


# Order


@at_three_brokers
async def test_requests_to_a_broker_are_sent_one_at_a_time_and_answered_in_order(
    desk: Desk,
) -> None:
    held = desk.cluster.faults.hold("WriteTxnMarkers")
    for name in "abc":
        desk.mark(name)
    await held.wait_hits()
    await asyncio.sleep(1)
    assert (desk.served, desk.came) == (1, [])
    held.release()
    assert await desk.until(3) == [("a", True), ("b", True), ("c", True)]
    assert len({one.connection for one in desk.cluster.requests.of("WriteTxnMarkers")}) == 1


@at_three_brokers
async def test_other_brokers_and_other_apis_do_not_wait(desk: Desk) -> None:
    held = desk.cluster.faults.hold("WriteTxnMarkers", broker=2)
    desk.mark("held")
    await held.wait_hits()
    desk.mark("behind")
    desk.mark("to another", to=3)
    desk.verify("of another kind")
    came = await desk.until(2)
    assert sorted(came) == [("of another kind", True), ("to another", True)]
    held.release()
    assert (await desk.until(4))[2:] == [("held", True), ("behind", True)]


@at_three_brokers
async def test_a_broker_may_ask_itself(desk: Desk) -> None:
    desk.mark("own", to=1)
    assert await desk.until(1) == [("own", True)]
    (served,) = desk.cluster.requests.of("WriteTxnMarkers")
    assert (served.broker, served.client_id) == (1, "broker-1")


@at_three_brokers
async def test_the_outcome_never_comes_before_the_call_returns(desk: Desk) -> None:
    desk.mark("own", to=1)
    desk.mark("unknown", to=99)
    assert desk.came == []
    await desk.until(2)


@at_three_brokers
async def test_a_request_that_a_response_makes_comes_behind_those_that_wait(desk: Desk) -> None:
    def more(response: WriteTxnMarkersResponse | None) -> None:
        desk.mark("last")

    request = markers((5, 0), ("t", 0))
    desk.broker.peers.call(2, request, 2, WriteTxnMarkersResponse, more)
    desk.mark("second")
    assert await desk.until(2) == [("second", True), ("last", True)]


# Failures


@at_three_brokers
async def test_a_lost_connection_fails_what_was_sent_and_what_waits(desk: Desk) -> None:
    desk.cluster.faults.close("WriteTxnMarkers")
    desk.mark("a")
    desk.mark("b")
    assert await desk.until(2) == [("a", False), ("b", False)]
    desk.mark("c")
    assert (await desk.until(3))[2] == ("c", True)
    assert desk.served == 2


@at_three_brokers
async def test_a_response_that_can_not_be_read_is_none(desk: Desk) -> None:
    desk.cluster.faults.answer_bytes("WriteTxnMarkers", b"\xff" * 3)
    desk.mark("a")
    assert await desk.until(1) == [("a", False)]
    desk.mark("b")
    assert (await desk.until(2))[1] == ("b", True)


@at_three_brokers
async def test_a_request_without_response_fails_after_the_timeout(desk: Desk) -> None:
    held = desk.cluster.faults.hold("WriteTxnMarkers")
    loop = asyncio.get_running_loop()
    desk.mark("a")
    await held.wait_hits()
    sent = loop.time()
    await asyncio.sleep(TIMEOUT / 2)
    desk.mark("b")
    assert await desk.until(2) == [("a", False), ("b", False)]
    assert loop.time() - sent == pytest.approx(TIMEOUT, abs=0.01)
    desk.mark("c")
    assert (await desk.until(3))[2] == ("c", True)
    held.release()
    await asyncio.sleep(10 * TIMEOUT)
    assert len(desk.came) == 3  # the late response was dropped


@at_three_brokers
async def test_each_request_has_its_own_timeout(desk: Desk) -> None:
    slow = desk.cluster.faults.delay("WriteTxnMarkers", 0.75 * TIMEOUT, times=None)
    for name in "abc":
        desk.mark(name)
    assert await desk.until(3) == [("a", True), ("b", True), ("c", True)]
    assert slow.hits == 3


@pytest.mark.parametrize("how", ["crash", "stop", "disconnect", "isolate"])
def test_a_broker_that_is_out_of_reach_fails_at_once(how: str) -> None:
    @at_three_brokers
    async def run(desk: Desk) -> None:
        held = desk.cluster.faults.hold("WriteTxnMarkers")
        desk.mark("a")
        desk.mark("b")
        await held.wait_hits()
        began = asyncio.get_running_loop().time()
        if how == "crash":
            await desk.cluster.crash(2)
        elif how == "stop":
            await desk.cluster.stop(2)
        elif how == "disconnect":
            desk.cluster.disconnect(1, 2)
        else:
            desk.cluster.isolate(2)
        desk.mark("c")
        assert await desk.until(3) == [("a", False), ("b", False), ("c", False)]
        assert asyncio.get_running_loop().time() - began < TIMEOUT / 2
        desk.cluster.reconnect()
        if not desk.cluster.brokers[2].running:
            await desk.cluster.restart(2)
        desk.mark("d")
        assert (await desk.until(4))[3] == ("d", True)

    run()


# Its own end


@at_three_brokers
async def test_a_broker_that_goes_down_forgets_its_requests(desk: Desk) -> None:
    held = desk.cluster.faults.hold("WriteTxnMarkers")
    desk.mark("a")
    desk.mark("b")
    await held.wait_hits()
    await desk.cluster.crash(1)
    held.release()
    await asyncio.sleep(10 * TIMEOUT)
    assert desk.came == []
    await desk.cluster.restart(1)
    desk.mark("c")
    assert await desk.until(1) == [("c", True)]


@at_three_brokers
async def test_connections_stay_open_without_a_timer(desk: Desk) -> None:
    desk.mark("a")
    await desk.until(1)
    await asyncio.sleep(200)
    loop: Any = asyncio.get_running_loop()
    assert [one for one in loop._scheduled if not one.cancelled()] == []
    desk.mark("b")
    await desk.until(2)
    assert len({one.connection for one in desk.cluster.requests.of("WriteTxnMarkers")}) == 1


# Sockets


class Caller:
    """What ``Peers`` needs of a broker, with one peer at a socket of the test."""

    class config:
        request_timeout = 10.0

    node_id = 1

    def __init__(self, port: int) -> None:
        self.port = port

    def reaches(self, node_id: int) -> bool:
        return True

    def inner_address(self, node_id: int) -> Address:
        return Address("127.0.0.1", self.port, None)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


async def over_sockets(port: int) -> tuple[list[object], Peers]:
    """Send one request, and wait for its outcome."""
    came: list[object] = []
    peers = Peers(cast(Broker, Caller(port)))
    over = asyncio.Event()

    def done(response: WriteTxnMarkersResponse | None) -> None:
        came.append(response)
        over.set()

    peers.call(2, markers((5, 0), ("t", 0)), 2, WriteTxnMarkersResponse, done)
    async with asyncio.timeout(5):  # half of the timeout of requests
        await over.wait()
    return came, peers


async def test_a_port_where_nobody_listens_fails_at_once() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    came, peers = await over_sockets(port)
    assert came == [None]
    assert peers.close() == []


async def test_a_connection_that_is_reset_at_once_fails_at_once() -> None:
    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    came, peers = await over_sockets(port)
    assert came == [None]
    assert peers.close() == []
    server.close()
    await server.wait_closed()


async def test_a_close_while_it_dials_leaves_nothing_open() -> None:
    accepted = asyncio.Event()
    ended = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        writer.close()
        ended.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    peers = Peers(cast(Broker, Caller(server.sockets[0].getsockname()[1])))
    peers.call(2, markers((5, 0), ("t", 0)), 2, WriteTxnMarkersResponse, lambda _: None)
    await asyncio.sleep(0)  # the dial begins
    await asyncio.sleep(0)
    (dial,) = peers.close()
    await dial
    await accepted.wait()
    await ended.wait()
    server.close()
    await server.wait_closed()
