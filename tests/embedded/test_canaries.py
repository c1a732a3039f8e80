"""Twelve secrets, each of them in use and each of them refused: none is in a text that comes of it.

With ``--canaries`` these run among all others that are watched by tests/support/canaries.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

import kclient
from kclient import AdminConfig, KafkaError, Security, Token
from kclient.testing import Cluster, ClusterSecurity

CANARY = "canary-8c07"
JWT = f"e30.{CANARY}.c2ln"
IDENTITY = trustme.CA()
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def from_file(**given: str) -> Security:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return AdminConfig.from_properties({"security.protocol": "SASL_SSL", **named}).security


def failing() -> tuple[str, str]:
    raise OSError("the vault is sealed")


def stores(folder: Path, password: str) -> Mapping[str, Any]:
    """An encrypted key, with its certificate, and the same as a store, in files."""
    own = IDENTITY.issue_cert("client@kafka.example")
    key: Any = load_pem_private_key(own.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(own.cert_chain_pems[0].bytes())
    locked = BestAvailableEncryption(password.encode())
    files = {
        "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked),
        "chain": own.cert_chain_pems[0].bytes(),
        "store": pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, locked),
        "trust": pkcs12.serialize_key_and_certificates(b"root", None, None, [certificate], locked),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in files}


Make = Callable[[Path, Mapping[str, Any]], Security]


def of_key(folder: Path, tls: Mapping[str, Any], password: str = CANARY) -> Security:
    files = stores(folder, password)
    return Security.tls(
        certificate_file=files["chain"], key_file=files["key"], key_password=CANARY, **tls
    )


def of_key_store(folder: Path, tls: Mapping[str, Any], password: str = CANARY) -> Security:
    file = str(stores(folder, password)["store"])
    return from_file(
        security_protocol="SSL", ssl_keystore_location=file, ssl_keystore_password=CANARY
    )


def of_trust_store(folder: Path, tls: Mapping[str, Any], password: str = CANARY) -> Security:
    file = str(stores(folder, password)["trust"])
    return from_file(
        security_protocol="SSL", ssl_truststore_location=file, ssl_truststore_password=CANARY
    )


def of_jaas(module: str, mechanism: str, more: str = "") -> Security:
    text = f'{module} required username="alice" password="{CANARY}"{more};'
    return from_file(sasl_mechanism=mechanism, sasl_jaas_config=text)


SECRETS: dict[str, tuple[Make, ...]] = {
    "password of PLAIN": (lambda _, tls: Security.sasl_plain("alice", CANARY, **tls),),
    "password of SCRAM": (lambda _, tls: Security.sasl_scram("alice", CANARY, **tls),),
    "password of a function": (
        lambda _, tls: Security.sasl_plain(credentials=lambda: ("alice", CANARY), **tls),
        lambda _, tls: Security.sasl_plain(credentials=lambda: ("", CANARY), **tls),
        lambda _, tls: Security.sasl_plain(credentials=lambda: CANARY, **tls),  # type: ignore[arg-type, return-value]
        lambda _, tls: Security.sasl_plain(credentials=failing, **tls),
    ),
    "token": (
        lambda _, tls: Security.oauth(lambda: JWT, **tls),
        lambda _, tls: Security.oauth(lambda: Token(CANARY, expires_at=1.0), **tls),
        lambda _, tls: Security.oauth(lambda: CANARY + " ", **tls),
        lambda _, tls: Security.oauth(CANARY, **tls),  # type: ignore[arg-type]
    ),
    "extension of a token": (
        lambda _, tls: Security.oauth(lambda: Token("a", extensions={"tenant": CANARY}), **tls),
        lambda _, tls: Security.oauth(lambda: Token("a", extensions={"x": CANARY + "\1"}), **tls),
    ),
    "delegation token": (
        lambda _, tls: Security.sasl_scram("id", CANARY, delegation_token=True, **tls),
        lambda *_: of_jaas(_SCRAM, "SCRAM-SHA-256", " tokenauth=true"),
    ),
    "login module": (
        lambda *_: of_jaas(_PLAIN, "PLAIN"),
        lambda *_: of_jaas(_PLAIN, "PLAIN", f' "{CANARY}'),
        lambda *_: of_jaas(_PLAIN, "PLAIN", f' {CANARY}="x"'),
        lambda *_: of_jaas("com.example.Login", "PLAIN"),
        lambda *_: of_jaas(_SCRAM, "PLAIN"),
    ),
    "password of a file": (
        lambda *_: from_file(sasl_mechanism="PLAIN", sasl_username="a", sasl_password=CANARY),
        lambda *_: from_file(sasl_mechanism="PLAIN", sasl_password=CANARY),
    ),
    "client secret": (
        lambda *_: from_file(
            sasl_mechanism="OAUTHBEARER",
            sasl_jaas_config=f'{_OAUTH} required clientId="a" clientSecret="{CANARY}";',
        ),
        lambda *_: from_file(
            sasl_mechanisms="OAUTHBEARER",
            sasl_oauthbearer_client_id="a",
            sasl_oauthbearer_client_secret=CANARY,
        ),
    ),
    "password of a key": (of_key, lambda folder, tls: of_key(folder, tls, "another")),
    "password of a key store": (
        of_key_store,
        lambda folder, tls: of_key_store(folder, tls, "another"),
    ),
    "password of a trust store": (
        of_trust_store,
        lambda folder, tls: of_trust_store(folder, tls, "another"),
    ),
    "private key": (
        lambda _, tls: Security.tls(certificate=IDENTITY.cert_pem.bytes().decode(), key=CANARY),
        lambda _, tls: Security.tls(certificate_file="x", key_file=f"-----BEGIN {CANARY}"),
        lambda _, tls: Security.tls(
            certificate="x",
            key=f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n",
        ),
    ),
}


def test_there_are_twelve_at_least() -> None:
    assert len(SECRETS) >= 12


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_in_use_is_in_no_text(
    secret: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[object] = []
    right = ClusterSecurity(
        {"alice": CANARY}, mechanisms=["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"], tls=True
    )
    async with Cluster(brokers=1, security=right) as cluster:
        for make in SECRETS[secret]:
            try:
                security = make(tmp_path, {"ca": right.authority})
                texts += [security, security.tls_context, security.sasl]
                # What a function raises is tried again until then.
                admin = kclient.Admin(cluster.bootstrap, security=security, bootstrap_timeout=0.3)
                async with admin:
                    await admin.list_topics()
                    texts += [admin, admin.health(), admin.metrics()]
            except KafkaError as error:
                texts += [error, repr(error), error.__cause__, repr(error.__cause__)]
    assert texts
    shown = [f"{text} {text!r}" for text in texts]
    assert not [text for text in [*shown, caplog.text] if CANARY in text]
