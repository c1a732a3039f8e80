"""OAUTHBEARER (RFC 7628, KIP-255): a token that others have issued. Sans-IO."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kclient.errors import AuthenticationFailed
from kclient.secret import Secret

if TYPE_CHECKING:
    from kclient.credentials import Token

_SEPARATOR = b"\x01"
_STATUS = re.compile(rb'"status"\s*:\s*"([\w .:-]{1,100})"')


class OAuthBearer:
    """One authentication by a bearer token; see ``Mechanism``."""

    name = "OAUTHBEARER"
    slow = False

    def __init__(self, token: Token) -> None:
        self._token = Secret(token.value)
        self._extensions = token.extensions
        self._refused: str | None = None

    def step(self, challenge: bytes | None) -> bytes | None:
        """The one message. A broker that refuses it says why, and is let finish."""
        if challenge is None:
            pairs = "".join(f"{key}={value}\x01" for key, value in self._extensions.items())
            return f"n,,\x01auth=Bearer {self._token.reveal()}\x01{pairs}\x01".encode()
        if self._refused is not None:
            raise AuthenticationFailed(f"the broker refused the token: {self._refused}")
        if not challenge:
            return None
        status = _STATUS.search(challenge)
        self._refused = status[1].decode() if status else "it gave no reason"
        return _SEPARATOR
