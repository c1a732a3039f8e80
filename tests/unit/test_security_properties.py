"""SASL in properties files: what is taken, what is refused and why, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest

from kclient import InvalidConfig, ProducerConfig, Secret
from kclient.jaas import parse_jaas
from kclient.security import Security

CANARY = "canary1c2d"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


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


def test_scram_needs_no_tls() -> None:
    found = security(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="secret",
    )
    assert found.protocol == "SASL_PLAINTEXT"


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
        ({}, "sasl.mechanism=GSSAPI isn't in this release"),
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
        (
            {"sasl_mechanism": "PLAIN", "sasl_client_callback_handler_class": "com.example.H"},
            "sasl.client.callback.handler.class can't be honoured",
        ),
    ],
)
def test_what_cant_be_used_is_refused_in_words(
    properties: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        security(security_protocol="SASL_SSL", **properties)
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
