"""kafka-python's admin client: the cluster, topics, configs, records."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from kafka.errors import KafkaError

from tests.foreign.clients.kafka_python_help import administering, read, write
from tests.foreign.scene import Feature, Scene, equal, refusal, true, until
from tests.interop.peers.kafka_python_peer import kafka


def refused(call: Callable[[], object]) -> str:
    """The name of the error that a call is refused with."""
    return type(refusal(call, KafkaError)).__name__


def described(client: Any, topic: str) -> Any:
    """A topic's description in Metadata."""
    (found,) = client.describe_topics([topic])
    return found


def count(client: Any, topic: str) -> int | None:
    """Partitions of a topic, None for one that isn't there; asking doesn't make it."""
    for one in client.describe_topics():
        if one["name"] == topic and not one["error_code"]:
            return len(one["partitions"])
    return None


def cluster_describe(scene: Scene) -> object:
    """Brokers, controller, cluster id."""
    with administering(scene) as client:
        found = client.describe_cluster()
        features = client.describe_features()
    ids = {one["broker_id"] for one in found["brokers"]}
    equal(len(ids), scene.brokers, "brokers")
    true(found["controller_id"] in ids, "a controller among them")
    true(found["cluster_id"], "a cluster id")
    return {
        "fields": sorted(found),
        "racks": [one["rack"] for one in found["brokers"]][:1],
        "features": {name: sorted(one) for name, one in sorted(features.items())},
    }


def cluster_versions(scene: Scene) -> object:
    """What the cluster serves; every broker the same."""
    with administering(scene) as client:
        all_of_them = client.api_versions()
        for node in [one["broker_id"] for one in client.describe_cluster()["brokers"]]:
            found = client.get_broker_version_data(node).api_versions
            equal(dict(found), {int(key): span for key, span in all_of_them.items()}, "versions")
    return {key.name: list(span) for key, span in all_of_them.items()}


def cluster_log_dirs(scene: Scene) -> object:
    """Folders and what is in them."""
    topic = scene.topic("dirs", 2)
    write(scene, topic, [b"x" * 1000])
    with administering(scene) as client:
        found = client.describe_log_dirs({topic: [0, 1]})
    equal(len(found), scene.brokers, "brokers")
    (folder,) = found[0]["log_dirs"]
    parts = [p for b in found for d in b["log_dirs"] for t in d["topics"] for p in t["partitions"]]
    equal(len(parts), 2 * scene.replicas, "replicas")
    equal({one["offset_lag"] for one in parts}, {0}, "lag")
    equal(sum(one["partition_size"] > 1000 for one in parts), scene.replicas, "replicas with data")
    true(folder["total_bytes"] > 0 and folder["usable_bytes"] > 0, "space on the disk")
    return {"folder": sorted(folder), "partition": sorted(parts[0]), "error": folder["error_code"]}


def cluster_elect(scene: Scene) -> object:
    """Nothing to elect; an unknown partition; all."""
    topic = scene.topic("elect", 2)
    with administering(scene) as client:
        found = client.elect_leaders(0, {topic: [0, 1, 7]}, raise_errors=False).to_dict()
        every = client.elect_leaders(0, [topic]).to_dict()
        unclean = client.elect_leaders(1, {topic: [0]}).to_dict()
    results = found["replica_election_results"][0]["partition_result"]
    codes = {one["partition_id"]: one["error_code"] for one in results}
    equal(codes, {0: 84, 1: 84, 7: 3})
    return {
        "every": every["replica_election_results"],
        "unclean": unclean["replica_election_results"],
    }


def topics_create(scene: Scene) -> object:
    """With counts and configs, by assignment, only validated, by the broker's defaults."""
    plain, assigned = scene.name("plain"), scene.name("assigned")
    tried, default = scene.name("tried"), scene.name("default")
    new = {"num_partitions": 3, "replication_factor": scene.replicas}
    with administering(scene) as client:
        made = client.create_topics(
            {plain: {**new, "configs": {"retention.ms": "123456"}}}, wait_for_metadata=True
        )
        node = client.describe_cluster()["brokers"][0]["broker_id"]
        client.create_topics({assigned: {"assignments": {0: [node], 1: [node]}}})
        client.create_topics({tried: new}, validate_only=True)
        client.create_topics([default], wait_for_metadata=True)
        until(lambda: count(client, assigned) == 2, "the assigned topic")
        equal([count(client, plain), count(client, tried)], [3, None])
        seen = count(client, default)
    (reported,) = made["topics"]
    equal([reported["num_partitions"], reported["replication_factor"]], [3, scene.replicas])
    equal(reported["configs"]["retention.ms"]["value"], "123456")
    return {"default": seen, "configs": sorted(reported["configs"]), "fields": sorted(reported)}


def topics_refuse(scene: Scene) -> object:
    """Each with its error."""
    taken = scene.topic("taken")
    tries: dict[str, dict[str, Any]] = {
        taken: {},
        "no/such name": {},
        "": {},
        "..": {},
        "foreign-none": {"num_partitions": 0},
        "foreign-config": {"configs": {"no.such": "1"}},
        "foreign-value": {"configs": {"cleanup.policy": "burn"}},
        "foreign-null": {"configs": {"retention.ms": None}},
        "foreign-gap": {"assignments": {0: [1], 2: [1]}},
        "foreign-both": {"assignments": {0: [1]}, "num_partitions": 3},
        "foreign-empty": {"assignments": {0: []}},
    }
    seen = {}
    with administering(scene) as client:
        for name, new in tries.items():
            found = client.create_topics({name: new}, raise_errors=False, validate_only=True)
            (reported,) = found["topics"]
            seen[name] = reported["error_code"]
        twice = client.create_topics([taken, taken], raise_errors=False)["topics"]
        seen["named twice"] = [one["error_code"] for one in twice]
    codes = [one for name, one in seen.items() if name != "named twice"]
    equal(codes, [36, 17, 17, 17, 37, 40, 40, 40, 39, 42, 39])
    return seen


def topics_list(scene: Scene) -> object:
    """All, some, one that isn't there."""
    topic = scene.topic("list", 2)
    with administering(scene) as client:
        true(topic in client.list_topics(), "the topic among all")
        found = described(client, topic)
    equal(len(found["partitions"]), 2)
    return sorted(found)


def topics_describe(scene: Scene) -> object:
    """By Metadata and by DescribeTopicPartitions, which is asked in two pages."""
    topic = scene.topic("describe", 3)
    with administering(scene) as client:
        found = described(client, topic)
        first = client.describe_topic_partitions([topic], response_partition_limit=2)
        rest = client.describe_topic_partitions([topic], 2, first["next_cursor"])
        missing = client.describe_topic_partitions(["foreign-missing"])["topics"][0]
    for one in found["partitions"]:
        equal([len(one["replica_nodes"]), len(one["isr_nodes"])], [scene.replicas] * 2)
        true(one["leader_id"] in one["replica_nodes"], "a leader among the replicas")
    pages = [first["topics"][0]["partitions"], rest["topics"][0]["partitions"]]
    equal([[p["partition_index"] for p in page] for page in pages], [[0, 1], [2]])
    equal(rest["next_cursor"], None)
    return {
        "fields": sorted(pages[0][0]),
        "elr": [pages[0][0]["eligible_leader_replicas"], pages[0][0]["last_known_elr"]],
        "epoch": pages[0][0]["leader_epoch"],
        "missing": [missing["error_code"], missing["partitions"], missing["name"]],
        "offline": found["partitions"][0]["offline_replicas"],
    }


def topics_grow(scene: Scene) -> object:
    """Up, down, by assignment, and the unknown."""
    topic = scene.topic("grow", 2)
    with administering(scene) as client:
        client.create_partitions({topic: 4})
        until(lambda: count(client, topic) == 4, "four partitions")
        node = client.describe_cluster()["brokers"][0]["broker_id"]
        replicas = described(client, topic)["partitions"][0]["replica_nodes"]
        client.create_partitions({topic: {"count": 5, "assignments": [replicas]}})
        until(lambda: count(client, topic) == 5, "five partitions")
        seen = {
            "down": refused(lambda: client.create_partitions({topic: 3})),
            "same": refused(lambda: client.create_partitions({topic: 5})),
            "zero": refused(lambda: client.create_partitions({topic: 0})),
            "missing": refused(lambda: client.create_partitions({"foreign-missing": 3})),
            "few": refused(
                lambda: client.create_partitions({topic: {"count": 8, "assignments": [[node]]}})
            ),
        }
    write(scene, topic, [b"new"], partition=4)
    equal([m.value for m in read(scene, topic, 1, 5)], [b"new"])
    return seen


def topics_delete(scene: Scene) -> object:
    """By name, by id, and again."""
    topic, other = scene.topic("delete"), scene.topic("other")
    with administering(scene) as client:
        client.delete_topics([topic])
        identity = uuid.UUID(str(described(client, other)["topic_id"]))
        client.delete_topics([identity])
        for name in (topic, other):
            until(lambda name=name: count(client, name) is None, "the topic is gone")
        again = client.delete_topics([topic, identity], raise_errors=False)["topics"]
    codes = sorted(one["error_code"] for one in again)
    equal(codes, [3, 100])
    return sorted(again[0])


def _resource(kind: str, name: str, configs: Any = None) -> Any:
    return kafka.admin.ConfigResource(kind, name, configs)


def configs_describe(scene: Scene) -> object:
    """Of a topic and a broker, and only those that are asked for."""
    topic = scene.topic("configs", retention_ms=5000, cleanup_policy="compact")
    with administering(scene) as client:
        found = client.describe_configs(
            [_resource("TOPIC", topic)], include_synonyms=True, config_filter="all"
        )["topic"][topic]
        modified = client.describe_configs([_resource("TOPIC", topic)])["topic"][topic]
        one = client.describe_configs(
            [_resource("TOPIC", topic, ["retention.ms"])], config_filter="all"
        )["topic"][topic]
        node = str(client.describe_cluster()["brokers"][0]["broker_id"])
        broker = client.describe_configs(
            [_resource("BROKER", node)], include_synonyms=True, config_filter="all"
        )["broker"][node]
        missing = client.describe_configs([_resource("TOPIC", "foreign-none")])
        listed = client.list_config_resources(["TOPIC", "BROKER"])
    equal(sorted(modified), ["cleanup.policy", "retention.ms"])
    equal(sorted(one), ["retention.ms"])
    true(topic in listed["topic"], "the topic among those with configs")
    names = ("retention.ms", "segment.bytes", "min.insync.replicas", "flush.ms")
    own = ("num.io.threads", "log.retention.hours", "default.replication.factor")
    return {
        "topic": {name: found[name] for name in names},
        "names": sorted(found),
        "broker": {name: sorted(broker[name]) for name in own},
        "missing": missing,
    }


def configs_alter(scene: Scene) -> object:
    """Incrementally and by replacing all."""
    topic = scene.topic("alter", max_message_bytes=2000)
    with administering(scene) as client:

        def value(name: str) -> str:
            found = client.describe_configs([_resource("TOPIC", topic)], config_filter="all")
            return str(found["topic"][topic][name]["value"])

        def alter(configs: Any, name: str = topic, **how: Any) -> Any:
            return client.alter_configs([_resource("TOPIC", name, configs)], **how)

        done = alter({"retention.ms": "7000"})
        until(lambda: value("retention.ms") == "7000", "retention.ms set")
        client.reset_configs([_resource("TOPIC", topic, ["max.message.bytes"])])
        until(lambda: value("max.message.bytes") == "1048588", "max.message.bytes reset")
        alter({"retention.ms": "9000"}, validate_only=True)
        equal(value("retention.ms"), "7000", "after validating only")
        alter({"segment.bytes": "2000000"}, incremental=False)
        until(lambda: value("segment.bytes") == "2000000", "segment.bytes set")
        tries = {
            "value": alter({"retention.ms": "soon"}, raise_on_unknown=False),
            "name": alter({"no.such": "1"}, raise_on_unknown=False),
            "missing": alter({"retention.ms": "1"}, "foreign-none", raise_on_unknown=False),
        }
    seen = {name: next(iter(found["topic"].values())) for name, found in tries.items()}
    return {"done": done["topic"][topic], **seen}


def configs_broker(scene: Scene) -> object:
    """Of one broker, and of all."""
    name = "message.max.bytes"
    seen = {}
    with administering(scene) as client:
        node = str(client.describe_cluster()["brokers"][0]["broker_id"])

        def value() -> list[object]:
            found = client.describe_configs([_resource("BROKER", node)], config_filter="all")
            one = found["broker"][node][name]
            return [one["value"], str(one["config_source"])]

        def alter(configs: Any) -> Any:
            return client.alter_configs([_resource("BROKER", node, configs)])

        alter({name: "1200000"})
        until(lambda: value()[0] == "1200000", f"{name} set")
        seen["set"] = value()
        client.reset_configs([_resource("BROKER", node, [name])])
        until(lambda: value()[0] == "1048588", f"{name} reset")
        seen["reset"] = value()
    return seen


def records_delete(scene: Scene) -> object:
    """To an offset, to the end, beyond it."""
    topic = scene.topic("records")
    write(scene, topic, [b"%d" % n for n in range(10)])
    where, other = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 7)
    with administering(scene) as client:
        some = client.delete_records({where: 4})[where]["low_watermark"]
        equal(read(scene, topic, 1, auto_offset_reset="earliest")[0].offset, 4)
        beyond = refused(lambda: client.delete_records({where: 11}))
        missing = refused(lambda: client.delete_records({other: 1}))
        everything = client.delete_records({where: -1})[where]["low_watermark"]
    equal([some, everything, beyond], [4, 10, "OffsetOutOfRangeError"])
    return missing


PLAYED: tuple[Feature, ...] = (
    cluster_describe,
    cluster_versions,
    cluster_log_dirs,
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
