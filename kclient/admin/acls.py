"""ACLs: their values, and the requests that create, describe and delete them. Sans-IO.

Words stand for Kafka's numbers. A number that this release doesn't know is read as ``"unknown"``,
which can't be written. Before Apache Kafka 2.0 (version 0) all patterns are literal: what needs
others is an error, never another ACL than the one that was meant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from kclient.admin.arguments import each
from kclient.cluster.fanout import ControllerRequest
from kclient.errors import InvalidArgument, KafkaError, NoCommonVersion, ProtocolError, broker_error
from kclient.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kclient.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kclient.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from kclient.cluster.calls import Calls
    from kclient.cluster.view import Cluster
    from kclient.protocol.message import Request

ResourceType: TypeAlias = Literal[
    "topic", "group", "cluster", "transactional_id", "delegation_token", "user", "unknown"
]
PatternType: TypeAlias = Literal["literal", "prefixed", "unknown"]
Operation: TypeAlias = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
    "unknown",
]
Permission: TypeAlias = Literal["allow", "deny", "unknown"]

T = TypeVar("T")
UNKNOWN = "unknown"
_ANY, _MATCH = 1, 2
_LITERAL = 3
_NUMBERS: dict[str, dict[str, int]] = {
    "resource_type": {
        "topic": 2,
        "group": 3,
        "cluster": 4,
        "transactional_id": 5,
        "delegation_token": 6,
        "user": 7,
    },
    "pattern_type": {"literal": _LITERAL, "prefixed": 4},
    "operation": {
        "all": 2,
        "read": 3,
        "write": 4,
        "create": 5,
        "delete": 6,
        "alter": 7,
        "describe": 8,
        "cluster_action": 9,
        "describe_configs": 10,
        "alter_configs": 11,
        "idempotent_write": 12,
        "create_tokens": 13,
        "describe_tokens": 14,
        "two_phase_commit": 15,
    },
    "permission": {"deny": 2, "allow": 3},
}
"""Kafka's numbers, by field and word."""
_WORDS = {
    field: {number: word for word, number in numbers.items()} for field, numbers in _NUMBERS.items()
}
_TEXTS = ("resource_name", "principal", "host")


@dataclass(frozen=True, slots=True)
class AclBinding:
    """A rule: who may, or may not, do what with which resource.

    Attributes:
        resource_type: ``"topic"``, ``"group"``, ``"cluster"``, ``"transactional_id"``,
            ``"delegation_token"`` or ``"user"``.
        resource_name: Its name, or what the names begin with; ``"*"`` for all of that type. The
            cluster's is ``"kafka-cluster"``.
        principal: Who, with its type: ``"User:alice"``; ``"User:*"`` for all.
        operation: ``"read"``, ``"write"``, ``"describe"`` and so on, by Kafka's names in lower
            case; ``"all"`` for all.
        permission: ``"deny"`` wins over ``"allow"``.
        host: IP address from where; ``"*"`` for all.
        pattern_type: ``"literal"`` or ``"prefixed"``, for ``resource_name``.

    Raises:
        InvalidArgument: A word that isn't one of those, or a text that is empty.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: Operation
    permission: Permission = "allow"
    host: str = "*"
    pattern_type: PatternType = "literal"

    def __post_init__(self) -> None:
        for field in _NUMBERS:
            _check_word(field, getattr(self, field), (*_NUMBERS[field], UNKNOWN))
        for field in _TEXTS:
            _check_text(field, getattr(self, field))


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs are meant; None is any.

    Attributes:
        resource_type, resource_name, principal, operation, permission, host: As of ``AclBinding``.
            A name is compared as it is: ``"*"`` is the ACL for all, not all ACLs.
        pattern_type: ``"literal"`` or ``"prefixed"``; ``"match"`` for all ACLs that concern the
            resource called ``resource_name``, with prefixed ones and ``"*"``.

    Raises:
        InvalidArgument: A word that isn't one of those, or a text that is empty.
    """

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    principal: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    host: str | None = None
    pattern_type: PatternType | Literal["match"] | None = None

    def __post_init__(self) -> None:
        for field in _NUMBERS:
            if (word := getattr(self, field)) is not None:
                also = ("match",) if field == "pattern_type" else ()
                _check_word(field, word, (*_NUMBERS[field], *also))
        for field in _TEXTS:
            if (text := getattr(self, field)) is not None:
                _check_text(field, text)


AclRef: TypeAlias = AclFilter | AclBinding
"""Some ACLs, or exactly one."""


def _check_word(field: str, word: object, allowed: Sequence[str]) -> None:
    if word not in allowed:
        shown = ", ".join(repr(one) for one in allowed if one != UNKNOWN)
        raise InvalidArgument(f"{field}={word!r}: allowed are {shown}")


def _check_text(field: str, text: object) -> None:
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"{field}={text!r}: allowed is a str that is not empty")
    if field == "principal" and ":" not in text:
        raise InvalidArgument(f"principal={text!r}: allowed is a type and a name: 'User:{text}'")


def checked(name: str, acls: Iterable[T], kind: type[T] | UnionType, allowed: str) -> list[T]:
    """Check the argument of ``create_acls`` or ``delete_acls``, and keep each once."""
    found: dict[T, None] = {}
    for acl in each(name, acls):
        if not isinstance(acl, kind):
            raise InvalidArgument(f"{name} holds {acl!r}: allowed is {allowed}")
        for field in _NUMBERS:
            if getattr(acl, field) == UNKNOWN:
                raise InvalidArgument(
                    f"{name} holds {acl}, which has {field}={UNKNOWN!r}: this release doesn't know "
                    "what the broker has there"
                )
        found[acl] = None
    return list(found)


class CreateAcls(ControllerRequest):
    """Creates ACLs; the keys are these."""

    what = "CreateAcls"
    api: type[Request] = CreateAclsRequest

    def node_for(self, key: AclBinding, calls: Calls) -> tuple[int, Hashable]:
        """The controller; an old one can have the literal ones at least."""
        return calls.controller(), key.pattern_type

    def build(
        self, keys: Sequence[AclBinding], version: int, view: Cluster, seconds: float
    ) -> CreateAclsRequest:
        """The request for these."""
        return CreateAclsRequest(
            [
                AclCreation(
                    resource_type=_number("resource_type", key),
                    resource_name=key.resource_name,
                    resource_pattern_type=_pattern(key, version),
                    principal=key.principal,
                    host=key.host,
                    operation=_number("operation", key),
                    permission_type=_number("permission", key),
                )
                for key in keys
            ]
        )

    def read(
        self, response: CreateAclsResponse, keys: Sequence[AclBinding]
    ) -> dict[AclBinding, KafkaError | None]:
        """None, or the error, of each; the results are in the order of the request."""
        return {
            key: broker_error(
                result.error_code, f"creating {key} failed", broker_message=result.error_message
            )
            if result.error_code
            else None
            for key, result in zip(keys, response.results, strict=False)
        }


class DeleteAcls(ControllerRequest):
    """Deletes ACLs; the keys are filters, or ACLs."""

    what = "DeleteAcls"
    api: type[Request] = DeleteAclsRequest

    def node_for(self, key: AclRef, calls: Calls) -> tuple[int, Hashable]:
        """The controller; an old one can have filters for literal patterns at least."""
        return calls.controller(), key.pattern_type in (None, "literal")

    def build(
        self, keys: Sequence[AclRef], version: int, view: Cluster, seconds: float
    ) -> DeleteAclsRequest:
        """The request for these."""
        return DeleteAclsRequest([DeleteAclsFilter(**_filter_fields(key, version)) for key in keys])

    def read(
        self, response: DeleteAclsResponse, keys: Sequence[AclRef]
    ) -> dict[AclRef, list[AclBinding] | KafkaError]:
        """What was deleted by each, or its error; the results are in the order of the request."""
        found: dict[AclRef, list[AclBinding] | KafkaError] = {}
        for key, result in zip(keys, response.filter_results, strict=False):
            errors = [(result.error_code, result.error_message)]
            errors += [(acl.error_code, acl.error_message) for acl in result.matching_acls]
            code, message = next((one for one in errors if one[0]), (0, None))
            if code:
                found[key] = broker_error(code, f"deleting {key} failed", broker_message=message)
            else:
                found[key] = [
                    _binding(acl.resource_type, acl.resource_name, acl.pattern_type, acl)
                    for acl in result.matching_acls
                ]
        return found


def describe_request(acl_filter: AclFilter, version: int) -> DescribeAclsRequest:
    """The request for the ACLs that match."""
    return DescribeAclsRequest(**_filter_fields(acl_filter, version))


def describe_error(response: DescribeAclsResponse) -> KafkaError | None:
    """Return the error of the response as a whole."""
    if not response.error_code:
        return None
    return broker_error(
        response.error_code, "describing ACLs failed", broker_message=response.error_message
    )


def read_described(response: DescribeAclsResponse) -> list[AclBinding]:
    """Read the ACLs of a response."""
    return [
        _binding(one.resource_type, one.resource_name, one.pattern_type, acl)
        for one in response.resources
        for acl in one.acls
    ]


def _filter_fields(key: AclRef, version: int) -> Mapping[str, Any]:
    return {
        "resource_type_filter": _number("resource_type", key),
        "resource_name_filter": key.resource_name,
        "pattern_type_filter": _pattern(key, version),
        "principal_filter": key.principal,
        "host_filter": key.host,
        "operation": _number("operation", key),
        "permission_type": _number("permission", key),
    }


def _number(field: str, key: AclRef) -> int:
    word = getattr(key, field)
    return _ANY if word is None else _NUMBERS[field][word]


def _pattern(key: AclRef, version: int) -> int:
    """The number of the pattern's type; version 0 has no field for it, and means literal ones."""
    if version >= 1:
        return _MATCH if key.pattern_type == "match" else _number("pattern_type", key)
    if key.pattern_type not in (None, "literal"):
        raise NoCommonVersion(
            f"version {version} of the API has no ACLs with pattern_type={key.pattern_type!r}",
            hint="use Apache Kafka 2.0 or newer",
        )
    return _LITERAL


def _binding(
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    acl: AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    words: dict[str, Any] = {
        field: _WORDS[field].get(number, UNKNOWN)
        for field, number in {
            "resource_type": resource_type,
            "pattern_type": pattern_type,
            "operation": acl.operation,
            "permission": acl.permission_type,
        }.items()
    }
    try:
        return AclBinding(
            resource_name=resource_name, principal=acl.principal, host=acl.host, **words
        )
    except InvalidArgument as bad:
        raise ProtocolError(f"the broker reports an ACL that is none: {bad}") from None
