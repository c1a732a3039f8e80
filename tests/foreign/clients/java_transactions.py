"""Java's transactions: the transactional copier, kafka-producer-perf-test, kafka-transactions."""

from __future__ import annotations

import json

from tests.foreign.clients.java_tools import read, tools, write
from tests.foreign.scene import Feature, Scene, equal, true, until
from tests.foreign.transactions import BATCH, COPIED, COPIED_PARTITIONS

_COMMITTED = ("--isolation-level", "read_committed")
_DONE = "ShutdownComplete"
_MORE = 1000
"""Records for several copiers at once: one alone would be done before the others have joined."""


def _fill(scene: Scene, topic: str, count: int = COPIED) -> list[str]:
    """Numbers for all partitions of a topic."""
    lines = (f"{n}\t{n}" for n in range(count))
    write(scene, topic, lines, "--reader-property", "parse.key=true")
    return [str(n) for n in range(count)]


def _copier(scene: Scene, source: str, target: str, group: str, name: str) -> tuple[str, ...]:
    """The arguments of a copier; of the transactions, it aborts some at random."""
    return (
        *("TransactionalMessageCopier", "--input-topic", source, "--output-topic", target),
        *("--consumer-group", group, "--transactional-id", name, "--transaction-size", str(BATCH)),
        *("--enable-random-aborts", "--use-group-metadata"),
    )


def _transactions(scene: Scene, *arguments: str, status: int = 0) -> list[list[str]]:
    """The cells that kafka-transactions prints, without the head."""
    said = tools(scene).run("TransactionsCommand", *arguments, status=status)
    return [[cell.strip() for cell in line.split("\t")] for line in said.lines[1:]]


def _described(scene: Scene, name: str) -> dict[str, str]:
    """What kafka-transactions describes of an id; empty while nothing is known of it."""
    said = tools(scene).run("TransactionsCommand", "list")
    if name not in said.out:
        return {}
    said = tools(scene).run("TransactionsCommand", "describe", "--transactional-id", name)
    head, row = ([cell.strip() for cell in line.split("\t")] for line in said.lines)
    return dict(zip(head, row, strict=True))


def _begin(scene: Scene, topic: str, name: str) -> int:
    """A producer in the middle of a transaction that it doesn't end."""
    number = tools(scene).start(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "100000", "--record-size", "10"),
        *("--throughput", "10", "--transactional-id", name, "--transaction-duration-ms", "90000"),
    )
    until(lambda: topic in _described(scene, name).get("TopicPartitions", ""), "a transaction")
    return number


def _terminate(scene: Scene, number: int, name: str) -> None:
    """End the transaction, and see that its producer, which goes on trying, is refused."""
    tools(scene).run("TransactionsCommand", "forceTerminateTransaction", "--transactionalId", name)
    refused = "InvalidProducerEpochException"
    until(lambda: refused in tools(scene).output(number).err, "records refused")
    equal(_described(scene, name)["TransactionState"], "Empty")


def transactions_commit(scene: Scene) -> object:
    """The performance tool's transactions, and a copier's that aborts some."""
    timed, source, target = scene.topic("timed"), scene.topic("source"), scene.topic("target")
    said = tools(scene).run(
        "ProducerPerformance",
        *("--topic", timed, "--num-records", "500", "--record-size", "10", "--throughput", "1000"),
        *("--transactional-id", scene.name("id"), "--transaction-duration-ms", "50"),
    )
    true("500 records sent" in said.out, said.out)
    equal(len(read(scene, timed, 500, *_COMMITTED)), 500)
    (end,) = tools(scene).run("GetOffsetShell", "--topic", timed).lines
    true(int(end.split(":")[2]) > 500 + 2, f"several markers: {end}")
    lines = _fill(scene, source)
    name = scene.name("id")
    arguments = _copier(scene, source, target, scene.name("group"), name)
    said = tools(scene).run(*arguments, "--input-partition", "0")
    last = json.loads(said.lines[-1])
    equal([last["stage"], last["consumed"], last["remaining"]], [_DONE, COPIED, 0])
    equal(read(scene, target, COPIED, *_COMMITTED), lines)
    return sorted(last)


def transactions_offsets(scene: Scene) -> object:
    """A copier that ends halfway, and the next one, which goes on behind it."""
    source, target, group = scene.topic("source"), scene.topic("target"), scene.name("group")
    lines = _fill(scene, source)
    arguments = _copier(scene, source, target, group, scene.name("id"))

    def committed() -> list[str]:
        said = tools(scene).run("ConsumerGroupCommand", "--describe", "--group", group)
        rows = [line.split() for line in said.lines]
        return [row[3] for row in rows if row[:2] == [group, source]]

    seen = []
    for count in (COPIED // 4, COPIED - COPIED // 4):
        limit = ("--input-partition", "0", "--max-messages", str(count))
        said = tools(scene).run(*arguments, *limit)
        seen.append(json.loads(said.lines[-1])["consumed"])
        until(lambda: committed() == [str(sum(seen))], f"{sum(seen)} committed")
    equal(seen, [COPIED // 4, COPIED - COPIED // 4])
    equal(read(scene, target, COPIED, *_COMMITTED), lines)
    return seen


def transactions_fence(scene: Scene) -> object:
    """kafka-transactions ends a producer's transaction: it is aborted, its producer fenced."""
    topic, name = scene.topic("fence"), scene.name("id")
    number = _begin(scene, topic, name)
    _terminate(scene, number, name)
    write(scene, topic, ["last"])
    equal(read(scene, topic, 1, *_COMMITTED), ["last"])
    true(read(scene, topic, 1) != ["last"], "a record of the aborted transaction")
    return "InvalidProducerEpochException"


def transactions_copy(scene: Scene) -> object:
    """One copier is stopped on the way; two share the rest, one of them under its id."""
    source = scene.topic("source", COPIED_PARTITIONS)
    target = scene.topic("target", COPIED_PARTITIONS)
    lines = _fill(scene, source, _MORE)
    group, run = scene.name("group"), tools(scene)

    def start(name: str) -> int:
        arguments = _copier(scene, source, target, group, name)
        return run.start(*arguments, "--group-mode", "--input-partition", "-1")

    one, two = scene.name("one"), scene.name("two")
    first = start(two)
    until(lambda: f'"consumed":{BATCH}' in run.output(first).out, "a transaction of the first")
    stopped = run.stop(first)
    true(_DONE in stopped.out, stopped.out)
    copiers = [start(one), start(two)]
    for number in copiers:
        until(lambda number=number: _DONE in run.output(number).out, "the end of a copier", 60.0)
        said = run.output(number)
        equal([said.status, said.err], [0, ""])
    found = read(scene, target, _MORE, *_COMMITTED)
    equal(sorted(found, key=int), lines)
    return len(found)


def transactions_describe(scene: Scene) -> object:
    """kafka-transactions: list, describe, describe-producers, find-hanging."""
    topic, name = scene.topic("described"), scene.name("open")
    number = _begin(scene, topic, name)
    one = _described(scene, name)
    true(int(one["TransactionDurationMs"]) >= 0, f"{one}")
    seen: dict[str, object] = {
        "head": list(one),
        "state": one["TransactionState"],
        "timeout": one["TransactionTimeoutMs"],
        "partitions": one["TopicPartitions"].replace(topic, "TOPIC"),
    }
    (listed,) = _transactions(scene, "list", "--transactional-id-pattern", f"{name[:-1]}.")
    equal([listed[2], listed[3]], [one["ProducerId"], "Ongoing"])
    pattern = ("--transactional-id-pattern", name)
    seen["long"] = _transactions(scene, "list", *pattern, "--duration-filter", "1000000")
    (active,) = _transactions(scene, "describe-producers", "--topic", topic, "--partition", "0")
    equal(active[:2], [one["ProducerId"], one["ProducerEpoch"]])
    equal(active[5], "0", "where the transaction begins")
    seen["hanging"] = _transactions(scene, "find-hanging", "--topic", topic, "--partition", "0")
    unknown = ("describe", "--transactional-id", "foreign-missing")
    seen["unknown"] = tools(scene).run("TransactionsCommand", *unknown, status=1).err
    _terminate(scene, number, name)
    equal([seen["state"], seen["long"], seen["hanging"]], ["Ongoing", [], []])
    return seen


PLAYED: tuple[Feature, ...] = (
    transactions_commit,
    transactions_offsets,
    transactions_fence,
    transactions_copy,
    transactions_describe,
)
