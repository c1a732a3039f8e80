"""Creating, deleting, describing, listing and growing topics, on every kind of broker."""

from __future__ import annotations

import secrets
import time
from typing import Any

import pytest

from kclient.admin import Admin, CreatedTopic, NewTopic
from kclient.broker_errors import (
    BrokerInvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from kclient.errors import BrokerError, InvalidArgument, NoCommonVersion
from kclient.types import OffsetSpec, TopicPartition


def fresh(stem: str = "admin") -> str:
    return f"{stem}-{secrets.token_hex(6)}"


async def test_a_created_topic_is_there_at_once_for_another_client(admin: Any) -> None:
    name = fresh()
    one: Admin = await admin()
    two: Admin = await admin()
    await one.create_topics([NewTopic(name, partitions=3, replication_factor=1)])
    found = (await two.describe_topics([name]))[name]
    assert [p.index for p in found.partitions] == [0, 1, 2]
    assert not found.offline
    assert found.replication_factor == 1


async def test_creating_reports_partitions_replicas_and_id(admin: Any, broker: Any) -> None:
    name = fresh()
    client: Admin = await admin()
    made = (await client.create_topics([NewTopic(name, partitions=2, replication_factor=1)]))[name]
    assert (made.name, made.partitions, made.replication_factor) == (name, 2, 1)
    described = (await client.describe_topics([name]))[name]
    if broker.version < (2, 8, 0):
        assert made.topic_id is None
        assert described.topic_id is None
    else:
        assert made.topic_id == described.topic_id
        assert made.topic_id is not None
        assert len(made.topic_id) == 16


async def test_open_numbers_become_the_brokers_defaults(admin: Any) -> None:
    name = fresh()
    client: Admin = await admin()
    made = (await client.create_topics([NewTopic(name)]))[name]
    found = (await client.describe_topics([name]))[name]
    assert made.partitions == len(found.partitions) >= 1
    assert made.replication_factor == found.replication_factor >= 1


async def test_one_open_number_leaves_the_other_as_given(admin: Any) -> None:
    name = fresh()
    client: Admin = await admin()
    await client.create_topics([NewTopic(name, partitions=5)])
    assert len((await client.describe_topics([name]))[name].partitions) == 5


async def test_an_existing_topic_is_refused_by_name(admin: Any, topic: Any) -> None:
    name = await topic()
    client: Admin = await admin()
    with pytest.raises(TopicAlreadyExists, match=name):
        await client.create_topics([NewTopic(name, partitions=1, replication_factor=1)])


async def test_what_can_be_created_is_created_beside_what_can_not(admin: Any, topic: Any) -> None:
    old, new = await topic(), fresh()
    client: Admin = await admin()
    outcomes = await client.create_topics(
        [NewTopic(name, partitions=1, replication_factor=1) for name in (old, new)],
        return_errors=True,
    )
    assert isinstance(outcomes[old], TopicAlreadyExists)
    assert isinstance(outcomes[new], CreatedTopic)
    assert list(outcomes) == [old, new]
    assert new in await client.describe_topics([new])


async def test_the_raised_error_reports_the_others(admin: Any, topic: Any) -> None:
    old, new = await topic(), fresh()
    client: Admin = await admin()
    with pytest.raises(TopicAlreadyExists) as error:
        await client.create_topics(
            [
                NewTopic(old, partitions=1, replication_factor=1),
                NewTopic(fresh(), partitions=1, replication_factor=99),
                NewTopic(new, partitions=1, replication_factor=1),
            ]
        )
    notes = " ".join(error.value.__notes__)
    assert "INVALID_REPLICATION_FACTOR" in notes
    assert "1 of 3 succeeded" in notes


async def test_more_replicas_than_brokers_are_refused(admin: Any) -> None:
    client: Admin = await admin()
    with pytest.raises(InvalidReplicationFactor):
        await client.create_topics([NewTopic(fresh(), partitions=1, replication_factor=99)])


async def test_a_config_that_does_not_exist_is_refused(admin: Any) -> None:
    client: Admin = await admin()
    with pytest.raises(BrokerInvalidConfig, match=r"no\.such\.setting"):
        await client.create_topics(
            [
                NewTopic(
                    fresh(),
                    partitions=1,
                    replication_factor=1,
                    configs={"no.such.setting": "1"},
                )
            ]
        )


async def test_configs_take_numbers_and_booleans(admin: Any, broker: Any) -> None:
    name = fresh()
    client: Admin = await admin()
    configs = {"retention.ms": 60_000, "preallocate": False, "max.message.bytes": None}
    made = (
        await client.create_topics(
            [NewTopic(name, partitions=1, replication_factor=1, configs=configs)]
        )
    )[name]
    if broker.version >= (2, 4, 0):
        assert made.configs["retention.ms"] == "60000"


async def test_validate_only_creates_nothing(admin: Any) -> None:
    name = fresh()
    client: Admin = await admin()
    await client.create_topics(
        [NewTopic(name, partitions=1, replication_factor=1)], validate_only=True
    )
    with pytest.raises(UnknownTopicOrPartition):
        await client.describe_topics([name])
    with pytest.raises(InvalidReplicationFactor):
        await client.create_topics(
            [NewTopic(name, partitions=1, replication_factor=99)], validate_only=True
        )


async def test_assignments_place_replicas(admin: Any) -> None:
    name = fresh()
    client: Admin = await admin()
    node_id = (await client.describe_cluster()).brokers[-1].node_id
    made = (await client.create_topics([NewTopic(name, assignments=[[node_id], [node_id]])]))[name]
    assert (made.partitions, made.replication_factor) == (2, 1)
    found = (await client.describe_topics([name]))[name]
    assert [p.replicas for p in found.partitions] == [(node_id,), (node_id,)]
    assert [p.leader for p in found.partitions] == [node_id, node_id]


async def test_describing_reports_leader_epoch_replicas_and_isr(admin: Any, topic: Any) -> None:
    name = await topic(partitions=2)
    client: Admin = await admin()
    brokers = {b.node_id for b in (await client.describe_cluster()).brokers}
    found = (await client.describe_topics([name]))[name]
    for partition in found.partitions:
        assert partition.leader in brokers
        assert partition.leader == partition.preferred_leader
        assert partition.isr == partition.replicas
        assert partition.offline_replicas == ()
        assert not partition.under_replicated
    assert not found.is_internal


async def test_describing_an_unknown_topic_fails_at_once_and_does_not_create_it(admin: Any) -> None:
    name = fresh("typo")
    client: Admin = await admin()
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartition, match=name):
            await client.describe_topics([name])
    assert time.monotonic() - started < 3.0


async def test_describing_by_id(admin: Any, topic: Any, broker: Any) -> None:
    name = await topic(partitions=2)
    client: Admin = await admin()
    known = (await client.describe_topics([name]))[name].topic_id
    if broker.version < (3, 0, 0):
        with pytest.raises(NoCommonVersion, match="topic id"):
            await client.describe_topics([known or b"x" * 16])
        return
    assert known is not None
    found = await client.describe_topics([known, name])
    assert found[known].name == found[name].name == name
    with pytest.raises((UnknownTopicId, UnknownTopicOrPartition)):
        await client.describe_topics([b"x" * 16])


async def test_listing_gives_each_topic_with_its_partitions(admin: Any, topic: Any) -> None:
    one, two = await topic(partitions=1), await topic(partitions=4)
    client: Admin = await admin()
    listed = await client.list_topics()
    counts = {t.name: t.partitions for t in listed}
    assert (counts[one], counts[two]) == (1, 4)
    assert [t.name for t in listed] == sorted(counts)
    assert not any(t.is_internal for t in listed)


async def test_listing_with_internal_topics_has_all_the_others_too(admin: Any, topic: Any) -> None:
    name = await topic()
    client: Admin = await admin()
    before = {t.name for t in await client.list_topics()}
    full = await client.list_topics(internal=True)
    after = {t.name for t in await client.list_topics()}  # other tests may use the same cluster
    assert name in before & after
    assert before & after <= {t.name for t in full if not t.is_internal}
    assert not (before | after) & {t.name for t in full if t.is_internal}


async def test_a_deleted_topic_is_gone_at_once_and_can_be_created_again(
    admin: Any, topic: Any
) -> None:
    name = await topic(partitions=2)
    client: Admin = await admin()
    gone = await client.delete_topics([name])
    assert gone[name].name == name
    assert name not in {t.name for t in await client.list_topics()}
    with pytest.raises(UnknownTopicOrPartition):
        await client.describe_topics([name])
    other = fresh()
    await client.create_topics([NewTopic(other, partitions=1, replication_factor=1)])


async def test_deleting_an_unknown_topic_fails_at_once(admin: Any, topic: Any) -> None:
    name, typo = await topic(), fresh("typo")
    client: Admin = await admin()
    started = time.monotonic()
    outcomes = await client.delete_topics([typo, name], return_errors=True)
    assert isinstance(outcomes[typo], UnknownTopicOrPartition)
    assert not isinstance(outcomes[name], BrokerError)
    assert time.monotonic() - started < 4.0


async def test_deleting_by_id(admin: Any, topic: Any, broker: Any) -> None:
    name = await topic()
    client: Admin = await admin()
    if broker.version < (2, 8, 0):
        with pytest.raises(NoCommonVersion, match="by id"):
            await client.delete_topics([b"x" * 16])
        return
    known = (await client.describe_topics([name]))[name].topic_id
    assert known is not None
    await client.delete_topics([known])
    assert name not in {t.name for t in await client.list_topics()}
    with pytest.raises((UnknownTopicId, UnknownTopicOrPartition)):
        await client.delete_topics([b"x" * 16])


async def test_a_topic_grows_and_shows_it_at_once(admin: Any, topic: Any) -> None:
    name = await topic(partitions=1)
    client: Admin = await admin()
    assert await client.create_partitions({name: 3}) == {name: 3}
    found = (await client.describe_topics([name]))[name]
    assert len(found.partitions) == 3
    assert not found.offline


async def test_a_topic_does_not_shrink(admin: Any, topic: Any) -> None:
    name = await topic(partitions=3)
    client: Admin = await admin()
    for total in (2, 3):
        with pytest.raises(InvalidPartitions):
            await client.create_partitions({name: total})


async def test_growing_can_be_checked_without_doing_it(admin: Any, topic: Any) -> None:
    name = await topic(partitions=1)
    client: Admin = await admin()
    await client.create_partitions({name: 3}, validate_only=True)
    assert len((await client.describe_topics([name]))[name].partitions) == 1


async def test_growing_an_unknown_topic_fails_at_once(admin: Any) -> None:
    client: Admin = await admin()
    with pytest.raises(UnknownTopicOrPartition):
        await client.create_partitions({fresh("typo"): 3})


async def test_bad_arguments_fail_at_once_naming_the_field(admin: Any) -> None:
    client: Admin = await admin()
    before = client.metrics()["network.requests"]
    bad: list[Any] = [
        ("name", lambda: client.create_topics([NewTopic("not a name", partitions=1)])),
        ("partitions", lambda: client.create_topics([NewTopic("a", partitions=0)])),
        ("replication_factor", lambda: client.create_topics([NewTopic("a", 1, 0)])),
        ("topics", lambda: client.delete_topics("flights")),
        ("topics", lambda: client.describe_topics([b"short"])),
        ("totals", lambda: client.create_partitions({"a": 0})),
        ("timeout", lambda: client.list_topics(timeout=0)),
        ("specs", lambda: client.list_offsets({TopicPartition("a", -1): OffsetSpec.LATEST})),
    ]
    for field, call in bad:
        with pytest.raises(InvalidArgument, match=field):
            await call()
    assert client.metrics()["network.requests"] == before


async def test_a_name_that_only_the_broker_refuses_is_a_typed_error(admin: Any) -> None:
    """Kafka has metrics names in which '.' and '_' collide, and checks that at creation."""
    stem = secrets.token_hex(6)
    client: Admin = await admin()
    await client.create_topics([NewTopic(f"a_{stem}", partitions=1, replication_factor=1)])
    with pytest.raises(InvalidTopic, match="collide"):
        await client.create_topics([NewTopic(f"a.{stem}", partitions=1, replication_factor=1)])
