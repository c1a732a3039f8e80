"""Quotas of clients (KIP-546, KIP-612): their values, and the requests about them. Sans-IO."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

from kclient.cluster.fanout import ControllerRequest
from kclient.errors import InvalidArgument, KafkaError, broker_error
from kclient.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from kclient.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from kclient.cluster.view import Cluster
    from kclient.protocol.message import Request


class _Special(enum.Enum):
    """What an entity may have in place of a name. The values are DescribeClientQuotas' numbers."""

    DEFAULT = 1
    ANY = 2

    def __repr__(self) -> str:
        return f"QuotaEntity.{self.name}"


EntityName: TypeAlias = str | _Special | None

_EXACT = 0
_TOO_MUCH = 2**63
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Fields, and what Kafka calls them."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The entity that a quota is for: a user, a client id, both together, or an address.

    A quota of ``QuotaEntity(user="alice", client_id="loader")`` is for what alice's clients of that
    id do; the most specific one that there is applies.

    Attributes:
        user: Name of the principal, without ``User:``; ``QuotaEntity.DEFAULT`` for all users
            without a quota of their own; None where it isn't about users.
        client_id: Likewise, by the ``client_id`` setting.
        ip: Likewise, by the address that connections come from; not beside the others.

    Raises:
        InvalidArgument: All are None, or one is no name.
    """

    DEFAULT: ClassVar[Literal[_Special.DEFAULT]] = _Special.DEFAULT
    """Those that have no quota of their own."""
    ANY: ClassVar[Literal[_Special.ANY]] = _Special.ANY
    """All that have a quota of their own; only for ``describe_client_quotas``."""

    user: EntityName = None
    client_id: EntityName = None
    ip: EntityName = None

    def __post_init__(self) -> None:
        for field in _KINDS:
            name = getattr(self, field)
            if name is not None and not (isinstance(name, str | _Special) and name):
                raise InvalidArgument(
                    f"{field}={name!r}: allowed are a name, QuotaEntity.DEFAULT, for a description "
                    "QuotaEntity.ANY, and None"
                )
        if not self.parts:
            raise InvalidArgument("a QuotaEntity needs user, client_id or ip")

    @property
    def parts(self) -> dict[str, str | _Special]:
        """What is given, by Kafka's names of the fields."""
        named = {kind: getattr(self, field) for field, kind in _KINDS.items()}
        return {kind: name for kind, name in named.items() if name is not None}


Quotas: TypeAlias = Mapping[str, float | None]
"""Limits by their names, such as ``producer_byte_rate``; None removes one."""


class AlterClientQuotas(ControllerRequest):
    """Sets and removes quotas; the keys are entities."""

    what = "AlterClientQuotas"
    api: type[Request] = AlterClientQuotasRequest

    def __init__(self, alterations: Mapping[QuotaEntity, Quotas], *, validate_only: bool) -> None:
        self._alterations = alterations
        self._validate_only = validate_only

    def build(
        self, keys: Sequence[QuotaEntity], version: int, view: Cluster, seconds: float
    ) -> AlterClientQuotasRequest:
        """The request for these."""
        return AlterClientQuotasRequest([self._entry(key) for key in keys], self._validate_only)

    def _entry(self, key: QuotaEntity) -> RequestEntryData:
        return RequestEntryData(
            entity=[
                RequestEntityData(kind, name if isinstance(name, str) else None)
                for kind, name in key.parts.items()
            ],
            ops=[
                OpData(name, 0.0 if limit is None else limit, limit is None)
                for name, limit in self._alterations[key].items()
            ],
        )

    def read(
        self, response: AlterClientQuotasResponse, keys: Sequence[QuotaEntity]
    ) -> dict[QuotaEntity, KafkaError | None]:
        """None, or the error, of each."""
        found: dict[QuotaEntity, KafkaError | None] = {}
        for entry in response.entries:
            key = _entity(entry.entity)
            if key is None:
                continue
            found[key] = None
            if entry.error_code:
                found[key] = broker_error(
                    entry.error_code,
                    f"altering the quotas of {key} failed",
                    broker_message=entry.error_message,
                )
        return found


def describe_request(entity: QuotaEntity | None, *, strict: bool) -> DescribeClientQuotasRequest:
    """The request for the quotas of entities that match."""
    components = []
    for kind, name in entity.parts.items() if entity is not None else ():
        if isinstance(name, str):
            components.append(ComponentData(kind, _EXACT, name))
        else:
            components.append(ComponentData(kind, name.value, None))
    return DescribeClientQuotasRequest(components, strict)


def describe_error(response: DescribeClientQuotasResponse) -> KafkaError | None:
    """Return the error of the response as a whole."""
    if not response.error_code:
        return None
    return broker_error(
        response.error_code, "describing quotas failed", broker_message=response.error_message
    )


def read_described(
    response: DescribeClientQuotasResponse,
) -> dict[QuotaEntity, dict[str, float]]:
    """Read the quotas of each entity; those of kinds that this release doesn't know left out."""
    found = {}
    for entry in response.entries or ():
        if (entity := _entity(entry.entity)) is not None:
            found[entity] = {one.key: one.value for one in entry.values}
    return found


class _Part(Protocol):
    entity_type: str
    entity_name: str | None


def _entity(parts: Iterable[_Part]) -> QuotaEntity | None:
    fields = {kind: field for field, kind in _KINDS.items()}
    names: dict[str, EntityName] = {}
    for part in parts:
        if part.entity_type not in fields:
            return None
        names[fields[part.entity_type]] = part.entity_name or QuotaEntity.DEFAULT
    return QuotaEntity(**names) if names else None


def checked_alterations(alterations: object) -> dict[QuotaEntity, dict[str, float | None]]:
    """Check the argument of ``alter_client_quotas``."""
    if not isinstance(alterations, Mapping):
        raise InvalidArgument("alterations must be a mapping of QuotaEntity to quotas by name")
    return {_checked_key(key): _checked_quotas(key, quotas) for key, quotas in alterations.items()}


def _checked_key(key: object) -> QuotaEntity:
    if not isinstance(key, QuotaEntity):
        raise InvalidArgument(f"alterations has the key {key!r}: allowed is QuotaEntity")
    if QuotaEntity.ANY in key.parts.values():
        raise InvalidArgument(f"alterations has {key}: ANY is for descriptions, give a name")
    return key


def _checked_quotas(key: object, quotas: object) -> dict[str, float | None]:
    if not isinstance(quotas, Mapping):
        raise InvalidArgument(f"alterations[{key!r}]={quotas!r}: allowed is a mapping")
    checked: dict[str, float | None] = {}
    for name, limit in quotas.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"alterations[{key!r}] has the quota {name!r}: allowed is a str")
        real = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (real and 0 <= limit < _TOO_MUCH):
            raise InvalidArgument(
                f"alterations[{key!r}][{name!r}]={limit!r}: allowed are numbers from 0, and None "
                "to remove it"
            )
        checked[name] = None if limit is None else float(limit)
    return checked
