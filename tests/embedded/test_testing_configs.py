"""Configurations of topics over the wire: what is described, what may be altered, and how not.

Each expected answer is Apache Kafka 4.3.0's to the same request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages import alter_configs, incremental_alter_configs
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.testing import Cluster
from tests.embedded.config_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    INVALID,
    LOGGER,
    METRICS,
    REQUEST,
    SET,
    SUBTRACT,
    TOPIC,
    UNKNOWN,
    Entry,
    alter,
    configured_cluster,
    describe,
    replace,
    shown,
)
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with configured_cluster() as one:
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.bootstrap) as one:
        yield one


# What is described


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cleanup.policy", ("delete", 5, [("log.cleanup.policy", "delete", 5)])),
        (
            "retention.ms",
            ("-1", 4, [("log.retention.ms", "-1", 4), ("log.retention.hours", "168", 5)]),
        ),
        (
            "segment.index.bytes",
            (
                "1048576",
                4,
                [
                    ("log.index.size.max.bytes", "1048576", 4),
                    ("log.index.size.max.bytes", "10485760", 5),
                ],
            ),
        ),
        ("segment.ms", ("604800000", 5, [])),
        ("flush.ms", ("9223372036854775807", 5, [])),
        (
            "min.insync.replicas",
            ("1", 3, [("min.insync.replicas", "1", 3), ("min.insync.replicas", "1", 5)]),
        ),
        ("remote.storage.enable", ("false", 5, [])),
    ],
)
async def test_a_topics_value_and_its_synonyms(peer: RawPeer, name: str, expected: object) -> None:
    assert await shown(peer, TOPIC, "t", name) == expected


async def test_all_are_described_in_the_order_of_kafka(peer: RawPeer) -> None:
    topic = (await describe(peer, TOPIC, "t")).configs
    broker = (await describe(peer, BROKER, "1")).configs
    assert (len(topic), len(broker)) == (33, 340)
    assert [one.name for one in topic][:3] == [
        "compression.type",
        "remote.log.delete.on.disable",
        "leader.replication.throttled.replicas",
    ]
    assert [one.name for one in broker][:2] == [
        "log.cleaner.min.compaction.lag.ms",
        "offsets.topic.num.partitions",
    ]


@pytest.mark.parametrize(
    ("name", "value", "read_only", "sensitive", "kind"),
    [
        ("log.retention.hours", "168", True, False, 3),
        ("log.roll.ms", None, False, False, 5),
        ("sasl.jaas.config", None, False, True, 9),
        ("ssl.engine.factory.class", None, False, False, 8),
        ("offsets.topic.replication.factor", "3", True, False, 4),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", False, False, 6),
        ("node.id", "1", True, False, 3),
    ],
)
async def test_what_is_said_of_a_brokers_configuration(
    peer: RawPeer, name: str, value: str | None, read_only: bool, sensitive: bool, kind: int
) -> None:
    (got,) = (await describe(peer, BROKER, "1", name)).configs
    assert got.value == value
    assert (got.read_only, got.is_sensitive, got.config_type) == (read_only, sensitive, kind)


async def test_documentation_comes_where_it_is_wanted(peer: RawPeer) -> None:
    for kind, name, count in ((TOPIC, "t", 33), (BROKER, "1", 340), (GROUP, "g", 17)):
        wanted = (await describe(peer, kind, name, docs=True)).configs
        assert len([one for one in wanted if one.documentation]) == count
        plain = (await describe(peer, kind, name)).configs
        assert {one.documentation for one in plain} == {None}


MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)


@pytest.mark.parametrize(
    ("kind", "name", "code", "text"),
    [
        (TOPIC, "nope", UNKNOWN, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", REQUEST, "Broker id must not be empty"),
        (LOGGER, "2", REQUEST, "Unexpected broker id, expected 1 but received 2"),
        (METRICS, "", REQUEST, "Client metrics subscription name must not be empty"),
        (GROUP, "", REQUEST, "Group name must not be empty"),
        (3, "x", REQUEST, MALFORMED),
    ],
)
async def test_what_cannot_be_described(
    peer: RawPeer, kind: int, name: str, code: int, text: str
) -> None:
    got = await describe(peer, kind, name)
    assert (got.error_code, got.error_message, got.configs) == (code, text, [])


async def test_unknown_names_are_left_out_and_none_means_all(peer: RawPeer) -> None:
    assert (await describe(peer, TOPIC, "t", "nope")).configs == []
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", [])], False, False)
    (got,) = (await peer.call(request, 4)).results
    assert (len(got.configs), got.error_message) == (33, "")


# Topics


async def test_a_topics_configuration_is_set_and_counts_at_once(
    cluster: Cluster, peer: RawPeer
) -> None:
    entry = ("max.message.bytes", SET, " 100 ")
    assert await alter(peer, TOPIC, "t", entry) == (0, None)
    assert await shown(peer, TOPIC, "t", "max.message.bytes") == (
        "100",
        1,
        [("max.message.bytes", "100", 1), ("message.max.bytes", "1048588", 5)],
    )
    got = (await peer.call(produce("t", batch_bytes(40)), 9)).responses[0].partition_responses[0]
    assert got.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(peer, TOPIC, "t", ("max.message.bytes", DELETE, None)) == (0, None)
    got = (await peer.call(produce("t", batch_bytes(40)), 9)).responses[0].partition_responses[0]
    assert got.error_code == 0


async def test_validation_alone_changes_nothing(peer: RawPeer) -> None:
    entry = ("retention.ms", SET, "5000")
    assert await alter(peer, TOPIC, "t", entry, validate_only=True) == (0, None)
    assert (await shown(peer, TOPIC, "t", "retention.ms"))[:2] == ("-1", 4)


async def test_lists_grow_and_shrink(peer: RawPeer) -> None:
    steps = [
        ((APPEND, "compact"), "delete,compact"),
        ((APPEND, "compact"), "delete,compact"),
        ((SUBTRACT, "delete"), "compact"),
        ((SUBTRACT, "compact"), ""),
        ((SET, "compact , delete"), "compact,delete"),
        ((SET, "compact,compact"), "compact"),
        ((SUBTRACT, "foo"), "compact"),
    ]
    for (operation, value), expected in steps:
        assert await alter(peer, TOPIC, "t", ("cleanup.policy", operation, value)) == (0, None)
        assert (await shown(peer, TOPIC, "t", "cleanup.policy"))[:2] == (expected, 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "retention.ms",
            "abc",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "retention.ms",
            "-5",
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        ("nope", "1", "Unknown topic config name: nope"),
        ("message.format.version", "2.0", "Unknown topic config name: message.format.version"),
        (
            "cleanup.policy",
            "compact,,delete",
            "Configuration 'cleanup.policy' values must not be empty.",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, "
            "delete",
        ),
        (
            "remote.storage.enable",
            "true",
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage.",
        ),
        (
            "follower.replication.throttled.replicas",
            "x",
            "Invalid value [x] for configuration follower.replication.throttled.replicas: "
            "follower.replication.throttled.replicas must be the literal '*' or a list of "
            "replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more "
            "than 1",
        ),
    ],
)
async def test_values_that_a_topic_cannot_have(
    peer: RawPeer, name: str, value: str, text: str
) -> None:
    assert await alter(peer, TOPIC, "t", (name, SET, value)) == (INVALID, text)
    assert await replace(peer, TOPIC, "t", (name, value)) == (INVALID, text)


@pytest.mark.parametrize(
    ("topic", "entries", "code", "text"),
    [
        (
            "t",
            [("retention.ms", SET, None)],
            REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            "t",
            [("a", DELETE, None), ("b", SET, None), ("c", SET, None)],
            REQUEST,
            "Null value not supported for : b, c",
        ),
        (
            "t",
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            "t",
            [("retention.ms", APPEND, "1")],
            INVALID,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            "t",
            [("nope", SUBTRACT, "1")],
            INVALID,
            "Can't SUBTRACT to key nope because its type is not LIST.",
        ),
        ("t", [("retention.ms", 9, "1")], -1, None),
        (
            "t",
            [("retention.ms", SET, "x"), ("segment.ms", SET, "y"), ("cleanup.policy", SET, "z")],
            INVALID,
            "Invalid value y for configuration segment.ms: Not a number of type LONG",
        ),
        ("nope", [("retention.ms", SET, "1")], UNKNOWN, "The topic 'nope' does not exist."),
        (
            "nope",
            [("retention.ms", SET, "x")],
            INVALID,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        ("", [], REQUEST, "Default topic resources are not allowed."),
        ("t", [], 0, None),
        ("t", [("nope", DELETE, None)], 0, None),
    ],
)
async def test_requests_for_topics(
    peer: RawPeer, topic: str, entries: list[Entry], code: int, text: str | None
) -> None:
    assert await alter(peer, TOPIC, topic, *entries) == (code, text)


async def test_a_resource_may_be_named_once(peer: RawPeer) -> None:
    for module, options in ((incremental_alter_configs, 1), (alter_configs, 2)):
        twice = [module.AlterConfigsResource(TOPIC, "t", []) for _ in range(2)]
        request: Any = (
            incremental_alter_configs.IncrementalAlterConfigsRequest(twice, False)
            if options == 1
            else alter_configs.AlterConfigsRequest(twice, False)
        )
        got = (await peer.call(request, options)).responses
        assert [(one.error_code, one.error_message) for one in got] == [
            (REQUEST, "Each resource must appear at most once.")
        ] * 2


async def test_the_older_api_takes_away_what_it_does_not_name(peer: RawPeer) -> None:
    await alter(peer, TOPIC, "t", ("retention.ms", SET, "1"))
    assert await replace(peer, TOPIC, "t", validate_only=True) == (0, None)
    assert (await shown(peer, TOPIC, "t", "retention.ms"))[1] == 1
    assert await replace(peer, TOPIC, "t", ("segment.ms", "5")) == (0, None)
    assert (await shown(peer, TOPIC, "t", "retention.ms"))[1] == 4
    assert await shown(peer, TOPIC, "t", "segment.ms") == ("5", 1, [("segment.ms", "5", 1)])
    assert await replace(peer, LOGGER, "1", ("root", "INFO")) == (
        REQUEST,
        "Unknown resource type 8",
    )
