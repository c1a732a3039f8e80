"""Clients that log in by SASL, on the listeners of a real broker: what works, and what doesn't."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any, Literal

import pytest

import kclient
from kclient import Security, TopicPartition
from kclient.credentials import Token
from tests.security.conftest import set_scram_passwords
from tests.support import tls
from tests.support.broker_settings import PLAIN_USERS, SESSION_LIFETIME
from tests.support.kafka import RunningBroker

CANARY = "canary-9a4e"
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def jwt(*, life: float = 3600.0) -> str:
    """An unsecured token, which brokers take where nothing else is configured."""
    now = time.time()
    claims = {"sub": "alice", "iat": now - 60, "exp": now + life}
    return (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "none"}, claims)
        )
        + "."
    )


def security(mechanism: Mechanism, username: str = "alice", *, encrypted: bool = True) -> Security:
    options: dict[str, Any] = {"ca_file": tls.certificate()} if encrypted else {"unencrypted": True}
    if mechanism == "OAUTHBEARER":
        return Security.oauth(jwt, **options)
    password = PLAIN_USERS[username]
    if mechanism == "PLAIN":
        return Security.sasl_plain(username, password, **options)
    return Security.sasl_scram(username, password, mechanism=mechanism, **options)


def address(broker: RunningBroker, *, encrypted: bool) -> str:
    return broker.sasl_tls_bootstrap if encrypted else broker.sasl_bootstrap


async def round_trip(bootstrap: str, security: Security, topic: str) -> None:
    """Produce, read in a group, and a transaction."""
    async with kclient.Admin(bootstrap, security=security) as admin:
        await admin.create_topics([kclient.NewTopic(topic)])
    async with kclient.Producer(bootstrap, security=security, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send(topic, b"in a transaction")
    async with kclient.Producer(bootstrap, security=security) as producer:
        await producer.send(topic, b"by itself")
    async with kclient.Consumer(
        bootstrap,
        topic,
        group=topic,
        security=security,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        values: list[bytes | None] = []
        async with asyncio.timeout(30.0):
            while len(values) < 2:
                values += [record.value for record in await consumer.poll()]
        await consumer.commit()
    assert values == [b"in a transaction", b"by itself"]


@pytest.mark.parametrize("encrypted", [True, False], ids=["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_every_client_works_behind_a_login(
    secured: RunningBroker, mechanism: Mechanism, encrypted: bool
) -> None:
    topic = f"works-{mechanism}-{encrypted}"
    bootstrap = address(secured, encrypted=encrypted)
    await round_trip(bootstrap, security(mechanism, encrypted=encrypted), topic)


@pytest.mark.parametrize(
    ("mechanism", "username"),
    [("PLAIN", "zoë"), ("SCRAM-SHA-256", "zoe"), ("SCRAM-SHA-512", "zoe")],
)
async def test_names_and_passwords_are_utf8(
    secured: RunningBroker, mechanism: Mechanism, username: str
) -> None:
    found = security(mechanism, username)
    async with kclient.Admin(secured.sasl_tls_bootstrap, security=found) as admin:
        await admin.describe_cluster()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_a_hundred_logins_succeed(secured: RunningBroker, mechanism: Mechanism) -> None:
    found = security(mechanism, encrypted=False)
    for _ in range(100 if mechanism != "PLAIN" else 10):
        async with kclient.Admin(secured.sasl_bootstrap, security=found) as admin:
            await admin.describe_cluster()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_a_wrong_password_is_one_error_at_once(
    secured: RunningBroker, mechanism: Mechanism
) -> None:
    options: dict[str, Any] = {"ca_file": tls.certificate()}
    if mechanism == "PLAIN":
        wrong = Security.sasl_plain("alice", CANARY, **options)
    else:
        options["mechanism"] = mechanism
        wrong = Security.sasl_scram("alice", CANARY, **options)
    text = await refusal(secured.sasl_tls_bootstrap, wrong)
    assert "refuses the credentials" in text
    assert mechanism in text
    assert CANARY not in text


async def refusal(bootstrap: str, security: Security) -> str:
    """The error of a client that isn't let in; it comes long before the time-out."""
    begun = time.monotonic()
    with pytest.raises(kclient.BootstrapFailed) as caught:
        async with kclient.Admin(bootstrap, security=security, api_timeout=60.0):
            pass
    assert time.monotonic() - begun < 30.0
    assert isinstance(caught.value.__cause__, kclient.BrokerUnreachable)
    assert not caught.value.__cause__.retriable
    return str(caught.value)


async def test_a_token_that_is_refused_is_one_error_at_once(secured: RunningBroker) -> None:
    found = Security.oauth(lambda: Token(CANARY), ca_file=tls.certificate())
    text = await refusal(secured.sasl_tls_bootstrap, found)
    assert "token" in text
    assert CANARY not in text


async def test_an_expired_token_isnt_sent(secured: RunningBroker) -> None:
    found = Security.oauth(lambda: jwt(life=-5.0), ca_file=tls.certificate())
    text = await refusal(secured.sasl_tls_bootstrap, found)
    assert "expired 5 s ago" in text


async def test_sasl_where_none_is_wanted_is_said(secured: RunningBroker) -> None:
    text = await refusal(secured.bootstrap, security("SCRAM-SHA-256", encrypted=False))
    assert "wants no SASL on that listener" in text


async def test_a_listener_of_sasl_met_without_it_is_said(secured: RunningBroker) -> None:
    text = await refusal(secured.sasl_bootstrap, Security.plaintext())
    assert "SASL" in text


async def test_tls_where_sasl_alone_is_wanted_is_said(secured: RunningBroker) -> None:
    text = await refusal(secured.sasl_bootstrap, security("PLAIN"))
    assert "is that listener plaintext" in text


async def test_a_password_may_change_while_a_client_is_open(secured: RunningBroker) -> None:
    current = ["first-password"]
    await set_scram_passwords(secured.bootstrap, {"rotated": current[0]})
    found = Security.sasl_scram(
        credentials=lambda: ("rotated", current[0]), unencrypted=True, mechanism="SCRAM-SHA-256"
    )
    async with kclient.Admin(secured.sasl_bootstrap, security=found) as admin:
        await admin.describe_cluster()
        current[0] = "second-password"
        await set_scram_passwords(secured.bootstrap, {"rotated": current[0]})
        async with asyncio.timeout(30.0):
            await asyncio.sleep(1.2 * SESSION_LIFETIME)
            await admin.describe_cluster()


async def test_sessions_are_renewed_unseen(secured: RunningBroker) -> None:
    """Requests go on under load, over the same connections, for more than two lifetimes."""
    async with asyncio.TaskGroup() as group:
        for mechanism in MECHANISMS:
            group.create_task(go_on(secured, mechanism))


async def go_on(secured: RunningBroker, mechanism: Mechanism) -> None:
    topic = f"renewed-{mechanism}"
    found = security(mechanism, encrypted=False)
    async with (
        kclient.Admin(secured.sasl_bootstrap, security=found) as admin,
        kclient.Producer(secured.sasl_bootstrap, security=found) as producer,
        kclient.Consumer(
            secured.sasl_bootstrap, security=found, auto_offset_reset="earliest"
        ) as consumer,
    ):
        await admin.create_topics([kclient.NewTopic(topic)])
        consumer.assign([TopicPartition(topic, 0)])
        got = 0
        await producer.send(topic, b"the first")
        while not got:
            got += len(await consumer.poll(timeout=1.0))
        opened = connections(producer), connections(consumer)
        end = time.monotonic() + 2.5 * SESSION_LIFETIME
        deliveries = []
        while time.monotonic() < end:
            deliveries += [await producer.enqueue(topic, b"%d" % n) for n in range(20)]
            got += len(await consumer.poll(timeout=0.05))
        for delivery in deliveries:
            await delivery
        sent = len(deliveries) + 1
        async with asyncio.timeout(10.0):
            while got < sent:
                got += len(await consumer.poll(timeout=0.1))
        assert got == sent
        assert (connections(producer), connections(consumer)) == opened


def connections(client: Any) -> int:
    """How many connections the client has opened in its life."""
    return int(client.metrics()["network.connections_opened"])


async def test_a_client_is_who_its_certificate_says_it_is(
    secured: RunningBroker, tmp_path: Path
) -> None:
    certificate = tls.client_certificate("mallory", tmp_path)
    stranger = Security.tls(ca_file=tls.certificate(), certificate_file=certificate)
    async with kclient.Admin(secured.tls_bootstrap, security=stranger) as admin:
        with pytest.raises(kclient.errors.KafkaError, match=r"(?i)authoriz"):
            await admin.create_topics([kclient.NewTopic("of-mallory")])
    known = tls.client_certificate("admin", tmp_path)
    security = Security.tls(ca_file=tls.certificate(), certificate_file=known)
    await round_trip(secured.tls_bootstrap, security, "of-a-certificate")
