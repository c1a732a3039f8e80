"""Short builders of requests about ACLs."""

from __future__ import annotations

from kclient.protocol.message import Request
from kclient.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kclient.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kclient.protocol.messages.describe_acls import DescribeAclsRequest
from kclient.testing.authorizer import AclOperation, PatternType, PermissionType, ResourceType

NEWEST = {29: 3, 30: 3, 31: 3}
"""The newest version of each API, by API key."""
CAROL = "User:carol"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
LITERAL, ANY = PatternType.LITERAL, PatternType.ANY
DENY, ALLOW = PermissionType.DENY, PermissionType.ALLOW


def acl(
    name: str,
    operation: int = READ,
    kind: int = TOPIC,
    *,
    pattern: int = LITERAL,
    principal: str = CAROL,
    host: str = "*",
    permission: int = ALLOW,
) -> AclCreation:
    """One to create."""
    return AclCreation(kind, name, pattern, principal, host, operation, permission)


def create(*acls: AclCreation) -> CreateAclsRequest:
    """Create these."""
    return CreateAclsRequest(list(acls))


def describe(
    name: str | None = None,
    kind: int = ANY,
    *,
    pattern: int = ANY,
    principal: str | None = CAROL,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> DescribeAclsRequest:
    """Describe what passes the filter."""
    return DescribeAclsRequest(kind, name, pattern, principal, host, operation, permission)


def one_filter(
    name: str | None = None,
    kind: int = ANY,
    *,
    pattern: int = ANY,
    principal: str | None = CAROL,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> DeleteAclsFilter:
    """A filter of a deletion."""
    return DeleteAclsFilter(kind, name, pattern, principal, host, operation, permission)


def delete(*filters: DeleteAclsFilter) -> DeleteAclsRequest:
    """Delete what passes any filter."""
    return DeleteAclsRequest(list(filters))


def sample(api_key: int) -> Request:
    """A valid request of that API."""
    requests: dict[int, Request] = {
        29: describe(),
        30: create(acl("t")),
        31: delete(one_filter("t")),
    }
    return requests[api_key]
