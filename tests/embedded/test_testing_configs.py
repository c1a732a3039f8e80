"""Configurations over the wire: what is described, what may be altered, and in which words not.

Each expected answer is Apache Kafka 4.3.0's to the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages import alter_configs, incremental_alter_configs
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
INVALID, REQUEST, UNKNOWN = 40, 42, 3
Entry = tuple[str, int, str | None]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    configs = {"log.retention.ms": -1, "log.index.size.max.bytes": 1 << 20, "num.io.threads": 4}
    async with asyncio.timeout(60), Cluster(1, broker_configs=configs) as one:
        one.create_topic("t")
        yield one


@pytest.fixture
async def peer(cluster: Cluster) -> AsyncIterator[RawPeer]:
    async with RawPeer.to(cluster.bootstrap) as one:
        yield one


async def alter(
    peer: RawPeer, kind: int, name: str, *entries: Entry, validate_only: bool = False
) -> tuple[int, str | None]:
    """Code and text of an incremental alteration."""
    wanted = incremental_alter_configs.AlterConfigsResource(
        kind, name, [incremental_alter_configs.AlterableConfig(*one) for one in entries]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([wanted], validate_only)
    (got,) = (await peer.call(request, 1)).responses
    assert (got.resource_type, got.resource_name) == (kind, name)
    return got.error_code, got.error_message


async def replace(
    peer: RawPeer, kind: int, name: str, *entries: tuple[str, str | None], **options: bool
) -> tuple[int, str | None]:
    """The same of the older API."""
    wanted = alter_configs.AlterConfigsResource(
        kind, name, [alter_configs.AlterableConfig(*one) for one in entries]
    )
    request = alter_configs.AlterConfigsRequest([wanted], options.get("validate_only", False))
    (got,) = (await peer.call(request, 2)).responses
    return got.error_code, got.error_message


async def describe(peer: RawPeer, kind: int, name: str, *keys: str, docs: bool = False) -> Any:
    request = DescribeConfigsRequest(
        [DescribeConfigsResource(kind, name, list(keys) or None)], True, docs
    )
    (got,) = (await peer.call(request, 4)).results
    return got


async def shown(peer: RawPeer, kind: int, name: str, key: str) -> Any:
    """Value, source and synonyms of one configuration; None where it isn't described."""
    got = (await describe(peer, kind, name, key)).configs
    if not got:
        return None
    (one,) = got
    synonyms = [(each.name, each.value, each.source) for each in one.synonyms]
    return one.value, one.config_source, synonyms


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


# Brokers


async def test_a_broker_and_all_brokers_are_layers(peer: RawPeer) -> None:
    name, default = "log.segment.bytes", ("log.segment.bytes", "1073741824", 5)
    await alter(peer, BROKER, "", (name, SET, "3000000"))
    assert await shown(peer, TOPIC, "t", "segment.bytes") == (
        "3000000",
        3,
        [(name, "3000000", 3), default],
    )
    await alter(peer, BROKER, "1", (name, SET, "2000000"))
    layers = [(name, "2000000", 2), (name, "3000000", 3), default]
    assert await shown(peer, BROKER, "1", name) == ("2000000", 2, layers)
    assert await shown(peer, TOPIC, "t", "segment.bytes") == ("2000000", 2, layers)
    assert await shown(peer, BROKER, "", name) == ("3000000", 3, [(name, "3000000", 3)])
    await alter(peer, BROKER, "1", (name, DELETE, None))
    await alter(peer, BROKER, "", (name, DELETE, None))
    assert await shown(peer, BROKER, "1", name) == ("1073741824", 5, [default])


async def test_what_is_set_for_all_brokers_counts_for_topics_at_once(
    cluster: Cluster, peer: RawPeer
) -> None:
    assert await alter(peer, BROKER, "", ("message.max.bytes", SET, "100")) == (0, None)
    got = (await peer.call(produce("t", batch_bytes(40)), 9)).responses[0].partition_responses[0]
    assert got.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_an_unknown_dynamic_configuration_is_kept_secret(peer: RawPeer) -> None:
    assert await alter(peer, BROKER, "1", ("my.password", SET, "x")) == (0, None)
    (got,) = (await describe(peer, BROKER, "1", "my.password")).configs
    assert (got.value, got.is_sensitive, got.read_only, got.config_type) == (None, True, True, 0)
    await alter(peer, BROKER, "1", ("leader.replication.throttled.rate", SET, "5"))
    assert await shown(peer, BROKER, "1", "leader.replication.throttled.rate") == (
        "5",
        2,
        [("leader.replication.throttled.rate", "5", 2)],
    )


PER_LISTENER = (
    "These security configs can be dynamically updated only per-listener using the listener "
    "prefix: [ssl.keystore.type]"
)
THREADS = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update "
    "validation failed for num.io.threads=9, value should not be greater than double the current "
    "value 4 for configuration Invalid dynamic configuration"
)


@pytest.mark.parametrize(
    ("name", "entry", "code", "text"),
    [
        ("7", ("a", SET, "1"), REQUEST, "Unexpected broker id, expected 1, but received 7"),
        ("x", ("a", SET, "1"), REQUEST, "Node id must be an integer, but it is: x"),
        (
            "1",
            ("num.partitions", SET, "1"),
            REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        ("", ("ssl.keystore.type", SET, "JKS"), REQUEST, PER_LISTENER),
        (
            "",
            ("listeners", SET, "x"),
            REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listeners]",
        ),
        (
            "1",
            ("message.max.bytes", SET, "-7"),
            REQUEST,
            "Invalid value -7 for configuration message.max.bytes: Value must be at least 0",
        ),
        (
            "1",
            ("log.retention.ms", SET, "0"),
            REQUEST,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or "
            "equal to 1",
        ),
        (
            "1",
            ("log.roll.ms", SET, "0"),
            REQUEST,
            "requirement failed: log.roll.ms must be greater than or equal to 1",
        ),
        ("1", ("num.io.threads", SET, "9"), REQUEST, THREADS),
        (
            "1",
            ("message.max.bytes", APPEND, "5"),
            INVALID,
            "Config value append is not allowed for config key: message.max.bytes",
        ),
        ("1", ("nope", APPEND, "5"), INVALID, "Unknown config name: nope"),
        ("1", ("log.retention.ms", 9, "5"), REQUEST, "Unknown operations type 9"),
        (
            "1",
            ("min.insync.replicas", SET, "1"),
            INVALID,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            "",
            ("min.insync.replicas", DELETE, None),
            INVALID,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        ("", ("min.insync.replicas", SET, "2"), 0, None),
        ("1", ("log.cleanup.policy", APPEND, "compact"), 0, None),
    ],
)
async def test_requests_for_brokers(
    peer: RawPeer, name: str, entry: Entry, code: int, text: str | None
) -> None:
    assert await alter(peer, BROKER, name, entry) == (code, text)


async def test_several_that_cannot_change_are_named_in_the_order_of_kafka(peer: RawPeer) -> None:
    names = ("log.dirs", "num.partitions", "node.id", "broker.rack", "fetch.max.bytes")
    code, text = await alter(peer, BROKER, "1", *((name, SET, "1") for name in names))
    assert (code, text) == (
        REQUEST,
        "Cannot update these configs dynamically: [node.id, num.partitions, broker.rack, "
        "fetch.max.bytes, log.dirs]",
    )


async def test_the_older_api_may_not_take_the_clusters_min_insync_replicas(peer: RawPeer) -> None:
    assert await replace(peer, BROKER, "") == (
        INVALID,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    assert await replace(peer, BROKER, "", ("min.insync.replicas", "2")) == (0, None)
    assert (await shown(peer, TOPIC, "t", "min.insync.replicas"))[:2] == ("2", 3)


# Loggers, client metrics, groups


async def test_levels_of_loggers(peer: RawPeer) -> None:
    assert await alter(peer, LOGGER, "1", ("root", SET, "DEBUG")) == (0, None)
    assert await shown(peer, LOGGER, "1", "root") == ("DEBUG", 6, [])
    refused = [
        (
            ("root", SET, "info"),
            INVALID,
            "Cannot set the log level of root to info as it is not a supported log level. Valid "
            "log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (
            ("root", APPEND, "INFO"),
            REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            ("root", DELETE, None),
            REQUEST,
            "Removing the log level of the root logger is not allowed",
        ),
        (("nope", SET, "INFO"), INVALID, "Logger nope does not exist!"),
        (("root", 9, "INFO"), -1, None),
    ]
    for entry, code, text in refused:
        assert await alter(peer, LOGGER, "1", entry) == (code, text)
    assert await alter(peer, LOGGER, "4", ("root", SET, "INFO")) == (
        REQUEST,
        "Unexpected node id. Expected 1, but received 4",
    )


async def test_subscriptions_of_client_metrics(peer: RawPeer) -> None:
    assert await alter(peer, METRICS, "m", ("interval.ms", SET, "5000")) == (0, None)
    assert await shown(peer, METRICS, "m", "interval.ms") == (
        "5000",
        7,
        [("interval.ms", "5000", 7)],
    )
    assert await shown(peer, METRICS, "m", "metrics") == ("", 5, [])
    refused = [
        (
            ("interval.ms", SET, "5"),
            REQUEST,
            "Invalid value 5 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (("match", SET, "foo"), INVALID, "Illegal client matching pattern: foo"),
        (("match", SET, "client_id=["), INVALID, "Illegal client matching pattern: client_id=["),
        (("nope", SET, "1"), REQUEST, "Unknown client metrics configuration: nope"),
    ]
    for entry, code, text in refused:
        assert await alter(peer, METRICS, "m", entry) == (code, text)
    assert await alter(peer, METRICS, "", ("interval.ms", SET, "5000")) == (
        REQUEST,
        "Subscription name can't be empty",
    )
    entry = ("match", SET, "client_id=a,client_source_port=1")
    assert await alter(peer, METRICS, "m", entry) == (0, None)


async def test_configurations_of_groups(peer: RawPeer) -> None:
    name = "consumer.session.timeout.ms"
    assert await alter(peer, GROUP, "g", (name, SET, "50000")) == (0, None)
    assert await shown(peer, GROUP, "g", name) == (
        "50000",
        8,
        [(name, "50000", 8), (f"group.{name}", "45000", 5)],
    )
    refused = [
        (
            (name, SET, "5"),
            f"{name} must be greater than or equal to group.consumer.min.{name[9:]}",
        ),
        (
            ("streams.num.standby.replicas", SET, "1000"),
            "streams.num.standby.replicas must be less than or equal to "
            "group.streams.max.standby.replicas",
        ),
        (("nope", SET, "5"), "Unknown group config name: nope"),
        (
            ("share.auto.offset.reset", SET, "never"),
            "Invalid value never for configuration share.auto.offset.reset: Invalid value `never` "
            "for configuration share.auto.offset.reset. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
    ]
    for entry, text in refused:
        assert await alter(peer, GROUP, "g", entry) == (INVALID, text)
    assert await alter(peer, GROUP, "", (name, SET, "50000")) == (
        REQUEST,
        "Default group resources are not allowed.",
    )


async def test_other_resources_are_unknown(peer: RawPeer) -> None:
    for kind in (1, 3, 99):
        expected = (REQUEST, f"Unknown resource type {kind}")
        assert await alter(peer, kind, "x", ("a", SET, "1")) == expected
        assert await replace(peer, kind, "x", ("a", "1")) == expected


async def test_what_has_configurations_is_listed(peer: RawPeer) -> None:
    async def listed(*kinds: int, version: int = 1) -> Any:
        got = await peer.call(ListConfigResourcesRequest(list(kinds)), version)
        return got.error_code, [
            (one.resource_type, one.resource_name) for one in got.config_resources
        ]

    await alter(peer, METRICS, "m", ("interval.ms", SET, "5000"))
    await alter(peer, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    everything = [(GROUP, "g"), (METRICS, "m"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")]
    assert await listed() == (0, everything)
    assert await listed(TOPIC, GROUP) == (0, [(GROUP, "g"), (TOPIC, "t")])
    assert await listed(64) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert await listed(version=0) == (0, [(METRICS, "m")])
    await alter(peer, METRICS, "m", ("interval.ms", DELETE, None))
    assert await listed(METRICS) == (0, [])


# Faults


async def test_faults_reach_entries(cluster: Cluster, peer: RawPeer) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.faults.error("IncrementalAlterConfigs", code)
    assert await alter(peer, TOPIC, "t", ("retention.ms", SET, "1")) == (code, None)
    assert (await shown(peer, TOPIC, "t", "retention.ms"))[1] == 4
    cluster.faults.error("AlterConfigs", code)
    assert await replace(peer, TOPIC, "t") == (code, None)
