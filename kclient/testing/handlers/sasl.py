"""SaslHandshake (17) and SaslAuthenticate (36) (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError
from kclient.testing.sasl import illegal_state


def handshake(call: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Choose a mechanism."""
    try:
        call.check_fault()
    except ApiError as refused:
        return SaslHandshakeResponse(refused.code, [])
    if call.session is None:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
    return call.session.handshake(request.mechanism)


def authenticate(
    call: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Take a step of it."""
    try:
        call.check_fault()
    except ApiError as refused:
        if call.session is not None:
            call.session.refused = True
        return SaslAuthenticateResponse(refused.code, "Authentication failed", b"", 0)
    if call.session is None:
        return illegal_state()
    return call.session.authenticate(request.auth_bytes)
