"""Kafka's command line tools on its Java clients: records out and in, and the play of all.

The tools are those of `kafka-tools` and `kafka_2.13`, run unchanged by their main classes.
"""

from __future__ import annotations

import json

from tests.foreign.clients import java_admin, java_groups, java_transactions
from tests.foreign.clients.java_tools import RELEASE, read, tools, write
from tests.foreign.scene import FIRST_TIME, Feature, Scene, by_name, command_line, equal, play, true
from tests.interop.peers.sample import CODECS


def produce_records(scene: Scene) -> object:
    """Keys, nulls and headers through the console; times by the verifiable producer."""
    topic = scene.topic("records")
    lines = [
        "one:1,two:2\tk\tplain",
        "NIL\t\tempty key",
        "h:NIL\tNIL\tnull key and header",
        "h:x\tk\tNIL",
        "ключ:знач\tklüch\tgrüße",
    ]
    reader = ("parse.key=true", "parse.headers=true", "null.marker=NIL")
    properties = [word for one in reader for word in ("--reader-property", one)]
    write(scene, topic, lines, *properties)
    shown = ("print.key=true", "print.headers=true", "print.partition=true", "print.offset=true")
    properties = [word for one in shown for word in ("--formatter-property", one)]
    properties += ["--formatter-property", "null.literal=NIL"]
    found = read(scene, topic, len(lines), *properties)
    expected = [f"Partition:0\tOffset:{n}\t{line}" for n, line in enumerate(lines)]
    expected[1] = "Partition:0\tOffset:1\tNO_HEADERS\t\tempty key"
    equal(found, expected)
    _verifiable(scene, topic, 3, "--message-create-time", str(FIRST_TIME))
    where = ("--partition", "0", "--offset", "5", "--formatter-property", "print.timestamp=true")
    times = [line.split("\t")[0] for line in read(scene, topic, 3, *where)]
    equal(times[0].partition(":")[0], "CreateTime")
    true(int(times[0].partition(":")[2]) >= FIRST_TIME, "the time as it was given")
    return found


def _verifiable(scene: Scene, topic: str, count: int, *arguments: str) -> list[int]:
    """Offsets of what the verifiable producer wrote."""
    said = tools(scene).run(
        "VerifiableProducer", "--topic", topic, "--max-messages", str(count), *arguments
    )
    reported = [json.loads(line) for line in said.lines]
    (end,) = (one for one in reported if one["name"] == "tool_data")
    equal([end["sent"], end["acked"]], [count, count])
    return [one["offset"] for one in reported if one["name"] == "producer_send_success"]


def produce_codecs(scene: Scene) -> object:
    """All five, and the topic's own."""
    for codec in CODECS:
        topic = scene.topic(f"codec-{codec}")
        lines = [f"{n}" * 100 for n in range(100)]
        write(scene, topic, lines, "--compression-codec", codec)
        equal(read(scene, topic, 100), lines, codec)
    topic = scene.topic("codec-topic", compression_type="zstd")
    write(scene, topic, ["x" * 1000] * 10, "--compression-codec", "gzip")
    equal(len(read(scene, topic, 10)), 10)
    return list(CODECS)


def produce_idempotent(scene: Scene) -> object:
    """The verifiable producer, which is idempotent; every acknowledged offset."""
    topic = scene.topic("idempotent")
    offsets = _verifiable(scene, topic, 2000)
    equal(offsets, list(range(2000)))
    equal(read(scene, topic, 2000), [str(n) for n in range(2000)])
    return len(offsets)


def produce_acks(scene: Scene) -> object:
    """Unacknowledged, by the leader, by all."""
    seen: dict[str, object] = {}
    for acks in ("0", "1", "-1"):
        topic = scene.topic("acks")
        offsets = _verifiable(scene, topic, 3, "--acks", acks)
        equal(read(scene, topic, 3), ["0", "1", "2"])
        seen[acks] = offsets
    return seen


def produce_large(scene: Scene) -> object:
    """Records of nearly 1 MB."""
    topic = scene.topic("large")
    lines = [str(n) * 1_000_000 for n in range(5)]
    write(scene, topic, lines)
    found = read(scene, topic, 5)
    true(found == lines, "the records came back as they were")
    return [len(line) for line in found]


def produce_refuse(scene: Scene) -> object:
    """Too large for the topic."""
    topic = scene.topic("refuse", max_message_bytes=1000)
    run = tools(scene).run
    run("ConsoleProducer", "--topic", topic, stdin="x" * 5000 + "\n")
    _verifiable(scene, topic, 1, "--value-prefix", "7")
    equal(read(scene, topic, 1), ["7.0"], "only what fits")
    return "RecordTooLargeException is in the log of the tool, not in its output"


def produce_auto_create(scene: Scene) -> object:
    """The first line makes the topic."""
    topic = scene.name("auto")
    tools(scene).run("ConsoleProducer", "--topic", topic, stdin="first\n")
    return read(scene, topic, 1)


def consume_assign(scene: Scene) -> object:
    """One partition, both isolation levels."""
    topic = scene.topic("assign", 2)
    write(scene, topic, (f"{n}" for n in range(20)), "--command-property", "linger.ms=100")
    for level in ("read_uncommitted", "read_committed"):
        found = read(scene, topic, 20, "--isolation-level", level)
        equal(sorted(map(int, found)), list(range(20)), level)
    run = tools(scene).run
    ends = run("GetOffsetShell", "--topic", topic).lines
    counts = {one.split(":")[1]: int(one.split(":")[2]) for one in ends}
    equal(sum(counts.values()), 20, "records of both partitions")
    for partition, count in counts.items():
        if count:
            equal(len(read(scene, topic, count, "--partition", partition)), count)
    included = run("ConsoleConsumer", "--include", f"{topic[:-1]}.", "--from-beginning",
                   "--max-messages", "20", "--timeout-ms", "30000")  # fmt: skip
    equal(len(included.lines), 20, "records by a pattern")
    return 20


def consume_seek(scene: Scene) -> object:
    """To an offset and both ends."""
    topic = scene.topic("seek")
    write(scene, topic, (f"{n}" for n in range(10)))
    seen = {
        offset: read(scene, topic, 1, "--partition", "0", "--offset", offset)[0]
        for offset in ("earliest", "7")
    }
    run = tools(scene).run
    latest = run("ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "latest",
                 "--timeout-ms", "1000")  # fmt: skip
    equal([seen, latest.lines], [{"earliest": "0", "7": "7"}, []])
    return seen


def consume_reset(scene: Scene) -> object:
    """An offset out of range."""
    topic = scene.topic("reset")
    write(scene, topic, ("0", "1", "2"))
    where = ("--partition", "0", "--offset", "100")
    first = read(scene, topic, 1, *where, "--command-property", "auto.offset.reset=earliest")
    run = tools(scene).run
    latest = run("ConsoleConsumer", "--topic", topic, *where, "--timeout-ms", "1000",
                 "--command-property", "auto.offset.reset=latest")  # fmt: skip
    none = run("ConsoleConsumer", "--topic", topic, *where, "--timeout-ms", "30000",
               "--command-property", "auto.offset.reset=none")  # fmt: skip
    true("OffsetOutOfRangeException" in none.err, none)
    return {"earliest": first, "latest": latest.lines, "none": none.lines}


def load(scene: Scene) -> object:
    """The perf tests."""
    topic, count = scene.topic("load", 3), 20_000
    run = tools(scene).run
    said = run("ProducerPerformance", "--topic", topic, "--num-records", str(count),
               "--record-size", "100", "--throughput", "-1", "--print-metrics",
               "--command-property", "compression.type=lz4")  # fmt: skip
    true(f"{count} records sent" in said.out, said.out[:500])
    said = run("ConsumerPerformance", "--topic", topic, "--num-records", str(count),
               "--timeout", "30000", "--print-metrics")  # fmt: skip
    names = [name.strip() for name in said.lines[0].split(",")]
    figures = dict(zip(names, said.lines[1].split(","), strict=True))
    true(int(figures["data.consumed.in.nMsg"]) >= count, said.out[:500])
    said = run("EndToEndLatency", "--topic", topic, "--num-records", "200", "--producer-acks",
               "all", "--record-size", "100")  # fmt: skip
    true("Percentiles" in said.out, said.out[:500])
    return names


_OWN: tuple[Feature, ...] = (
    produce_records,
    produce_codecs,
    produce_idempotent,
    produce_acks,
    produce_large,
    produce_refuse,
    produce_auto_create,
    consume_assign,
    consume_seek,
    consume_reset,
    load,
)

if __name__ == "__main__":
    others = (java_admin, java_groups, java_transactions)
    features = by_name((*_OWN, *(one for other in others for one in other.PLAYED)))
    unable = {}
    if command_line().ca is not None:
        for name in ("commit", "offsets", "fence", "copy"):
            del features[f"transactions.{name}"]
            unable[f"transactions.{name}"] = "TransactionalMessageCopier takes no settings"
    play(RELEASE, features, unable)
