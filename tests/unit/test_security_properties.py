"""SASL in properties files: what is taken, what is refused and why, and that no secret is shown."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from kclient import InvalidConfig, ProducerConfig, Secret
from kclient.credentials import Kerberos, Sasl
from kclient.jaas import parse_jaas
from kclient.msk_iam import MskIamTokens
from kclient.security import Security

CANARY = "canary1c2d"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


IAM = "software.amazon.msk.auth.iam"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(autouse=True)
def gssapi(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is there; tests/kerberos has the real one."""
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))


def security(**properties: str) -> Security:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return ProducerConfig.from_properties(named).security


def credentials(found: Security) -> tuple[str, str, str]:
    assert found.sasl is not None
    assert found.sasl.passwords is not None
    username, password = found.sasl.passwords()  # type: ignore[misc]
    assert isinstance(password, Secret)
    return found.sasl.mechanism, username, password.reveal()


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_javas_login_modules_are_read(mechanism: str, module: str) -> None:
    found = security(
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_jaas_config=f'{module} required\n  username="alice"\n  password="p;=\\"\\\\x";',
    )
    assert credentials(found) == (mechanism, "alice", 'p;="\\x')
    assert found.protocol == "SASL_SSL"
    assert found.ssl_context is not None


def test_a_delegation_token_is_known_by_its_option() -> None:
    found = security(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=f'{SCRAM} required username="id" password="h" tokenauth="true";',
    )
    assert found.sasl is not None
    assert found.sasl.delegation_token


@pytest.mark.parametrize("name", ["sasl_mechanism", "sasl_mechanisms"])
def test_librdkafkas_names_are_read(name: str) -> None:
    found = security(
        security_protocol="sasl_ssl",
        sasl_username="alice",
        sasl_password="secret",
        **{name: "SCRAM-SHA-512"},
    )
    assert credentials(found) == ("SCRAM-SHA-512", "alice", "secret")


@pytest.mark.parametrize(
    ("properties", "ticket"),
    [
        ({}, Kerberos()),
        (
            {"sasl_kerberos_service_name": "bus", "sasl_mechanism": "gssapi"},
            Kerberos(None, None, "bus"),
        ),
        (
            {"sasl_kerberos_principal": "alice", "sasl_kerberos_keytab": "a.keytab"},
            Kerberos("alice", "a.keytab"),
        ),
        (
            {
                "sasl_jaas_config": f"{KERBEROS} required useKeyTab=true storeKey=true "
                'keyTab="/etc/a.keytab" principal="alice@EXAMPLE.COM" serviceName="bus";'
            },
            Kerberos("alice@EXAMPLE.COM", "/etc/a.keytab", "bus"),
        ),
        (
            {"sasl_jaas_config": f"{KERBEROS} required useTicketCache=true renewTGT=true;"},
            Kerberos(),
        ),
    ],
)
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_ticket_is_the_login_unless_another_is_named(
    protocol: str, properties: dict[str, str], ticket: Kerberos
) -> None:
    found = security(security_protocol=protocol, **properties)
    assert found.sasl == Sasl("GSSAPI", kerberos=ticket)
    assert found.protocol == protocol


def test_what_only_renews_javas_tickets_is_logged_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kclient.config")
    security(security_protocol="SASL_SSL", sasl_kerberos_kinit_cmd="/bin/kinit")
    assert "sasl.kerberos.kinit.cmd" in caplog.text
    assert "/bin/kinit" not in caplog.text


def test_scram_needs_no_tls() -> None:
    found = security(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="secret",
    )
    assert found.protocol == "SASL_PLAINTEXT"


@pytest.mark.parametrize(
    ("bootstrap", "region"),
    [
        ("b-1.demo.ab12.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo:9098", "eu-west-1"),
        ("boot-x1.c1.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.demo.ab12.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("kafka.example.com:9098", None),
    ],
)
def test_iam_of_amazon_msk_is_read_and_its_region_is_in_the_addresses(
    bootstrap: str, region: str | None
) -> None:
    options = 'awsProfileName="orders" awsRoleArn="arn:aws:iam::1:role/a" awsDebugCreds=true'
    found = security(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism="AWS_MSK_IAM",
        sasl_jaas_config=f"{IAM}.IAMLoginModule required {options};",
        sasl_client_callback_handler_class=f"{IAM}.IAMClientCallbackHandler",
    )
    assert found.protocol == "SASL_SSL"
    assert found.sasl is not None
    tokens = found.sasl.tokens
    assert isinstance(tokens, MskIamTokens)
    assert (tokens.region, tokens.profile) == (region, "orders")
    assert tokens.role_arn == "arn:aws:iam::1:role/a"


def test_a_password_goes_unencrypted_only_where_that_is_allowed_by_name() -> None:
    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": CANARY,
    }
    with pytest.raises(InvalidConfig, match="password unencrypted") as caught:
        security(**given)
    assert "kclient.allow.unencrypted.passwords=true" in str(caught.value)
    assert (
        security(**given, kclient_allow_unencrypted_passwords="true").protocol == "SASL_PLAINTEXT"
    )


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"sasl_username": "a", "sasl_password": CANARY}, "GSSAPI, by default or by name"),
        ({"sasl_login_class": "x", "sasl_client_callback_handler_class": "y"}, "can't be honoured"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "Security.oauth"),
        ({"sasl_mechanism": "PLAIN"}, "needs the username"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a"}, "needs the password"),
        ({"sasl_mechanism": "PLAIN", "sasl_password": CANARY}, "needs the username"),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": CANARY}, "doesn't begin with a login"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": f'{PLAIN} required username="a'},
            "after the login module",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{PLAIN} required username="a" password="{CANARY}" x;',
            },
            "after the option password",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{SCRAM} required username="a" password="{CANARY}";',
            },
            "isn't of sasl.mechanism=PLAIN",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'com.example.Module required password="{CANARY}";',
            },
            "com.example.Module isn't in this release",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{PLAIN} required username="a" password="{CANARY}" role="b";',
            },
            "options that can't be honoured",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": f'{PLAIN} required username="a" password="b" {CANARY}=2";',
            },
            "after the login module something isn't",
        ),
        (
            {
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_jaas_config": f'{PLAIN} required username="a" password="{CANARY}";',
            },
            "say the same",
        ),
        ({"sasl_jaas_config": f'{SCRAM} required username="a" password="{CANARY}";'}, "GSSAPI"),
        ({"sasl_jaas_config": f"{KERBEROS} required;"}, "needs useKeyTab=true or useTicketCache"),
        ({"sasl_jaas_config": f"{KERBEROS} required useKeyTab=true;"}, "which needs keyTab"),
        ({"sasl_jaas_config": f"{KERBEROS} required useKeyTab=true keyTab=a;"}, "the principal"),
        (
            {"sasl_jaas_config": f"{KERBEROS} required useTicketCache=true ticketCache=a;"},
            "options that can't be honoured",
        ),
        (
            {
                "sasl_jaas_config": f"{KERBEROS} required useTicketCache=true;",
                "sasl_kerberos_principal": "alice",
            },
            "say the same",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_client_callback_handler_class": "com.example.H"},
            "sasl.client.callback.handler.class can't be honoured",
        ),
        (
            {"sasl_mechanism": "AWS_MSK_IAM", "security_protocol": "SASL_PLAINTEXT"},
            "needs security",
        ),
        (
            {"sasl_mechanism": "AWS_MSK_IAM", "sasl_client_callback_handler_class": "a.B"},
            "sasl.client.callback.handler.class can't be honoured",
        ),
        (
            {
                "sasl_mechanism": "AWS_MSK_IAM",
                "sasl_jaas_config": f"{IAM}.IAMLoginModule required awsStsRegion=a;",
            },
            "allowed are awsProfileName, awsRoleArn",
        ),
    ],
)
def test_what_cant_be_used_is_refused_in_words(
    properties: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        security(**{"security_protocol": "SASL_SSL"} | properties)
    assert words in str(caught.value)
    assert CANARY not in str(caught.value) + caplog.text


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.B required;", {}),
        ("a.B REQUIRED;", {}),
        (" a.B optional x=1 ;  ", {"x": "1"}),
        ("a.B required x='it''s'", None),
        ("a.B required x='1' y=\"a 'b' = ;\";", {"x": "1", "y": "a 'b' = ;"}),
        ('a.B required x="\\n\\t\\"\\\\" ;', {"x": '\n\t"\\'}),
        ("a.B required\n\tx=1\n\ty=2", {"x": "1", "y": "2"}),
        ("a.B x=1;", None),
        ("a.B required x=1; c.D required;", None),
        ("", None),
    ],
)
def test_the_language_of_login_modules(text: str, options: dict[str, str] | None) -> None:
    if options is None:
        with pytest.raises(InvalidConfig):
            parse_jaas(text)
    else:
        assert parse_jaas(text) == ("a.B", options)
