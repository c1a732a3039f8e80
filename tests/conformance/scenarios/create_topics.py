"""CreateTopics: counts, assignments, configs, names, and what is refused."""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.conformance.run import Run
from tests.conformance.scenario import scenario

Assignments = list[tuple[int, list[int]]]


def spec(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: Assignments | None = None,
    **configs: str | None,
) -> CreatableTopic:
    """One topic of a request; a config's name has underscores for dots."""
    return CreatableTopic(
        name,
        partitions,
        factor,
        [CreatableReplicaAssignment(index, who) for index, who in assignments or ()],
        [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    """A request."""
    return CreateTopicsRequest(list(topics), 30_000, validate_only)


@scenario("CreateTopics")
async def in_every_version(run: Run) -> None:
    for version in range(2, 8):
        await run.ask(create(spec(run.name(f"v{version}"), 2)), version)


@scenario("CreateTopics")
async def defaults(run: Run) -> None:
    for version in (4, 5, 7):
        await run.ask(create(spec(run.name(f"v{version}"), -1, -1)), version)


@scenario("CreateTopics")
async def several_at_once(run: Run) -> None:
    await run.ask(create(*(spec(run.name(f"t{one}"), one + 1) for one in range(5))), 7)


@scenario("CreateTopics", ErrorCode.TOPIC_ALREADY_EXISTS)
async def one_that_is_there(run: Run) -> None:
    topic = await run.topic()
    for version in (2, 5, 7):
        await run.ask(create(spec(topic)), version)
    await run.ask(create(spec(topic), spec(run.name("new"))), 7, "and a new one")


@scenario("CreateTopics", ErrorCode.TOPIC_ALREADY_EXISTS)
async def validation_only(run: Run) -> None:
    name = run.name("dry")
    for version in (2, 5, 7):
        await run.ask(create(spec(name, 3), validate_only=True), version)
    topic = await run.topic()
    await run.ask(create(spec(topic), validate_only=True), 7, "of one that is there")


@scenario("CreateTopics", ErrorCode.INVALID_TOPIC_EXCEPTION)
async def names_that_no_topic_may_have(run: Run) -> None:
    for name in ("", ".", "..", "a b", "a/b", "ä", "x" * 250):
        await run.ask(create(spec(name)), 7, repr(name[:9]))


@scenario("CreateTopics", ErrorCode.INVALID_REQUEST)
async def the_topic_of_metadata(run: Run) -> None:
    await run.ask(create(spec("__cluster_metadata")), 7)


@scenario("CreateTopics", ErrorCode.INVALID_TOPIC_EXCEPTION)
async def names_that_collide(run: Run) -> None:
    await run.topic("under_score")
    await run.ask(create(spec(run.name("under.score"))), 7)
    await run.ask(create(spec(run.name("a.b")), spec(run.name("a_b"))), 7, "in one request")


@scenario("CreateTopics", ErrorCode.INVALID_PARTITIONS)
async def numbers_of_partitions(run: Run) -> None:
    for count in (0, -2, -1):
        await run.ask(create(spec(run.name(f"p{count}"), count)), 7, str(count))


@scenario("CreateTopics", ErrorCode.INVALID_REPLICATION_FACTOR)
async def replication_factors(run: Run) -> None:
    for factor in (0, -2, 2, 4):
        await run.ask(create(spec(run.name(f"r{factor}"), 1, factor)), 7, str(factor))
    await run.ask(create(spec(run.name("both"), 0, 0)), 7, "both")


@scenario("CreateTopics", ErrorCode.POLICY_VIOLATION)
async def too_many_partitions(run: Run) -> None:
    await run.ask(create(spec(run.name("many"), 10_001)), 7)
    await run.ask(create(spec(run.name("a"), 6_000), spec(run.name("b"), 6_000)), 7, "together")


@scenario("CreateTopics", ErrorCode.INVALID_REQUEST)
async def the_same_name_twice(run: Run) -> None:
    name, other = run.name("twice"), run.name("once")
    await run.ask(create(spec(name), spec(name, 2), spec(other)), 7)
    await run.ask(create(spec(name), spec(name)), 4)


@scenario("CreateTopics")
async def no_topics(run: Run) -> None:
    await run.ask_each(create(), 2, 5, 7)


@scenario("CreateTopics")
async def with_replicas_given(run: Run) -> None:
    await run.ask(create(spec(run.name("one"), -1, -1, [(0, [1])])), 7)
    await run.ask(create(spec(run.name("two"), -1, -1, [(1, [1]), (0, [1])])), 4)


@scenario("CreateTopics", ErrorCode.INVALID_REPLICA_ASSIGNMENT)
async def replicas_that_can_not_be(run: Run) -> None:
    cases: dict[str, Assignments] = {
        "unknown broker": [(0, [7])],
        "twice": [(0, [1, 1])],
        "empty": [(0, [])],
        "a gap": [(0, [1]), (2, [1])],
        "not from 0": [(1, [1])],
        "negative index": [(-1, [1])],
        "partition twice": [(0, [1]), (0, [1])],
        "other size": [(0, [1]), (1, [1, 1])],
        "negative broker": [(0, [-1])],
    }
    for note, assignments in cases.items():
        await run.ask(create(spec(run.name("t"), -1, -1, assignments)), 7, note)


@scenario("CreateTopics", ErrorCode.INVALID_REQUEST)
async def replicas_and_counts_together(run: Run) -> None:
    for partitions, factor in ((1, -1), (-1, 1), (1, 1)):
        asked = spec(run.name("t"), partitions, factor, [(0, [1])])
        await run.ask(create(asked), 7, f"{partitions}, {factor}")


@scenario("CreateTopics")
async def configs(run: Run) -> None:
    given = {"retention_ms": "1000", "cleanup_policy": "compact,delete", "segment_ms": " 500 "}
    for version in (4, 5, 7):
        await run.ask(create(spec(run.name(f"v{version}"), 1, 1, None, **given)), version)


@scenario("CreateTopics", ErrorCode.INVALID_CONFIG)
async def configs_that_can_not_be(run: Run) -> None:
    cases: dict[str, dict[str, str | None]] = {
        "unknown": {"no_such_thing": "1"},
        "no number": {"retention_ms": "soon"},
        "no boolean": {"preallocate": "maybe"},
        "too low": {"max_message_bytes": "-1"},
        "segment too small": {"segment_bytes": "13"},
        "no choice": {"cleanup_policy": "shred"},
        "no type": {"message_timestamp_type": "Never"},
        "no codec": {"compression_type": "rar"},
        "null": {"retention_ms": None},
        "two nulls": {"retention_ms": None, "segment_ms": None},
        "ratio": {"min_cleanable_dirty_ratio": "1.5"},
        "empty number": {"retention_ms": ""},
        "level": {"compression_gzip_level": "0"},
        "lags": {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
        "zstd level": {"compression_zstd_level": "23"},
        "overflow": {"segment_bytes": "99999999999"},
        "replicas": {"min_insync_replicas": "0"},
        "empty policy": {"cleanup_policy": ""},
    }
    for note, given in cases.items():
        await run.ask(create(spec(run.name("t"), 1, 1, None, **given)), 7, note)
    await run.ask(create(spec(run.name("t"), 1, 1, None, no_such_thing="1")), 4, "old")


@scenario("CreateTopics")
async def one_that_fails_beside_one_that_does_not(run: Run) -> None:
    await run.ask(create(spec(run.name("good")), spec("bad name"), spec(run.name("none"), 0)), 7)
