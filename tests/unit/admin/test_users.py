"""Users of SCRAM: what is refused, what isn't shown, and which requests they go in."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from kclient import Secret
from kclient.admin.users import AlterScramCredentials, ScramDeletion, ScramUpsertion, read_described
from kclient.errors import InvalidArgument
from kclient.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

CANARY = "canary-77fe"
CALLS: Any = SimpleNamespace(controller=lambda: 1)


@pytest.mark.parametrize(
    ("wrong", "allowed"),
    [
        ({"user": ""}, "user=''"),
        ({"user": "a\0"}, "NUL"),
        ({"mechanism": "PLAIN"}, "SCRAM-SHA-256 and SCRAM-SHA-512"),
        ({"iterations": 4_095}, "4,096 to 16,384"),
        ({"iterations": 16_385}, "4,096 to 16,384"),
        ({"iterations": True}, "4,096 to 16,384"),
        ({"password": ""}, "empty"),
        ({"password": b"bytes"}, "str and a Secret"),
        ({"password": f"{CANARY}\ud800"}, "Unicode"),
        ({"password": f"{CANARY}\0"}, "NUL"),
    ],
)
def test_a_field_that_can_not_be_right_is_named(wrong: dict[str, Any], allowed: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ScramUpsertion(**{"user": "alice", "password": CANARY, **wrong})
    assert allowed in str(caught.value)
    shown = traceback.TracebackException.from_exception(caught.value).format()
    assert CANARY not in "".join(shown)


def test_a_password_becomes_a_secret() -> None:
    upsertion = ScramUpsertion("alice", CANARY)
    assert upsertion.password == Secret(CANARY)
    assert CANARY not in f"{upsertion!r} {upsertion}"


def test_the_mechanisms_of_a_user_go_in_requests_of_their_own() -> None:
    requests = AlterScramCredentials({})
    first, second = ScramDeletion("alice", "SCRAM-SHA-256"), ScramDeletion("alice", "SCRAM-SHA-512")
    assert requests.node_for(first, CALLS) != requests.node_for(second, CALLS)
    assert requests.node_for(first, CALLS) == requests.node_for(
        ScramUpsertion("bob", "b", "SCRAM-SHA-256"), CALLS
    )


def test_a_mechanism_that_is_not_known_is_described_by_its_number() -> None:
    result = DescribeUserScramCredentialsResult(
        "alice", 0, None, [CredentialInfo(2, 4_096), CredentialInfo(9, 5_000)]
    )
    response = DescribeUserScramCredentialsResponse(results=[result])
    assert read_described(response) == {"alice": {"SCRAM-SHA-512": 4_096, "unknown (9)": 5_000}}
