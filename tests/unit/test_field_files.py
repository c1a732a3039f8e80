"""Properties files as guides of services and distributions have them: taken, or refused in words.

The files are in field_files/, with names of hosts and secrets of their own. ``/etc/kafka/secrets``
is a folder of the test, and ``@name@`` a file of it, in the way a properties file continues a line.
"""

from __future__ import annotations

import logging
import re
import ssl
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from kclient import ConsumerConfig, InvalidConfig
from kclient.security import Security

FILES = Path(__file__).parent / "field_files"
CONNECTION_STRING = (
    "Endpoint=sb://mynamespace.servicebus.windows.net/;"
    "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=canary+key="
)
Login = tuple[str, str, str]

TAKEN: dict[str, tuple[str, Login | None]] = {
    "confluent_cloud_java": ("SASL_SSL", ("PLAIN", "KEYKEYKEYKEY1234", "canary-cflt/Ab+c=")),
    "confluent_cloud_librdkafka": ("SASL_SSL", ("PLAIN", "KEYKEYKEYKEY1234", "canary-cflt/Ab+c=")),
    "msk_scram": ("SASL_SSL", ("SCRAM-SHA-512", "alice", "canary-msk")),
    "event_hubs_java": ("SASL_SSL", ("PLAIN", "$ConnectionString", CONNECTION_STRING)),
    "event_hubs_librdkafka": ("SASL_SSL", ("PLAIN", "$ConnectionString", CONNECTION_STRING)),
    "aiven_pem": ("SSL", None),
    "redpanda_cloud": ("SASL_SSL", ("SCRAM-SHA-256", "app", "canary-rp")),
    "strimzi_tls": ("SSL", None),
    "openshift_scram": ("SASL_SSL", ("SCRAM-SHA-512", "my-user", "canary-os")),
    "google_plain": (
        "SASL_SSL",
        ("PLAIN", "app@my-project.iam.gserviceaccount.com", "eyJjYW5hcnkiOiJ4In0K"),
    ),
    "cloudkarafka": ("SASL_SSL", ("SCRAM-SHA-256", "abcd1234", "canary-ck")),
    "delegation_token": ("SASL_SSL", ("SCRAM-SHA-256", "tokenID123", "canary-hmac==")),
    "plaintext_dev": ("PLAINTEXT", None),
    "sasl_plaintext_scram_dev": ("SASL_PLAINTEXT", ("SCRAM-SHA-256", "admin", "canary-dev")),
    "interceptors_and_serializers": ("SASL_SSL", ("PLAIN", "audit", "canary-int")),
}
OPT_IN: dict[str, tuple[str, str, Login | None]] = {
    "aiven_sasl": (
        "kclient.allow.unverified.hostnames=true",
        "SASL_SSL",
        ("SCRAM-SHA-256", "avnadmin", "canary-aiven"),
    ),
    "heroku_inline_pem": ("kclient.allow.unverified.hostnames=true", "SSL", None),
    "sasl_plaintext_dev": (
        "kclient.allow.unencrypted.passwords=true",
        "SASL_PLAINTEXT",
        ("PLAIN", "admin", "canary-dev"),
    ),
}
"""Refused with this line as the advice, and taken with it."""
REFUSED = {
    "msk_mtls": "keytool -importkeystore -srckeystore",
    "aiven_pkcs12": "keytool -importkeystore -srckeystore",
    "instaclustr": "keytool -importkeystore -srckeystore",
    "google_oauthbearer": "Security.oauth",
    "msk_scram_login_elsewhere": "needs the username: sasl.jaas.config or sasl.username",
}
"""And what the error advises."""

BY_OTHERS = {
    "cloudera_kerberos": "GSSAPI",
    "keycloak_oidc_java": "OAUTHBEARER",
    "okta_oidc_librdkafka": "OAUTHBEARER",
    "azure_entra_oidc": "OAUTHBEARER",
    "msk_iam": "OAUTHBEARER",
}
"""Taken, and with which mechanism, which needs packages of its own."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of an authority, and a certificate of a client, in all forms."""
    folder = tmp_path_factory.mktemp("secrets")
    authority = trustme.CA()
    own = authority.issue_cert("client", common_name="client")
    root = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    key: Any = load_pem_private_key(own.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(own.cert_chain_pems[0].bytes())
    locked = BestAvailableEncryption(b"canary-store")
    for name, content in {
        "ca.pem": authority.cert_pem.bytes(),
        "service.cert": own.cert_chain_pems[0].bytes(),
        "service.key": own.private_key_pem.bytes(),
        "ca.p12": pkcs12.serialize_key_and_certificates(b"ca", None, None, [root], locked),
        "client.p12": pkcs12.serialize_key_and_certificates(b"c", key, certificate, None, locked),
        "app.keytab": b"\5\2",
        "store.jks": b"\xfe\xed\xfe\xed\0\0\0\2",
    }.items():
        (folder / name).write_bytes(content)
    return folder


def security_of(name: str, stores: Path, more: str = "") -> Security:
    """What the file comes to, read from a file."""
    text = (FILES / f"{name}.properties").read_text().replace("/etc/kafka/secrets", str(stores))
    text = re.sub(
        "@(.*)@", lambda found: " \\\n".join((stores / found[1]).read_text().split("\n")), text
    )
    file = stores / f"{name}.properties"
    file.write_text(f"{text}\n{more}\n")
    return ConsumerConfig.from_properties(file).security


def login_of(security: Security) -> Login | None:
    if security.sasl is None:
        return None
    assert security.sasl.passwords is not None
    username, password = security.sasl.passwords()  # type: ignore[misc]
    return security.sasl.mechanism, username, password.reveal()


@pytest.mark.parametrize("name", TAKEN)
def test_a_file_of_the_field_is_taken(
    name: str, stores: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    security = security_of(name, stores)
    assert (security.protocol, login_of(security)) == TAKEN[name]
    context = security.ssl_context
    assert (context is not None) is security.protocol.endswith("SSL")
    if context is not None:
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert "canary" not in caplog.text + repr(security)


@pytest.mark.parametrize("name", BY_OTHERS)
def test_a_file_of_other_mechanisms_is_taken(
    name: str, stores: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))  # tests/kerberos has it
    caplog.set_level(logging.INFO)
    security = security_of(name, stores)
    assert security.protocol == "SASL_SSL"
    assert security.sasl is not None
    assert security.sasl.mechanism == BY_OTHERS[name]
    assert "canary" not in caplog.text + repr(security)


@pytest.mark.parametrize("name", OPT_IN)
def test_what_is_less_secure_takes_a_line_that_says_so(name: str, stores: Path) -> None:
    line, protocol, login = OPT_IN[name]
    with pytest.raises(InvalidConfig) as refused:
        security_of(name, stores)
    assert line in str(refused.value)
    assert "canary" not in str(refused.value)
    security = security_of(name, stores, line)
    assert (security.protocol, login_of(security)) == (protocol, login)
    context = security.ssl_context
    assert context is None or context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("name", REFUSED)
def test_what_cant_be_taken_is_refused_with_what_to_do(name: str, stores: Path) -> None:
    with pytest.raises(InvalidConfig) as refused:
        security_of(name, stores)
    assert REFUSED[name] in str(refused.value)
    assert "canary" not in str(refused.value)


def test_what_is_ignored_is_named_once(stores: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    security_of("interceptors_and_serializers", stores)
    for name in ("interceptor.classes", "confluent.monitoring.interceptor.bootstrap.servers"):
        assert len(re.findall(rf"{re.escape(name)}\b", caplog.text)) == 1


def test_a_delegation_token_is_known(stores: Path) -> None:
    found = security_of("delegation_token", stores).sasl
    assert found is not None
    assert found.delegation_token
