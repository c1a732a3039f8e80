"""Causes that can't be planted on loopback, and what the texts are made of."""

from __future__ import annotations

import datetime
import errno
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from kclient import Security
from kclient.credentials import Kerberos, Sasl
from kclient.doctor.causes import Peer, login_failed, no_credentials, not_connected, tls_failed
from kclient.doctor.certificate import Certificate, certificate_of
from kclient.doctor.findings import Cause, Target, printable
from kclient.doctor.releases import release_of
from kclient.errors import AuthenticationFailed, SaslAuthenticationFailed
from kclient.protocol.api_versions import VersionRange

BOOTSTRAP = Target("kafka.example", 9092)
DAY = 86_400.0
NOW = 100 * DAY

KERBEROS = Security(sasl=Sasl("GSSAPI", kerberos=Kerberos()))
"""Made without the package, which README's tests don't install."""


@pytest.mark.parametrize(
    ("error", "cause", "words"),
    [
        (TimeoutError(), Cause.NO_ANSWER, "open port 9092 for this machine"),
        (OSError(errno.EHOSTUNREACH, "No route"), Cause.NO_ROUTE, "VPN"),
        (OSError(errno.ENETUNREACH, "Unreachable"), Cause.NO_ROUTE, "IPv4 or IPv6"),
    ],
)
def test_an_address_that_cannot_be_connected_to(error: OSError, cause: Cause, words: str) -> None:
    found = not_connected(BOOTSTRAP, [error], "seen")
    assert (found.cause, found.detail) == (cause, "seen")
    assert words in found.advice


def test_of_several_addresses_the_one_that_answered_says_most() -> None:
    errors = [TimeoutError(), ConnectionRefusedError(errno.ECONNREFUSED, "refused")]
    assert not_connected(BOOTSTRAP, errors, "").cause is Cause.REFUSED


@pytest.mark.parametrize("code", [9, 10])
def test_a_chain_out_of_time_with_a_certificate_in_time(code: int) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code = code
    found = tls_failed(
        BOOTSTRAP,
        Security.plaintext(),
        error,
        peer=Peer.UNKNOWN,
        certificate=Certificate("CN=broker", (), "CN=authority", NOW - DAY, NOW + 3 * DAY),
        now=NOW,
        detail="certificate has expired",
    )
    assert found.cause is (Cause.EXPIRED if code == 10 else Cause.NOT_YET_VALID)
    assert "certificate of an authority in its chain" in found.advice
    assert "for no host name, issued by CN=authority" in found.detail
    assert "(3 days left); this machine's clock has 1970-04-11 00:00 UTC" in found.detail


def test_bytes_that_are_no_certificate() -> None:
    assert certificate_of(b"no certificate", {}) is None
    assert certificate_of(None, None) is None


def test_a_certificate_with_names_of_an_unknown_kind() -> None:
    key, empty = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    name = x509.UnrecognizedExtension(
        x509.SubjectAlternativeName.oid,
        b"\x30\x02\xa3\x00",  # x400Address
    )
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(empty, empty, key.public_key(), 1, day, day)
    made = builder.add_extension(name, critical=False).sign(key, hashes.SHA256())
    assert certificate_of(made.public_bytes(Encoding.DER), {}) is None


def test_a_ticket_that_is_missing_has_the_advice_of_kerberos() -> None:
    found = no_credentials(AuthenticationFailed("no ticket", hint="run kinit"), "no ticket")
    assert (found.cause, found.advice) == (Cause.NO_CREDENTIALS, "run kinit")


@pytest.mark.parametrize(
    ("how", "refused", "cause", "advice"),
    [
        (KERBEROS, True, Cause.LOGIN_FAILED, "check the keytab"),
        (Security.oauth(lambda: "", unencrypted=True), True, Cause.TOKEN, "issuer, audience"),
        (Security.oauth(lambda: "", unencrypted=True), False, Cause.LOGIN_FAILED, "broker's log"),
    ],
)
def test_a_login_without_a_password(
    how: Security, refused: bool, cause: Cause, advice: str
) -> None:
    error: Exception = EOFError()
    if refused:
        error = AuthenticationFailed("refused", hint="check the keytab")
        error.__cause__ = SaslAuthenticationFailed()
    found = login_failed(BOOTSTRAP, how, error, offered=(), detail="seen")
    assert found.cause is cause
    assert advice in found.advice


@pytest.mark.parametrize(
    ("versions", "release"),
    [
        ({0: 13, 1: 18, 35: 5, 2: 11}, "4.3"),
        ({0: 12, 1: 17, 35: 4}, "4.0"),
        ({0: 11, 1: 17, 35: 4, 60: 1}, "3.9"),
        ({0: 9, 1: 12, 10: 3, 60: 0}, "2.8"),
        ({0: 5, 1: 6, 37: 0}, "1.0"),
        ({0: 3, 1: 5}, "before 1.0"),
        ({}, "before 1.0"),
    ],
)
def test_the_release_of_a_broker_is_guessed(versions: dict[int, int], release: str) -> None:
    ranges = {key: VersionRange(0, highest) for key, highest in versions.items()}
    assert release_of(ranges) == release


def test_what_a_terminal_would_act_on_is_escaped() -> None:
    assert printable("a\x1b[31m\r\nb\u202ezoë") == r"a\x1b[31m\r\nb\u202ezoë"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *[(one, True) for one in ("localhost", "Localhost.", "127.0.0.5", "::1")],
        *[(one, False) for one in ("kafka.example", "10.0.0.1", "localhost.example")],
    ],
)
def test_addresses_of_this_machine_are_known(host: str, loopback: bool) -> None:
    assert Target(host, 9092).is_loopback is loopback


def test_the_page_has_all_causes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and "--" not in line]
    assert [row for row in rows if "-X" not in row] == [
        f"| `{one.name}` | {one.value} |" for one in Cause
    ]
