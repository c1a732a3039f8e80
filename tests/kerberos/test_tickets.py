"""Clients with tickets of a KDC, at a real broker: what works, and what doesn't."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import kclient
from kclient import ProducerConfig, Security
from kclient.credentials import Kerberos
from kclient.errors import AuthenticationFailed
from kclient.network.sasl.gssapi import begin
from tests.security.test_logins import connections, refusal, round_trip
from tests.support.broker_settings import SESSION_LIFETIME
from tests.support.kafka import RunningBroker
from tests.support.kdc import REALM, Kdc


async def test_every_client_works_by_a_keytab(
    kerberized: RunningBroker, by_keytab: Security
) -> None:
    await round_trip(kerberized.sasl_tls_bootstrap, by_keytab, "by-a-keytab")


async def test_every_client_works_by_the_ticket_cache(
    kerberized: RunningBroker, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", kdc.tickets("alice"))
    security = Security.gssapi(unencrypted=True)
    await round_trip(kerberized.sasl_bootstrap, security, "by-a-ticket")


async def test_javas_properties_are_understood(kerberized: RunningBroker, kdc: Kdc) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    config = ProducerConfig.from_properties(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{module} required useKeyTab=true storeKey=true "
            f'keyTab="{kdc.keytab_of("alice")}" principal="alice@{REALM}";',
        }
    )
    async with kclient.Admin(kerberized.sasl_bootstrap, security=config.security) as admin:
        await admin.describe_cluster()


async def test_sessions_are_renewed_by_new_tickets(kerberized: RunningBroker, kdc: Kdc) -> None:
    """Bob's tickets end before his sessions, which the broker ends unless they are renewed."""
    security = Security.gssapi(principal="bob", keytab=kdc.keytab_of("bob"), unencrypted=True)
    async with kclient.Admin(kerberized.sasl_bootstrap, security=security) as admin:
        await admin.describe_cluster()
        opened = connections(admin)
        end = time.monotonic() + 1.5 * SESSION_LIFETIME
        while time.monotonic() < end:
            await admin.describe_cluster()
            await asyncio.sleep(0.05)
        assert connections(admin) == opened


async def test_no_ticket_is_one_error_at_once(kerberized: RunningBroker) -> None:
    text = await refusal(kerberized.sasl_bootstrap, Security.gssapi(unencrypted=True))
    assert "no ticket to kafka@127.0.0.1: No Kerberos credentials available" in text
    assert "run kinit, or give keytab=" in text


async def test_an_expired_ticket_is_one_error_at_once(
    kerberized: RunningBroker, expired_tickets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", expired_tickets)
    text = await refusal(kerberized.sasl_bootstrap, Security.gssapi(unencrypted=True))
    assert "Ticket expired" in text
    assert "run kinit, or give keytab=" in text


async def test_a_wrong_service_name_is_one_error_at_once(
    kerberized: RunningBroker, kdc: Kdc
) -> None:
    keytab = kdc.keytab_of("alice")
    security = Security.gssapi(
        principal="alice", keytab=keytab, service_name="kafkaesque", unencrypted=True
    )
    text = await refusal(kerberized.sasl_bootstrap, security)
    assert f"kafkaesque/127.0.0.1@{REALM} not found in Kerberos database" in text
    assert "check service_name" in text


async def test_a_ticket_that_the_broker_cant_read_is_one_error_at_once(
    kerberized: RunningBroker, kdc: Kdc
) -> None:
    kdc.add("other/127.0.0.1")
    keytab = kdc.keytab_of("alice")
    security = Security.gssapi(
        principal="alice", keytab=keytab, service_name="other", unencrypted=True
    )
    text = await refusal(kerberized.sasl_bootstrap, security)
    assert "refuses the credentials (GSSAPI)" in text
    assert "broker's keytab" in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"principal": "carol"}, "by the keytab {keytab}"),
        ({"keytab": "/no/such.keytab"}, "for alice by the keytab /no/such.keytab"),
    ],
)
def test_a_keytab_that_doesnt_fit_is_said(kdc: Kdc, given: dict[str, Any], words: str) -> None:
    keytab = str(kdc.keytab_of("alice"))
    with pytest.raises(AuthenticationFailed) as caught:
        begin(Kerberos(**({"principal": "alice", "keytab": keytab} | given)), "127.0.0.1")
    assert words.format(keytab=keytab) in str(caught.value)
    assert "klist -ket FILE" in str(caught.value)
    assert not caught.value.retriable


def test_a_kdc_that_is_down_may_come_back(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kdc.folder / "down.conf"
    config.write_text(f"[realms]\n{REALM} = {{\nkdc = 127.0.0.1:1\n}}\n")
    monkeypatch.setenv("KRB5_CONFIG", str(config))
    with pytest.raises(AuthenticationFailed, match="Cannot contact any KDC") as caught:
        begin(Kerberos(f"alice@{REALM}", str(kdc.keytab_of("alice"))), "127.0.0.1")
    assert caught.value.retriable
    assert "krb5.conf" in str(caught.value)
