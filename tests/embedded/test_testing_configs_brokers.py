"""Configurations of brokers, loggers, client metrics and groups over the wire.

Each expected response is Apache Kafka 4.3.0's to the same request, but for the texts.
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
    assert await alter(peer, BROKER, "", ("message.max.bytes", SET, "100")) == 0
    got = (await peer.call(produce("t", batch_bytes(40)), 9)).responses[0].partition_responses[0]
    assert got.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_an_unknown_dynamic_configuration_is_kept_secret(peer: RawPeer) -> None:
    assert await alter(peer, BROKER, "1", ("my.password", SET, "x")) == 0
    (got,) = (await describe(peer, BROKER, "1", "my.password")).configs
    assert (got.value, got.is_sensitive, got.read_only, got.config_type) == (None, True, True, 0)
    await alter(peer, BROKER, "1", ("leader.replication.throttled.rate", SET, "5"))
    assert await shown(peer, BROKER, "1", "leader.replication.throttled.rate") == (
        "5",
        2,
        [("leader.replication.throttled.rate", "5", 2)],
    )


@pytest.mark.parametrize(
    ("name", "entry", "code"),
    [
        ("7", ("a", SET, "1"), REQUEST),
        ("x", ("a", SET, "1"), REQUEST),
        ("1", ("num.partitions", SET, "1"), REQUEST),
        ("", ("ssl.keystore.type", SET, "JKS"), REQUEST),
        ("", ("listeners", SET, "x"), REQUEST),
        ("1", ("message.max.bytes", SET, "-7"), REQUEST),
        ("1", ("log.roll.ms", SET, "0"), REQUEST),
        ("1", ("num.io.threads", SET, "0"), REQUEST),
        ("1", ("num.io.threads", SET, "8"), 0),
        ("1", ("message.max.bytes", APPEND, "5"), INVALID),
        ("1", ("nope", APPEND, "5"), INVALID),
        ("1", ("log.retention.ms", 9, "5"), REQUEST),
        ("1", ("min.insync.replicas", SET, "1"), INVALID),
        ("", ("min.insync.replicas", DELETE, None), INVALID),
        ("", ("min.insync.replicas", SET, "2"), 0),
        ("1", ("log.cleanup.policy", APPEND, "compact"), 0),
    ],
)
async def test_requests_for_brokers(peer: RawPeer, name: str, entry: Entry, code: int) -> None:
    assert await alter(peer, BROKER, name, entry) == code


async def test_the_older_api_may_not_take_the_clusters_min_insync_replicas(peer: RawPeer) -> None:
    assert await replace(peer, BROKER, "") == INVALID
    assert await replace(peer, BROKER, "", ("min.insync.replicas", "2")) == 0
    assert (await shown(peer, TOPIC, "t", "min.insync.replicas"))[:2] == ("2", 3)


# Loggers, client metrics, groups


async def test_levels_of_loggers(peer: RawPeer) -> None:
    assert await alter(peer, LOGGER, "1", ("root", SET, "DEBUG")) == 0
    assert await shown(peer, LOGGER, "1", "root") == ("DEBUG", 6, [])
    refused = [
        (("root", SET, "info"), INVALID),
        (("root", APPEND, "INFO"), REQUEST),
        (("root", DELETE, None), REQUEST),
        (("nope", SET, "INFO"), INVALID),
        (("root", 9, "INFO"), -1),
    ]
    for entry, code in refused:
        assert await alter(peer, LOGGER, "1", entry) == code
    assert await alter(peer, LOGGER, "4", ("root", SET, "INFO")) == REQUEST


async def test_subscriptions_of_client_metrics(peer: RawPeer) -> None:
    assert await alter(peer, METRICS, "m", ("interval.ms", SET, "5000")) == 0
    assert await shown(peer, METRICS, "m", "interval.ms") == (
        "5000",
        7,
        [("interval.ms", "5000", 7)],
    )
    assert await shown(peer, METRICS, "m", "metrics") == ("", 5, [])
    refused = [
        (("interval.ms", SET, "soon"), INVALID),
        (("nope", SET, "1"), REQUEST),
    ]
    for entry, code in refused:
        assert await alter(peer, METRICS, "m", entry) == code
    assert await alter(peer, METRICS, "", ("interval.ms", SET, "5000")) == REQUEST
    entry = ("match", SET, "client_id=a,client_source_port=1")
    assert await alter(peer, METRICS, "m", entry) == 0


async def test_configurations_of_groups(peer: RawPeer) -> None:
    name = "consumer.session.timeout.ms"
    assert await alter(peer, GROUP, "g", (name, SET, "50000")) == 0
    assert await shown(peer, GROUP, "g", name) == (
        "50000",
        8,
        [(name, "50000", 8), (f"group.{name}", "45000", 5)],
    )
    for entry in (
        (name, SET, "soon"),
        ("nope", SET, "5"),
        ("share.auto.offset.reset", SET, "never"),
    ):
        assert await alter(peer, GROUP, "g", entry) == INVALID
    assert await alter(peer, GROUP, "", (name, SET, "50000")) == REQUEST


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
