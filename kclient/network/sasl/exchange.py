"""One authentication: SaslHandshake, then SaslAuthenticate until the mechanism is done (KIP-152).

Sans-IO but for waiting: ``ask`` writes a request and gives its response. A task of the selector
runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from kclient.error_codes import ErrorCode
from kclient.errors import AuthenticationFailed, broker_error
from kclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from kclient.network.sasl import Mechanism
    from kclient.protocol.message import Request, Response

Ask: TypeAlias = "Callable[[Request], Awaitable[Response]]"

_STEPS = 16
"""More than any mechanism takes; a broker that goes on would keep us for ever."""

_HINTS = {
    "OAUTHBEARER": "check the token's issuer, audience and expiry, and the clocks of both sides",
    "GSSAPI": "check that the broker's keytab has the present key of its principal, and the clocks "
    "of both sides; the broker's log has the reason",
}
"""What to do where there is no user with a password."""


async def authenticate(mechanism: Mechanism, ask: Ask, where: str) -> float:
    """Authenticate to the broker, and it to us where the mechanism has that.

    Args:
        mechanism: A new one.
        ask: Writes a request on the connection, and awaits its response.
        where: The broker, for texts.

    Returns:
        Seconds until the broker ends the session unless it is renewed; 0 if it doesn't.

    Raises:
        AuthenticationFailed: The broker refuses us, or can't be trusted.
        KafkaError: What ``ask`` raises.
    """
    shaken = cast(
        "SaslHandshakeResponse", await ask(SaslHandshakeRequest(mechanism=mechanism.name))
    )
    if shaken.error_code:
        raise _no_mechanism(shaken, mechanism.name, where)
    challenge: bytes | None = None
    lifetime_ms = 0
    for _ in range(_STEPS):
        try:
            if mechanism.slow:
                said = await asyncio.to_thread(mechanism.step, challenge)
            else:
                said = mechanism.step(challenge)
        except AuthenticationFailed as error:
            error.message = f"{where}: {error.message}"
            raise
        if said is None:
            return lifetime_ms / 1000
        response = cast(
            "SaslAuthenticateResponse", await ask(SaslAuthenticateRequest(auth_bytes=said))
        )
        if response.error_code:
            raise _refused(response, mechanism.name, where)
        challenge, lifetime_ms = response.auth_bytes, response.session_lifetime_ms
    raise AuthenticationFailed(f"{where}: {mechanism.name} has no end: the broker goes on asking")


async def check_without_sasl(ask: Ask, where: str) -> None:
    """Find out whether a listener that hung up on us without SASL wants it.

    Raises:
        AuthenticationFailed: It does: it says which mechanisms it has.
    """
    shaken = cast("SaslHandshakeResponse", await ask(SaslHandshakeRequest(mechanism="NONE")))
    if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(
            f"{where} wants SASL on that listener: it offers {', '.join(shaken.mechanisms)}",
            hint="give security=Security.sasl_plain(...) or the like, or use another listener",
        )


def _no_mechanism(response: SaslHandshakeResponse, wanted: str, where: str) -> AuthenticationFailed:
    cause = broker_error(response.error_code, "SaslHandshake")
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(response.mechanisms) or "none"
        error = AuthenticationFailed(
            f"{where} has no SASL mechanism {wanted} on that listener: it offers {offered}",
            hint="choose one of those, or another listener of the broker",
        )
    elif response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        error = AuthenticationFailed(
            f"{where} wants no SASL on that listener",
            hint="it is a PLAINTEXT or SSL listener: check the port, or use Security.tls() or "
            "Security.plaintext()",
        )
    else:
        error = AuthenticationFailed(f"{where} refuses SASL: {cause}")
    error.__cause__ = cause
    return error


def _refused(
    response: SaslAuthenticateResponse, mechanism: str, where: str
) -> AuthenticationFailed:
    cause = broker_error(
        response.error_code, "SaslAuthenticate", broker_message=response.error_message
    )
    why = response.error_message or str(cause)
    error = AuthenticationFailed(
        f"{where} refuses the credentials ({mechanism}): {why}",
        hint=_HINTS.get(
            mechanism, "check user and password, and that the user exists for this mechanism"
        ),
    )
    error.__cause__ = cause
    return error
