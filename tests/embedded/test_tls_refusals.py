"""Every server that can't prove who it is, wherever a client meets it, gets nothing but a refusal.

Certificates and servers are of bad_certificates.py and hostile_servers.py. The client has a
password, which must not leave it, nor may any other byte of SASL's or Kafka's.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence

import pytest

from kclient.clock import SystemClock
from kclient.errors import BrokerUnreachable, ConnectionLost
from kclient.network import NetworkClient
from kclient.network.dialer import SocketAddress, TcpDialer
from kclient.network.nodes import Node
from kclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kclient.security import Security
from tests.embedded.bad_certificates import HOST, bad_certificates, good_certificates, root
from tests.embedded.hostile_servers import (
    BEHAVIOURS,
    SASL_AUTHENTICATE,
    HostileServer,
    secured_answer,
)
from tests.unit.network.bench import FIRST, Bench
from tests.unit.network.conftest import bench as bench
from tests.unit.network.scripted_broker import ScriptedBroker

CANARY = "canary-9f2e"
TRUSTED = root()
BAD = bad_certificates(TRUSTED)
GOOD = good_certificates(TRUSTED)
SERVERS = [*BAD, *BEHAVIOURS]
DISCOVERED = 1

Contexts = Callable[[str], ssl.SSLContext | None]


@pytest.fixture(scope="module")
def context_of(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """Makes the context of one of the servers; None for those without TLS."""
    file = tmp_path_factory.mktemp("tls") / "server.pem"

    def make(name: str) -> ssl.SSLContext | None:
        if name in BEHAVIOURS:
            return None
        _, presented = (BAD | GOOD).get(name, GOOD["all names"])
        file.write_bytes(presented)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:@SECLEVEL=0")  # also with a weak key
        context.load_cert_chain(file)
        return context

    return make


@pytest.fixture(scope="module")
def security() -> Security:
    """A login by password, to brokers of one authority."""
    return Security.sasl_plain("alice", CANARY, ca=TRUSTED.pem.decode())


async def loopback(host: str, port: int) -> Sequence[SocketAddress]:
    """Resolve every name to this machine."""
    return [(socket.AF_INET, ("127.0.0.1", port))]


async def client_of(
    bench: Bench, host: str, port: int, security: Security, time_limit: float = 5.0
) -> NetworkClient:
    return await bench.client(
        (host, port),
        dialer=TcpDialer(SystemClock(), resolver=loopback),
        security=security,
        connection_setup_timeout=time_limit,
        reconnect_backoff=0.0,
    )


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("met", ["at bootstrap", "as a broker of the cluster", "on reconnection"])
async def test_a_bad_server_gets_no_byte_beyond_the_handshake(
    bench: Bench, context_of: Contexts, security: Security, name: str, met: str
) -> None:
    host = BAD[name][0] if name in BAD else HOST
    time_limit = 0.5 if name == "stalls" else 5.0
    server = HostileServer(context_of(name), BEHAVIOURS.get(name))
    async with ScriptedBroker(secured_answer, ssl_context=context_of("all names")) as good:
        if met == "at bootstrap":
            async with server:
                client = await client_of(bench, host, server.port, security, time_limit)
                await refused(client, FIRST, server, name)
            return
        client = await client_of(bench, host, good.port, security, time_limit)
        await client.send(FIRST, MetadataRequest())
        assert CANARY.encode() in good.asked(SASL_AUTHENTICATE)[0].frame
        if met == "as a broker of the cluster":
            async with server:
                client.update_nodes([Node(DISCOVERED, host, server.port)])
                await refused(client, DISCOVERED, server, name)
            return
        await good.stop()
        server.port = good.port
        async with server:
            await refused(client, FIRST, server, name)


async def refused(client: NetworkClient, node_id: int, server: HostileServer, name: str) -> None:
    """Have a request for a hostile server fail, with nothing said to it."""
    with pytest.raises(BrokerUnreachable) as raised:
        while True:
            try:
                await client.send(node_id, MetadataRequest())
            except ConnectionLost:
                continue  # the good one's end wasn't noticed yet
    if name in BAD:
        assert f"{BAD[name][0]}:{server.port}" in str(raised.value)
        assert "its certificate is refused" in str(raised.value)
        assert "ca_file" in (raised.value.hint or "")
        assert not raised.value.retriable
    else:
        assert server.received
    if name.startswith("TLS 1."):
        assert "UNSUPPORTED_PROTOCOL" in str(raised.value)
    assert server.beyond_handshake == b""
    assert CANARY.encode() not in server.received


@pytest.mark.parametrize("name", BAD)
async def test_each_bad_certificate_serves_who_verifies_none(
    bench: Bench, context_of: Contexts, name: str
) -> None:
    """Nothing else is wrong with these servers, and the loud option is what lets them pass."""
    careless = Security.tls(insecure_skip_verification=True)
    async with ScriptedBroker(ssl_context=context_of(name)) as broker:
        client = await client_of(bench, BAD[name][0], broker.port, careless)
        assert isinstance(await client.send(FIRST, MetadataRequest()), MetadataResponse)


@pytest.mark.parametrize("name", GOOD)
async def test_a_certificate_in_order_is_taken(
    bench: Bench, context_of: Contexts, security: Security, name: str
) -> None:
    async with ScriptedBroker(secured_answer, ssl_context=context_of(name)) as broker:
        client = await client_of(bench, GOOD[name][0], broker.port, security)
        assert isinstance(await client.send(FIRST, MetadataRequest()), MetadataResponse)
