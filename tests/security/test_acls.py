"""ACLs by Admin, on a real broker: their administration, and their effect on clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import kclient
from kclient import AclBinding, AclFilter, NewTopic, Security
from kclient.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidRequest,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from tests.security.people import certified, eventually_raises, shown, user
from tests.support.class_path import parse_version
from tests.support.kafka import RunningBroker

IDEMPOTENT_BY_TOPIC = (3, 0, 0)
"""Since then a producer needs no ACL of its own to be idempotent (KIP-679)."""


def prefixed(name: str, who: str) -> AclBinding:
    return AclBinding("topic", name, who, "write", pattern_type="prefixed")


async def test_acls_are_described_as_they_were_created(admin: kclient.Admin) -> None:
    who = "User:described"
    bindings = [
        prefixed("described-", who),
        AclBinding("topic", "described-1", who, "read", "deny", "127.0.0.1"),
        AclBinding("topic", "*", who, "describe"),
        AclBinding("group", "*", who, "all"),
        AclBinding("cluster", "kafka-cluster", who, "idempotent_write"),
        AclBinding("transactional_id", "größe", who, "write"),
        AclBinding("delegation_token", "an-id", who, "describe"),
    ]
    await shown(admin, *bindings)
    await shown(admin, *bindings)  # nothing is changed by that
    of_who = AclFilter(principal=who)
    assert set(await admin.describe_acls(of_who)) == set(bindings)
    exactly = AclFilter("topic", "described-1", who)
    assert await admin.describe_acls(exactly) == [bindings[1]]
    match = AclFilter("topic", "described-1", who, pattern_type="match")
    assert set(await admin.describe_acls(match)) == set(bindings[:3])
    deny = AclFilter(principal=who, permission="deny")
    assert await admin.delete_acls([deny, bindings[0]]) == {
        deny: [bindings[1]],
        bindings[0]: [bindings[0]],
    }
    deleted = await admin.delete_acls([of_who])
    assert set(deleted[of_who]) == set(bindings[2:])
    assert await admin.delete_acls([of_who]) == {of_who: []}


async def test_an_acl_that_can_not_be_created_is_an_error_of_its_own(admin: kclient.Admin) -> None:
    wrong = AclBinding("cluster", "mine", "User:partly", "alter")
    good = AclBinding("topic", "partly", "User:partly", "read")
    outcomes = await admin.create_acls([wrong, good], return_errors=True)
    assert isinstance(outcomes[wrong], InvalidRequest)
    assert outcomes[good] is None
    with pytest.raises(InvalidRequest, match="kafka-cluster") as caught:
        await admin.create_acls([good, wrong])
    assert caught.value.__notes__ == ["1 of 2 succeeded"]


async def test_an_ordinary_user_administers_none(
    secured: RunningBroker, admin: kclient.Admin
) -> None:
    security = await user(admin, secured, "nosy")
    async with kclient.Admin(secured.sasl_tls_bootstrap, security=security) as nosy:
        with pytest.raises(ClusterAuthorizationFailed, match="grant the principal"):
            await nosy.describe_acls()
        with pytest.raises(ClusterAuthorizationFailed):
            await nosy.create_acls([AclBinding("topic", "*", "User:nosy", "all")])
        with pytest.raises(ClusterAuthorizationFailed):
            await nosy.delete_acls([AclFilter()])


async def test_writing_is_allowed_by_a_prefix_and_denied_by_a_name(
    secured: RunningBroker, admin: kclient.Admin
) -> None:
    security = await user(admin, secured, "writer")
    names = ["written-1", "written-2"]
    await admin.create_topics([NewTopic(name) for name in names])
    allow = prefixed("written-", "User:writer")
    deny = AclBinding("topic", "written-1", "User:writer", "write", "deny")

    async def write(name: str) -> None:
        async with kclient.Producer(
            secured.sasl_tls_bootstrap, security=security, idempotence=False
        ) as producer:
            await producer.send(name, b"v")

    with pytest.raises(TopicAuthorizationFailed, match="written-1"):
        await write("written-1")
    await shown(admin, allow)
    for name in names:
        await write(name)
    await shown(admin, deny)
    await eventually_raises(TopicAuthorizationFailed, lambda: write("written-1"))
    await write("written-2")


def needed(who: str, topic: str, release: tuple[int, ...]) -> list[AclBinding]:
    """What it takes to produce, to read in a group, and for a transaction."""
    found = [
        AclBinding("topic", topic, who, "write"),
        AclBinding("topic", topic, who, "read"),
        AclBinding("group", topic, who, "read"),
        AclBinding("transactional_id", topic, who, "write"),
    ]
    if release < IDEMPOTENT_BY_TOPIC:
        found.append(AclBinding("cluster", "kafka-cluster", who, "idempotent_write"))
    return found


async def test_a_client_by_certificate_works_with_exactly_the_acls_that_it_needs(
    secured: RunningBroker, admin: kclient.Admin, tmp_path: Path
) -> None:
    topic, bootstrap = "certified", secured.tls_bootstrap
    security = certified("worker", tmp_path)
    await admin.create_topics([NewTopic(topic)])
    with pytest.raises(TopicAuthorizationFailed):
        await produce(bootstrap, security, topic)
    bindings = needed("User:worker", topic, parse_version(secured.version))
    await shown(admin, *(one for one in bindings if one.resource_type in ("topic", "cluster")))
    await produce(bootstrap, security, topic)
    with pytest.raises(GroupAuthorizationFailed):
        await read(bootstrap, security, topic)
    with pytest.raises(TransactionalIdAuthorizationFailed):
        await in_a_transaction(bootstrap, security, topic)
    await shown(admin, *bindings)
    await read(bootstrap, security, topic)
    await in_a_transaction(bootstrap, security, topic)


async def produce(bootstrap: str, security: Security, topic: str) -> None:
    async with kclient.Producer(bootstrap, security=security) as producer:
        await producer.send(topic, b"by itself")


async def read(bootstrap: str, security: Security, topic: str) -> None:
    async with kclient.Consumer(
        bootstrap, topic, group=topic, security=security, auto_offset_reset="earliest"
    ) as consumer:
        async with asyncio.timeout(30.0):
            while not await consumer.poll():
                continue
        await consumer.commit()


async def in_a_transaction(bootstrap: str, security: Security, topic: str) -> None:
    async with kclient.Producer(bootstrap, security=security, transactional_id=topic) as producer:
        async with producer.transaction() as transaction:
            await producer.send(topic, b"in a transaction")
            offsets = {kclient.TopicPartition(topic, 0): 1}
            await transaction.commit_offsets(kclient.GroupMetadata(topic), offsets)
