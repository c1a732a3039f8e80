"""Users of SCRAM (KIP-554): their credentials, and the requests about them. Sans-IO.

Kafka takes a user only once per request, whatever the mechanism; so the mechanisms go in requests
of their own. A password stays here: the broker gets what PBKDF2 makes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kclient.admin.arguments import each
from kclient.cluster.fanout import ControllerRequest
from kclient.credentials import SCRAM, checked_name, checked_password
from kclient.errors import InvalidArgument, InvalidConfig, KafkaError, broker_error
from kclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kclient.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from kclient.secret import Secret

if TYPE_CHECKING:
    from kclient.cluster.calls import Calls
    from kclient.cluster.view import Cluster
    from kclient.protocol.message import Request
    from kclient.security import ScramMechanism

MIN_ITERATIONS, MAX_ITERATIONS = 4_096, 16_384
"""Kafka's own limits."""
_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A user's password for one mechanism: makes the user, or changes the password.

    Attributes:
        user: Name of the user; Kafka's are ASCII.
        password: The new password, UTF-8; a str becomes a Secret.
        mechanism: ``"SCRAM-SHA-256"`` or ``"SCRAM-SHA-512"``.
        iterations: Of the hash, 4,096 to 16,384: the most that Kafka allows, by default, so that
            guessing from a stolen hash is as slow as it can be.

    Raises:
        InvalidArgument: One of them can't be right.
    """

    user: str
    password: str | Secret
    mechanism: ScramMechanism = "SCRAM-SHA-512"
    iterations: int = MAX_ITERATIONS

    def __post_init__(self) -> None:
        _check(self.user, self.mechanism)
        try:
            object.__setattr__(self, "password", checked_password(self.password))
        except InvalidConfig as bad:
            raise InvalidArgument(str(bad)) from None
        whole = isinstance(self.iterations, int) and not isinstance(self.iterations, bool)
        if not whole or not MIN_ITERATIONS <= self.iterations <= MAX_ITERATIONS:
            raise InvalidArgument(
                f"iterations={self.iterations!r}: allowed is an int from {MIN_ITERATIONS:,} to "
                f"{MAX_ITERATIONS:,}"
            )


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Deletes a user's password for one mechanism.

    Attributes:
        user: Name of the user.
        mechanism: ``"SCRAM-SHA-256"`` or ``"SCRAM-SHA-512"``.

    Raises:
        InvalidArgument: One of them can't be right.
    """

    user: str
    mechanism: ScramMechanism = "SCRAM-SHA-512"

    def __post_init__(self) -> None:
        _check(self.user, self.mechanism)


ScramAlteration: TypeAlias = ScramUpsertion | ScramDeletion


def check_user(user: object) -> str:
    """Return ``user`` if it can be the name of one, else raise InvalidArgument."""
    try:
        return checked_name(user)
    except InvalidConfig as bad:
        raise InvalidArgument(str(bad).replace("username", "user", 1)) from None


def _check(user: object, mechanism: object) -> None:
    check_user(user)
    if mechanism not in SCRAM:
        raise InvalidArgument(f"mechanism={mechanism!r}: allowed are {' and '.join(SCRAM)}")


def checked_alterations(alterations: Iterable[ScramAlteration]) -> list[ScramAlteration]:
    """Check the argument of ``alter_user_scram_credentials``."""
    chosen: dict[tuple[str, str], ScramAlteration] = {}
    for one in each("alterations", alterations):
        if not isinstance(one, ScramAlteration):
            raise InvalidArgument(
                f"alterations holds a {type(one).__name__}: allowed are ScramUpsertion and "
                "ScramDeletion"
            )
        if (one.user, one.mechanism) in chosen:
            raise InvalidArgument(f"alterations holds {one.mechanism} of user {one.user!r} twice")
        chosen[one.user, one.mechanism] = one
    return list(chosen.values())


def salted(salts: Mapping[ScramUpsertion, bytes]) -> dict[ScramUpsertion, tuple[bytes, bytes]]:
    """Salt and salted password of each. Slow on purpose: not for the loop's thread."""
    return {
        one: (
            salt,
            hashlib.pbkdf2_hmac(
                SCRAM[one.mechanism],
                Secret(one.password).reveal().encode(),
                salt,
                one.iterations,
            ),
        )
        for one, salt in salts.items()
    }


class AlterScramCredentials(ControllerRequest):
    """Sets and deletes passwords; the keys are the alterations.

    Args:
        salted: Salt and salted password of each upsertion.
    """

    what = "AlterUserScramCredentials"
    api: type[Request] = AlterUserScramCredentialsRequest

    def __init__(self, salted: Mapping[ScramUpsertion, tuple[bytes, bytes]]) -> None:
        self._salted = salted

    def node_for(self, key: ScramAlteration, calls: Calls) -> tuple[int, Hashable]:
        """The controller; a request has each user once."""
        return calls.controller(), key.mechanism

    def build(
        self, keys: Sequence[ScramAlteration], version: int, view: Cluster, seconds: float
    ) -> AlterUserScramCredentialsRequest:
        """The request for these, all of one mechanism."""
        return AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(key.user, _NUMBERS[key.mechanism])
                for key in keys
                if isinstance(key, ScramDeletion)
            ],
            upsertions=[
                ScramCredentialUpsertion(
                    key.user, _NUMBERS[key.mechanism], key.iterations, *self._salted[key]
                )
                for key in keys
                if isinstance(key, ScramUpsertion)
            ],
        )

    def read(
        self, response: AlterUserScramCredentialsResponse, keys: Sequence[ScramAlteration]
    ) -> dict[ScramAlteration, KafkaError | None]:
        """None, or the error, of each."""
        by_user = {key.user: key for key in keys}
        found: dict[ScramAlteration, KafkaError | None] = {}
        for result in response.results:
            if (key := by_user.get(result.user)) is None:
                continue
            found[key] = None
            if result.error_code:
                found[key] = broker_error(
                    result.error_code,
                    f"altering {key.mechanism} of user {key.user} failed",
                    broker_message=result.error_message,
                )
        return found


class DescribeScramCredentials(ControllerRequest):
    """Describes the credentials of users; the keys are their names."""

    what = "DescribeUserScramCredentials"
    api: type[Request] = DescribeUserScramCredentialsRequest

    def build(
        self, keys: Sequence[str], version: int, view: Cluster, seconds: float
    ) -> DescribeUserScramCredentialsRequest:
        """The request for these."""
        return DescribeUserScramCredentialsRequest([UserName(key) for key in keys])

    def read(
        self, response: DescribeUserScramCredentialsResponse, keys: Sequence[str]
    ) -> dict[str, dict[str, int] | KafkaError]:
        """The mechanisms with their iterations, or the error, of each."""
        if (error := describe_error(response)) is not None:
            return dict.fromkeys(keys, error)
        return {result.user: _described(result) for result in response.results}


def describe_error(response: DescribeUserScramCredentialsResponse) -> KafkaError | None:
    """Return the error of the response as a whole."""
    if not response.error_code:
        return None
    return broker_error(
        response.error_code,
        "describing the users of SCRAM failed",
        broker_message=response.error_message,
    )


def read_described(
    response: DescribeUserScramCredentialsResponse,
) -> dict[str, dict[str, int] | KafkaError]:
    """The mechanisms with their iterations of all users, by name."""
    ordered = sorted(response.results, key=lambda result: result.user)
    return {result.user: _described(result) for result in ordered}


def _described(result: DescribeUserScramCredentialsResult) -> dict[str, int] | KafkaError:
    if result.error_code:
        return broker_error(
            result.error_code,
            f"describing user {result.user} failed",
            broker_message=result.error_message,
        )
    return {
        _NAMES.get(info.mechanism, f"unknown ({info.mechanism})"): info.iterations
        for info in result.credential_infos
    }
