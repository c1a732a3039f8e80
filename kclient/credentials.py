"""What a client authenticates itself with by SASL, and where that comes from.

Values only, made by the class methods of ``Security``; ``network/sasl`` uses them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from kclient.errors import InvalidArgument, InvalidConfig
from kclient.frozen import Frozen, frozen
from kclient.secret import Secret

PasswordSource: TypeAlias = (
    "Callable[[], tuple[str, str | Secret] | Awaitable[tuple[str, str | Secret]]]"
)
"""Called for each authentication: returns name and password, or awaits them."""
TokenSource: TypeAlias = "Callable[[], str | Token | Awaitable[str | Token]]"
"""Called when there is no token yet, or the last has lived for 80% of its time."""

SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms of SCRAM, and Python's names of their hashes."""
_LATEST_EXPIRY = 1e11
"""Seconds: the year 5138; what is later was given in milliseconds."""
_TOKEN = re.compile(r"[\x21-\x7e]+")
_EXTENSION = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")


@frozen
class Token(Frozen):
    """A bearer token for OAUTHBEARER.

    Attributes:
        value: The token, such as a JWT in its compact form; a str becomes a Secret.
        expires_at: Seconds since the epoch; by default the claim ``exp`` of a JWT, and without that
            it isn't known: the token is used for a minute.
        extensions: Names (letters only) and values that go to the broker with it (KIP-342).

    Raises:
        InvalidArgument: One of them can't be sent.
    """

    value: Secret | str
    expires_at: float | None = None
    extensions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        secret = Secret(self.value)
        object.__setattr__(self, "value", secret)
        if not _TOKEN.fullmatch(secret.reveal()):
            raise InvalidArgument("the token is empty or has characters that no token has")
        if self.expires_at is None:
            expiry = seconds_in(jwt_claims(secret.reveal()).get("exp"))
            object.__setattr__(self, "expires_at", expiry)
        else:
            _check_expiry(self.expires_at)
        for name, said in self.extensions.items():
            if not isinstance(name, str) or not isinstance(said, str):
                raise InvalidArgument(f"extension {name!r}: allowed are names and values of text")
            if name == "auth" or not _EXTENSION.fullmatch(name) or not _VALUE.fullmatch(said):
                raise InvalidArgument(
                    f"extension {name!r} can't be sent: allowed are names of letters, but not "
                    "auth, with printable values"
                )


def _check_expiry(expires_at: object) -> None:
    number = isinstance(expires_at, int | float) and not isinstance(expires_at, bool)
    if not number or expires_at > _LATEST_EXPIRY:  # type: ignore[operator]
        raise InvalidArgument(
            f"expires_at={expires_at!r} can't be used: allowed are seconds since the epoch, such "
            "as time.time() + 300; a datetime has them by timestamp()"
        )


def jwt_claims(token: str) -> dict[str, Any]:
    """The claims of a JWT, which the broker verifies and we needn't; empty for other tokens."""
    import base64
    import json

    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def seconds_in(value: object) -> float | None:
    """A number of seconds in JSON, which some servers write as text; None for anything else."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


@frozen
class Kerberos(Frozen):
    """Whose Kerberos ticket a client shows, and to which service.

    Attributes:
        principal: Its name, as ``orders@EXAMPLE.COM``; by default whose ticket there is.
        keytab: The file with its key; None for the ticket cache of the system.
        service_name: The first part of the brokers' principals.

    Raises:
        InvalidConfig: One of them is empty or no text, or a keytab has no principal.
    """

    principal: str | None = None
    keytab: str | None = None
    service_name: str = "kafka"

    def __post_init__(self) -> None:
        for name in ("principal", "keytab", "service_name"):
            given = getattr(self, name)
            if given is None and name != "service_name":
                continue
            if not isinstance(given, str) or not given or "\0" in given or not is_utf8(given):
                raise InvalidConfig(
                    f"{name}={given!r} can't be used: allowed is text without NUL characters"
                )
        if "@" in self.service_name or "/" in self.service_name:
            raise InvalidConfig(
                f"service_name={self.service_name!r} can't be used: the first part of a broker's "
                "principal is wanted, such as kafka"
            )
        if self.keytab and not self.principal:
            raise InvalidConfig(
                f"keytab={self.keytab!r} needs the principal whose key in it is to be used",
                hint="klist -k FILE shows them",
            )


@frozen
class Sasl(Frozen):
    """A SASL mechanism with its credentials.

    Attributes:
        mechanism: As brokers call it.
        passwords: Gives name and password, for PLAIN and SCRAM.
        tokens: Gives tokens, for OAUTHBEARER.
        kerberos: Whose ticket, for GSSAPI.
        delegation_token: Name and password are those of a delegation token (KIP-48).
    """

    mechanism: str
    passwords: PasswordSource | None = dataclasses.field(default=None, repr=False)
    tokens: TokenSource | None = dataclasses.field(default=None, repr=False)
    kerberos: Kerberos | None = None
    delegation_token: bool = False


class StaticPassword:
    """A source of always the same name and password. Its repr has the name only."""

    def __init__(self, username: object, password: object) -> None:
        self.username = checked_name(username)
        self._password = checked_password(password)

    def __call__(self) -> tuple[str, Secret]:
        return self.username, self._password

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticPassword) and self() == other()

    def __hash__(self) -> int:
        return hash(self())

    def __repr__(self) -> str:
        return f"StaticPassword({self.username!r})"


def checked_name(username: object) -> str:
    """The name of a user.

    Raises:
        InvalidConfig: It is empty, no str, or has a NUL.
    """
    if not isinstance(username, str) or not username or "\0" in username or not is_utf8(username):
        raise InvalidConfig(
            f"username={username!r} can't be used: allowed is text without NUL characters"
        )
    return username


def checked_password(password: object) -> Secret:
    """A password, which no error shows.

    Raises:
        InvalidConfig: It is empty, no str or Secret, or has a NUL.
    """
    if not isinstance(password, str | Secret):
        raise InvalidConfig(
            f"password is a {type(password).__name__}: allowed are a str and a Secret"
        )
    secret = Secret(password)
    if not secret or "\0" in secret.reveal():
        raise InvalidConfig("password is empty or has a NUL character")
    if not is_utf8(secret.reveal()):
        raise InvalidConfig(
            "password has characters that aren't Unicode, such as of undecoded bytes"
        )
    return secret


def is_utf8(text: str) -> bool:
    """It can be encoded: the error of that would show it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
