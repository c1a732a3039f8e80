"""The broker's side of SASL: PLAIN, SCRAM and tokens, and where a connection stands.

``SaslSession`` is one connection's: ``dispatch`` asks it whether a request may be served, and the
handlers of SaslHandshake and SaslAuthenticate speak with it. Codes and texts are Kafka's. Sans-IO.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kclient.credentials import SCRAM
from kclient.error_codes import ErrorCode
from kclient.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kclient.protocol.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from kclient.testing.cluster_security import ClusterSecurity
    from kclient.testing.scram_users import ScramUsers

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
ITERATIONS = 4096
LEAST_INTERVAL = 1.0
"""Seconds: a second authentication within that time is refused."""

_INVALID_TOKEN = b'{"status":"invalid_token"}'
_FIRST = re.compile(
    rb"n,,(n=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+),r=([\x21-\x2b\x2d-\x7e]+)(,tokenauth=true)?)"
)
_FINAL = re.compile(rb"(c=biws,r=([\x21-\x2b\x2d-\x7e]+)),p=([A-Za-z0-9+/=]+)")
_TOKEN = re.compile(
    rb"n,(?:a=[^,]*)?,\x01auth=Bearer ([^\x01]+)\x01(?:[A-Za-z]+=[^\x01]*\x01)*\x01"
)


class Refused(Exception):
    """The client isn't let in; the text is for it."""


class ScramCredential(NamedTuple):
    """What a broker keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def scram_credential(
    mechanism: str, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """That of a salted password (RFC 5802, section 3)."""
    name = SCRAM[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", name))


class ServerMechanism(Protocol):
    """One authentication; ``user`` is who it is once ``step`` has given ``done``.

    Attributes:
        by_token: It is by a delegation token.
        expires_at: Wall clock at which what was proved ends.
    """

    user: str
    by_token: bool
    expires_at: float

    def step(self, said: bytes, /) -> tuple[bytes, bool]:
        """What to answer, and whether that is all.

        Raises:
            Refused: The client isn't let in.
        """
        ...


class PlainServer:
    """PLAIN."""

    by_token = False
    expires_at = math.inf

    def __init__(self, security: ClusterSecurity) -> None:
        self._security = security
        self.user = ""

    def step(self, said: bytes) -> tuple[bytes, bool]:
        """Compare the password."""
        parts = said.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            raise Refused("Authentication failed: expected 3 tokens, got " + str(len(parts)))
        _, self.user, password = parts
        if self._security.password(self.user) != password:
            raise Refused("Authentication failed: Invalid username or password")
        return b"", True


class ScramServer:
    """SCRAM: a challenge, then the proofs of both; by a password, or by a delegation token."""

    def __init__(self, users: ScramUsers, mechanism: str, nonce: str) -> None:
        self._users = users
        self._mechanism = mechanism
        self._hash = SCRAM[mechanism]
        self._nonce = nonce.encode()
        self._credential: ScramCredential | None = None
        self._said = b""
        self.user = ""
        self.by_token = False
        self.expires_at = math.inf

    def step(self, said: bytes) -> tuple[bytes, bool]:
        """The first message gets the challenge, the second one our proof."""
        if self._credential is None:
            return self._challenge(said), False
        return self._prove(said, self._credential), True

    def _challenge(self, said: bytes) -> bytes:
        found = _FIRST.fullmatch(said)
        if found is None:
            raise self._refused()
        self.user = found[2].replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8", "replace")
        credential = self._found(by_token=bool(found[4]))
        if credential is None:
            raise self._refused()
        self._credential = credential
        self._nonce = found[3] + self._nonce
        salt = base64.b64encode(credential.salt)
        challenge = b"r=%s,s=%s,i=%d" % (self._nonce, salt, credential.iterations)
        self._said = found[1] + b"," + challenge
        return challenge

    def _found(self, *, by_token: bool) -> ScramCredential | None:
        if not by_token:
            return self._users.credential(self.user, self._mechanism)
        found = self._users.token(self.user, self._mechanism)
        if found is None:
            return None
        token, credential = found
        self.by_token = True
        self.user, self.expires_at = token.owner[1], token.expires_ms / 1000
        return credential

    def _prove(self, said: bytes, credential: ScramCredential) -> bytes:
        found = _FINAL.fullmatch(said)
        if found is None or found[2] != self._nonce:
            raise self._refused()
        message = self._said + b"," + found[1]
        signature = hmac.digest(credential.stored_key, message, self._hash)
        proof = base64.b64decode(found[3])
        if len(proof) != len(signature):
            raise self._refused()
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if hashlib.new(self._hash, key).digest() != credential.stored_key:
            raise self._refused()
        ours = hmac.digest(credential.server_key, message, self._hash)
        return b"v=" + base64.b64encode(ours)

    def _refused(self) -> Refused:
        return Refused(
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {self._mechanism}"
        )


class TokenServer:
    """OAUTHBEARER, with the tokens that ``ClusterSecurity`` has made."""

    by_token = False

    def __init__(self, security: ClusterSecurity, wall: Callable[[], float]) -> None:
        self._security = security
        self._wall = wall
        self._invalid = False
        self.user = ""
        self.expires_at = math.inf

    def step(self, said: bytes) -> tuple[bytes, bool]:
        """Check the token; a client that was told that it is invalid acknowledges that."""
        if self._invalid:
            raise Refused(_INVALID_TOKEN.decode())
        found = _TOKEN.fullmatch(said)
        if found is None:
            raise Refused("Authentication failed: it is no message of OAUTHBEARER")
        try:
            claims = self._security.claims(found[1].decode())
            self.user, self.expires_at = str(claims["sub"]), float(claims["exp"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self._invalid = True
        if self._invalid or self.expires_at <= self._wall():
            self._invalid = True
            return _INVALID_TOKEN, False
        return b"", True


class SaslSession:
    """The authentication of one connection.

    Args:
        security: Users and mechanisms.
        users: Reads the users of SCRAM.
        now: Reads the loop's time.
        wall: Reads the wall clock, in seconds since the epoch.
        nonce: Makes nonces.

    Attributes:
        user: Who it is; None before.
        by_token: The login was by a delegation token.
        refused: A login failed: the connection closes after that response.
    """

    def __init__(
        self,
        security: ClusterSecurity,
        users: Callable[[], ScramUsers],
        now: Callable[[], float],
        wall: Callable[[], float],
        nonce: Callable[[], str],
    ) -> None:
        self._security = security
        self._users = users
        self._now = now
        self._wall = wall
        self._nonce = nonce
        self._server: ServerMechanism | None = None
        self._ends_at = math.inf
        self._renewed_at = -math.inf
        self.user: str | None = None
        self.by_token = False
        self.refused = False

    def may_serve(self, api_key: int) -> bool:
        """Whether a request is to be served now; the connection closes if not."""
        if self._server is not None:
            return api_key == AUTHENTICATE
        if self.user is None:
            return api_key in (API_VERSIONS, HANDSHAKE)
        return self._now() < self._ends_at or api_key == HANDSHAKE

    def handshake(self, mechanism: str) -> SaslHandshakeResponse:
        """Begin with a mechanism."""
        mechanisms = list(self._security.mechanisms)
        if self.user is not None:
            if self._now() - self._renewed_at < LEAST_INTERVAL or self._ends_at == math.inf:
                return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
            self._renewed_at = self._now()
        if mechanism not in mechanisms:
            self.refused = True
            return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
        if mechanism == "PLAIN":
            self._server = PlainServer(self._security)
        elif mechanism == "OAUTHBEARER":
            self._server = TokenServer(self._security, self._wall)
        else:
            self._server = ScramServer(self._users(), mechanism, self._nonce())
        return SaslHandshakeResponse(ErrorCode.NONE, mechanisms)

    def authenticate(self, said: bytes) -> SaslAuthenticateResponse:
        """Take a message of the mechanism."""
        server = self._server
        if server is None:
            return illegal_state()
        try:
            answer, done = server.step(said)
            if done and self.user not in (None, server.user):
                raise Refused(
                    f"Cannot change principals during re-authentication from {self.user} to "
                    f"{server.user}"
                )
        except Refused as error:
            self.refused = True
            return SaslAuthenticateResponse(
                ErrorCode.SASL_AUTHENTICATION_FAILED, str(error), b"", 0
            )
        if not done:
            return SaslAuthenticateResponse(ErrorCode.NONE, "", answer, 0)
        self._server, self.user, self.by_token = None, server.user, server.by_token
        lifetime = min(self._security.session_lifetime, server.expires_at - self._wall())
        self._ends_at = self._now() + lifetime
        shown = 0 if lifetime == math.inf else max(int(lifetime * 1000), 0)
        return SaslAuthenticateResponse(ErrorCode.NONE, "", answer, shown)


def illegal_state() -> SaslAuthenticateResponse:
    """The response where nobody asked for that."""
    return SaslAuthenticateResponse(
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
        b"",
        0,
    )
