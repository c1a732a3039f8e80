"""Tokens of Amazon MSK: those of AWS's own signer, byte by byte, from wherever credentials are."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.session
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.stub import Stubber

import kclient
from kclient import AuthenticationFailed, InvalidConfig, Security, Token

CANARY = "canary/5e+11="
ROLE = "arn:aws:iam::123456789012:role/orders"


@pytest.fixture(autouse=True)
def shared_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """AWS's shared file of credentials; nothing else of the machine is found."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setattr(
        MSKAuthTokenProvider, "__get_user_agent__", lambda: f"kclient/{kclient.__version__}"
    )
    return tmp_path / "credentials"


def keys(profile: str, **more: str) -> str:
    lines = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": CANARY} | more
    return "\n".join([f"[{profile}]", *(f"{name} = {value}" for name, value in lines.items()), ""])


def token_of(security: Security) -> Token:
    assert security.sasl is not None
    assert security.sasl.mechanism == "OAUTHBEARER"
    source: Any = security.sasl.tokens
    found: Token = source()
    return found


def signed_by_aws(found: Token, monkeypatch: pytest.MonkeyPatch, sign: Any, *given: str) -> Token:
    """What AWS's signer makes at the second when ``found`` was signed."""
    assert found.expires_at is not None
    now = datetime.datetime.fromtimestamp(found.expires_at - 900.0, datetime.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: now)
    value, expires_ms = sign(*given)
    return Token(value, expires_at=expires_ms / 1000)


@pytest.mark.parametrize("session", [{}, {"AWS_SESSION_TOKEN": f"{CANARY}~ &"}])
@pytest.mark.parametrize("region", ["eu-west-1", "us-gov-east-1", "cn-north-1"])
def test_a_token_is_that_of_awss_signer(
    region: str, session: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": CANARY} | session
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = token_of(Security.msk_iam(region))
    sign = MSKAuthTokenProvider.generate_auth_token
    assert found == signed_by_aws(found, monkeypatch, sign, region)


def test_credentials_and_region_are_those_of_the_profile(
    shared_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_file.write_text(keys("default") + keys("orders", region="eu-north-1"))
    found = token_of(Security.msk_iam(profile="orders"))
    sign = MSKAuthTokenProvider.generate_auth_token_from_profile
    assert found == signed_by_aws(found, monkeypatch, sign, "eu-north-1", "orders")


def test_credentials_that_change_are_those_of_the_next_token(shared_file: Path) -> None:
    security = Security.msk_iam("eu-west-1")
    shared_file.write_text(keys("default"))
    before = token_of(security)
    shared_file.write_text(keys("default", aws_access_key_id="AKIDROTATED"))
    assert token_of(security).value != before.value


def test_a_role_is_assumed(shared_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_file.write_text(keys("default"))
    service: Any = botocore.session.Session().create_client("sts", region_name="eu-west-1")
    stub = Stubber(service)
    assumed = {
        "AccessKeyId": "ASIAIOSFODNN7EXAMPLE",
        "SecretAccessKey": CANARY,
        "SessionToken": CANARY,
        "Expiration": datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC),
    }
    asked = {"RoleArn": ROLE, "RoleSessionName": "kclient"}
    stub.add_response("assume_role", {"Credentials": assumed}, asked)
    stub.add_client_error("assume_role", "AccessDenied", "not for you")
    stub.activate()
    monkeypatch.setattr(botocore.session.Session, "create_client", lambda *_, **__: service)
    security = Security.msk_iam("eu-west-1", role_arn=ROLE)
    found = token_of(security)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "ASIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": CANARY,
    }.items():
        monkeypatch.setenv(name, value)
    sign = MSKAuthTokenProvider.generate_auth_token
    assert found == signed_by_aws(found, monkeypatch, sign, "eu-west-1")
    with pytest.raises(Exception, match="not for you"):
        token_of(security)


@pytest.mark.parametrize(
    ("profile", "region", "words"),
    [
        (None, "eu-west-1", "no credentials of AWS.*AWS_ACCESS_KEY_ID.*~/.aws/credentials"),
        ("other", "eu-west-1", r"profile \(other\) could not be found"),
        ("orders", None, "region of the cluster isn't known"),
    ],
)
def test_what_isnt_found_is_said(
    profile: str | None, region: str | None, words: str, shared_file: Path
) -> None:
    shared_file.write_text(keys("orders"))
    with pytest.raises(AuthenticationFailed, match=words) as caught:
        token_of(Security.msk_iam(region, profile=profile))
    told = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    own = [one.locals for one in told.stack if "tests" not in one.filename]
    assert CANARY not in f"{caught.value} {own}"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"region": "kafka.eu-west-1.amazonaws.com"}, "allowed is one of AWS"),
        ({"region": ""}, "region=''"),
        ({"region": "eu-west-1", "profile": ""}, "profile=''"),
        ({"region": "eu-west-1", "role_arn": 7}, "role_arn=7"),
        ({"region": "eu-west-1", "ca": ""}, "ca is empty"),
    ],
)
def test_what_cant_be_meant_is_refused_at_once(given: Any, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        Security.msk_iam(**given)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'kclient\[msk\]'"):
        Security.msk_iam("eu-west-1")


def test_no_text_has_a_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", CANARY)
    security = Security.msk_iam("eu-west-1")
    found = token_of(security)
    assert isinstance(found.value, kclient.Secret)
    assert security.sasl is not None
    texts = json.dumps([caplog.text, repr(security), repr(security.sasl.tokens), repr(found)])
    assert not [one for one in (CANARY, found.value.reveal(), "Signature") if one in texts]
