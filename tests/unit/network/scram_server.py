"""The broker's side of SCRAM, written from RFC 5802 alone."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramServer:
    """Answers one client; ``accepted`` says whether its proof was right."""

    def __init__(
        self,
        name: str,
        password: str,
        *,
        salt: bytes = b"salt-of-a-user",
        iterations: int = 4096,
        nonce: str = "server-nonce",
    ) -> None:
        self.hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[name]
        self.salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)
        self.challenge = b",s=" + base64.b64encode(salt) + b",i=%d" % iterations
        self.nonce = nonce.encode()
        self.accepted = False

    def first(self, message: bytes) -> bytes:
        """The challenge to the client's first message."""
        assert message.startswith(b"n,,n=")
        self.bare = message[3:]
        client_nonce = self.bare.partition(b",r=")[2].partition(b",")[0]
        self.first_message = b"r=" + client_nonce + self.nonce + self.challenge
        return self.first_message

    def final(self, message: bytes) -> bytes:
        """Check the proof; our own proof, or an error."""
        without_proof, _, proof = message.rpartition(b",p=")
        signed = b",".join((self.bare, self.first_message, without_proof))
        key = bytes(
            a ^ b
            for a, b in zip(
                base64.b64decode(proof),
                self._hmac(self._stored(self._hmac(self.salted, b"Client Key")), signed),
                strict=True,
            )
        )
        expected = self._stored(self._hmac(self.salted, b"Client Key"))
        self.accepted = self._stored(key) == expected
        if not self.accepted:
            return b"e=invalid-proof"
        server_key = self._hmac(self.salted, b"Server Key")
        return b"v=" + base64.b64encode(self._hmac(server_key, signed))

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash)

    def _stored(self, key: bytes) -> bytes:
        return hashlib.new(self.hash, key).digest()
