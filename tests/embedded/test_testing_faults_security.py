"""Faults of logins, sessions and certificates: what clients see of them, and what they don't."""

from __future__ import annotations

import asyncio
import ssl

import pytest

import kclient
from kclient import InvalidArgument
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster, ClusterSecurity, ErrorCode, RequestInfo, ThreadedCluster
from tests.unit.testing.raw_peer import RawPeer

USERS = {"alice": "secret"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_session_that_expires_is_unseen(mechanism: str) -> None:
    security = ClusterSecurity(USERS)
    async with Cluster(brokers=1, security=security) as cluster:
        cluster.create_topic("flights")
        mine = security.client("alice", mechanism)
        async with (
            kclient.Producer(cluster.bootstrap, security=mine, reconnect_backoff=0.01) as producer,
            kclient.Consumer(
                cluster.bootstrap,
                "flights",
                security=mine,
                auto_offset_reset="earliest",
                reconnect_backoff=0.01,
            ) as consumer,
        ):
            await producer.send("flights", b"0")
            read = await consumer.poll(timeout=20.0)
            logins = cluster.requests.count("SaslHandshake")
            faults = [cluster.faults.expire_session(api) for api in ("Produce", "Fetch")]
            for value in (b"1", b"2"):  # the first one ends a fetch that was there before
                await producer.send("flights", value)
                read += await consumer.poll(timeout=20.0)
            assert [record.value for record in read] == [b"0", b"1", b"2"]
            assert [fault.hits for fault in faults] == [1, 1]
            assert cluster.requests.count("SaslHandshake") == logins + 2
        assert [record.value for record in cluster.records("flights")] == [b"0", b"1", b"2"]


async def test_expired_sessions_are_of_those_who_logged_in() -> None:
    async with Cluster(brokers=1) as cluster, RawPeer.to(cluster.bootstrap) as peer:
        fault = cluster.faults.expire_session(times=None)
        await peer.call(MetadataRequest([]), 9)
        assert not fault.hits
        with pytest.raises(InvalidArgument, match="when"):
            cluster.faults.expire_session(when=1)  # type: ignore[arg-type]


async def test_the_session_of_one_user_expires() -> None:
    security = ClusterSecurity({**USERS, "bob": "secret"})
    async with Cluster(brokers=1, security=security) as cluster:

        def of_bob(request: RequestInfo) -> bool:
            return request.user == "bob"

        fault = cluster.faults.expire_session("CreateTopics", when=of_bob)
        for user in ("alice", "bob"):
            mine = security.client(user)
            async with kclient.Admin(cluster.bootstrap, security=mine) as admin:
                await admin.create_topics([kclient.NewTopic(user)])
                assert fault.hits == (user == "bob")


async def test_a_refused_login_is_one_error() -> None:
    security = ClusterSecurity(USERS)
    async with Cluster(brokers=1, security=security) as cluster:
        refused = ErrorCode.SASL_AUTHENTICATION_FAILED
        cluster.faults.error("SaslAuthenticate", refused)
        admin = kclient.Admin(cluster.bootstrap, security=security.client("alice"))
        with pytest.raises(kclient.BootstrapFailed) as caught:
            async with admin:
                pass
        assert isinstance(caught.value.__cause__, kclient.AuthenticationFailed)
        again = kclient.Admin(cluster.bootstrap, security=security.client("alice"))
        async with again as admin:
            await admin.list_topics()


async def certificate_of(cluster: Cluster, security: ClusterSecurity) -> bytes:
    """The certificate that a new connection is shown, in DER."""
    context = ssl.create_default_context(cadata=security.authority)
    host, _, port = cluster.bootstrap.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return bytes(shown)


async def test_a_rotated_certificate_is_trusted_and_open_connections_go_on() -> None:
    security = ClusterSecurity(USERS, tls=True)
    async with Cluster(brokers=1, security=security) as cluster:
        cluster.create_topic("flights")
        mine = security.client("alice")
        async with kclient.Producer(cluster.bootstrap, security=mine) as producer:
            await producer.send("flights", b"before")
            before = await certificate_of(cluster, security)
            connections = cluster.brokers[1].connection_count
            cluster.faults.rotate_certificate()
            assert await certificate_of(cluster, security) != before
            await producer.send("flights", b"on the same connection")
            assert cluster.brokers[1].connection_count == connections
            cluster.faults.close("Produce")
            await producer.send("flights", b"on a new one")
        assert len(cluster.records("flights")) == 3


def test_without_tls_there_is_nothing_to_rotate() -> None:
    for security in (None, ClusterSecurity(USERS)):
        with ThreadedCluster(Cluster(brokers=1, security=security)) as cluster:
            with pytest.raises(InvalidArgument, match=r"(?i)tls"):
                cluster.faults.rotate_certificate()
