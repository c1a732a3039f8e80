"""Delegation tokens by Admin, on a real broker: from their creation to their end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

import kclient
from kclient import DelegationToken, Secret
from kclient.errors import (
    BootstrapFailed,
    DelegationTokenAuthorizationFailed,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
)
from tests.security.people import eventually, eventually_raises, log_in, user
from tests.security.test_logins import security
from tests.support import tls
from tests.support.class_path import parse_version
from tests.support.kafka import RunningBroker

OWNERS_SINCE = (3, 3, 0)
DAY = 86_400.0


@pytest.fixture
async def alice(secured: RunningBroker) -> AsyncIterator[kclient.Admin]:
    """A super user who has logged in."""
    found = security("SCRAM-SHA-512")
    async with kclient.Admin(secured.sasl_tls_bootstrap, security=found) as client:
        yield client


async def described(client: kclient.Admin, token: DelegationToken) -> DelegationToken:
    """The same token, once the broker shows it."""

    async def look() -> DelegationToken:
        for one in await client.describe_delegation_tokens([token.owner]):
            if one.token_id == token.token_id:
                return one
        raise kclient.KafkaError("not yet")

    return await eventually(look)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_client_logs_in_by_a_token_as_its_owner(
    secured: RunningBroker, alice: kclient.Admin, mechanism: kclient.security.ScramMechanism
) -> None:
    token = await alice.create_delegation_token(renewers=["User:zoe"], max_lifetime=DAY)
    assert token.owner == token.requester == "User:alice"
    assert token.renewers == ("User:zoe",)
    assert abs(token.expires_at - time.time() - DAY) < 600.0
    assert await described(alice, token) == token
    worker = token.security(mechanism=mechanism, ca_file=tls.certificate())
    await eventually(lambda: log_in(secured.sasl_tls_bootstrap, worker))
    topic = f"by-token-{mechanism}"
    async with kclient.Admin(secured.sasl_tls_bootstrap, security=worker) as client:
        await client.create_topics([kclient.NewTopic(topic)])  # alice may
        with pytest.raises(DelegationTokenRequestNotAllowed, match="delegation token"):
            await client.create_delegation_token()
    async with kclient.Producer(secured.sasl_tls_bootstrap, security=worker) as producer:
        await producer.send(topic, b"v")
    assert token.hmac.reveal() not in f"{token!r} {token} {worker!r}"


async def test_a_token_is_renewed_by_its_renewers_only(
    secured: RunningBroker, admin: kclient.Admin, alice: kclient.Admin
) -> None:
    renewer = await user(admin, secured, "renewer")
    token = await alice.create_delegation_token(renewers=["User:renewer"], max_lifetime=DAY)
    soon = await eventually(lambda: alice.renew_delegation_token(token, period=60.0))
    assert abs(soon - time.time() - 60.0) < 30.0
    async with kclient.Admin(secured.sasl_tls_bootstrap, security=renewer) as client:
        hmac = Secret(token.hmac)
        assert await client.renew_delegation_token(hmac) == token.max_expires_at
    async with kclient.Admin(
        secured.sasl_tls_bootstrap, security=security("PLAIN", "carol")
    ) as carol:
        with pytest.raises(DelegationTokenOwnerMismatch):
            await carol.renew_delegation_token(token)
        with pytest.raises(DelegationTokenOwnerMismatch):
            await carol.expire_delegation_token(token)


async def test_an_expired_token_lets_no_one_in(
    secured: RunningBroker, alice: kclient.Admin
) -> None:
    token = await alice.create_delegation_token()
    worker = token.security(ca_file=tls.certificate())
    await eventually(lambda: log_in(secured.sasl_tls_bootstrap, worker))
    ended = await alice.expire_delegation_token(token)
    assert ended - time.time() < 30.0
    await eventually_raises(BootstrapFailed, lambda: log_in(secured.sasl_tls_bootstrap, worker))
    with pytest.raises(DelegationTokenNotFound):
        await alice.renew_delegation_token(token)


async def test_a_token_that_expired_by_itself_can_not_be_renewed(alice: kclient.Admin) -> None:
    token = await alice.create_delegation_token()
    await eventually(lambda: alice.expire_delegation_token(token, after=0.1))
    await asyncio.sleep(0.3)
    with pytest.raises(DelegationTokenExpired):
        await alice.renew_delegation_token(token)


async def test_tokens_for_others_need_a_permission(
    secured: RunningBroker, alice: kclient.Admin
) -> None:
    if parse_version(secured.version) < OWNERS_SINCE:
        with pytest.raises(kclient.NoCommonVersion, match=r"3\.3"):
            await alice.create_delegation_token(owner="User:carol")
        return
    token = await alice.create_delegation_token(owner="User:carol")
    assert (token.owner, token.requester) == ("User:carol", "User:alice")
    async with kclient.Admin(
        secured.sasl_tls_bootstrap, security=security("PLAIN", "carol")
    ) as carol:
        assert await described(carol, token) == token
        with pytest.raises(DelegationTokenAuthorizationFailed):
            await carol.create_delegation_token(owner="User:alice")


async def test_what_a_broker_gives_no_token_for_is_an_error(
    admin: kclient.Admin, alice: kclient.Admin
) -> None:
    with pytest.raises(DelegationTokenRequestNotAllowed, match="PLAINTEXT"):
        await admin.create_delegation_token()
    with pytest.raises(InvalidPrincipalType):
        await alice.create_delegation_token(renewers=["Group:admins"])
    with pytest.raises(DelegationTokenNotFound):
        await alice.renew_delegation_token("YWJj")
