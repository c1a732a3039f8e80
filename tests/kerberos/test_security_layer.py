"""What a broker may say once the tokens are exchanged; the broker is GSSAPI's other side."""

from __future__ import annotations

from typing import Any

import gssapi
import pytest
from gssapi.raw.misc import GSSError

from kclient.credentials import Kerberos
from kclient.errors import AuthenticationFailed
from kclient.network.sasl.gssapi import Gssapi, begin
from tests.kerberos.conftest import BROKER
from tests.support.kdc import Kdc

CLOCK_SKEW, NO_CREDENTIALS = 2_529_638_949, 2_529_639_053


@pytest.fixture
def sides(kdc: Kdc) -> tuple[Gssapi, gssapi.SecurityContext]:
    """The client and a broker, which trust each other."""
    client = begin(Kerberos("alice", str(kdc.keytab_of("alice"))), "127.0.0.1")
    store: Any = {"keytab": str(kdc.keytab_of(BROKER))}
    credentials = gssapi.Credentials(usage="accept", store=store)
    broker = gssapi.SecurityContext(creds=credentials, usage="accept")
    token = client.step(None)
    assert token
    assert client.step(broker.step(token)) == b""
    assert broker.complete
    return client, broker


@pytest.mark.parametrize("offer", [b"\1\0\0\0", b"\7\0\1\0"])
def test_no_layer_is_chosen(sides: tuple[Gssapi, gssapi.SecurityContext], offer: bytes) -> None:
    client, broker = sides
    said = client.step(broker.wrap(offer, encrypt=False).message)
    assert said
    assert broker.unwrap(said).message == b"\1\0\0\0"
    assert client.step(b"") is None


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (b"\6\0\1\0", "insists on a security layer"),
        (b"\1\0\0", "has 3 bytes, not 4"),
        (b"\1\0\0\0\0", "has 5 bytes, not 4"),
        (b"", "has 0 bytes, not 4"),
    ],
)
def test_what_isnt_no_layer_is_refused(
    sides: tuple[Gssapi, gssapi.SecurityContext], offer: bytes, words: str
) -> None:
    client, broker = sides
    with pytest.raises(AuthenticationFailed, match=words):
        client.step(broker.wrap(offer, encrypt=False).message)


def test_an_offer_that_isnt_the_brokers_is_refused(
    sides: tuple[Gssapi, gssapi.SecurityContext],
) -> None:
    client, broker = sides
    forged = bytearray(broker.wrap(b"\1\0\0\0", encrypt=False).message)
    forged[-1] ^= 1
    with pytest.raises(AuthenticationFailed, match="can't be trusted"):
        client.step(bytes(forged))


def test_a_broker_that_goes_on_is_refused(
    sides: tuple[Gssapi, gssapi.SecurityContext],
) -> None:
    client, broker = sides
    client.step(broker.wrap(b"\1\0\0\0", encrypt=False).message)
    with pytest.raises(AuthenticationFailed, match="goes on"):
        client.step(b"more")


def test_a_broker_without_its_key_is_refused(kdc: Kdc) -> None:
    client = begin(Kerberos("alice", str(kdc.keytab_of("alice"))), "127.0.0.1")
    with pytest.raises(AuthenticationFailed, match="can't be trusted"):
        client.step(b"no token")


def test_a_ticket_that_another_thread_renews_is_asked_for_again(
    kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in two of 10,000 calls of eight threads with tickets that live for 4 s."""
    step = gssapi.SecurityContext.step
    failures = [GSSError(851_968, NO_CREDENTIALS)]

    def fail_once(self: gssapi.SecurityContext, token: bytes | None = None) -> bytes | None:
        if failures:
            raise failures.pop()
        return step(self, token)

    monkeypatch.setattr(gssapi.SecurityContext, "step", fail_once)
    assert begin(Kerberos("alice", str(kdc.keytab_of("alice"))), "127.0.0.1").step(None)


@pytest.mark.parametrize("code", [11, NO_CREDENTIALS - 141 + 155])
def test_what_may_pass_is_tried_again(code: int, kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that doesn't respond (EAGAIN), and one that doesn't know the KDC's name."""

    def step(*_: object) -> bytes:
        raise GSSError(851_968, code)

    monkeypatch.setattr(gssapi.SecurityContext, "step", step)
    with pytest.raises(AuthenticationFailed, match="and the KDC itself") as caught:
        begin(Kerberos("alice", str(kdc.keytab_of("alice"))), "127.0.0.1")
    assert caught.value.retriable


def test_a_library_without_keytabs_is_named(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("kclient.network.sasl.gssapi.Credentials", none)
    with pytest.raises(AuthenticationFailed, match="takes no keytab"):
        begin(Kerberos("alice", str(kdc.keytab_of("alice"))), "127.0.0.1")


def test_clocks_that_differ_are_said(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(*_: object) -> bytes:
        raise GSSError(851_968, CLOCK_SKEW)

    monkeypatch.setattr(gssapi.SecurityContext, "step", step)
    with pytest.raises(AuthenticationFailed, match="set the clocks"):
        begin(Kerberos("alice", str(kdc.keytab_of("alice"))), "127.0.0.1")
