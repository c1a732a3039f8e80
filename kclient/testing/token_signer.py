"""The tokens of OAUTHBEARER that a cluster takes: unsecured ones, or those of a key of its own."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidConfig

if TYPE_CHECKING:
    from joserfc.jwk import RSAKey

_ALGORITHM = "RS256"


class TokenSigner:
    """Makes tokens and verifies them.

    Args:
        signed: They are signed by a key that is made now; unsecured tokens are invalid then.

    Raises:
        InvalidConfig: ``kclient[oauth]`` isn't installed.
    """

    def __init__(self, *, signed: bool) -> None:
        self._key: RSAKey | None = None
        if signed:
            try:
                from joserfc.jwk import RSAKey
            except ImportError as error:
                raise InvalidConfig(
                    "signed_tokens=True needs a package more: pip install 'kclient[oauth]'"
                ) from error
            self._key = RSAKey.generate_key(2048)

    def token(self, claims: dict[str, Any]) -> str:
        """A JWT in its compact form."""
        if self._key is None:
            return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."
        from joserfc import jwt

        return jwt.encode({"alg": _ALGORITHM}, claims, self._key)

    def claims(self, token: str) -> dict[str, Any]:
        """The claims of a token, whose times aren't looked at.

        Raises:
            ValueError, KeyError, TypeError: It isn't one of ours.
        """
        if self._key is None:
            head, body, signature = token.split(".")
            if signature or _decoded(head)["alg"] != "none":
                raise ValueError("it isn't unsecured")
            claims: dict[str, Any] = _decoded(body)
            return claims
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            return jwt.decode(token, self._key, algorithms=[_ALGORITHM]).claims
        except JoseError as error:
            raise ValueError(str(error)) from None


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def _decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
