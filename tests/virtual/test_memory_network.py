"""The network in memory behaves as sockets do, and breaks as it is told."""

from __future__ import annotations

import asyncio
import ssl
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


async def test_nothing_is_told_to_a_side_that_closes() -> None:
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
async def test_a_writer_hears_of_a_side_that_closed_without_reading(is_reading: bool) -> None:
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


async def test_a_protocol_without_room_for_bytes_loses_its_connection() -> None:
    class Full(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray()

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    net = network()
    net.listen(Full, "b", 1)
    _, client = await net.dial(DialTarget("b", 1), Peer)
    cast(Peer, client).transport.write(b"x")
    await asyncio.sleep(1)
    assert "empty buffer" in str(told[0]["exception"])
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


async def test_who_waits_for_room_is_reset_where_bytes_vanished_meanwhile() -> None:
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


@pytest.mark.parametrize("where", ["factory", "eof_received", "resume_writing"])
async def test_other_failures_of_a_protocol_are_told_too_and_wedge_nothing(where: str) -> None:
    class Bad(Peer):
        def eof_received(self) -> bool:
            if where == "eof_received":
                raise KeyError("bug")
            return False

        def resume_writing(self) -> None:
            raise KeyError("bug")

    def accept() -> Bad:
        if where == "factory":
            raise KeyError("bug")
        return Bad()

    told: list[dict[str, Any]] = []
    net, loop = network(), asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    net.listen(accept, "b", 1)
    _, protocol = await net.dial(DialTarget("b", 1), Bad)
    client = cast(Bad, protocol)
    if where == "resume_writing":
        client.transport.write(b"x" * (WINDOW + HIGH_WATER + 1))
        await asyncio.sleep(1)
    client.transport.close()
    await asyncio.sleep(1)
    assert [type(context["exception"]) for context in told] == [KeyError]
    assert client.events[-1] == "lost"
    assert net.links == []


async def test_a_connection_that_is_not_accepted_yet_ends_with_its_listener() -> None:
    net = network()
    net.freeze("b")
    accepted: list[Peer] = []

    def accept() -> Peer:
        accepted.append(Peer())
        return accepted[-1]

    listener = net.listen(accept, "b", 1)
    _, client = await net.dial(DialTarget("b", 1), Peer)
    listener.close()
    net.heal()
    await asyncio.sleep(1)
    assert not accepted
    assert isinstance(cast(Peer, client).error, ConnectionResetError)


async def test_a_server_of_streams_is_used_as_on_sockets() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(echo, "0.0.0.0", 0)
    async with server:
        serving = asyncio.create_task(server.serve_forever())
        port = server.sockets[0].getsockname()[1]
        for name in ("localhost", "127.0.0.1"):
            reader, writer = await asyncio.open_connection(name, port)
            writer.write(b"hello\n")
            assert await reader.read() == b"hello\n"
            writer.close()
        assert server.is_serving()
    await asyncio.wait([serving])
    assert serving.cancelled()
    assert not server.is_serving()
    assert server.sockets == ()
    with pytest.raises(ConnectionRefusedError):
        try:
            await asyncio.open_connection("localhost", port)
        except BrokerUnreachable as error:
            raise error.__cause__ or error from None


async def test_a_listener_with_tls_or_a_socket_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="TLS"):
        await asyncio.start_server(lambda *_: None, "b", 1, ssl=ssl.create_default_context())
    with pytest.raises(NotImplementedError, match="several hosts"):
        await asyncio.start_server(lambda *_: None, ["b", "c"], 1)


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


@pytest.mark.parametrize("wrong", ["", ":1", "b:", "b:x", "a:1,b:2", 1, b"b", "broker-1:9092:1"])
async def test_addresses_that_can_not_be_are_refused(wrong: Any) -> None:
    net = network()
    rules: list[Callable[[Any], object]] = [
        net.refuse,
        net.accept,
        net.blackhole,
        net.freeze,
        net.cut,
        net.heal,
        lambda address: net.cut_at(address, byte=1),
        lambda address: net.trickle(address, bytes_per_second=1),
    ]
    for rule in rules:
        with pytest.raises(InvalidArgument, match="address="):
            rule(wrong)


async def test_an_address_where_nothing_ever_listened_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net = network()
    net.listen(Peer, "b", 1)
    net.freeze("b:1")
    net.freeze("b")
    assert not caplog.records
    net.freeze("b:2")
    assert "nothing has ever listened at b:2" in caplog.text


async def test_healing_a_host_heals_its_ports_and_says_how_many_rules_are_gone() -> None:
    net = network()
    net.listen(Peer, "b", 1)
    net.freeze("b:1")
    net.refuse("b")
    net.blackhole()
    net.cut_at("b:1", byte=3)
    assert net.heal("b") == 3
    assert not net.is_frozen("b:1", "to_client")
    assert net.is_blackholed("b:1")
    assert (net.heal(), net.heal()) == (1, 0)


async def test_directions_names_and_numbers_are_checked() -> None:
    net = network()
    wrong: Any = "both"
    with pytest.raises(InvalidArgument, match="direction="):
        net.freeze(None, wrong)
    with pytest.raises(InvalidArgument, match="direction="):
        net.cut_at(byte=1, direction=wrong)
    for byte, times in ((-1, 1), (1.5, 1), ("7", 1), (1, 0), (1, 1.5)):
        with pytest.raises(InvalidArgument, match=r"byte=|times="):
            net.cut_at(byte=cast(int, byte), times=cast(int, times))
    with pytest.raises(InvalidArgument, match="name="):
        net.set_name("kafka:9092", "b")
    with pytest.raises(InvalidArgument, match="bytes_per_second="):
        net.trickle(bytes_per_second=float("nan"))


@pytest.mark.parametrize("name", ["split", "cut_probability"])
@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan"), "x", True])
async def test_probabilities_are_checked_whenever_they_are_set(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}="):
        setattr(network(), name, wrong)


@pytest.mark.parametrize("wrong", [0.1, "x", (1, 2, 3), (-5, -5), (1, 0.1), (float("nan"), 1)])
async def test_latency_is_checked_whenever_it_is_set(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="latency="):
        network().latency = wrong
