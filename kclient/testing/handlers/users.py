"""Users of SCRAM (KIP-554): DescribeUserScramCredentials (50), AlterUserScramCredentials (51)."""

from __future__ import annotations

from collections import Counter

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kclient.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError
from kclient.testing.scram_users import ScramUsers


def describe_scram(
    call: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the named users, or all of them: mechanisms and iterations."""
    code = call.error_for() or call.denial(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if code is not None:
        return DescribeUserScramCredentialsResponse(
            error_code=code,
            results=[
                DescribeUserScramCredentialsResult(one.name, code) for one in request.users or ()
            ],
        )
    users = ScramUsers(call.image, call.broker.security)
    named = Counter(one.name for one in request.users or ()) or Counter(users.names())
    return DescribeUserScramCredentialsResponse(
        results=[_described(users, name, count) for name, count in named.items()]
    )


def _described(users: ScramUsers, name: str, count: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(name)
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
        return result
    result.credential_infos = [CredentialInfo(*one) for one in users.described(name)]
    if not result.credential_infos:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    return result


def alter_scram(
    call: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials; each user has an outcome of its own."""
    outcomes: dict[str, ApiError | None]
    try:
        call.check_fault()
        call.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
        controller = call.broker.controller()
        users = ScramUsers(controller.image, call.broker.security)
        records, outcomes = users.altered(request.deletions, request.upsertions)
        if records:
            controller.write(controller.image.with_scram(records))
        call.check_fault(after=True)
    except ApiError as refused:
        named = [one.name for one in request.deletions] + [one.name for one in request.upsertions]
        outcomes = dict.fromkeys(named, refused)
    return AlterUserScramCredentialsResponse(
        results=[_outcome(name, refused) for name, refused in outcomes.items()]
    )


def _outcome(name: str, refused: ApiError | None) -> AlterUserScramCredentialsResult:
    if refused is None:
        return AlterUserScramCredentialsResult(name, error_message=None)
    return AlterUserScramCredentialsResult(name, refused.code, refused.message)
