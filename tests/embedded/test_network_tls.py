"""TLS over real sockets: connections at work, and errors that name what is wrong."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme

from kclient.clock import SystemClock
from kclient.errors import BrokerUnreachable
from kclient.network import NetworkClient
from kclient.network.channel import Channel
from kclient.network.dialer import SocketAddress, TcpDialer
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from kclient.security import Security
from tests.support.response_frames import encode_response
from tests.unit.network.bench import Bench
from tests.unit.network.conftest import bench as bench
from tests.unit.network.scripted_broker import (
    API_VERSIONS,
    Received,
    ScriptedBroker,
    Session,
    good_answer,
)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trust(authority: trustme.CA, tmp_path: Path) -> Path:
    """The file of the authority that clients trust."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def loopback(host: str, port: int) -> Sequence[SocketAddress]:
    """Resolve every name to this machine."""
    return [(socket.AF_INET, ("127.0.0.1", port))]


async def client_of(
    bench: Bench, broker: ScriptedBroker, host: str, security: Security
) -> NetworkClient:
    return await bench.client(
        (host, broker.port),
        dialer=TcpDialer(SystemClock(), resolver=loopback),
        security=security,
        connection_setup_timeout=5.0,
    )


async def refusal(client: NetworkClient) -> BrokerUnreachable:
    with pytest.raises(BrokerUnreachable) as raised:
        await client.send(-1, MetadataRequest())
    return raised.value


@pytest.mark.parametrize("host", ["kafka.example", "kafka.example.", "127.0.0.1", "KAFKA.example"])
async def test_a_trusted_certificate_for_the_host_is_accepted(
    bench: Bench, authority: trustme.CA, trust: Path, host: str
) -> None:
    certificate = authority.issue_cert("kafka.example", "127.0.0.1")
    async with ScriptedBroker(ssl_context=server_context(certificate)) as broker:
        client = await client_of(bench, broker, host, Security.tls(ca_file=trust))
        assert isinstance(await client.send(-1, MetadataRequest()), MetadataResponse)


async def test_large_responses_come_through_whole(
    bench: Bench, authority: trustme.CA, trust: Path
) -> None:
    certificate = authority.issue_cert("kafka.example")
    big = "x" * 30_000

    async with ScriptedBroker(ssl_context=server_context(certificate)) as broker:
        good = broker.script
        broker.script = lambda session, request: (
            good(session, request)
            if request.api_key == 18
            else session.reply(request, MetadataResponse(cluster_id=big))
        )
        client = await client_of(bench, broker, "kafka.example", Security.tls(ca_file=trust))
        futures = [client.send(-1, MetadataRequest()) for _ in range(50)]
        for future in futures:
            assert (await future).cluster_id == big


@pytest.mark.parametrize("encrypted", [True, False], ids=["TLS", "plaintext"])
async def test_a_long_response_in_small_pieces_wakes_the_loop_seldom(
    bench: Bench,
    authority: trustme.CA,
    trust: Path,
    encrypted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = [MetadataResponseTopic(name=f"{n}".zfill(30_000)) for n in range(66)]
    reads: list[int] = []
    real = Channel.buffer_updated

    def counted(channel: Channel, count: int) -> None:
        reads.append(count)
        real(channel, count)

    monkeypatch.setattr(Channel, "buffer_updated", counted)
    tasks: list[asyncio.Task[None]] = []

    async def in_pieces(session: Session, data: bytes) -> None:
        for start in range(0, len(data), 16_000):
            session.send(data[start : start + 16_000])
            await session.writer.drain()
            for _ in range(3):
                await asyncio.sleep(0)  # the client may read it

    def script(session: Session, request: Received) -> None:
        if request.api_key == API_VERSIONS:
            good_answer(session, request)
        else:
            response = MetadataResponse(topics=topics)
            data = encode_response(response, request.version, request.correlation_id)
            tasks.append(asyncio.create_task(in_pieces(session, data)))

    context = server_context(authority.issue_cert("kafka.example"))
    security = Security.tls(ca_file=trust) if encrypted else Security.plaintext()
    async with ScriptedBroker(script, ssl_context=context if encrypted else None) as broker:
        client = await client_of(bench, broker, "kafka.example", security)
        response = await client.send(-1, MetadataRequest())
        assert [topic.name for topic in response.topics] == [topic.name for topic in topics]
        for task in tasks:
            await task
    assert len(reads) < 50  # of 125 pieces


async def test_a_client_certificate_authenticates_the_client(
    bench: Bench, authority: trustme.CA, trust: Path, tmp_path: Path
) -> None:
    context = server_context(authority.issue_cert("kafka.example"))
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    ours = authority.issue_cert("client@kafka.example")
    path = tmp_path / "client.pem"
    ours.private_key_and_cert_chain_pem.write_to_path(str(path))
    async with ScriptedBroker(ssl_context=context) as broker:
        security = Security.tls(ca_file=trust, certificate_file=path)
        client = await client_of(bench, broker, "kafka.example", security)
        assert isinstance(await client.send(-1, MetadataRequest()), MetadataResponse)
        nameless = await client_of(bench, broker, "kafka.example", Security.tls(ca_file=trust))
        await refusal(nameless)


async def test_a_plaintext_listener_is_named(bench: Bench, trust: Path) -> None:
    async with ScriptedBroker(greet=lambda session: session.send(b"not a TLS hello")) as broker:
        client = await client_of(bench, broker, "kafka.example", Security.tls(ca_file=trust))
        error = await refusal(client)
        assert "TLS failed" in str(error)
        assert "plaintext" in (error.hint or "")


async def test_a_listener_that_never_shakes_hands_times_out(bench: Bench, trust: Path) -> None:
    async with ScriptedBroker(reads=False) as broker:
        client = await bench.client(
            ("kafka.example", broker.port),
            dialer=TcpDialer(SystemClock(), resolver=loopback),
            security=Security.tls(ca_file=trust),
            connection_setup_timeout=0.1,
        )
        assert "no connection within" in str(await refusal(client))


async def test_a_tls_listener_is_named_by_a_plaintext_client(
    bench: Bench, authority: trustme.CA
) -> None:
    context = server_context(authority.issue_cert("kafka.example"))
    async with ScriptedBroker(ssl_context=context) as broker:
        client = await client_of(bench, broker, "kafka.example", Security.plaintext())
        error = await refusal(client)
        assert "TLS" in str(error)
        assert "security=" in str(error)


async def test_closing_waits_for_no_goodbye(
    bench: Bench, authority: trustme.CA, trust: Path
) -> None:
    """A peer that stopped reading doesn't respond to TLS's close_notify either."""
    certificate = authority.issue_cert("kafka.example")
    async with ScriptedBroker(ssl_context=server_context(certificate)) as broker:
        client = await client_of(bench, broker, "kafka.example", Security.tls(ca_file=trust))
        await client.send(-1, MetadataRequest())
        broker.sessions[0].stop_reading()
        clock = SystemClock()
        started = clock.now()
        await client.close(0.1)
        assert clock.now() - started < 1.5
