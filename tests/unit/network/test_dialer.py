"""TcpDialer: tries every address, resolves again each time, is bounded, leaves nothing open."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from kclient.clock import SystemClock
from kclient.errors import BrokerUnreachable
from kclient.hooks import DialTarget
from kclient.network.channel import Channel
from kclient.network.dialer import Resolver, SocketAddress, TcpDialer, resolve
from tests.unit.network.scripted_broker import ScriptedBroker
from tests.unit.network.test_channel import NotedOwner, Wired


class Answers:
    """A resolver with one list of ports per lookup; the last list stays."""

    def __init__(self, *rounds: list[int] | Exception) -> None:
        self.rounds = list(rounds)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[SocketAddress]:
        self.asked.append((host, port))
        answer = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, ("127.0.0.1", each)) for each in answer]


def dialer(
    resolver: Resolver, *, send_buffer: int | None = None, receive_buffer: int | None = None
) -> TcpDialer:
    return TcpDialer(
        SystemClock(), send_buffer=send_buffer, receive_buffer=receive_buffer, resolver=resolver
    )


def target(timeout: float = 5.0, failures: int = 0) -> DialTarget:
    return DialTarget("kafka.example", 9092, None, timeout, failures)


async def dial(dialing: TcpDialer, where: DialTarget | None = None) -> int:
    """Dial and close again; return the port that was reached."""
    transport, _ = await dialing.dial(where or target(), asyncio.Protocol)
    try:
        port: int = transport.get_extra_info("peername")[1]
        return port
    finally:
        transport.abort()


async def closed_port() -> int:
    async with ScriptedBroker() as broker:
        return broker.port


async def test_all_resolved_addresses_are_tried() -> None:
    dead = [await closed_port(), await closed_port()]
    async with ScriptedBroker() as broker:
        assert await dial(dialer(Answers([*dead, broker.port]))) == broker.port


async def test_names_are_resolved_again_each_time() -> None:
    dead = await closed_port()
    async with ScriptedBroker() as broker:
        answers = Answers([dead], [broker.port])
        dialing = dialer(answers)
        with pytest.raises(BrokerUnreachable):
            await dial(dialing)
        assert await dial(dialing) == broker.port
        assert answers.asked == [("kafka.example", 9092)] * 2


async def test_the_address_that_worked_is_tried_first_the_next_time() -> None:
    async with ScriptedBroker() as one, ScriptedBroker() as two:
        dialing = dialer(Answers([await closed_port(), two.port], [one.port, two.port], [one.port]))
        assert [await dial(dialing) for _ in range(3)] == [two.port, two.port, one.port]


async def test_after_each_failure_the_address_that_was_tried_longest_ago_is_next() -> None:
    """An open socket isn't enough: only the caller, by `failures`, knows whether it was usable."""
    async with ScriptedBroker() as one, ScriptedBroker() as two, ScriptedBroker() as three:
        ports = [one.port, two.port, three.port]
        dialing = dialer(Answers(ports, ports, ports[::-1], ports[1:] + ports[:1], ports[::-1]))
        reached = [await dial(dialing, target(failures=failures)) for failures in range(4)]
        assert reached == [one.port, two.port, three.port, one.port]
        assert await dial(dialing, target()) == one.port


@pytest.mark.parametrize(("addresses", "share"), [(1, 100.0), (2, 50.0)])
async def test_each_address_has_its_part_of_the_time_for_the_handshake_too(
    addresses: int, share: float
) -> None:
    async with ScriptedBroker() as one, ScriptedBroker() as two:
        clock, owner = SystemClock(), NotedOwner()
        began = clock.now()
        channel = Channel(Wired().channel.connection, owner, clock.now, began + 100.0)
        dialing = dialer(Answers([one.port, two.port][:addresses]))
        transport, _ = await dialing.dial(target(100.0), lambda: channel)
        transport.abort()
        assert share - 1 < channel.setup_deadline - began < share + 20
        assert owner.reported[:1] == (["limited"] if addresses > 1 else [])


async def test_the_error_has_each_address_with_its_reason() -> None:
    dead = [await closed_port(), await closed_port()]
    with pytest.raises(BrokerUnreachable) as raised:
        await dial(dialer(Answers(dead)))
    text = str(raised.value)
    assert "kafka.example:9092" in text
    for port in dead:
        assert f"127.0.0.1:{port}: Connection refused" in text
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    assert raised.value.retriable


async def test_an_unknown_name_is_unreachable_with_the_reason() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    with pytest.raises(BrokerUnreachable, match="can't be resolved: Name or service not known"):
        await dial(dialer(Answers(unknown)))


async def test_a_name_without_addresses_is_unreachable() -> None:
    with pytest.raises(BrokerUnreachable, match="no address"):
        await dial(dialer(Answers([])))


async def test_a_name_server_that_hangs_is_abandoned() -> None:
    async def hangs(host: str, port: int) -> Sequence[SocketAddress]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(BrokerUnreachable, match="name server gave no answer") as raised:
        await dial(dialer(hangs), target(timeout=0.05))
    assert isinstance(raised.value.__cause__, TimeoutError)


async def test_a_dead_address_uses_its_part_of_the_time_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first address never responds; the second one is still reached."""
    async with ScriptedBroker() as broker:
        hole = socket.socket()
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        full = [socket.socket() for _ in range(3)]  # a full backlog drops further attempts
        try:
            for each in full:
                each.setblocking(False)
                each.connect_ex(hole.getsockname())
            dialing = dialer(Answers([hole.getsockname()[1], broker.port]))
            loop = asyncio.get_running_loop()
            started = loop.time()
            assert await dial(dialing, target(timeout=0.4)) == broker.port
            assert 0.15 <= loop.time() - started < 3.0
            with pytest.raises(BrokerUnreachable, match="no connection within") as raised:
                await dial(dialer(Answers([hole.getsockname()[1]])), target(timeout=0.05))
            assert isinstance(raised.value.__cause__, TimeoutError)
        finally:
            for each in [*full, hole]:
                each.close()


async def test_socket_options_are_set() -> None:
    async with ScriptedBroker() as broker:
        dialing = dialer(Answers([broker.port]), send_buffer=50_000, receive_buffer=60_000)
        transport, _ = await dialing.dial(target(), asyncio.Protocol)
        try:
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            # Linux doubles the requested size.
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 50_000
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 60_000
        finally:
            transport.abort()


async def test_a_cancelled_dial_leaves_nothing_open() -> None:
    async with ScriptedBroker() as broker:
        started = asyncio.Event()

        async def slow(host: str, port: int) -> Sequence[SocketAddress]:
            started.set()
            await asyncio.Event().wait()
            return [(socket.AF_INET, ("127.0.0.1", broker.port))]

        task = asyncio.ensure_future(dial(dialer(slow)))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert broker.sessions == []


async def test_a_protocol_factory_that_raises_leaves_nothing_open() -> None:
    def fails() -> asyncio.BaseProtocol:
        raise ZeroDivisionError

    async with ScriptedBroker() as broker:
        with pytest.raises(ZeroDivisionError):
            await dialer(Answers([broker.port])).dial(target(), fails)


class TestResolve:
    async def test_digits_need_no_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_thread(*_: object, **__: object) -> None:
            raise AssertionError("a thread for an address in digits")

        monkeypatch.setattr("kclient.network.threads.threading.Thread", no_thread)
        assert await resolve("127.0.0.1", 9) == [(socket.AF_INET, ("127.0.0.1", 9))]
        assert await resolve("::1", 9) == [(socket.AF_INET6, ("::1", 9, 0, 0))]

    async def test_names_give_all_addresses_once(self) -> None:
        found = await resolve("localhost", 9)
        assert (socket.AF_INET, ("127.0.0.1", 9)) in found
        assert len(found) == len(set(found))

    @pytest.mark.parametrize("host", ["a..b", "x" * 300, "\udcff"])
    async def test_names_that_cannot_be_encoded_are_unreachable(self, host: str) -> None:
        with pytest.raises(BrokerUnreachable):
            await dial(TcpDialer(SystemClock()), DialTarget(host, 9, None, 5.0))

    async def test_a_look_up_that_hangs_holds_up_no_loop_and_is_left_behind(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked, release, ended = threading.Event(), threading.Event(), threading.Event()
        real = socket.getaddrinfo

        def hangs(host: str, *args: Any, **options: Any) -> Any:
            if options.get("flags"):
                return real(host, *args, **options)
            asked.set()
            release.wait(30.0)
            ended.set()
            return []

        monkeypatch.setattr("kclient.network.dialer.socket.getaddrinfo", hangs)
        looking = asyncio.create_task(resolve("kafka.example", 9))
        while not asked.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0)
        threads = [t for t in threading.enumerate() if t.name == "kclient-dns"]
        assert threads
        assert all(thread.daemon for thread in threads)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        release.set()
        ended.wait(10.0)
        for thread in threads:
            thread.join(10.0)
