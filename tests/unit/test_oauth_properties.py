"""Tokens in properties files: what Java's and librdkafka's clients have for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kclient import InvalidConfig, ProducerConfig, Token
from kclient.security import Security
from tests.support.token_server import CLIENT_ID, CLIENT_SECRET, TokenServer, signing_key

CANARY = "canary3f7e"
OAUTH = "org.apache.kafka.common.security.oauthbearer."
MODULE = OAUTH + "OAuthBearerLoginModule"
URL = {"sasl.oauthbearer.token.endpoint.url": "http://localhost/token"}


def security(properties: dict[str, str], *, protocol: str = "SASL_SSL") -> Security:
    return ProducerConfig.from_properties({"security.protocol": protocol, **properties}).security


def source(properties: dict[str, str], mechanism: str = "OAUTHBEARER") -> Any:
    found = security({"sasl.mechanism": mechanism, **properties})
    assert found.sasl is not None
    assert found.sasl.mechanism == "OAUTHBEARER"
    assert found.protocol == "SASL_SSL"
    return found.sasl.tokens


FORMS = {
    "the login module of Java": {
        "sasl.jaas.config": f'{MODULE} required clientId="alice" clientSecret="{CLIENT_SECRET}" '
        'scope="a b" extension_logicalCluster="lkc-1";',
        "sasl.login.callback.handler.class": OAUTH + "OAuthBearerLoginCallbackHandler",
        "sasl.login.connect.timeout.ms": "15000",
        "sasl.oauthbearer.expected.audience": "kafka",
    },
    "its older class": {
        "sasl.jaas.config": f"{MODULE} required clientId='alice' clientSecret='{CLIENT_SECRET}' "
        "scope='a b' extension_logicalCluster='lkc-1';",
        "sasl.login.callback.handler.class": OAUTH + "secured.OAuthBearerLoginCallbackHandler",
        "enable.sasl.oauthbearer.unsecure.jwt": "false",
    },
    "properties of Java 4": {
        "sasl.jaas.config": f'{MODULE} required extension_logicalCluster="lkc-1";',
        "sasl.oauthbearer.jwt.retriever.class": OAUTH + "ClientCredentialsJwtRetriever",
        "sasl.oauthbearer.client.credentials.client.id": "alice",
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.header.urlencode": "true",
    },
    "librdkafka": {
        "sasl.oauthbearer.method": "OIDC",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        "https.ca.location": "probe",
    },
}


@pytest.mark.parametrize("form", FORMS)
async def test_client_credentials_are_read(form: str) -> None:
    async with TokenServer() as server:
        url = {"sasl.oauthbearer.token.endpoint.url": server.url}
        token = await source(FORMS[form] | url)()
        (asked,) = server.asked
    assert asked.credentials == (CLIENT_ID, CLIENT_SECRET)
    quoted = "sasl.oauthbearer.header.urlencode" in FORMS[form]
    assert (len(asked.headers["Authorization"]) > 40) is quoted
    assert asked.form["scope"] == "a b"
    assert token.extensions == {"logicalCluster": "lkc-1"}


@pytest.mark.parametrize(
    "how",
    [
        {"sasl.oauthbearer.jwt.retriever.class": OAUTH + "JwtBearerJwtRetriever"},
        {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
    ],
)
async def test_assertions_are_read(how: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(signing_key().as_pem(private=True, password="x"))
    async with TokenServer() as server:
        tokens = source(
            how
            | {
                "sasl.oauthbearer.token.endpoint.url": server.url,
                "sasl.oauthbearer.assertion.private.key.file": str(file),
                "sasl.oauthbearer.assertion.private.key.passphrase": "x",
                "sasl.oauthbearer.assertion.algorithm": "RS256",
                "sasl.oauthbearer.assertion.claim.iss": "orders",
                "sasl.oauthbearer.assertion.claim.aud": "idp",
                "sasl.oauthbearer.assertion.claim.exp.seconds": "120",
                "sasl.oauthbearer.assertion.claim.jti.include": "true",
            }
        )
        assert isinstance(await tokens(), Token)
        assert server.asked[0].form["assertion"].count(".") == 2


JAAS = f'{MODULE} required clientId="a" clientSecret="{CANARY}"'


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({}, "needs sasl.oauthbearer.token.endpoint.url"),
        (URL, "client.credentials.client.id, or clientId in sasl.jaas.config"),
        (URL | {"sasl.oauthbearer.client.id": "a"}, "client.secret, or clientSecret"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "file:///run/token"},
            "is a file, which would be sent to brokers (for a file with a token give security=",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": f"http://{CANARY}@idp.example/",
                "sasl.jaas.config": f"{JAAS};",
            },
            "sasl.oauthbearer.* can't be used: token_url can't be used: allowed is https://",
        ),
        (URL | {"sasl.jaas.config": f"{JAAS} x=1;"}, "allowed are clientId, clientSecret, scope"),
        (URL | {"sasl.jaas.config": f"{JAAS} extension_auth=1;"}, "extension 'auth' can't be sent"),
        (
            {"sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="a";'},
            "options that can't be honoured",
        ),
        (
            {"sasl.jaas.config": f"com.example.Module required x={CANARY};"},
            "com.example.Module isn't of sasl.mechanism=OAUTHBEARER",
        ),
        (
            {"sasl.login.callback.handler.class": "com.example.Handler"},
            "sasl.login.callback.handler.class=com.example.Handler can't be honoured",
        ),
        (
            {"sasl.oauthbearer.jwt.retriever.class": OAUTH + "FileJwtRetriever"},
            "kclient.TokenFile(path)",
        ),
        (URL | {"sasl.oauthbearer.method": "default"}, "method=default can't be honoured"),
        (URL | {"sasl.oauthbearer.grant.type": "password"}, "grant.type=password can't be"),
        (
            URL | {"sasl.oauthbearer.assertion.file": "/etc/passwd"},
            "sasl.oauthbearer.assertion.file can't be honoured",
        ),
        ({"sasl.oauthbearer.config": "principal=a"}, "sasl.oauthbearer.config can't be honoured"),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, "unsecure.jwt can't be honoured"),
        ({"sasl.username": "a"}, "sasl.username can't be honoured"),
    ],
)
def test_what_cant_be_used_is_refused_in_words(
    properties: dict[str, str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        security({"sasl.mechanism": "OAUTHBEARER", **properties})
    assert words in str(caught.value)
    assert CANARY not in str(caught.value) + caplog.text


def test_a_token_goes_unencrypted_only_where_that_is_allowed_by_name() -> None:
    given = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{JAAS};", **URL}
    with pytest.raises(InvalidConfig, match="token unencrypted"):
        security(given, protocol="SASL_PLAINTEXT")
    allowed = given | {"kclient.allow.unencrypted.passwords": "true"}
    assert security(allowed, protocol="SASL_PLAINTEXT").protocol == "SASL_PLAINTEXT"
