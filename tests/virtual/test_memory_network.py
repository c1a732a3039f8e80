"""The network in memory behaves as sockets do, and breaks as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

import kclient
from kclient.errors import BrokerUnreachable, InvalidArgument
from kclient.hooks import DialTarget
from kclient.testing import Cluster, MemoryNet, VirtualLoop
from kclient.testing.memory_link import HIGH_WATER, WINDOW


class Peer(asyncio.Protocol):
    """Notes what happens to it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.pieces: list[int] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.pieces.append(len(data))

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc


def network() -> MemoryNet:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.network


async def pair(
    net: MemoryNet, make: Callable[[], Peer] = Peer, host: str = "b"
) -> tuple[Peer, Peer]:
    servers: list[Peer] = []

    def accept() -> Peer:
        servers.append(make())
        return servers[-1]

    listener = net.listen(accept, host, 1)
    _, client = await net.dial(DialTarget(host, 1), make)
    await asyncio.sleep(1)
    listener.close()
    return cast(Peer, client), servers[0]


async def ends(*peers: Peer) -> None:
    """Nothing stays open after a test."""
    for peer in peers:
        peer.transport.abort()
    await asyncio.sleep(5)


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


async def test_in_a_black_hole_nobody_hears_of_anything_and_a_hole_in_the_stream_resets_it() -> (
    None
):
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


async def test_a_close_in_a_black_hole_is_not_heard() -> None:
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


async def test_refusal_and_nobody_there_are_refused_connections() -> None:
    net = network()
    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        await net.dial(DialTarget("nowhere", 1), Peer)
    net.listen(Peer, "b", 1)
    net.refuse("b")
    with pytest.raises(BrokerUnreachable, match="Connection refused") as caught:
        await net.dial(DialTarget("b", 1), Peer)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    net.accept("b")
    _, client = await net.dial(DialTarget("b", 1), Peer)
    await ends(cast(Peer, client))
    assert [where for _, where in net.dials] == ["nowhere:1", "b:1", "b:1"]
    assert net.stats.refused == 2


async def test_a_name_stands_for_hosts_that_are_tried_in_turn() -> None:
    net = network()
    net.listen(Peer, "10.0.0.2", 1)
    net.set_name("kafka", "10.0.0.1", "10.0.0.2")
    _, client = await net.dial(DialTarget("kafka", 1), Peer)
    assert net.links[0].address == "10.0.0.2:1"
    await ends(cast(Peer, client))


async def test_names_fail_hang_and_stand_for_nothing() -> None:
    net = network()
    net.fail_name("a")
    net.hang_name("b")
    net.set_name("c")
    for name, why in (("a", "not known"), ("b", "within 3 s"), ("c", "no address")):
        with pytest.raises(BrokerUnreachable, match=why):
            await net.dial(DialTarget(name, 1, None, 3.0), Peer)


async def test_who_waits_in_a_black_hole_or_for_a_name_gets_through_after_it_heals() -> None:
    net, loop = network(), asyncio.get_running_loop()
    net.listen(Peer, "b", 1)
    net.blackhole("b")
    net.hang_name("kafka")
    dials = [asyncio.create_task(net.dial(DialTarget(at, 1), Peer)) for at in ("b", "kafka")]
    loop.call_later(5, net.heal)
    loop.call_later(6, net.set_name, "kafka", "b")
    opened = await asyncio.gather(*dials)
    await ends(*(cast(Peer, peer) for _, peer in opened))
    assert net.stats.connects == 2


async def test_a_dial_that_is_cancelled_leaves_nothing_open() -> None:
    net = network()
    net.listen(Peer, "b", 1)
    dial = asyncio.create_task(net.dial(DialTarget("b", 1), Peer))
    await asyncio.sleep(0.0003)
    dial.cancel()
    await asyncio.sleep(1)
    assert dial.cancelled()
    assert net.links == []


async def test_a_protocol_that_raises_loses_its_connection_and_the_loop_is_told() -> None:
    class Bad(Peer):
        def data_received(self, data: bytes) -> None:
            raise KeyError("bug")

    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    client, server = await pair(network(), Bad)
    loop.set_exception_handler(lambda _, context: told.append(context))
    client.transport.write(b"x")
    await asyncio.sleep(1)
    assert isinstance(told[0]["exception"], KeyError)
    assert isinstance(client.error, ConnectionResetError)
    assert server.events[-1] == "lost"


async def test_two_listeners_at_one_address_are_refused() -> None:
    net = network()
    net.listen(Peer, "b", 1)
    with pytest.raises(OSError, match="b:1 is listened at already"):
        net.listen(Peer, "b", 1)
    assert net.listen(Peer, "c").port != net.listen(Peer, "c").port


@pytest.mark.parametrize(
    "wrong",
    [{"latency": (2.0, 1.0)}, {"latency": (-1.0, 1.0)}, {"split": 1.5}, {"cut": -0.1}],
)
def test_arguments_that_can_not_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        MemoryNet(**wrong)


def test_it_works_on_a_real_loop_too() -> None:
    async def main() -> None:
        net = MemoryNet(seed=3, split=0.5)
        async with Cluster(network=net) as cluster:
            cluster.create_topic("flights")
            async with kclient.Producer(cluster.bootstrap, dialer=net) as producer:
                await producer.send("flights", b"UA 1545")
            async with kclient.Consumer(
                cluster.bootstrap, "flights", auto_offset_reset="earliest", dialer=net
            ) as consumer:
                (record,) = await consumer.poll(timeout=10.0)
            async with kclient.Admin(cluster.bootstrap, dialer=net) as admin:
                assert await admin.list_topics() is not None
        assert record.value == b"UA 1545"
        assert net.links == []

    asyncio.run(main())
