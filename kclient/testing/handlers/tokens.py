"""Delegation tokens (KIP-48): CreateDelegationToken (38), RenewDelegationToken (39),
ExpireDelegationToken (40), DescribeDelegationToken (41).
"""

from __future__ import annotations

import base64
from dataclasses import replace

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kclient.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kclient.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kclient.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kclient.testing.authorizer import AclOperation, ResourceType
from kclient.testing.delegation_tokens import (
    USER_TYPE,
    DelegationToken,
    DelegationTokens,
    Principal,
)
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError

_NEVER = -1
_FIRST_WITH_REQUESTER = 3


def _requester(call: RequestContext) -> Principal:
    return USER_TYPE, call.user


def _shown(call: RequestContext, requester: Principal) -> Principal:
    """The requester, in versions that have it."""
    return requester if call.version >= _FIRST_WITH_REQUESTER else ("", "")


def _no_expiry(refused: ApiError) -> int:
    """What Kafka's broker has in place of a time, and its controller."""
    return _NEVER if refused.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def _check_allowed(call: RequestContext) -> None:
    """Raise ApiError unless the connection has a login or certificate, and no login by a token."""
    call.check_fault()
    if call.certified is None and (call.session is None or call.session.by_token):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def create_token(
    call: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Make a token of the caller, or of the owner that is named."""
    owner = requester = _requester(call)
    if request.owner_principal_name:
        owner = request.owner_principal_type or "", request.owner_principal_name
    try:
        token, hmac = _created(call, request, owner, requester)
    except ApiError as refused:
        token = DelegationToken("", owner, requester, (), _NEVER, _NEVER, _NEVER)
        code, hmac = refused.code, b""
    else:
        code = ErrorCode.NONE
    return CreateDelegationTokenResponse(
        code,
        *owner,
        *_shown(call, requester),
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token.token_id,
        hmac,
    )


def _created(
    call: RequestContext,
    request: CreateDelegationTokenRequest,
    owner: Principal,
    requester: Principal,
) -> tuple[DelegationToken, bytes]:
    _check_allowed(call)
    if owner != requester and not call.allows(
        AclOperation.CREATE_TOKENS, ResourceType.USER, _name_of(owner)
    ):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(one.principal_type != USER_TYPE for one in request.renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    controller = call.broker.controller()
    tokens = DelegationTokens(controller.image)
    token_id = base64.urlsafe_b64encode(call.broker.rng.randbytes(16)).decode().rstrip("=")
    hmac = tokens.hmac(token_id)
    renewers = tuple((one.principal_type, one.principal_name) for one in request.renewers)
    now_ms, lifetime_ms = call.broker.wall_ms(), request.max_lifetime_ms
    token = tokens.new(token_id, owner, requester, renewers, now_ms, lifetime_ms)
    controller.write(controller.image.with_token(token))
    call.check_fault(after=True)
    return token, hmac


def renew_token(
    call: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Let a token live longer."""
    try:
        _check_allowed(call)
        controller, now_ms = call.broker.controller(), call.broker.wall_ms()
        tokens = DelegationTokens(controller.image)
        token = tokens.find(bytes(request.hmac))
        token.check_valid(now_ms)
        token.check_renewable(_requester(call))
        expires_ms = tokens.renewed_until(token, now_ms, request.renew_period_ms)
        controller.write(controller.image.with_token(replace(token, expires_ms=expires_ms)))
        call.check_fault(after=True)
    except ApiError as refused:
        return RenewDelegationTokenResponse(refused.code, _no_expiry(refused))
    return RenewDelegationTokenResponse(ErrorCode.NONE, expires_ms)


def expire_token(
    call: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Let a token end in a while, or at once, with a negative period."""
    try:
        _check_allowed(call)
        controller, now_ms = call.broker.controller(), call.broker.wall_ms()
        token = DelegationTokens(controller.image).find(bytes(request.hmac))
        token.check_renewable(_requester(call))
        expires_ms = now_ms
        if request.expiry_time_period_ms < 0:
            controller.write(controller.image.without_token(token))
        else:
            token.check_valid(now_ms)
            expires_ms = min(token.max_ms, now_ms + request.expiry_time_period_ms)
            controller.write(controller.image.with_token(replace(token, expires_ms=expires_ms)))
        call.check_fault(after=True)
    except ApiError as refused:
        return ExpireDelegationTokenResponse(refused.code, _no_expiry(refused))
    return ExpireDelegationTokenResponse(ErrorCode.NONE, expires_ms)


def describe_tokens(
    call: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Describe the tokens of the named owners and renewers, or all that there are."""
    tokens = DelegationTokens(call.image)
    owners = None
    if request.owners is not None:
        owners = [(one.principal_type, one.principal_name) for one in request.owners]
    try:
        _check_allowed(call)
        tokens.secret()
        return DescribeDelegationTokenResponse(
            tokens=[
                _described(call, token, tokens.hmac(token.token_id))
                for token in call.image.tokens.values()
                if owners is None or any(token.is_of(one) for one in owners)
                if _may_describe(call, token)
            ]
        )
    except ApiError as refused:
        return DescribeDelegationTokenResponse(refused.code)


def _may_describe(call: RequestContext, token: DelegationToken) -> bool:
    return (
        token.is_of(_requester(call))
        or call.allows(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or call.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, _name_of(token.owner))
    )


def _name_of(principal: Principal) -> str:
    """As ACLs have it."""
    return ":".join(principal)


def _described(
    call: RequestContext, token: DelegationToken, hmac: bytes
) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        *token.owner,
        *_shown(call, token.requester),
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token.token_id,
        hmac,
        [DescribedDelegationTokenRenewer(*one) for one in token.renewers],
    )
