"""The network in memory behaves as sockets do, and breaks as configured."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kclient.errors import BrokerUnreachable
from kclient.hooks import DialTarget
from kclient.testing.memory_link import HIGH_WATER, WINDOW
from tests.virtual.peers import Peer, ends, network, pair


async def test_bytes_arrive_once_and_in_order_in_pieces() -> None:
    net = network()
    net.split, net.latency = 0.5, (0.0, 1.0)
    client, server = await pair(net)
    sent = bytearray()
    for number in range(300):
        data = b"%d," % number * 3
        sent += data
        client.transport.write(data)
    await asyncio.sleep(400)
    assert server.got == sent
    assert len(server.pieces) > 300
    assert net.stats.splits > 50
    await ends(client, server)


async def test_close_delivers_what_was_written_and_then_the_end() -> None:
    client, server = await pair(network())
    client.transport.write(b"last words")
    client.transport.close()
    await asyncio.sleep(1)
    assert server.got == b"last words"
    assert server.events == ["made", "eof", "lost"]
    assert client.events == ["made", "lost"]
    assert (client.error, server.error) == (None, None)
    assert network().links == []


async def test_abort_resets_the_other_side() -> None:
    client, server = await pair(network())
    client.transport.abort()
    await asyncio.sleep(1)
    assert client.error is None
    assert isinstance(server.error, ConnectionResetError)
    assert client.events[-1] == server.events[-1] == "lost"
    assert network().links == []


async def test_what_was_written_before_an_abort_may_arrive_after_it_as_with_sockets() -> None:
    arrived = []
    for _ in range(30):
        client, server = await pair(network())
        network().freeze("b")
        client.transport.write(b"x" * 1000)
        await asyncio.sleep(1)
        client.transport.abort()
        await asyncio.sleep(1)
        assert client.events == ["made", "lost"]
        assert server.events == ["made"]
        network().heal()
        await asyncio.sleep(1)
        assert server.events == ["made", "lost"]
        assert isinstance(server.error, ConnectionResetError)
        arrived.append(len(server.got))
    assert 1000 in arrived
    assert min(arrived) < 1000
    assert network().links == []


async def test_nothing_is_reported_to_a_side_that_closes() -> None:
    client, server = await pair(network())
    server.transport.pause_reading()
    client.transport.write(b"x" * (WINDOW + 1))
    client.transport.close()
    server.transport.write(b"late")
    server.transport.write_eof()
    await asyncio.sleep(1)
    assert (client.got, client.events) == (b"", ["made"])
    server.transport.resume_reading()
    await asyncio.sleep(1)
    assert len(server.got) == WINDOW + 1
    assert client.events == ["made", "lost"]
    await ends(server)


@pytest.mark.parametrize("is_reading", [True, False])
async def test_a_writer_is_notified_of_a_side_that_closed_without_reading(is_reading: bool) -> None:
    client, server = await pair(network())
    client.transport.pause_reading()
    if not is_reading:
        server.transport.pause_reading()
    server.transport.write(b"x" * (WINDOW + HIGH_WATER + 1))
    client.transport.close()
    await asyncio.sleep(1)
    assert client.events == ["made", "lost"]
    assert isinstance(server.error, ConnectionResetError)
    assert network().links == []


async def test_a_reader_that_pauses_in_the_middle_of_a_piece_gets_the_rest_later() -> None:
    class Slow(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.got = b""
            self.buffer = bytearray(4)
            self.transport: asyncio.Transport

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.got += self.buffer[:nbytes]
            self.transport.pause_reading()

    net = network()
    readers: list[Slow] = []

    def accept() -> Slow:
        readers.append(Slow())
        return readers[-1]

    net.listen(accept, "b", 1)
    _, client = await net.dial(DialTarget("b", 1), Peer)
    cast(Peer, client).transport.write(b"0123456789")
    for got in (b"0123", b"01234567", b"0123456789"):
        await asyncio.sleep(1)
        assert readers[0].got == got
        readers[0].transport.resume_reading()
    await ends(cast(Peer, client))


async def test_a_protocol_without_buffer_space_loses_its_connection() -> None:
    class Full(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray()

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    net = network()
    net.listen(Full, "b", 1)
    _, client = await net.dial(DialTarget("b", 1), Peer)
    cast(Peer, client).transport.write(b"x")
    await asyncio.sleep(1)
    assert "empty buffer" in str(reported[0]["exception"])
    assert isinstance(cast(Peer, client).error, ConnectionResetError)


async def test_writing_to_a_side_that_is_closed_brings_a_reset() -> None:
    class Stays(Peer):
        def eof_received(self) -> bool:
            return True

    client, server = await pair(network(), Stays)
    server.transport.close()
    await asyncio.sleep(1)
    client.transport.write(b"anybody there?")
    await asyncio.sleep(1)
    assert isinstance(client.error, ConnectionResetError)


async def test_a_writer_is_paused_while_the_reader_does_not_read() -> None:
    client, server = await pair(network())
    server.transport.pause_reading()
    size = WINDOW + HIGH_WATER + 1
    client.transport.write(b"x" * size)
    assert client.events[-1] == "pause"
    await asyncio.sleep(100)
    assert not server.got
    server.transport.resume_reading()
    await asyncio.sleep(1)
    assert len(server.got) == size
    assert client.events[-1] == "resume"
    await ends(client, server)


async def test_a_cut_at_a_byte_delivers_what_is_before_it_and_resets_both_sides() -> None:
    net = network()
    net.cut_at("b", byte=25, direction="to_server")
    client, server = await pair(net)
    for _ in range(4):
        client.transport.write(b"0123456789")
    await asyncio.sleep(1)
    assert bytes(server.got) == b"0123456789" * 2 + b"01234"
    assert isinstance(client.error, ConnectionResetError)
    assert isinstance(server.error, ConnectionResetError)
    assert net.stats.cuts == 1
    again, _ = await pair(net)
    assert again.events == ["made"]
    await ends(again)


async def test_random_cuts_come_within_what_is_written() -> None:
    net = network()
    net.cut_probability = 1.0
    client, server = await pair(net)
    client.transport.write(b"x" * 1000)
    await asyncio.sleep(1)
    assert 0 < len(server.got) < 1000
    assert isinstance(client.error, ConnectionResetError)


async def test_a_frozen_address_takes_connections_and_is_silent_until_it_heals() -> None:
    net = network()
    net.freeze("b:1")
    servers: list[Peer] = []

    def accept() -> Peer:
        servers.append(Peer())
        return servers[-1]

    net.listen(accept, "b", 1)
    _, client = await net.dial(DialTarget("b", 1), Peer)
    cast(Peer, client).transport.write(b"hello")
    await asyncio.sleep(1000)
    assert not servers
    net.heal("b:1")
    await asyncio.sleep(1)
    assert bytes(servers[0].got) == b"hello"
    await ends(cast(Peer, client))


async def test_a_black_hole_is_silent_and_a_hole_in_the_stream_resets_it() -> None:
    net = network()
    client, server = await pair(net)
    net.blackhole("b")
    client.transport.write(b"lost")
    await asyncio.sleep(1000)
    assert (client.events, server.events, server.got) == (["made"], ["made"], b"")
    with pytest.raises(BrokerUnreachable, match="no connection within 7 s"):
        await net.dial(DialTarget("b", 1, None, 7.0), Peer)
    net.heal()
    client.transport.write(b"after")
    await asyncio.sleep(1)
    assert server.got == b""
    assert isinstance(client.error, ConnectionResetError)
    assert isinstance(server.error, ConnectionResetError)


async def test_nothing_is_delivered_behind_a_hole_in_the_stream() -> None:
    net = network()
    client, server = await pair(net)
    net.latency = (0.1, 0.1)
    client.transport.write(b"vanishes")
    net.latency = (0.3, 0.3)
    client.transport.write(b"comes later")
    net.blackhole("b")
    await asyncio.sleep(0.2)
    net.heal()
    await asyncio.sleep(1)
    assert server.got == b""
    assert isinstance(client.error, ConnectionResetError)
    assert isinstance(server.error, ConnectionResetError)


async def test_a_writer_that_waits_for_space_is_reset_where_bytes_vanished_meanwhile() -> None:
    net = network()
    client, server = await pair(net)
    net.blackhole("b")
    net.latency = (1.0, 1.0)
    net.heal()
    client.transport.write(b"x" * (WINDOW + HIGH_WATER + 1))
    assert client.events == ["made", "pause"]
    net.blackhole("b")
    await asyncio.sleep(10)
    assert client.events == ["made", "pause"]
    net.heal()
    await asyncio.sleep(10)
    assert client.events == ["made", "pause", "lost"]
    assert server.events == ["made", "lost"]


async def test_a_close_in_a_black_hole_does_not_arrive() -> None:
    net = network()
    client, server = await pair(net)
    net.blackhole("b")
    client.transport.abort()
    await asyncio.sleep(1000)
    assert (client.events, server.events) == (["made", "lost"], ["made"])
    await ends(server)
    assert net.links == []


async def test_a_trickle_is_slow() -> None:
    net = network()
    client, server = await pair(net)
    net.trickle("b", bytes_per_second=10)
    client.transport.write(b"x" * 100)
    await asyncio.sleep(5)
    assert 40 <= len(server.got) <= 60
    await asyncio.sleep(6)
    assert len(server.got) == 100
    await ends(client, server)


async def test_what_trickled_comes_at_once_when_it_is_healed() -> None:
    net = network()
    client, server = await pair(net)
    net.trickle("b", bytes_per_second=1)
    client.transport.write(b"x" * 1000)
    await asyncio.sleep(5)
    net.heal()
    client.transport.write(b"y")
    await asyncio.sleep(1)
    assert server.got == b"x" * 1000 + b"y"
    await ends(client, server)
