"""Delegation tokens (KIP-48, KIP-373): their value, and the requests about them. Sans-IO.

A token's HMAC is its password: text in base64, kept as a Secret. Times are seconds since the epoch.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Unpack

from kclient.admin.arguments import each
from kclient.durations import call_timeout
from kclient.errors import InvalidArgument, NoCommonVersion
from kclient.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kclient.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kclient.secret import Secret
from kclient.security import ScramMechanism, Security

if TYPE_CHECKING:
    from kclient.tls import TlsOptions

OWNER_SINCE = 3
"""CreateDelegationToken version that can name an owner: Apache Kafka 3.3."""

NONE = -1
"""On the wire: the broker's default of a lifetime or of a renewal; or the token expires now."""

LONGEST = 31_536_000.0
"""Seconds of a lifetime or period at most: a year. More is meant as milliseconds."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with which others log in as its owner.

    Attributes:
        token_id: Its id, the user name of logins with it.
        hmac: Its HMAC in base64, the password of logins with it.
        owner: The principal that it stands for, such as ``User:alice``.
        requester: The principal that asked for it.
        renewers: The principals that may renew it, beside its owner.
        issued_at: Seconds since the epoch.
        expires_at: Likewise; it may be renewed until then.
        max_expires_at: Likewise; it can't be renewed beyond.
    """

    token_id: str
    hmac: Secret
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at: float
    expires_at: float
    max_expires_at: float

    def security(
        self,
        *,
        mechanism: ScramMechanism = "SCRAM-SHA-512",
        unencrypted: bool = False,
        **tls: Unpack[TlsOptions],
    ) -> Security:
        """How a client logs in with it.

        Args:
            mechanism, unencrypted, tls: As of ``Security.sasl_scram``.

        Raises:
            InvalidConfig: As there.

        Example::

            token = await admin.create_delegation_token()
            worker = kclient.Producer("localhost:9093", security=token.security(ca_file="ca.pem"))
        """
        return Security.sasl_scram(
            self.token_id,
            self.hmac,
            mechanism=mechanism,
            delegation_token=True,
            unencrypted=unencrypted,
            **tls,
        )


TokenRef: TypeAlias = DelegationToken | Secret | str
"""A token, or its HMAC in base64."""


def create_request(
    owner: str | None, renewers: Iterable[str], max_lifetime: float | None, version: int
) -> CreateDelegationTokenRequest:
    """The request for a new token.

    Raises:
        NoCommonVersion: It is for another owner, and the broker is too old.
    """
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(*_split(renewer)) for renewer in renewers],
        max_lifetime_ms=milliseconds(max_lifetime),
    )
    if owner is not None:
        if version < OWNER_SINCE:
            raise NoCommonVersion(
                f"CreateDelegationToken version {version} can't name an owner",
                hint="leave it out, or use Apache Kafka 3.3 or newer",
            )
        request.owner_principal_type, request.owner_principal_name = _split(owner)
    elif version >= OWNER_SINCE:
        request.owner_principal_type = request.owner_principal_name = None
    return request


def read_created(
    response: CreateDelegationTokenResponse, renewers: Iterable[str]
) -> DelegationToken:
    """Read the new token; the response leaves out its renewers."""
    owner = f"{response.principal_type}:{response.principal_name}"
    return DelegationToken(
        token_id=response.token_id,
        hmac=_encoded(response.hmac),
        owner=owner,
        requester=_requester(response, owner),
        renewers=tuple(renewers),
        issued_at=response.issue_timestamp_ms / 1000,
        expires_at=response.expiry_timestamp_ms / 1000,
        max_expires_at=response.max_timestamp_ms / 1000,
    )


def describe_request(owners: Iterable[str] | None) -> DescribeDelegationTokenRequest:
    """The request for the tokens of these owners, or of all."""
    if owners is None:
        return DescribeDelegationTokenRequest(None)
    return DescribeDelegationTokenRequest(
        [DescribeDelegationTokenOwner(*_split(owner)) for owner in owners]
    )


def read_described(response: DescribeDelegationTokenResponse) -> list[DelegationToken]:
    """Read the tokens of a response."""
    return [_described(token) for token in response.tokens]


def _described(token: DescribedDelegationToken) -> DelegationToken:
    owner = f"{token.principal_type}:{token.principal_name}"
    return DelegationToken(
        token_id=token.token_id,
        hmac=_encoded(token.hmac),
        owner=owner,
        requester=_requester(token, owner),
        renewers=tuple(f"{one.principal_type}:{one.principal_name}" for one in token.renewers),
        issued_at=token.issue_timestamp / 1000,
        expires_at=token.expiry_timestamp / 1000,
        max_expires_at=token.max_timestamp / 1000,
    )


def _requester(said: CreateDelegationTokenResponse | DescribedDelegationToken, owner: str) -> str:
    """Who asked for the token; before version 3 only the owner can."""
    name = said.token_requester_principal_name
    return f"{said.token_requester_principal_type}:{name}" if name else owner


def milliseconds(seconds: float | None) -> int:
    """A duration on the wire."""
    return NONE if seconds is None else round(seconds * 1000)


def checked_duration(name: str, value: float | None, *, positive: bool = True) -> float | None:
    """Return the seconds of a lifetime or period, or raise InvalidArgument."""
    if value is None:
        return None
    return call_timeout(value, name=name, positive=positive, finite=True, maximum=LONGEST)


def checked_principal(name: str, value: object) -> str:
    """Return a principal with its type, or raise InvalidArgument."""
    kind, _, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not kind or not rest:
        raise InvalidArgument(
            f"{name}={value!r}: allowed is a type and a name, such as 'User:alice'"
        )
    return str(value)


def checked_principals(name: str, values: Iterable[str]) -> list[str]:
    """Return principals, each once, or raise InvalidArgument."""
    return list(dict.fromkeys(checked_principal(f"one of {name}", v) for v in each(name, values)))


def hmac_of(token: TokenRef) -> Secret:
    """Return the HMAC of a token in base64, or raise InvalidArgument, which doesn't show it."""
    if not isinstance(token, DelegationToken | Secret | str):
        raise InvalidArgument(
            f"token is a {type(token).__name__}: allowed is a DelegationToken, or its HMAC in "
            "base64 as Secret or str"
        )
    secret = token.hmac if isinstance(token, DelegationToken) else Secret(token)
    if not decoded(secret):
        raise InvalidArgument("token is no HMAC in base64")
    return secret


def decoded(hmac: Secret) -> bytes:
    """The bytes of an HMAC; none if it isn't base64."""
    try:
        return base64.b64decode(hmac.reveal(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _encoded(hmac: bytes) -> Secret:
    return Secret(base64.b64encode(hmac).decode())


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name
