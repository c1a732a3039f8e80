"""One KDC and one broker for the session, and who has a ticket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kclient import Security
from tests.support import kafka, tls
from tests.support.broker_settings import SESSION_LIFETIME
from tests.support.kdc import REALM, Kdc, running

BROKER = "kafka/127.0.0.1"
_MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """It knows the broker, alice, and bob, whose tickets are short-lived; none is in the cache."""
    with running(tmp_path_factory.mktemp("kdc")) as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        kdc.add(BROKER)
        kdc.add("alice")
        kdc.add("bob", "-maxlife", "4s")
        yield kdc


@pytest.fixture(scope="session")
def expired_tickets(kdc: Kdc) -> str:
    """A cache with a ticket that is expired once the broker has started."""
    return kdc.tickets("bob", "-l", "1s")


@pytest.fixture(scope="session")
def kerberized(
    request: pytest.FixtureRequest, kdc: Kdc, expired_tickets: str
) -> Iterator[kafka.RunningBroker]:
    """The broker: its listeners with SASL have GSSAPI alone."""
    version = request.config.getoption("--broker")
    if version == "embedded":
        version = kafka.RELEASES[0]
    login = f'{_MODULE} keyTab="{kdc.keytab_of(BROKER)}" principal="{BROKER}@{REALM}";'
    plaintext = "listener.name.sasl_plaintext.gssapi"
    settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        f"{plaintext}.sasl.jaas.config": login,
        f"{plaintext}.connections.max.reauth.ms": int(SESSION_LIFETIME * 1000),
        "listener.name.sasl_ssl.gssapi.sasl.jaas.config": login,
    }
    with kafka.private(
        version, "kerberos", secured=True, settings=settings, jvm_options=[kdc.jvm_option]
    ) as broker:
        yield broker


@pytest.fixture
def by_keytab(kdc: Kdc) -> Security:
    """Alice's, for the listener with TLS."""
    keytab = kdc.keytab_of("alice")
    return Security.gssapi(principal="alice", keytab=keytab, ca_file=tls.certificate())
