"""ACLs of the embedded cluster beside those of a real broker with Kafka's StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kclient.protocol.message import Request
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing import Cluster, ClusterSecurity, ThreadedCluster
from kclient.testing.authorizer import AclOperation, PatternType, PermissionType, ResourceType
from kclient.testing.dispatch import HANDLERS
from tests.security.acl_cases import ANY_TOPIC, CASES, DECISIONS, Case
from tests.security.acl_sides import DOOMED, SUPER_USER, TOPIC, Ids, Side, codes, facts
from tests.support.broker_settings import ORDINARY_USER, PLAIN_USERS
from tests.support.kafka import RunningBroker
from tests.unit.testing.acl_calls import DENY, acl, create, delete, describe, one_filter

OPEN = {17, 18, 36}
"""APIs that need no ACL."""
REFUSED = {68, 76}
"""APIs that are only refused."""

Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def both(secured: RunningBroker) -> Iterator[Sides]:
    """The embedded cluster, and the real broker."""
    supers = [name for name in PLAIN_USERS if name != ORDINARY_USER]
    security = ClusterSecurity(PLAIN_USERS, super_users=supers)
    with ThreadedCluster(Cluster(brokers=1, auto_create_topics=True, security=security)) as cluster:
        yield Side(cluster.bootstrap), Side(secured.sasl_bootstrap)


@pytest.fixture
def sides(both: Sides) -> Iterator[Sides]:
    """Both, without ACLs."""
    yield both
    for side in both:
        side.clear()


def play(side: Side, case: Case) -> list[Any]:
    """What carol's requests show, with one ACL more each time."""
    seen = []
    for one in (None, *case.acls):
        if one is not None:
            side.create(one)
        found = side.ask(case.make(side.ids), case.version)
        seen.append(facts(found, listing=case.listing))
    return seen


@pytest.mark.parametrize("name", CASES)
def test_each_acl_has_the_same_effect(sides: Sides, name: str) -> None:
    ours, theirs = (play(side, CASES[name]) for side in sides)
    assert ours == theirs
    assert len({repr(one) for one in theirs}) > 1 or not CASES[name].acls, "no ACL has an effect"


def test_each_api_has_a_case() -> None:
    ids = Ids(b"", tuple(b"" for _ in DOOMED))
    keys = {one.make(ids).API_KEY for one in CASES.values()}
    assert keys == set(HANDLERS) - OPEN - REFUSED


@pytest.mark.parametrize("name", DECISIONS)
def test_the_same_operations_are_allowed(sides: Sides, name: str) -> None:
    request = MetadataRequest(
        [MetadataRequestTopic(ZERO_UUID, TOPIC)], False, include_topic_authorized_operations=True
    )
    seen = []
    for side in sides:
        side.create(*DECISIONS[name])
        seen.append(facts(side.ask(request, 12)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", ANY_TOPIC)
def test_the_same_clients_get_producer_ids(sides: Sides, name: str) -> None:
    seen = []
    for side in sides:
        side.create(*ANY_TOPIC[name])
        seen.append(codes(side.ask(InitProducerIdRequest(None), 4)))
    assert seen[0] == seen[1]


FILTERS_ONLY = (
    acl(TOPIC, AclOperation.ANY),
    acl(TOPIC, kind=ResourceType.ANY),
    acl(TOPIC, pattern=PatternType.MATCH),
    acl(TOPIC, pattern=PatternType.ANY),
    acl(TOPIC, permission=PermissionType.ANY),
)
NEVER = (
    acl(TOPIC, 0),
    acl(TOPIC, kind=0),
    acl(TOPIC, pattern=0),
    acl(TOPIC, permission=0),
)
ODD_ACLS = (
    acl(TOPIC, 99),
    acl(TOPIC, kind=99),
    acl(TOPIC, pattern=99),
    acl(TOPIC, permission=99),
    acl(""),
    acl("", kind=ResourceType.CLUSTER),
    acl("another", kind=ResourceType.CLUSTER),
    acl(TOPIC, principal="carol"),
    acl(TOPIC, principal=""),
    acl(TOPIC, principal=":"),
    acl(TOPIC, host=""),
    acl(TOPIC, AclOperation.IDEMPOTENT_WRITE),
    acl("a-token", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
    acl("User:zoe", AclOperation.CREATE_TOKENS, ResourceType.USER),
    acl(TOPIC, AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID),
)
ACLS = (
    acl(TOPIC),
    acl(TOPIC, AclOperation.WRITE, host="10.1.1.1"),
    acl("*"),
    acl("acl", AclOperation.DESCRIBE, pattern=PatternType.PREFIXED),
    acl("b", AclOperation.DESCRIBE, pattern=PatternType.PREFIXED, permission=DENY),
    acl("kafka-cluster", AclOperation.ALTER, ResourceType.CLUSTER),
    acl("g", AclOperation.READ, ResourceType.GROUP, principal="User:*"),
)
FILTERS: dict[str, dict[str, Any]] = {
    "all": {"principal": None},
    "of carol": {},
    "of everyone": {"principal": "User:*"},
    "of topics": {"kind": ResourceType.TOPIC},
    "of a topic": {"name": TOPIC, "kind": ResourceType.TOPIC},
    "literal": {"pattern": PatternType.LITERAL},
    "literal, of a topic": {"name": TOPIC, "pattern": PatternType.LITERAL},
    "prefixed": {"pattern": PatternType.PREFIXED},
    "prefixed, of a topic": {"name": TOPIC, "pattern": PatternType.PREFIXED},
    "prefixed, of a prefix": {"name": "acl", "pattern": PatternType.PREFIXED},
    "that match": {"pattern": PatternType.MATCH},
    "that match a topic": {"name": TOPIC, "pattern": PatternType.MATCH},
    "that match another topic": {"name": "bc", "pattern": PatternType.MATCH},
    "of all names": {"name": "*"},
    "of a host": {"host": "10.1.1.1"},
    "of all hosts": {"host": "*"},
    "of an operation": {"operation": AclOperation.DESCRIBE},
    "of all operations": {"operation": AclOperation.ALL},
    "that deny": {"permission": DENY},
    "of an unknown type": {"kind": 99},
    "of an unknown pattern": {"pattern": 99},
    "of an unknown operation": {"operation": 99},
    "of an unknown permission": {"permission": 99},
    "of a type that can't be": {"kind": 0},
    "of a pattern that can't be": {"pattern": 0},
    "of an operation that can't be": {"operation": 0},
    "of a permission that can't be": {"permission": 0},
}


def asked(side: Side, *requests: Request, version: int = 3) -> list[Any]:
    """All that a super user's requests are answered, with lists in an order."""
    return [in_order(side.ask(one, version, SUPER_USER)) for one in requests]


def in_order(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: in_order(one) for name, one in found.items()}
    if isinstance(found, list):
        return sorted((in_order(one) for one in found), key=repr)
    return found


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_made_described_and_deleted_alike(sides: Sides, version: int) -> None:
    seen = []
    for side in sides:
        side.create(*ACLS)
        again = create(*ACLS, *ACLS)
        seen.append(asked(side, again, describe(principal=None), version=version))
        doomed = delete(one_filter(TOPIC), one_filter(permission=DENY), one_filter(TOPIC))
        seen[-1] += asked(side, doomed, version=version)
    assert seen[0] == seen[1]


def test_the_same_acls_cant_be_made(sides: Sides) -> None:
    requests = [create(one, acl(TOPIC)) for one in (*ODD_ACLS, *FILTERS_ONLY, *NEVER)]
    requests += [create(*ODD_ACLS), create()]
    ours, theirs = (asked(side, *requests) for side in sides)
    assert ours == theirs


def test_filters_are_for_the_same_acls(sides: Sides) -> None:
    seen = []
    for side in sides:
        side.create(*ACLS)
        described = asked(side, *(describe(**one) for one in FILTERS.values()))
        seen.append(dict(zip(FILTERS, described, strict=True)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", [one for one in FILTERS if "a topic" in one or "un" in one])
def test_the_same_acls_are_deleted(sides: Sides, name: str) -> None:
    seen = []
    for side in sides:
        side.create(*ACLS)
        seen.append(asked(side, delete(one_filter(**FILTERS[name])), delete()))
    assert seen[0] == seen[1]
