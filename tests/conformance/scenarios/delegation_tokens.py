"""Requests about delegation tokens on a connection without a login.

With one, tests/security compares the embedded cluster with a secured broker.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kclient.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kclient.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@scenario("CreateDelegationToken", NOT_ALLOWED)
async def a_token_of_nobody(run: Run) -> None:
    await run.ask_each(CreateDelegationTokenRequest("", ""), 1, 2, 3)


@scenario("CreateDelegationToken", NOT_ALLOWED)
async def a_token_for_somebody(run: Run) -> None:
    renewers = [CreatableRenewers("Group", "g")]
    await run.ask(CreateDelegationTokenRequest("User", "alice", renewers, 1000), 3)


@scenario("RenewDelegationToken", NOT_ALLOWED)
async def a_renewal(run: Run) -> None:
    await run.ask_each(RenewDelegationTokenRequest(b"x", 1000), 1, 2)


@scenario("RenewDelegationToken", NOT_ALLOWED)
async def a_renewal_of_nothing(run: Run) -> None:
    await run.ask(RenewDelegationTokenRequest(b"", -1), 2)


@scenario("ExpireDelegationToken", NOT_ALLOWED)
async def an_expiry(run: Run) -> None:
    await run.ask_each(ExpireDelegationTokenRequest(b"x", 1000), 1, 2)


@scenario("ExpireDelegationToken", NOT_ALLOWED)
async def an_expiry_of_nothing(run: Run) -> None:
    await run.ask(ExpireDelegationTokenRequest(b"", -1), 2)


@scenario("DescribeDelegationToken", NOT_ALLOWED)
async def all_tokens(run: Run) -> None:
    await run.ask_each(DescribeDelegationTokenRequest(None), 1, 2, 3)


@scenario("DescribeDelegationToken", NOT_ALLOWED)
async def tokens_of_owners(run: Run) -> None:
    await run.ask(DescribeDelegationTokenRequest([]), 3)
    owners = [DescribeDelegationTokenOwner("User", "alice")]
    await run.ask(DescribeDelegationTokenRequest(owners), 3)
