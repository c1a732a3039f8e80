"""Kafka's tools for the cluster, topics, configs, records and offsets."""

from __future__ import annotations

import json
import re

from tests.foreign.clients.java_tools import Said, file_of, read, tools, write
from tests.foreign.scene import FIRST_TIME, Feature, Scene, equal, true, until


def _topic(scene: Scene, *arguments: str, status: int = 0) -> Said:
    """Run kafka-topics."""
    return tools(scene).run("TopicCommand", *arguments, status=status)


def _described(scene: Scene, topic: str) -> list[dict[str, str]]:
    """The lines of a description; the first one is the topic's, the others its partitions'."""
    lines = _topic(scene, "--describe", "--topic", topic).lines
    return [
        {
            name.strip(): value.strip()
            for name, _, value in (field.partition(":") for field in line.split("\t") if field)
        }
        for line in lines
    ]


def cluster_describe(scene: Scene) -> object:
    """kafka-cluster: its id, its brokers."""
    run = tools(scene).run
    (line,) = run("ClusterTool", "cluster-id").lines
    true(re.fullmatch(r"Cluster ID: [\w-]{22}", line), line)
    head, *rows = run("ClusterTool", "list-endpoints").lines
    equal(len(rows), scene.brokers, "brokers")
    return {"head": head.split(), "states": sorted({row.split()[4] for row in rows})}


def cluster_versions(scene: Scene) -> object:
    """kafka-broker-api-versions: each broker, each API; kafka-features."""
    said = tools(scene).run("BrokerApiVersionsCommand")
    equal(said.out.count("(id: "), scene.brokers, "brokers")
    one = said.out.partition("\n)")[0].splitlines()[1:]
    usable = dict(
        re.fullmatch(r"\s*(\w+)\(\d+\): (.*?),?", line).groups()  # type: ignore[union-attr]
        for line in one
    )
    needed = ("Produce", "Fetch", "Metadata", "ListOffsets", "ApiVersions", "CreateTopics")
    true(all("usable" in usable[name] for name in needed), f"usable: {usable}")
    features = tools(scene).run("FeatureCommand", "describe").lines
    return {"usable": usable, "features": [line.split("\t")[0] for line in features]}


def cluster_log_dirs(scene: Scene) -> object:
    """kafka-log-dirs."""
    topic = scene.topic("dirs", 2)
    write(scene, topic, ["x" * 1000])
    said = tools(scene).run("LogDirsCommand", "--describe", "--topic-list", topic)
    found = json.loads(said.lines[-1])["brokers"]
    equal(len(found), scene.brokers, "brokers")
    parts = [p for b in found for d in b["logDirs"] for p in d["partitions"]]
    names = sorted(one["partition"] for one in parts)
    equal(names, sorted([f"{topic}-0", f"{topic}-1"] * scene.replicas))
    equal(sum(one["size"] > 1000 for one in parts), scene.replicas, "replicas with data")
    equal({(one["offsetLag"], one["isFuture"]) for one in parts}, {(0, False)})
    return [sorted(found[0]), sorted(found[0]["logDirs"][0]), sorted(parts[0])]


def cluster_elect(scene: Scene) -> object:
    """kafka-leader-election."""
    topic = scene.topic("elect", 2)
    run = tools(scene).run
    kind = ("--election-type", "preferred")
    one = run("LeaderElectionCommand", *kind, "--topic", topic, "--partition", "0")
    every = run("LeaderElectionCommand", *kind, "--all-topic-partitions")
    missing = run("LeaderElectionCommand", *kind, "--topic", topic, "--partition", "7", status=1)
    return {"one": one.lines, "every": every.lines[:1], "missing": missing.out.splitlines()}


def topics_create(scene: Scene) -> object:
    """With counts, with configs, by assignment, by the broker's defaults, if it isn't there."""
    plain, assigned, default = (scene.name(stem) for stem in ("plain", "assigned", "default"))
    counts = ("--partitions", "3", "--replication-factor", str(scene.replicas))
    said = _topic(scene, "--create", "--topic", plain, *counts, "--config", "retention.ms=123456")
    node = _described(scene, plain)[1]["Leader"]
    _topic(scene, "--create", "--topic", assigned, "--replica-assignment", f"{node},{node}")
    _topic(scene, "--create", "--topic", default)
    again = _topic(scene, "--create", "--topic", plain, "--if-not-exists")
    head, *rows = _described(scene, plain)
    equal(len(rows), 3)
    true("retention.ms=123456" in head["Configs"], head)
    return {"said": said.lines, "again": again.lines, "head": sorted(head), "row": sorted(rows[0])}


def topics_refuse(scene: Scene) -> object:
    """Twice, a bad name, count, replication or config."""
    taken = scene.topic("taken")
    tries = {
        "twice": (taken,),
        "name": ("no/such",),
        "config": ("foreign-config", "--config", "no.such=1"),
        "value": ("foreign-value", "--config", "retention.ms=soon"),
        "partitions": ("foreign-none", "--partitions", "0"),
        "replicas": ("foreign-many", "--replication-factor", "17"),
        "assignment": ("foreign-node", "--replica-assignment", "4711"),
    }
    seen = {}
    for name, (topic, *more) in tries.items():
        said = _topic(scene, "--create", "--topic", topic, *more, status=1)
        seen[name] = said.lines[0].partition(" : ")[0]
    return seen


def topics_list(scene: Scene) -> object:
    """All, by a pattern, without internal ones."""
    topic = scene.topic("list")
    true(topic in _topic(scene, "--list").lines, "the topic among all")
    true(topic in _topic(scene, "--list", "--exclude-internal").lines, "the topic among those")
    equal(_topic(scene, "--list", "--topic", f"{topic[:-1]}.").lines, [topic])
    missing = _topic(scene, "--describe", "--topic", "foreign-missing", status=1)
    gone = _topic(scene, "--describe", "--topic", "foreign-missing", "--if-exists")
    return [missing.lines[:1], gone.lines]


def topics_describe(scene: Scene) -> object:
    """All of it, by id, and what has something wrong, which is nothing."""
    topic = scene.topic("describe", 3, max_message_bytes=2000)
    head, *rows = _described(scene, topic)
    equal([head["PartitionCount"], head["ReplicationFactor"]], ["3", str(scene.replicas)])
    for row in rows:
        equal(len(row["Replicas"].split(",")), scene.replicas, "replicas")
        equal(sorted(row["Replicas"].split(",")), sorted(row["Isr"].split(",")), "in sync")
        true(row["Leader"] in row["Replicas"], "a leader among them")
    by_id = _topic(scene, "--describe", "--topic-id", head["TopicId"]).lines
    equal(len(by_id), 4)
    for wrong in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        equal(_topic(scene, "--describe", "--topic", topic, wrong).lines, [], wrong)
    (own,) = _topic(scene, "--describe", "--topic", topic, "--topics-with-overrides").lines
    at_min = _topic(scene, "--describe", "--topic", topic, "--at-min-isr-partitions").lines
    return {
        "elr": [rows[0].get("Elr"), rows[0].get("LastKnownElr")],
        "configs": head["Configs"],
        "overrides": own.partition("Configs: ")[2],
        "at min": len(at_min) if scene.replicas == 1 else 3 - len(at_min),
    }


def topics_grow(scene: Scene) -> object:
    """Up, down, and the unknown."""
    topic = scene.topic("grow", 2)
    _topic(scene, "--alter", "--topic", topic, "--partitions", "4")
    until(lambda: len(_described(scene, topic)) == 5, "four partitions")
    down = _topic(scene, "--alter", "--topic", topic, "--partitions", "3", status=1)
    missing = _topic(scene, "--alter", "--topic", "foreign-missing", "--partitions", "3", status=1)
    write(scene, topic, ["new"])
    equal(read(scene, topic, 1), ["new"])
    return {"down": len(down.lines), "missing": missing.lines[:1]}


def topics_delete(scene: Scene) -> object:
    """Once, again, and if it is there."""
    topic = scene.topic("delete")
    _topic(scene, "--delete", "--topic", topic)
    until(lambda: topic not in _topic(scene, "--list").lines, "the topic is gone")
    again = _topic(scene, "--delete", "--topic", topic, status=1)
    _topic(scene, "--delete", "--topic", topic, "--if-exists")
    return again.lines[:1]


def _configs(scene: Scene, *arguments: str, status: int = 0) -> Said:
    """Run kafka-configs."""
    return tools(scene).run("ConfigCommand", *arguments, status=status)


def _entry(said: Said, name: str) -> str:
    found = [line.strip() for line in said.lines if line.strip().startswith(f"{name}=")]
    return found[0] if found else ""


def _error(said: Said) -> str:
    """The errors that a refused command ended with; the line before repeats its arguments."""
    equal(said.out, "")
    return " ".join(re.findall(r"\w+Exception", said.err.splitlines()[1]))


def configs_describe(scene: Scene) -> object:
    """Of a topic: its own, and all; of a broker."""
    topic = scene.topic("configs", retention_ms=5000, cleanup_policy="compact")
    where = ("--describe", "--entity-type", "topics", "--entity-name", topic)
    own = _configs(scene, *where)
    equal(len(own.lines), 3, "a line for each of two, and the head")
    every = _configs(scene, *where, "--all")
    node = _described(scene, topic)[1]["Leader"]
    where = ("--describe", "--entity-type", "brokers", "--entity-name", node)
    broker = _configs(scene, *where, "--all")
    missing = _configs(
        scene, "--describe", "--entity-type", "topics", "--entity-name", "foreign-none"
    )
    names = ("retention.ms", "max.message.bytes", "cleanup.policy", "flush.ms")
    return {
        "own": sorted(line.strip() for line in own.lines[1:]),
        "every": [_entry(every, name) for name in names],
        "broker": [_entry(broker, name) for name in ("num.io.threads", "log.retention.hours")],
        "missing": missing.lines,
    }


def configs_alter(scene: Scene) -> object:
    """Added, deleted, from a file, refused."""
    topic = scene.topic("alter", max_message_bytes=2000)
    where = ("--entity-type", "topics", "--entity-name", topic)

    def now(name: str) -> str:
        return _entry(_configs(scene, "--describe", *where), name)

    done = _configs(scene, "--alter", *where, "--add-config", "retention.ms=7000,flush.ms=99")
    until(lambda: now("retention.ms").startswith("retention.ms=7000"), "retention.ms set")
    _configs(scene, "--alter", *where, "--delete-config", "max.message.bytes")
    until(lambda: not now("max.message.bytes"), "max.message.bytes deleted")
    _configs(scene, "--alter", *where, "--add-config", "cleanup.policy=[compact,delete]")
    until(lambda: "compact,delete" in now("cleanup.policy"), "both policies")
    listed = file_of("segment.bytes=2000000\n", "topic.properties")
    _configs(scene, "--alter", *where, "--add-config-file", listed)
    until(lambda: now("segment.bytes"), "segment.bytes set")
    seen = {}
    for name, change in (("value", "retention.ms=soon"), ("name", "no.such=1")):
        said = _configs(scene, "--alter", *where, "--add-config", change, status=1)
        seen[name] = _error(said)
    seen["delete"] = _configs(scene, "--alter", *where, "--delete-config", "no.such").lines
    other = ("--entity-type", "topics", "--entity-name", "foreign-none")
    said = _configs(scene, "--alter", *other, "--add-config", "retention.ms=1", status=1)
    seen["missing"] = _error(said)
    return {"done": done.lines, **seen}


def configs_broker(scene: Scene) -> object:
    """Of one broker, and of all."""
    node = _described(scene, scene.topic("node"))[1]["Leader"]
    one = ("--entity-type", "brokers", "--entity-name", node)
    every = ("--entity-type", "brokers", "--entity-default")
    name = "message.max.bytes"
    seen = {}
    for what, where, value in (("all", every, 1100000), ("one", one, 1200000)):
        _configs(scene, "--alter", *where, "--add-config", f"{name}={value}")

        def now(where: tuple[str, ...] = where) -> str:
            return _entry(_configs(scene, "--describe", *where), name)

        until(lambda now=now, value=value: f"={value}" in now(), f"{name}={value}")
        seen[what] = now()
    for where in (one, every):
        _configs(scene, "--alter", *where, "--delete-config", name)
    until(lambda: not _entry(_configs(scene, "--describe", *every), name), f"{name} deleted")
    said = _configs(scene, "--alter", *one, "--add-config", "node.id=9", status=1)
    seen["read only"] = _error(said)
    return seen


def records_delete(scene: Scene) -> object:
    """kafka-delete-records: to an offset, to the end, beyond it."""
    topic = scene.topic("records")
    write(scene, topic, (f"{n}" for n in range(10)))
    seen = {}
    for name, offset in (("some", 4), ("beyond", 11), ("all", -1)):
        asked = {"partitions": [{"topic": topic, "partition": 0, "offset": offset}], "version": 1}
        path = file_of(json.dumps(asked), "offsets.json")
        seen[name] = tools(scene).run("DeleteRecordsCommand", "--offset-json-file", path).lines
        if name == "some":
            equal(read(scene, topic, 1), ["4"], "the first record left")
    true("low_watermark: 4" in str(seen["some"]), seen)
    true("low_watermark: 10" in str(seen["all"]), seen)
    return seen


def offsets_list(scene: Scene) -> object:
    """kafka-get-offsets, by every question."""
    topic = scene.topic("offsets", 2)
    run = tools(scene).run
    run("VerifiableProducer", "--topic", topic, "--max-messages", "10", "--repeating-keys", "1",
        "--message-create-time", str(FIRST_TIME))  # fmt: skip
    seen = {}
    for time in ("earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered",
                 "earliest-pending-upload", str(FIRST_TIME), str(FIRST_TIME * 2)):  # fmt: skip
        said = run("GetOffsetShell", "--topic", topic, "--time", time)
        seen[time] = [line.partition(":")[2] for line in said.lines]
    written = [int(line.partition(":")[2]) for line in seen["latest"]]
    equal(sorted(written), [0, 10])
    chosen = run("GetOffsetShell", "--topic-partitions", f"{topic}:1", "--time", "latest")
    equal(len(chosen.lines), 1)
    missing = run("GetOffsetShell", "--topic", "foreign-missing", status=1)
    equal(seen["earliest"], ["0:0", "1:0"])
    return {**seen, "missing": missing.err.splitlines()[:1]}


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
    offsets_list,
)
