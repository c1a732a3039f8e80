"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a password is proved, never sent. Sans-IO.

Both sides prove that they know it: a broker whose signature is wrong is not talked to. As in Kafka,
passwords are UTF-8 without SASLprep, and there is no channel binding. A delegation token is a name
and a password, too, marked by an extension of the first message (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING

from kclient.credentials import SCRAM
from kclient.errors import AuthenticationFailed

if TYPE_CHECKING:
    from kclient.secret import Secret

ITERATIONS = range(4_096, 1_000_001)
"""Fewer are too easy to guess from; more are there to keep us busy."""

_BASE64 = rb"[A-Za-z0-9+/]+={0,2}"
_FIRST = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]+),s=(" + _BASE64 + rb"),i=([1-9][0-9]{0,6})")
_FINAL = re.compile(rb"v=(" + _BASE64 + rb")")
_REFUSED = re.compile(rb"e=([\x20-\x2b\x2d-\x7e]+)")
_HEADER = b"n,,"  # no channel binding, no other name to act for


class Scram:
    """One authentication by SCRAM; see ``Mechanism``.

    Args:
        name: One of ``SCRAM``.
        username: The user, or the id of a delegation token.
        password: The password, or the token's HMAC.
        nonce: Random, and of this one only.
        delegation_token: They are those of a delegation token.
    """

    slow = True

    def __init__(
        self,
        name: str,
        username: str,
        password: Secret,
        *,
        nonce: str,
        delegation_token: bool = False,
    ) -> None:
        self.name = name
        self._hash = SCRAM[name]
        self._password = password
        self._nonce = nonce.encode()
        escaped = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=" + escaped + b",r=" + self._nonce
        if delegation_token:
            self._bare += b",tokenauth=true"
        self._signature: bytes | None = None
        """What the broker must prove; None before it has challenged us."""

    def step(self, challenge: bytes | None) -> bytes | None:
        """The three steps: our nonce, our proof, the broker's proof."""
        if challenge is None:
            return _HEADER + self._bare
        if self._signature is None:
            return self._prove(challenge)
        self._check_final(challenge, self._signature)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        found = _FIRST.fullmatch(challenge)
        if found is None:
            raise _untrusted("its challenge is no message of SCRAM")
        nonce, salt, iterations = found[1], _decoded(found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise _untrusted("its nonce doesn't continue ours")
        if iterations not in ITERATIONS:
            raise _untrusted(
                f"it asks for {iterations:,} iterations; {ITERATIONS[0]:,} to {ITERATIONS[-1]:,} "
                "are accepted"
            )
        password = self._password.reveal().encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, salt, iterations)
        without_proof = b"c=" + base64.b64encode(_HEADER) + b",r=" + nonce
        message = b",".join((self._bare, challenge, without_proof))
        key = self._hmac(salted, b"Client Key")
        stored = hashlib.new(self._hash, key).digest()
        signature = self._hmac(stored, message)
        proof = bytes(ours ^ theirs for ours, theirs in zip(key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return without_proof + b",p=" + base64.b64encode(proof)

    def _check_final(self, challenge: bytes, signature: bytes) -> None:
        if refused := _REFUSED.fullmatch(challenge):
            raise AuthenticationFailed(f"{self.name}: the broker says {refused[1].decode()}")
        found = _FINAL.fullmatch(challenge)
        if found is None:
            raise _untrusted("its last message is none of SCRAM")
        if not hmac.compare_digest(_decoded(found[1]), signature):
            raise _untrusted("its signature is wrong: it doesn't know the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _decoded(text: bytes) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except binascii.Error:
        decoded = b""
    if not decoded or base64.b64encode(decoded) != text:
        raise _untrusted("it sent what is no base64")
    return decoded


def _untrusted(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the broker can't be trusted: {why}", hint="is that a Kafka broker of yours?"
    )
