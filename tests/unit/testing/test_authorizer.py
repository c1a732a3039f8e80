"""Which ACLs allow what; tests/security compares more of it with Apache Kafka."""

from __future__ import annotations

import pytest

from kclient.testing.authorizer import (
    Acl,
    AclFilter,
    AclOperation,
    Authorizer,
    PatternType,
    PermissionType,
    ResourceType,
)

TOPIC, CAROL = ResourceType.TOPIC, "User:carol"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(
    name: str = "flights",
    operation: AclOperation = READ,
    pattern: PatternType = LITERAL,
    *,
    principal: str = CAROL,
    host: str = "*",
    deny: bool = False,
) -> Acl:
    permission = PermissionType.DENY if deny else PermissionType.ALLOW
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([], READ, False),
        ([acl()], READ, True),
        ([acl()], WRITE, False),
        ([acl()], DESCRIBE, True),
        ([acl(operation=DESCRIBE)], READ, False),
        ([acl(operation=AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, True),
        ([acl(operation=AclOperation.ALL)], AclOperation.DELETE, True),
        ([acl("*")], READ, True),
        ([acl("fli", pattern=PREFIXED)], READ, True),
        ([acl("fli")], READ, False),
        ([acl("flights-2", pattern=PREFIXED)], READ, False),
        ([acl(principal="User:*")], READ, True),
        ([acl(principal="User:dave")], READ, False),
        ([acl(host="127.0.0.1")], READ, True),
        ([acl(host="10.0.0.1")], READ, False),
        ([acl(), acl("*", AclOperation.ALL, deny=True)], READ, False),
        ([acl(), acl("f", READ, PREFIXED, deny=True)], READ, False),
        ([acl(), acl(operation=WRITE), acl(operation=WRITE, deny=True)], DESCRIBE, True),
    ],
)
def test_a_deny_wins_over_what_is_allowed(
    acls: list[Acl], operation: AclOperation, allowed: bool
) -> None:
    authorizer = Authorizer(["admin"])
    assert authorizer.allows(acls, CAROL, operation, TOPIC, "flights") is allowed
    assert authorizer.allows(acls, "User:admin", operation, TOPIC, "flights")
    assert not authorizer.allows(acls, CAROL, operation, ResourceType.GROUP, "flights")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl()], True),
        ([acl("*")], True),
        ([acl(operation=AclOperation.ALL)], True),
        ([acl(operation=WRITE)], False),
        ([acl(), acl("*", deny=True)], False),
        ([acl(), acl(deny=True)], False),
        ([acl(), acl("fl", pattern=PREFIXED, deny=True)], False),
        ([acl("fl", pattern=PREFIXED), acl("fl", deny=True)], True),
        ([acl("fl", pattern=PREFIXED), acl("fli", pattern=PREFIXED, deny=True)], True),
    ],
)
def test_one_resource_that_is_not_denied_is_enough(acls: list[Acl], allowed: bool) -> None:
    authorizer = Authorizer(["admin"])
    assert authorizer.allows_on_any(acls, CAROL, READ, TOPIC) is allowed
    assert authorizer.allows_on_any(acls, "User:admin", READ, TOPIC)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.ANY, None, ["flights", "fli", "*"]),
        (PatternType.ANY, "flights", ["flights"]),
        (PatternType.MATCH, "flights", ["flights", "fli", "*"]),
        (PatternType.MATCH, "other", ["*"]),
        (PREFIXED, None, ["fli"]),
        (PREFIXED, "flights", []),
        (LITERAL, "*", ["*"]),
    ],
)
def test_a_filter_is_for_patterns(pattern: PatternType, name: str | None, found: list[str]) -> None:
    acls = [acl(), acl("fli", pattern=PREFIXED), acl("*")]
    wanted = AclFilter(TOPIC, name, pattern, None, None, AclOperation.ANY, PermissionType.ANY)
    assert [one.name for one in acls if wanted.matches(one)] == found
