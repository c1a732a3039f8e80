"""Dials, names, listeners and rules of the network in memory, and what it refuses."""

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
from tests.virtual.peers import Peer, ends, network, pair


async def test_refused_dials_and_missing_listeners_are_refused_connections() -> None:
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


async def test_a_name_stands_for_hosts_that_are_tried_one_by_one() -> None:
    net = network()
    net.listen(Peer, "10.0.0.2", 1)
    net.set_name("kafka", "10.0.0.1", "10.0.0.2")
    _, client = await net.dial(DialTarget("kafka", 1), Peer)
    assert net.links[0].address == "10.0.0.2:1"
    await ends(cast(Peer, client))


@pytest.mark.parametrize("hosts", [("idle", "broker-1"), ("broker-1", "idle")])
async def test_a_host_of_a_name_that_accepts_and_does_not_serve_is_left_for_the_next(
    hosts: tuple[str, str],
) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.network.listen(Peer, "idle", 9092)
    loop.network.set_name("kafka", *hosts)
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer("kafka:9092", connection_setup_timeout=2.0) as producer:
            assert (await producer.send("t", b"0")).offset == 0


async def test_rules_concern_an_ipv6_address_in_brackets() -> None:
    net = network()
    net.listen(Peer, "fd00::1", 1)
    net.refuse("[fd00::1]:1")
    with pytest.raises(BrokerUnreachable, match=r"\[fd00::1\]:1 can't be reached"):
        await net.dial(DialTarget("fd00::1", 1), Peer)
    net.accept("[fd00::1]:1")
    _, client = await net.dial(DialTarget("fd00::1", 1), Peer)
    assert net.links[0].address == "[fd00::1]:1"
    assert net.cut("[fd00::1]") == 1
    await ends(cast(Peer, client))


async def test_names_fail_hang_and_stand_for_nothing() -> None:
    net = network()
    net.fail_name("a")
    net.hang_name("b")
    net.set_name("c")
    for name, why in (("a", "not known"), ("b", "within 3 s"), ("c", "no address")):
        with pytest.raises(BrokerUnreachable, match=why):
            await net.dial(DialTarget(name, 1, None, 3.0), Peer)


async def test_a_dial_in_a_black_hole_or_a_name_lookup_succeeds_after_it_heals() -> None:
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


async def test_a_protocol_that_raises_loses_its_connection_and_the_loop_is_notified() -> None:
    class Bad(Peer):
        def data_received(self, data: bytes) -> None:
            raise KeyError("bug")

    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    client, server = await pair(network(), Bad)
    loop.set_exception_handler(lambda _, context: reported.append(context))
    client.transport.write(b"x")
    await asyncio.sleep(1)
    assert isinstance(reported[0]["exception"], KeyError)
    assert isinstance(client.error, ConnectionResetError)
    assert server.events[-1] == "lost"


@pytest.mark.parametrize("where", ["factory", "eof_received", "resume_writing"])
async def test_other_failures_of_a_protocol_are_reported_too_and_wedge_nothing(where: str) -> None:
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

    reported: list[dict[str, Any]] = []
    net, loop = network(), asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    net.listen(accept, "b", 1)
    _, protocol = await net.dial(DialTarget("b", 1), Bad)
    client = cast(Bad, protocol)
    if where == "resume_writing":
        client.transport.write(b"x" * (WINDOW + HIGH_WATER + 1))
        await asyncio.sleep(1)
    client.transport.close()
    await asyncio.sleep(1)
    assert [type(context["exception"]) for context in reported] == [KeyError]
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


async def test_healing_a_host_heals_its_ports_and_returns_how_many_rules_were_removed() -> None:
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


async def test_freezing_both_directions_one_by_one_is_one_rule() -> None:
    net = network()
    net.freeze("b", "to_client")
    assert not net.is_frozen("b:1", "to_server")
    net.freeze("b", "to_server")
    net.freeze("b", "to_server")
    assert net.is_frozen("b:1", "to_client")
    assert net.is_frozen("b:1", "to_server")
    assert net.heal("b") == 1
    assert not net.is_frozen("b:1", "to_client")


async def test_accepting_at_an_address_leaves_what_is_refused_elsewhere() -> None:
    net = network()
    net.refuse("b")
    net.refuse("b:1")
    net.accept("b:1")
    assert net.is_refused("b:1")
    net.accept("b")
    assert not net.is_refused("b:1")


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
