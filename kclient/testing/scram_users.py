"""``ScramUsers``: the SCRAM credentials of a cluster, and how requests change them (KIP-554).

A test's users (``ClusterSecurity``) are there from the start; what requests set or delete is in the
metadata image and counts instead, until ``set_password`` changes that user. Codes and texts are
Kafka's. Sans-IO.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kclient.testing.delegation_tokens import DelegationToken, DelegationTokens
from kclient.testing.responses import ApiError
from kclient.testing.sasl import ITERATIONS, ScramCredential, scram_credential

if TYPE_CHECKING:
    from kclient.testing.cluster_security import ClusterSecurity
    from kclient.testing.image import MetadataImage

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_MAX_ITERATIONS = 16_384

Key: TypeAlias = tuple[str, str]
"""User and mechanism."""
Alteration: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


@dataclass(frozen=True, slots=True)
class ScramRecord:
    """What a request set.

    Attributes:
        credential: None if it was deleted.
        revision: Of the user's password in ``ClusterSecurity``, at that time.
    """

    credential: ScramCredential | None
    revision: int


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """The users of one image."""

    image: MetadataImage
    security: ClusterSecurity | None

    def credential(self, username: str, mechanism: str) -> ScramCredential | None:
        """What SCRAM keeps of a user's password; None if there is none."""
        record = self.image.scram.get((username, mechanism))
        if record is not None and record.revision == self._revision(username):
            return record.credential
        if self.security is None or mechanism not in self.security.mechanisms:
            return None
        return self.security.credential(username, mechanism)

    def token(
        self, token_id: str, mechanism: str
    ) -> tuple[DelegationToken, ScramCredential] | None:
        """A delegation token, and what SCRAM keeps of it; None if there is none."""
        token = self.image.tokens.get(token_id)
        if token is None:
            return None
        return token, DelegationTokens(self.image).credential(token_id, mechanism)

    def names(self) -> list[str]:
        """All users that have a credential."""
        known = dict.fromkeys(user for user, _ in self.image.scram)
        if self.security is not None:
            known |= dict.fromkeys(self.security.usernames)
        return [one for one in known if self.described(one)]

    def described(self, username: str) -> list[tuple[int, int]]:
        """Numbers of the mechanisms that a user has credentials of, and their iterations."""
        found = ((number, self.credential(username, name)) for number, name in MECHANISMS.items())
        return [(number, one.iterations) for number, one in found if one is not None]

    def _revision(self, username: str) -> int:
        return 0 if self.security is None else self.security.revision(username)

    def altered(
        self,
        deletions: Iterable[ScramCredentialDeletion],
        upsertions: Iterable[ScramCredentialUpsertion],
    ) -> tuple[dict[Key, ScramRecord], dict[str, ApiError | None]]:
        """Check what a request asks for, user by user; the same one may be named once.

        Returns:
            The records to write, and the outcome for each user: None without an error.
        """
        wanted: dict[str, Alteration] = {}
        refused: dict[str, ApiError | None] = {}
        for one in itertools.chain[Alteration](deletions, upsertions):
            if one.name in refused:
                continue
            if wanted.pop(one.name, None) is not None:
                refused[one.name] = ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
                continue
            try:
                self._check(one)
            except ApiError as error:
                refused[one.name] = error
            else:
                wanted[one.name] = one
        records = {
            (name, MECHANISMS[one.mechanism]): ScramRecord(_credential(one), self._revision(name))
            for name, one in wanted.items()
        }
        return records, {**dict.fromkeys(wanted), **refused}

    def _check(self, one: Alteration) -> None:
        if not one.name:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if one.mechanism not in MECHANISMS:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(one, ScramCredentialDeletion):
            if self.credential(one.name, MECHANISMS[one.mechanism]) is None:
                raise ApiError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
        elif not ITERATIONS <= one.iterations <= _MAX_ITERATIONS:
            amount = "few" if one.iterations < ITERATIONS else "many"
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {amount} iterations")


def _credential(wanted: Alteration) -> ScramCredential | None:
    if isinstance(wanted, ScramCredentialDeletion):
        return None
    return scram_credential(
        MECHANISMS[wanted.mechanism],
        bytes(wanted.salted_password),
        bytes(wanted.salt),
        wanted.iterations,
    )
