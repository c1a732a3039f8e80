"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), for clusters with an authorizer."""

from __future__ import annotations

import enum

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kclient.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kclient.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kclient.testing.authorizer import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from kclient.testing.request_context import RequestContext
from kclient.testing.responses import ApiError, CloseConnection, bad_request


def describe(call: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Describe the ACLs that pass a filter, by resource."""
    wanted = _filter(request)
    try:
        _check(call, AclOperation.DESCRIBE)
    except ApiError as refused:
        return DescribeAclsResponse(error_code=refused.code, error_message=refused.message)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for one in call.image.acls:
        if wanted.matches(one):
            key = one.resource_type, one.name, one.pattern_type
            resource = resources.setdefault(key, DescribeAclsResource(*key))
            resource.acls.append(
                AclDescription(one.principal, one.host, one.operation, one.permission_type)
            )
    return DescribeAclsResponse(resources=list(resources.values()))


def create(call: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create each valid ACL; one that there is already stays."""
    wanted = [_acl(one) for one in request.creations]
    results: list[AclCreationResult] = []
    valid: list[Acl] = []
    try:
        _check(call, AclOperation.ALTER)
        if any(_is_filter(one) for one in wanted):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka's IllegalArgumentException
        controller = call.broker.controller()
        for one in wanted:
            results.append(_creation(one))
            if not results[-1].error_code:
                valid.append(one)
        controller.set_acls((*controller.image.acls, *valid))
        call.check_fault(after=True)
    except ApiError as refused:
        results = [AclCreationResult(refused.code, refused.message) for _ in wanted]
    return CreateAclsResponse(results=results)


def _creation(acl: Acl) -> AclCreationResult:
    try:
        _check_new(acl)
    except ApiError as refused:
        return AclCreationResult(refused.code, refused.message)
    return AclCreationResult()


def delete(call: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the ACLs that pass any filter; each filter gets those that it is for."""
    filters = [_filter(one) for one in request.filters]
    doomed: set[Acl] = set()
    try:
        _check(call, AclOperation.ALTER)
        controller = call.broker.controller()
        acls = controller.image.acls
        results = [_deletion(one, acls, doomed) for one in filters]
        controller.set_acls(one for one in acls if one not in doomed)
        call.check_fault(after=True)
    except ApiError as refused:
        results = [DeleteAclsFilterResult(refused.code, refused.message) for _ in filters]
    return DeleteAclsResponse(filter_results=results)


def _deletion(wanted: AclFilter, acls: tuple[Acl, ...], doomed: set[Acl]) -> DeleteAclsFilterResult:
    unknown = _unknown(wanted)
    if unknown is not None:
        part = "patternFilter" if unknown in ("resourceType", "patternType") else "entryFilter"
        return DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, f"Unknown {part}.")
    found = [one for one in acls if wanted.matches(one)]
    doomed.update(found)
    matching = [DeleteAclsMatchingAcl(ErrorCode.NONE, None, *one) for one in found]
    return DeleteAclsFilterResult(ErrorCode.NONE, None, matching)


def _check(call: RequestContext, operation: AclOperation) -> None:
    """Raise ApiError unless ACLs are in use, and the client may do that with them."""
    call.check_fault()
    if call.authorizer is None:
        where = " on the broker" if operation is AclOperation.DESCRIBE else "."
        raise ApiError(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{where}")
    if not call.allows(operation, ResourceType.CLUSTER):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{call.principal} is not authorized."
        )


def _acl(one: AclCreation) -> Acl:
    acl = Acl(
        one.resource_type,
        one.resource_name,
        one.resource_pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )
    _check_parsed(acl)
    return acl


def _filter(one: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    wanted = AclFilter(
        one.resource_type_filter,
        one.resource_name_filter,
        one.pattern_type_filter,
        one.principal_filter,
        one.host_filter,
        one.operation,
        one.permission_type,
    )
    _check_parsed(wanted)
    return wanted


def _check_parsed(one: Acl | AclFilter) -> None:
    """Raise CloseConnection if there is an UNKNOWN element: Kafka can't parse such a request."""
    if 0 in (one.resource_type, one.pattern_type, one.operation, one.permission_type):
        raise CloseConnection("an UNKNOWN element of an ACL")


def _check_new(acl: Acl) -> None:
    """Raise ApiError, in Kafka's words, unless that ACL can be created."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise bad_request(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise bad_request("Invalid empty resource name")
    unknown = _unknown(acl)
    if unknown is not None:
        raise bad_request(f"Invalid {unknown} UNKNOWN")
    if ":" not in acl.principal:
        raise bad_request(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )


def _is_filter(acl: Acl) -> bool:
    """Whether it has an element that only filters may have."""
    return (
        acl.resource_type == ResourceType.ANY
        or acl.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == AclOperation.ANY
        or acl.permission_type == PermissionType.ANY
    )


def _unknown(one: Acl | AclFilter) -> str | None:
    """The first element whose number is unknown, as Kafka names it; None if there is none."""
    elements: dict[str, tuple[type[enum.IntEnum], int]] = {
        "resourceType": (ResourceType, one.resource_type),
        "patternType": (PatternType, one.pattern_type),
        "operation": (AclOperation, one.operation),
        "permissionType": (PermissionType, one.permission_type),
    }
    for name, (kind, number) in elements.items():
        if number not in tuple(kind):
            return name
    return None
