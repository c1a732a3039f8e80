"""Pitfalls that only real sockets show: half a request, names with several addresses, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme

import kclient
from kclient.clock import SystemClock
from kclient.errors import BootstrapFailed, BrokerUnreachable, RequestTimedOut
from kclient.hooks import DialTarget
from kclient.network.dialer import SocketAddress, TcpDialer
from kclient.protocol.headers import decode_request_header
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from kclient.security import Security
from kclient.testing import Cluster
from tests.unit.network.bench import FIRST, Bench, outcome
from tests.unit.network.conftest import bench as bench
from tests.unit.network.scripted_broker import (
    Received,
    ScriptedBroker,
    Session,
    good_answer,
)

PROJECT = Path(__file__).parents[2]
API_VERSIONS, METADATA = 18, 3


# 13: half a request is never followed by another one


class Reader:
    """A listener that keeps what it received, and stops reading a connection after some bytes.

    Args:
        stops_after: In bytes; None to read the connection to its end.
    """

    def __init__(self, *stops_after: int | None) -> None:
        self._stops_after = list(stops_after)
        self.received: list[bytearray] = []
        self.stopped = asyncio.Event()
        self.go_on = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from kclient.protocol.messages.api_versions import ApiVersionsResponse
        from kclient.protocol.messages.metadata import MetadataResponse
        from tests.support.response_frames import encode_response
        from tests.unit.network.scripted_broker import SPOKEN

        data = bytearray()
        self.received.append(data)
        limit = self._stops_after[len(self.received) - 1]
        answered = 0
        with contextlib.suppress(ConnectionError):
            while True:
                if limit is not None and len(data) >= limit and not self.go_on.is_set():
                    self.stopped.set()
                    await self.go_on.wait()
                piece = await reader.read(4096)
                if not piece:
                    break
                data += piece
                frames = whole_frames(data)[0]
                for frame in frames[answered:]:
                    header = decode_request_header(frame)
                    response: Any = MetadataResponse(cluster_id="c")
                    if header.api_key == API_VERSIONS:
                        response = ApiVersionsResponse(0, list(SPOKEN))
                    writer.write(
                        encode_response(response, header.api_version, header.correlation_id)
                    )
                answered = len(frames)
        writer.transport.abort()


def whole_frames(data: bytes | bytearray) -> tuple[list[bytes], int]:
    """The complete frames in ``data``, and how many bytes of an incomplete one follow."""
    frames, at = [], 0
    while len(data) >= at + 4:
        (size,) = struct.unpack_from(">i", data, at)
        if len(data) < at + 4 + size:
            break
        frames.append(bytes(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return frames, len(data) - at


@contextlib.asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve on a port of loopback, with a small receive buffer; yields the port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind(("127.0.0.1", 0))
    tasks: set[asyncio.Task[Any]] = set()

    async def tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(tracked, sock=sock, ssl=context, limit=1024)
    try:
        yield sock.getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_pitfall_13_half_a_request_is_never_followed_by_another(bench: Bench) -> None:
    """The socket buffers are tiny, and the peer stops reading in the middle of a request.

    What the kernel doesn't take stays in the transport's buffer, and is too little to fill it.
    """
    large = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 200) for _ in range(250)])
    small = MetadataRequest(topics=[])
    reader = Reader(5000, None)
    async with listening(reader.serve) as port:
        client = await bench.client(
            ("127.0.0.1", port), send_buffer=4096, request_timeout=0.5, reconnect_backoff=0.0
        )
        stuck = client.send(FIRST, large)
        behind = client.send(FIRST, small, timeout=30.0)
        await reader.stopped.wait()
        error = await outcome(stuck)
        assert isinstance(error, RequestTimedOut)
        assert error.maybe_written
        reader.go_on.set()
        await outcome(behind)  # it waited for the connection, or was in flight on the old one
        assert (await client.send(FIRST, small, timeout=30.0)).cluster_id == "c"
        old, new = reader.received
        frames, rest = whole_frames(old)
        assert [decode_request_header(frame).api_key for frame in frames] == [API_VERSIONS]
        assert 0 < rest < 50_000  # half a request, and nothing behind it
        frames, rest = whole_frames(new)
        assert decode_request_header(frames[0]).api_key == API_VERSIONS
        assert rest == 0


# 65: every address of a name is tried, and the name is looked up again each round


class Names:
    """A resolver whose addresses a test changes."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self.addresses = list(addresses)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[SocketAddress]:
        self.asked += 1
        return [(socket.AF_INET, address) for address in self.addresses]


@contextlib.asynccontextmanager
async def dead_end() -> AsyncIterator[tuple[str, int]]:
    """An address without a listener."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()


async def test_pitfall_65_a_dead_address_of_a_name_is_passed_over() -> None:
    async with Cluster(brokers=1) as cluster, dead_end() as dead:
        cluster.create_topic("t")
        names = Names(dead, (cluster.brokers[1].host, cluster.brokers[1].port))
        dialer = TcpDialer(SystemClock(), resolver=names)
        async with kclient.Producer("kafka.example:9092", dialer=dialer) as producer:
            assert (await producer.send("t", b"0")).offset == 0


async def test_pitfall_65_a_name_is_looked_up_again_for_each_attempt() -> None:
    async with Cluster(brokers=1) as cluster, dead_end() as dead:
        cluster.create_topic("t")
        names = Names(dead)
        dialer = TcpDialer(SystemClock(), resolver=names)
        producer: Any = kclient.Producer("kafka.example:9092", dialer=dialer)
        starting = asyncio.create_task(producer.start())
        async with asyncio.timeout(5.0):
            while names.asked < 3:  # noqa: ASYNC110 - the resolver has no event
                await asyncio.sleep(0.01)
        names.addresses = [(cluster.brokers[1].host, cluster.brokers[1].port)]
        await starting
        assert (await producer.send("t", b"0")).offset == 0
        await producer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize("peer", [hang_up, say_nothing])
async def test_an_address_that_accepts_and_does_not_serve_is_left_for_the_next(peer: Any) -> None:
    """The whole start has no more time than one attempt may take; the dead address comes first."""
    async with Cluster(brokers=1) as cluster, listening(peer) as port:
        cluster.create_topic("t")
        names = Names(("127.0.0.1", port), (cluster.brokers[1].host, cluster.brokers[1].port))
        settings: Any = {"bootstrap_timeout": 2.0, "connection_setup_timeout": 2.0}
        dialer = TcpDialer(SystemClock(), resolver=names)
        async with kclient.Producer("kafka.example:9092", dialer=dialer, **settings) as producer:
            assert (await producer.send("t", b"0")).offset == 0


HANGING_NAME = """
import asyncio, socket, threading
import kclient

real = socket.getaddrinfo
hung = threading.Event()

def hangs(host, *args, **options):
    if options.get("flags") or host == "127.0.0.1":
        return real(host, *args, **options)
    hung.set()
    threading.Event().wait()

socket.getaddrinfo = hangs

async def main():
    ticks = 0
    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1
    ticking = asyncio.create_task(tick())
    try:
        async with kclient.Producer("kafka.example:9092", bootstrap_timeout=0.5):
            print("started?")
    except kclient.errors.BootstrapFailed as error:
        print(error)
    ticking.cancel()
    assert hung.is_set()
    assert ticks > 50, ticks

asyncio.run(main())
print("done")
"""


def test_pitfall_65_a_look_up_that_hangs_holds_up_neither_the_loop_nor_the_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING_NAME],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=15.0,  # the look-up never ends
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "kafka.example:9092" in done.stdout
    assert done.stdout.endswith("done\n")


# TLS to a plaintext listener, and plaintext to a TLS listener: the error names the mismatch


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA, tmp_path: Path) -> Security:
    """TLS settings that trust the authority."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return Security.tls(ca_file=path)


async def why_not(bootstrap: str, **settings: Any) -> str:
    """The error text of a producer that can't start there."""
    with pytest.raises(BootstrapFailed) as failure:
        async with kclient.Producer(bootstrap, **settings):
            raise AssertionError("it started")
    return str(failure.value)


async def test_tls_to_a_plaintext_broker_is_named(trusting: Security) -> None:
    """The broker takes the ClientHello for the size of a request, and hangs up."""
    async with Cluster(brokers=1) as cluster:
        text = await why_not(cluster.bootstrap, security=trusting, bootstrap_timeout=1.0)
    assert "is that listener plaintext" in text
    assert cluster.bootstrap in text


async def test_tls_to_a_plaintext_broker_fails_before_the_timeout(
    trusting: Security,
) -> None:
    async with Cluster(brokers=1) as cluster:
        text = await why_not(cluster.bootstrap, security=trusting, bootstrap_timeout=60.0)
    assert "is that listener plaintext" in text
    assert "within" not in text  # the 60 s were not waited for


async def test_a_tls_broker_whose_balancer_has_no_back_end_yet_is_waited_for(
    authority: trustme.CA, trusting: Security
) -> None:
    """It hangs up on every connection, even before any bytes; then it serves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("kafka.example").configure_cert(context)
    accepted = 0
    enough = asyncio.Event()

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()
        if accepted == 6:
            enough.set()

    def serve(session: Session, request: Received) -> None:
        if request.api_key == METADATA:
            here = MetadataResponseBroker(node_id=1, host="kafka.example", port=9092)
            session.reply(request, MetadataResponse(brokers=[here]))
        else:
            good_answer(session, request)

    async with listening(count) as port, ScriptedBroker(serve, ssl_context=context) as broker:
        names = Names(("127.0.0.1", port))
        producer: Any = kclient.Producer(
            "kafka.example:9092",
            security=trusting,
            dialer=TcpDialer(SystemClock(), resolver=names),
            bootstrap_timeout=60.0,
        )
        starting = asyncio.create_task(producer.start())
        waiting = asyncio.create_task(enough.wait())
        await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
        assert not starting.done()
        names.addresses = [broker.address]
        await starting
        await producer.close()


@pytest.mark.parametrize("spoke_tls", [False, True])
async def test_a_broker_that_spoke_tls_before_is_not_taken_for_a_plaintext_one(
    authority: trustme.CA, trusting: Security, spoke_tls: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("kafka.example").configure_cert(context)

    async def hang_up_on_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with listening(hang_up_on_bytes) as port, ScriptedBroker(ssl_context=context) as broker:
        names = Names(broker.address)
        dialer = TcpDialer(SystemClock(), resolver=names)
        target = DialTarget("kafka.example", 9092, trusting.ssl_context)
        if spoke_tls:
            transport, _ = await dialer.dial(target, asyncio.Protocol)
            transport.abort()
        names.addresses = [("127.0.0.1", port)]
        retriable = []
        for _ in range(3):
            with pytest.raises(BrokerUnreachable) as raised:
                await dialer.dial(target, asyncio.Protocol)
            retriable.append(raised.value.retriable)
    assert retriable == ([True, True, True] if spoke_tls else [True, False, False])


async def test_tls_to_a_listener_of_another_protocol_fails_at_once(
    trusting: Security,
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read()

    async with listening(greet) as port:
        text = await why_not(f"127.0.0.1:{port}", security=trusting, bootstrap_timeout=20.0)
    assert "TLS failed" in text
    assert "is that listener plaintext" in text
    assert "within" not in text  # the 20 s were not waited for


ALERTS = {
    "handshake_failure": b"\x15\x03\x03\x00\x02\x02\x28",
    "unexpected_message": b"\x15\x03\x03\x00\x02\x02\x0a",
    "TLS 1.0": b"\x15\x03\x01\x00\x02\x02\x46",
}
"""The alerts that Kafka's TLS listeners send on bytes that are no TLS, before they hang up."""


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
async def test_plaintext_to_a_tls_listener_is_named_and_fails_at_once(alert: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(alert)
        await writer.drain()
        writer.close()

    async with listening(refuse) as port:
        text = await why_not(f"127.0.0.1:{port}", bootstrap_timeout=20.0)
    assert "this looks like a TLS listener: use security=Security.tls" in text
    assert "within" not in text  # the 20 s were not waited for


async def test_plaintext_to_a_tls_listener_that_just_hangs_up_names_tls(
    authority: trustme.CA,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("kafka.example").configure_cert(context)

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("no handshake can succeed")

    async with listening(never, context) as port:
        text = await why_not(f"127.0.0.1:{port}", bootstrap_timeout=1.0)
    assert "that listener may want TLS" in text
    assert "security=" in text


async def test_one_usable_address_is_enough_beside_one_that_wants_tls() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(ALERTS["handshake_failure"])
        await writer.drain()

    async with listening(refuse) as port, Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        bootstrap = f"127.0.0.1:{port},{cluster.bootstrap}"
        async with kclient.Producer(bootstrap) as producer:
            assert (await producer.send("t", b"0")).offset == 0
