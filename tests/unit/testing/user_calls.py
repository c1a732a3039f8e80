"""A request of each API about users, quotas and delegation tokens."""

from __future__ import annotations

from kclient.protocol.message import Request
from kclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    RequestEntityData,
    RequestEntryData,
)
from kclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kclient.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kclient.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from kclient.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from kclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

SAMPLES: dict[int, Request] = {
    one.API_KEY: one
    for one in (
        CreateDelegationTokenRequest("", ""),
        RenewDelegationTokenRequest(b"x"),
        ExpireDelegationTokenRequest(b"x"),
        DescribeDelegationTokenRequest(None),
        DescribeClientQuotasRequest([ComponentData("user", 2, None)], strict=True),
        AlterClientQuotasRequest([RequestEntryData([RequestEntityData("user", "alice")])]),
        DescribeUserScramCredentialsRequest(None),
        AlterUserScramCredentialsRequest([ScramCredentialDeletion("alice", 1)]),
    )
}
"""Valid in all versions."""
