"""ACLs: what is refused, what old brokers can't have, and what newer ones may describe."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kclient.admin.acls import (
    AclBinding,
    AclFilter,
    CreateAcls,
    DeleteAcls,
    describe_request,
    read_described,
)
from kclient.errors import InvalidArgument, NoCommonVersion, SecurityDisabled
from kclient.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from kclient.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kclient.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

LITERAL = AclBinding("topic", "orders", "User:alice", "read")
PREFIXED = AclBinding("topic", "orders", "User:alice", "read", pattern_type="prefixed")
CALLS: Any = SimpleNamespace(controller=lambda: 1)
VIEW: Any = None


@pytest.mark.parametrize(
    ("wrong", "allowed"),
    [
        ({"resource_type": "TOPIC"}, "'topic', 'group'"),
        ({"operation": "any"}, "'all', 'read'"),
        ({"permission": "ALLOW"}, "'deny', 'allow'"),
        ({"pattern_type": "match"}, "'literal', 'prefixed'"),
        ({"resource_name": ""}, "not empty"),
        ({"host": None}, "not empty"),
        ({"principal": "alice"}, "'User:alice'"),
    ],
)
def test_a_field_that_can_not_be_right_is_named(wrong: dict[str, Any], allowed: str) -> None:
    fields = {"resource_type": "topic", "resource_name": "t", "principal": "User:a"}
    ((name, value),) = wrong.items()
    with pytest.raises(InvalidArgument) as caught:
        AclBinding(**{**fields, "operation": "read", **wrong})
    assert f"{name}={value!r}: allowed" in str(caught.value)
    assert allowed in str(caught.value)
    if value is not None and value not in ("match", "any"):
        with pytest.raises(InvalidArgument, match=name):
            AclFilter(**wrong)


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_a_filter_can_not_ask_for_what_is_unknown(field: str) -> None:
    wrong: dict[str, Any] = {field: "unknown"}
    with pytest.raises(InvalidArgument, match=field):
        AclFilter(**wrong)


def test_an_old_broker_is_asked_for_literal_ones_apart_from_those_that_it_can_not_have() -> None:
    creating, deleting = CreateAcls(), DeleteAcls()
    assert creating.node_for(LITERAL, CALLS) != creating.node_for(PREFIXED, CALLS)
    any_pattern, match = AclFilter(), AclFilter(pattern_type="match")
    assert deleting.node_for(any_pattern, CALLS) == deleting.node_for(LITERAL, CALLS)
    assert deleting.node_for(any_pattern, CALLS) != deleting.node_for(match, CALLS)
    assert creating.build([LITERAL], 0, VIEW, 1.0).encode(0)
    assert deleting.build([any_pattern, LITERAL], 0, VIEW, 1.0).encode(0)
    assert describe_request(any_pattern, 0).encode(0)
    for refused in (
        lambda: creating.build([PREFIXED], 0, VIEW, 1.0),
        lambda: deleting.build([match], 0, VIEW, 1.0),
        lambda: describe_request(AclFilter(pattern_type="prefixed"), 0),
    ):
        with pytest.raises(NoCommonVersion, match=r"2\.0"):
            refused()


def test_numbers_that_are_not_known_are_read_as_unknown() -> None:
    acl = AclDescription("User:a", "*", 99, 77)
    response = DescribeAclsResponse(resources=[DescribeAclsResource(55, "t", 44, [acl])])
    (found,) = read_described(response)
    words = (found.resource_type, found.pattern_type, found.operation, found.permission)
    assert words == ("unknown",) * 4


def test_results_belong_to_the_keys_in_their_order_and_missing_ones_to_none() -> None:
    failed = AclCreationResult(SecurityDisabled.code, "no authorizer")
    found = CreateAcls().read(CreateAclsResponse(results=[failed]), [LITERAL, PREFIXED])
    assert list(found) == [LITERAL]
    assert isinstance(found[LITERAL], SecurityDisabled)


def test_one_acl_that_could_not_be_deleted_is_the_error_of_its_filter() -> None:
    match = DeleteAclsMatchingAcl(0, None, 2, "t", 3, "User:a", "*", 3, 3)
    broken = DeleteAclsMatchingAcl(54, "not this one", 2, "u", 3, "User:a", "*", 3, 3)
    results = [
        DeleteAclsFilterResult(0, None, [match]),
        DeleteAclsFilterResult(0, None, [match, broken]),
    ]
    keys = [AclFilter(resource_name="t"), AclFilter()]
    found = DeleteAcls().read(DeleteAclsResponse(filter_results=results), keys)
    assert found[keys[0]] == [AclBinding("topic", "t", "User:a", "read")]
    assert "not this one" in str(found[keys[1]])
