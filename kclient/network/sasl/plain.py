"""PLAIN (RFC 4616): name and password as they are. Sans-IO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import AuthenticationFailed

if TYPE_CHECKING:
    from kclient.secret import Secret


class Plain:
    """One authentication by PLAIN; see ``Mechanism``."""

    name = "PLAIN"
    slow = False

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password

    def step(self, challenge: bytes | None) -> bytes | None:
        """The one message, and that it had an empty answer."""
        if challenge is None:
            return f"\0{self._username}\0{self._password.reveal()}".encode()
        if challenge:
            raise AuthenticationFailed("PLAIN has no challenge, but the broker sent one")
        return None
