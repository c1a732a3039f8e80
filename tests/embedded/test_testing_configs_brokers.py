"""Configurations of brokers, loggers, client metrics and groups over the wire.

Each expected answer is Apache Kafka 4.3.0's to the same request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.list_config_resources import ListConfigResourcesRequest
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
    TOPIC,
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
