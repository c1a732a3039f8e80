"""``Authorizer``: whether a client may do an operation on a resource, by ACLs and super users.

The rules are those of Kafka's ``StandardAuthorizer``: a DENY wins over any ALLOW, and without a
matching ACL an operation is denied. The ACLs are part of the cluster's metadata. Sans-IO.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kclient.error_codes import ErrorCode

ANONYMOUS = "ANONYMOUS"
"""Name of a client that didn't authenticate itself."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of the type CLUSTER."""
_HOST = "127.0.0.1"
"""Address of all clients of the embedded cluster."""
_WILDCARD = "*"
_EVERYONE = "User:*"
_ANY_TOPIC = "hardcode"
"""The name by which Kafka finds out whether all resources are allowed."""


class AclOperation(enum.IntEnum):
    """What may be allowed or denied, by Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(enum.IntEnum):
    """What ACLs are for, by Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How the name of an ACL is compared with that of a resource, by Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(enum.IntEnum):
    """What an ACL does, by Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = AclOperation
_IMPLIED_BY: dict[int, tuple[AclOperation, ...]] = {
    _O.DESCRIBE: (_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER),
    _O.DESCRIBE_CONFIGS: (_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
}
"""Operations that allow others, too; a DENY is for its own operation alone."""
_OF_TOPICS = (_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE)
_CONFIGS = (_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (*_OF_TOPICS, *_CONFIGS),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION),
        *(*_CONFIGS, _O.IDEMPOTENT_WRITE),
    ),
}
"""The operations that ``authorized_operations`` of responses may show."""
ALL_BITS = {kind: sum(1 << one for one in operations) for kind, operations in OPERATIONS.items()}
"""The same as bits."""
AUTHORIZATION_FAILED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Acl(NamedTuple):
    """One ACL; the enums' numbers are as in requests."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def is_for_all(self) -> bool:
        """Whether it is for all resources of its type."""
        return self.pattern_type == PatternType.LITERAL and self.name == _WILDCARD

    def covers(self, name: str) -> bool:
        """Whether it is for the resource of that name."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, _WILDCARD)

    def is_about(self, principal: str, kind: ResourceType) -> bool:
        """Whether it is for a client, and for resources of a type."""
        return (
            self.resource_type == kind
            and self.principal in (principal, _EVERYONE)
            and self.host in (_HOST, _WILDCARD)
        )


class Authorizer:
    """Decides by ACLs, and by its super users, who may do everything.

    Args:
        super_users: Names of users.
    """

    def __init__(self, super_users: Iterable[str]) -> None:
        self._super_users = frozenset(f"User:{name}" for name in super_users)

    def allows(
        self,
        acls: Iterable[Acl],
        principal: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
    ) -> bool:
        """Whether a client, ``User:name``, may do an operation on a resource."""
        if principal in self._super_users:
            return True
        allowing = _IMPLIED_BY.get(operation, (operation,))
        allowed = False
        for one in acls:
            if not (one.is_about(principal, kind) and one.covers(name)):
                continue
            if one.permission_type == PermissionType.DENY:
                if one.operation in (operation, AclOperation.ALL):
                    return False
            elif one.operation in (*allowing, AclOperation.ALL):
                allowed = True
        return allowed

    def allows_on_any(
        self,
        acls: Collection[Acl],
        principal: str,
        operation: AclOperation,
        kind: ResourceType,
    ) -> bool:
        """Whether there may be a resource of a type on which a client may do an operation."""
        if self.allows(acls, principal, operation, kind, _ANY_TOPIC):
            return True
        of_client = [
            one
            for one in acls
            if one.is_about(principal, kind) and one.operation in (operation, AclOperation.ALL)
        ]
        denied = [one for one in of_client if one.permission_type == PermissionType.DENY]
        if any(one.is_for_all for one in denied):
            return False
        allowed = [one for one in of_client if one.permission_type == PermissionType.ALLOW]
        return any(one.is_for_all or not _is_shadowed(one, denied) for one in allowed)


def _is_shadowed(allowed: Acl, denied: Iterable[Acl]) -> bool:
    """Whether what an ACL allows is denied as a whole."""
    return any(
        allowed.name.startswith(one.name)
        if one.pattern_type == PatternType.PREFIXED
        else allowed.pattern_type == PatternType.LITERAL and allowed.name == one.name
        for one in denied
    )


class AclFilter(NamedTuple):
    """A filter of ACLs; None, or ANY, is for all."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        """Whether an ACL is one of those."""
        return (
            self.resource_type in (acl.resource_type, ResourceType.ANY)
            and self.principal in (acl.principal, None)
            and self.host in (acl.host, None)
            and self.operation in (acl.operation, AclOperation.ANY)
            and self.permission_type in (acl.permission_type, PermissionType.ANY)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type == PatternType.MATCH:
            return self.name is None or acl.covers(self.name)
        return self.pattern_type in (acl.pattern_type, PatternType.ANY) and self.name in (
            acl.name,
            None,
        )
