"""librdkafka's admin client: topics, configs, records, offsets, the cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.foreign.clients.librdkafka_help import code_of, common, read, write
from tests.foreign.scene import FIRST_TIME, PATIENCE, Feature, Scene, equal, refusal, true, until


@functools.cache
def admin(scene: Scene) -> AdminClient:
    """The admin client, cached: one that is collected abandons its pending requests."""
    return AdminClient(common(scene))


def only(futures: dict[Any, Future[Any]]) -> Any:
    """The result of one thing that was asked for."""
    (future,) = futures.values()
    return future.result(PATIENCE)


def refused(futures: Callable[[], dict[Any, Future[Any]]]) -> str:
    """The code that one thing is refused with."""
    return code_of(refusal(lambda: only(futures()), KafkaException))


def partitions_of(client: AdminClient, topic: str) -> int | None:
    """How many the broker that is asked knows of; None for an unknown topic."""
    found = client.list_topics(timeout=PATIENCE).topics.get(topic)
    return None if found is None or found.error else len(found.partitions)


def cluster_describe(scene: Scene) -> object:
    """By Metadata and by DescribeCluster."""
    client = admin(scene)
    found = client.describe_cluster(include_authorized_operations=True).result(PATIENCE)
    listed = client.list_topics(timeout=PATIENCE)
    equal(len(found.nodes), scene.brokers, "brokers")
    equal({one.id for one in found.nodes}, set(listed.brokers), "their ids")
    true(found.controller.id in listed.brokers, "a controller among them")
    true(found.cluster_id and found.cluster_id == listed.cluster_id, "one cluster id")
    operations = sorted(one.name for one in found.authorized_operations or ())
    return {"racks": [one.rack for one in found.nodes][:1], "operations": operations}


def cluster_elect(scene: Scene) -> object:
    """Nothing to elect; an unknown partition."""
    topic = scene.topic("elect", 2)
    client = admin(scene)
    kind = confluent_kafka.ElectionType.PREFERRED
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(topic, 7)]
    found = client.elect_leaders(kind, asked).result(PATIENCE)
    seen = {one.partition: error and error.name() for one, error in found.items()}
    equal(seen, {0: "ELECTION_NOT_NEEDED", 1: "ELECTION_NOT_NEEDED", 7: "UNKNOWN_TOPIC_OR_PART"})
    every = client.elect_leaders(kind, None).result(PATIENCE)
    return {**seen, "all": sorted({error.name() for error in every.values() if error})}


def topics_create(scene: Scene) -> object:
    """With counts, with configs, by assignment, and only validated."""
    client = admin(scene)
    plain, assigned, tried = scene.name("plain"), scene.name("assigned"), scene.name("tried")
    new = NewTopic(plain, 3, scene.replicas, config={"retention.ms": "123456"})
    equal(only(client.create_topics([new])), None)
    node = next(iter(client.list_topics(timeout=PATIENCE).brokers))
    new = NewTopic(assigned, 2, replica_assignment=[[node], [node]])
    only(client.create_topics([new], operation_timeout=10.0))
    only(client.create_topics([NewTopic(tried, 1, 1)], validate_only=True))
    until(lambda: partitions_of(client, assigned) == 2, "the assigned topic")
    until(lambda: partitions_of(client, plain) == 3, "the plain topic")
    equal(partitions_of(client, tried), None, "what was only validated")
    defaults = scene.name("defaults")
    only(client.create_topics([NewTopic(defaults, -1, -1)]))
    until(lambda: partitions_of(client, defaults), "the topic with the broker's defaults")
    return partitions_of(client, defaults)


def topics_refuse(scene: Scene) -> object:
    """Each with its code and text."""
    client = admin(scene)
    taken = scene.topic("taken")
    tries = {
        "twice": NewTopic(taken, 1, 1),
        "name": NewTopic("no/such name", 1, 1),
        "long": NewTopic("x" * 250, 1, 1),
        "partitions": NewTopic(scene.name("none"), 0, 1),
        "replicas": NewTopic("foreign-many-replicas", 1, 17),
        "config": NewTopic(scene.name("config"), 1, 1, config={"no.such": "1"}),
        "value": NewTopic(scene.name("value"), 1, 1, config={"retention.ms": "soon"}),
        "assignment": NewTopic("foreign-assign", 1, replica_assignment=[[1, 1]]),
        "node": NewTopic("foreign-node", 1, replica_assignment=[[4711]]),
    }
    seen = {}
    for name, new in tries.items():
        seen[name] = refused(lambda new=new: client.create_topics([new]))
    equal(
        seen,
        {
            "twice": "TOPIC_ALREADY_EXISTS",
            "name": "TOPIC_EXCEPTION",
            "long": "TOPIC_EXCEPTION",
            "partitions": "INVALID_PARTITIONS",
            "replicas": "INVALID_REPLICATION_FACTOR",
            "config": "INVALID_CONFIG",
            "value": "INVALID_CONFIG",
            "assignment": "INVALID_REPLICA_ASSIGNMENT",
            "node": "INVALID_REPLICA_ASSIGNMENT",
        },
    )
    return seen


def topics_list(scene: Scene) -> object:
    """One, all, and one that isn't there."""
    client = admin(scene)
    topic = scene.topic("list", 2)
    true(topic in client.list_topics(timeout=PATIENCE).topics, "the topic among all")
    alone = client.list_topics(topic, timeout=PATIENCE).topics
    equal({name: len(one.partitions) for name, one in alone.items()}, {topic: 2})
    missing = client.describe_topics(TopicCollection([scene.name("missing")]))
    return refused(lambda: missing)


def topics_describe(scene: Scene) -> object:
    """Leaders, replicas, those in sync."""
    client = admin(scene)
    topic = scene.topic("describe", 3)
    found = only(
        client.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    )
    equal([one.id for one in found.partitions], [0, 1, 2])
    for one in found.partitions:
        equal(len(one.replicas), scene.replicas, "replicas")
        equal(len(one.isr), scene.replicas, "in sync")
        true(one.leader.id in {node.id for node in one.replicas}, "a leader among them")
        true(one.leader.host and one.leader.port, "the leader's address")
    true(str(found.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA", "a topic id")
    operations = sorted(one.name for one in found.authorized_operations)
    return {"internal": found.is_internal, "operations": operations}


def topics_grow(scene: Scene) -> object:
    """Up, down, by assignment, and the unknown."""
    client = admin(scene)
    topic = scene.topic("grow", 2)
    only(client.create_partitions([NewPartitions(topic, 4)]))
    until(lambda: partitions_of(client, topic) == 4, "four partitions")
    tries = {
        "down": NewPartitions(topic, 3),
        "same": NewPartitions(topic, 4),
        "missing": NewPartitions("foreign-missing", 3),
    }
    seen = {
        name: refused(lambda more=more: client.create_partitions([more]))
        for name, more in tries.items()
    }
    only(client.create_partitions([NewPartitions(topic, 9)], validate_only=True))
    equal(partitions_of(client, topic), 4, "partitions after validating only")
    write(scene, topic, [b"new"], partition=3)
    equal([m.value() for m in read(scene, topic, 1, 4)], [b"new"])
    return seen


def topics_delete(scene: Scene) -> object:
    """Once, and again."""
    client = admin(scene)
    topic = scene.topic("delete")
    write(scene, topic, [b"gone"])
    only(client.delete_topics([topic]))
    until(lambda: partitions_of(client, topic) is None, "the topic is gone")
    again = refused(lambda: client.delete_topics([topic]))
    equal(again, "UNKNOWN_TOPIC_OR_PART")
    return again


def _describe(client: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = only(client.describe_configs([ConfigResource(kind, name)]))
    return found


def _facts(entry: ConfigEntry) -> list[object]:
    source = ConfigSource(entry.source).name
    synonyms = [
        [one.name, one.value, ConfigSource(one.source).name] for one in entry.synonyms.values()
    ]
    return [entry.value, source, entry.is_default, entry.is_read_only, entry.is_sensitive, synonyms]


def configs_describe(scene: Scene) -> object:
    """Of a topic and a broker."""
    client = admin(scene)
    topic = scene.topic("configs", retention_ms=5000, cleanup_policy="compact")
    found = _describe(client, ResourceType.TOPIC, topic)
    seen = {
        name: _facts(found[name])
        for name in ("retention.ms", "cleanup.policy", "max.message.bytes", "compression.type")
    }
    equal(seen["retention.ms"][:2], ["5000", "DYNAMIC_TOPIC_CONFIG"])
    equal(seen["max.message.bytes"][:2], ["1048588", "DEFAULT_CONFIG"])
    node = str(next(iter(client.list_topics(timeout=PATIENCE).brokers)))
    broker = _describe(client, ResourceType.BROKER, node)
    for name in ("message.max.bytes", "log.retention.hours", "num.partitions"):
        true(name in broker, f"{name} among the broker's")
        seen[f"broker {name}"] = _facts(broker[name])
    seen["names"] = sorted(found)
    seen["missing"] = refused(
        lambda: client.describe_configs([ConfigResource(ResourceType.TOPIC, "foreign-none")])
    )
    return seen


def _alter(client: AdminClient, kind: ResourceType, name: str, *changes: ConfigEntry) -> Any:
    resource = ConfigResource(kind, name, incremental_configs=list(changes))
    return client.incremental_alter_configs([resource])


def _change(name: str, value: str | None, how: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=how)


def configs_alter(scene: Scene) -> object:
    """Step by step, and by the older way that replaces all."""
    client = admin(scene)
    topic = scene.topic("alter", max_message_bytes=2000)
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    append, subtract = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT

    def alter(*changes: ConfigEntry) -> Any:
        return _alter(client, ResourceType.TOPIC, topic, *changes)

    def value(name: str) -> str:
        return str(_describe(client, ResourceType.TOPIC, topic)[name].value)

    only(alter(_change("retention.ms", "7000", set_), _change("max.message.bytes", None, delete)))
    until(lambda: value("retention.ms") == "7000", "retention.ms set")
    equal(value("max.message.bytes"), "1048588")
    only(alter(_change("cleanup.policy", "compact", append)))
    until(lambda: value("cleanup.policy") == "delete,compact", "cleanup.policy appended")
    only(alter(_change("cleanup.policy", "delete", subtract)))
    until(lambda: value("cleanup.policy") == "compact", "cleanup.policy taken from")
    seen = {
        "value": refused(lambda: alter(_change("retention.ms", "soon", set_))),
        "name": refused(lambda: alter(_change("no.such", "1", set_))),
        "append": refused(lambda: alter(_change("retention.ms", "1", append))),
        "missing": refused(
            lambda: _alter(
                client, ResourceType.TOPIC, "foreign-none", _change("retention.ms", "1", set_)
            )
        ),
    }
    whole = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "2000000"})
    only(client.alter_configs([whole]))
    until(lambda: value("segment.bytes") == "2000000", "segment.bytes set")
    equal(value("cleanup.policy"), "delete", "what the older way didn't name")
    return seen


def configs_broker(scene: Scene) -> object:
    """Of one broker: librdkafka doesn't take the empty name, which means all."""
    client = admin(scene)
    node = str(next(iter(client.list_topics(timeout=PATIENCE).brokers)))
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    name = "message.max.bytes"

    def entry() -> ConfigEntry:
        return _describe(client, ResourceType.BROKER, node)[name]

    only(_alter(client, ResourceType.BROKER, node, _change(name, "1200000", set_)))
    until(lambda: entry().value == "1200000", f"{name} set")
    seen: dict[str, object] = {"set": _facts(entry())}
    only(_alter(client, ResourceType.BROKER, node, _change(name, None, delete)))
    until(lambda: entry().value == "1048588", "the default again")
    seen["read only"] = refused(
        lambda: _alter(client, ResourceType.BROKER, node, _change("node.id", "9", set_))
    )
    return seen


def records_delete(scene: Scene) -> object:
    """To an offset, to the end, beyond it."""
    client = admin(scene)
    topic = scene.topic("records")
    write(scene, topic, [b"%d" % n for n in range(10)])

    def delete(offset: int, partition: int = 0) -> Any:
        return client.delete_records([TopicPartition(topic, partition, offset)])

    seen: dict[str, object] = {"some": only(delete(4)).low_watermark}
    equal(read(scene, topic, 1)[0].offset(), 4, "the first record left")
    seen["beyond"] = refused(lambda: delete(11))
    seen["partition"] = refused(lambda: delete(1, 5))
    seen["all"] = only(delete(confluent_kafka.OFFSET_END)).low_watermark
    equal([seen["some"], seen["all"]], [4, 10])
    return seen


def list_offsets(scene: Scene, topic: str) -> object:
    """The result of ListOffsets for each spec, of a topic whose records are 1 s apart."""
    client = admin(scene)
    seen = {}
    for name, spec in (
        ("earliest", OffsetSpec.earliest()),
        ("latest", OffsetSpec.latest()),
        ("newest", OffsetSpec.max_timestamp()),
        ("time", OffsetSpec.for_timestamp(FIRST_TIME + 3500)),
        ("late", OffsetSpec.for_timestamp(FIRST_TIME + 10**6)),
    ):
        found = only(client.list_offsets({TopicPartition(topic, 0): spec}))
        seen[name] = [found.offset, found.timestamp, found.leader_epoch]
    missing = {TopicPartition(topic, 9): OffsetSpec.latest()}
    seen["missing"] = [refused(lambda: client.list_offsets(missing, request_timeout=3.0))]
    equal(
        {name: one[0] for name, one in seen.items()} | {"missing": 0},
        {"earliest": 0, "latest": 10, "newest": 9, "time": 4, "late": -1, "missing": 0},
    )
    return seen


PLAYED: tuple[Feature, ...] = (
    cluster_describe,
    cluster_elect,
    topics_create,
    topics_refuse,
    topics_list,
    topics_describe,
    topics_grow,
    topics_delete,
    configs_describe,
    configs_alter,
    configs_broker,
    records_delete,
)
