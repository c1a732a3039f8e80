"""Clusters with an authorizer: what clients may do there, by ACLs, and by certificates."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient import InvalidArgument, NewTopic, Security
from kclient.protocol.message import Request
from kclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kclient.testing import Cluster, ClusterSecurity
from tests.unit.testing.acl_calls import (
    GROUP,
    READ,
    WRITE,
    acl,
    create,
    delete,
    describe,
    one_filter,
)
from tests.unit.testing.raw_peer import RawPeer

USERS = {"admin": "admin-password", "carol": "carol-password"}


def secured() -> ClusterSecurity:
    return ClusterSecurity(USERS, super_users=["admin"])


async def ask(cluster: Cluster, request: Request, user: str = "admin") -> Any:
    """Ask as a user, over a connection of its own."""
    async with RawPeer.to(cluster.bootstrap) as peer:
        await peer.call(SaslHandshakeRequest("PLAIN"), 1)
        await peer.call(SaslAuthenticateRequest(f"\0{user}\0{USERS[user]}".encode()), 2)
        return await peer.call(request, 3)


async def test_what_no_acl_allows_is_an_error_until_one_does() -> None:
    security = secured()
    async with Cluster(security=security) as cluster:
        cluster.create_topic("flights")
        carol = security.client("carol")
        async with kclient.Producer(cluster.bootstrap, security=carol) as producer:
            with pytest.raises(kclient.TopicAuthorizationFailed, match="flights"):
                await producer.send("flights", b"UA 1545")
            await ask(cluster, create(acl("flights", WRITE)))
            await producer.send("flights", b"UA 1545")
        assert await read(cluster, carol) is kclient.GroupAuthorizationFailed
        await ask(cluster, create(acl("g", READ, GROUP)))
        assert await read(cluster, carol) is kclient.TopicAuthorizationFailed
        await ask(cluster, create(acl("flights", READ)))
        assert await read(cluster, carol) == [b"UA 1545"]
        await ask(cluster, delete(one_filter("flights", operation=READ)))
        assert await read(cluster, carol) is kclient.TopicAuthorizationFailed


async def read(cluster: Cluster, security: Security) -> object:
    """The values that a member of a group gets, or the type of its error."""
    async with asyncio.timeout(20.0):
        try:
            async with kclient.Consumer(
                cluster.bootstrap,
                "flights",
                group="g",
                security=security,
                auto_offset_reset="earliest",
            ) as consumer:
                while not (records := await consumer.poll()):
                    pass
                return [record.value for record in records]
        except kclient.BrokerError as error:
            return type(error)


async def test_acls_outlive_brokers_and_controllers() -> None:
    async with Cluster(security=secured()) as cluster:
        created = await ask(cluster, create(acl("flights"), acl("g", READ, GROUP), acl("flights")))
        assert [one.error_code for one in created.results] == [0, 0, 0]
        before = await ask(cluster, describe())
        assert [len(one.acls) for one in before.resources] == [1, 1]
        for broker in (1, 2, 3):
            await cluster.restart(broker)
        assert await ask(cluster, describe()) == before


async def test_certificates_name_users() -> None:
    security = ClusterSecurity(tls=True, client_certificates=True, super_users=["admin"])
    async with Cluster(brokers=1, security=security) as cluster:
        admin, carol = security.client("admin"), security.client("carol")
        async with kclient.Admin(cluster.bootstrap, security=admin) as client:
            await client.create_topics([NewTopic("flights")])
        async with kclient.Producer(cluster.bootstrap, security=admin) as producer:
            await producer.send("flights", b"UA 1545")
        async with kclient.Producer(cluster.bootstrap, security=carol) as producer:
            with pytest.raises(kclient.TopicAuthorizationFailed):
                await producer.send("flights", b"UA 1545")
        host, port = cluster.bootstrap.split(":")
        without = Security.tls(ca=security.authority).ssl_context
        reader, writer = await asyncio.open_connection(host, int(port), ssl=without)
        async with asyncio.timeout(20.0):
            assert await reader.read() == b"", "a client without a certificate is let in"
        writer.close()


async def test_a_client_without_a_login_is_anonymous() -> None:
    for supers in (["ANONYMOUS"], []):
        async with Cluster(brokers=1, security=ClusterSecurity(super_users=supers)) as cluster:
            async with kclient.Admin(cluster.bootstrap) as admin:
                creation = admin.create_topics([NewTopic("flights")])
                if supers:
                    await creation
                else:
                    with pytest.raises(kclient.TopicAuthorizationFailed):
                        await creation


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"super_users": "admin"}, "in a sequence"),
        ({"super_users": ["User:admin"]}, "without 'User:'"),
        ({"super_users": [""]}, "allowed are names"),
        ({"client_certificates": True}, "needs tls=True"),
        ({"client_certificates": True, "tls": True, "users": USERS}, "neither users"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        ClusterSecurity(**arguments)


def test_a_certificate_is_of_a_user() -> None:
    security = ClusterSecurity(tls=True, client_certificates=True)
    with pytest.raises(InvalidArgument, match="username is needed"):
        security.client()
