"""Delegation tokens of the embedded cluster, with clients that log in by them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

import kclient
from kclient import Security
from kclient.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kclient.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kclient.testing import Cluster, ClusterSecurity, ErrorCode, run_virtually
from tests.unit.testing.raw_peer import RawPeer
from tests.unit.testing.sasl_peer import logged_in

USERS = {"alice": "secret"}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


async def made(peer: RawPeer, lifetime_ms: int = -1) -> Any:
    return await peer.call(CreateDelegationTokenRequest("", "", [], lifetime_ms), 3)


def security_of(token: Any, mechanism: Any = "SCRAM-SHA-512") -> Security:
    secret = base64.b64encode(token.hmac).decode()
    return Security.sasl_scram(
        token.token_id, secret, mechanism=mechanism, delegation_token=True, unencrypted=True
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_logs_in_by_a_token_at_every_broker(mechanism: str) -> None:
    async with Cluster(security=ClusterSecurity(USERS)) as cluster:
        cluster.create_topic("flights", partitions=3)
        async with logged_in(cluster, "alice", "secret") as peer:
            token = await made(peer)
        security = security_of(token, mechanism)
        async with kclient.Producer(cluster.bootstrap, security=security) as producer:
            for partition in range(3):
                await producer.send("flights", b"UA 1545", partition=partition)


def test_a_client_goes_on_while_its_token_is_renewed_and_no_longer() -> None:
    async def scene() -> None:
        async with Cluster(brokers=1, security=ClusterSecurity(USERS)) as cluster:
            async with logged_in(cluster, "alice", "secret") as peer:
                token = await made(peer)
                renewal = RenewDelegationTokenRequest(token.hmac, 60_000)
                await peer.call(renewal, 2)
                async with kclient.Admin(cluster.bootstrap, security=security_of(token)) as admin:
                    for _ in range(10):
                        await admin.list_topics()
                        await asyncio.sleep(30.0)
                        await peer.call(renewal, 2)
                    assert admin.metrics().get("network.requests_failed", 0) == 0
                    await peer.call(ExpireDelegationTokenRequest(token.hmac, -1), 2)
                    await asyncio.sleep(60.0)
                    with pytest.raises(kclient.AuthenticationFailed):
                        await admin.list_topics()

    run_virtually(scene(), seed=3)


async def test_lifetimes_and_the_secret_are_configured_as_kafka_s() -> None:
    configs = {"delegation.token.max.lifetime.ms": 5000, "delegation.token.expiry.time.ms": 2000}
    async with Cluster(brokers=1, security=ClusterSecurity(USERS), broker_configs=configs) as one:
        async with logged_in(one, "alice", "secret") as peer:
            token = await made(peer, 10_000)
            assert token.max_timestamp_ms - token.issue_timestamp_ms == 5000
            assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 2000
    off = {"delegation.token.secret.key": ""}
    async with Cluster(brokers=1, security=ClusterSecurity(USERS), broker_configs=off) as one:
        async with logged_in(one, "alice", "secret") as peer:
            assert (await made(peer)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            found = await peer.call(DescribeDelegationTokenRequest(None), 3)
            assert found.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize("after", [False, True])
async def test_a_fault_is_the_answer(after: bool) -> None:
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    async with Cluster(brokers=1, security=ClusterSecurity(USERS)) as cluster:
        async with logged_in(cluster, "alice", "secret") as peer:
            token = await made(peer)
            for request, version in (
                (CreateDelegationTokenRequest(), 3),
                (RenewDelegationTokenRequest(token.hmac, -1), 2),
                (ExpireDelegationTokenRequest(token.hmac, -1), 2),
                (DescribeDelegationTokenRequest(None), 3),
            ):
                cluster.faults.error(request.NAME, code, after=after)
                assert (await peer.call(request, version)).error_code == code
