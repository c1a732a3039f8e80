"""Delegation tokens: owners, HMACs and logins."""

from __future__ import annotations

import pytest

from kclient import DelegationToken, Secret, Security
from kclient.admin.delegation_tokens import create_request, decoded, hmac_of, read_created
from kclient.errors import InvalidArgument, NoCommonVersion
from kclient.protocol.messages.create_delegation_token import CreateDelegationTokenResponse

RESPONSE = CreateDelegationTokenResponse(
    principal_type="User",
    principal_name="alice",
    issue_timestamp_ms=1_000,
    expiry_timestamp_ms=2_500,
    max_timestamp_ms=3_000,
    token_id="an-id",
    hmac=b"\x00\xff",
)
TOKEN = DelegationToken("an-id", Secret("AP8="), "User:alice", "User:alice", (), 1.0, 2.5, 3.0)


def test_who_asked_for_a_token_of_an_old_broker_is_its_owner() -> None:
    assert read_created(RESPONSE, []) == TOKEN


def test_only_newer_brokers_take_an_owner() -> None:
    for version in range(4):
        assert create_request(None, ["User:bob"], None, version).encode(version)
    assert create_request("User:alice", [], 60.0, 3).owner_principal_name == "alice"
    with pytest.raises(NoCommonVersion, match=r"3\.3"):
        create_request("User:alice", [], None, 2)


@pytest.mark.parametrize("given", [TOKEN, Secret("AP8="), "AP8="])
def test_a_token_is_named_by_itself_or_by_its_hmac(given: DelegationToken | Secret | str) -> None:
    assert decoded(hmac_of(given)) == b"\x00\xff"


def test_what_is_no_hmac_is_not_shown() -> None:
    with pytest.raises(InvalidArgument) as caught:
        hmac_of("canary no base64")
    assert "canary" not in str(caught.value)


def test_a_token_makes_the_login() -> None:
    found = TOKEN.security(mechanism="SCRAM-SHA-256", unencrypted=True)
    assert found == Security.sasl_scram(
        "an-id", "AP8=", mechanism="SCRAM-SHA-256", delegation_token=True, unencrypted=True
    )
    assert "AP8=" not in f"{TOKEN!r} {found!r}"
