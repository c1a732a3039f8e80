"""Delegation tokens (KIP-48, KIP-373): who has which one, how long, and its secrets.

The tokens are in the metadata image. The HMAC of a token's id, by the cluster's secret, is what its
holder proves by SCRAM. A token that has expired stays known, as Kafka's do until the next sweep.
Sans-IO.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from kclient.credentials import SCRAM
from kclient.error_codes import ErrorCode
from kclient.testing.responses import ApiError
from kclient.testing.sasl import ITERATIONS, ScramCredential, scram_credential

if TYPE_CHECKING:
    from kclient.testing.image import MetadataImage

Principal: TypeAlias = tuple[str, str]
"""Type and name."""
USER_TYPE = "User"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token; times are in milliseconds since the epoch.

    Attributes:
        owner: The principal that its holder acts as.
        requester: Who had it made.
        renewers: Who may renew it, beside the owner.
        expires_ms: Until when it was renewed.
        max_ms: Until when it may be renewed.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_of(self, principal: Principal) -> bool:
        """Whether it may see the token: as its owner, requester or renewer."""
        return principal in (self.owner, self.requester, *self.renewers)

    def check_renewable(self, principal: Principal) -> None:
        """Raise ApiError: DELEGATION_TOKEN_OWNER_MISMATCH."""
        if principal not in (self.owner, *self.renewers):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)

    def check_valid(self, now_ms: int) -> None:
        """Raise ApiError: DELEGATION_TOKEN_EXPIRED."""
        if self.expires_ms < now_ms:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


@dataclass(frozen=True, slots=True)
class DelegationTokens:
    """The tokens of one image."""

    image: MetadataImage

    def secret(self) -> bytes:
        """The cluster's secret.

        Raises:
            ApiError: DELEGATION_TOKEN_AUTH_DISABLED: it is set, and empty.
        """
        secret = cast("str | None", self.image.config.value("delegation.token.secret.key"))
        if secret is None:
            secret = self.image.cluster_id
        if not secret:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return secret.encode()

    def hmac(self, token_id: str) -> bytes:
        """The secret of a token. Raises ApiError: DELEGATION_TOKEN_AUTH_DISABLED."""
        return hmac.digest(self.secret(), token_id.encode(), "sha512")

    def find(self, found: bytes) -> DelegationToken:
        """The token with that HMAC.

        Raises:
            ApiError: DELEGATION_TOKEN_NOT_FOUND, or DELEGATION_TOKEN_AUTH_DISABLED.
        """
        self.secret()
        for token in self.image.tokens.values():
            if self.hmac(token.token_id) == found:
                return token
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    def credential(self, token_id: str, mechanism: str) -> ScramCredential:
        """What SCRAM keeps of a token that there is: its password is the HMAC in Base64."""
        password = base64.b64encode(self.hmac(token_id))
        salt = hashlib.sha256(token_id.encode()).digest()[:16]
        salted = hashlib.pbkdf2_hmac(SCRAM[mechanism], password, salt, ITERATIONS)
        return scram_credential(mechanism, salted, salt, ITERATIONS)

    def new(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: tuple[Principal, ...],
        now_ms: int,
        lifetime_ms: int,
    ) -> DelegationToken:
        """A token of that lifetime, or of the longest that is allowed."""
        most = self._milliseconds("delegation.token.max.lifetime.ms", lifetime_ms)
        renewed = self._milliseconds("delegation.token.expiry.time.ms", most)
        return DelegationToken(
            token_id, owner, requester, renewers, now_ms, now_ms + renewed, now_ms + most
        )

    def renewed_until(self, token: DelegationToken, now_ms: int, period_ms: int) -> int:
        """Until when a renewal lasts."""
        period = self._milliseconds("delegation.token.expiry.time.ms", period_ms)
        return min(token.max_ms, now_ms + period)

    def _milliseconds(self, name: str, wanted: int) -> int:
        """A configured time, or less if less is wanted."""
        most = cast(int, self.image.config.value(name))
        return min(most, wanted) if wanted > 0 else most
