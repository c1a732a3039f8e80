"""SaslHandshake and SaslAuthenticate where no login is wanted.

Where one is, tests/security compares the embedded cluster with a secured broker.
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.conformance.run import Run
from tests.conformance.scenario import scenario


@scenario("SaslHandshake", ErrorCode.ILLEGAL_SASL_STATE)
async def a_mechanism_that_nobody_asked_for(run: Run) -> None:
    await run.ask_each(SaslHandshakeRequest("PLAIN"), 0, 1)


@scenario("SaslHandshake", ErrorCode.ILLEGAL_SASL_STATE)
async def an_unknown_mechanism(run: Run) -> None:
    await run.ask(SaslHandshakeRequest("NONE"), 1)


@scenario("SaslAuthenticate", ErrorCode.ILLEGAL_SASL_STATE)
async def a_login_that_nobody_asked_for(run: Run) -> None:
    await run.ask_each(SaslAuthenticateRequest(b"\0alice\0secret"), 0, 1, 2)


@scenario("SaslAuthenticate", ErrorCode.ILLEGAL_SASL_STATE)
async def a_login_after_a_handshake_that_was_refused(run: Run) -> None:
    await run.ask(SaslHandshakeRequest("PLAIN"), 1)
    await run.ask(SaslAuthenticateRequest(b""), 2)
