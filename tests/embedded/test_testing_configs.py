"""Configurations of topics over the wire: descriptions, alterations and errors.

Each expected response is Apache Kafka 4.3.0's to the same request, but for the texts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages import alter_configs, incremental_alter_configs
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


async def test_all_are_described(peer: RawPeer) -> None:
    topic = (await describe(peer, TOPIC, "t")).configs
    broker = (await describe(peer, BROKER, "1")).configs
    assert (len(topic), len(broker)) == (33, 340)


async def test_there_is_no_documentation(peer: RawPeer) -> None:
    got = (await describe(peer, TOPIC, "t", docs=True)).configs
    assert {one.documentation for one in got} == {None}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", UNKNOWN),
        (TOPIC, "", 17),
        (BROKER, "2", REQUEST),
        (BROKER, "x", REQUEST),
        (LOGGER, "", REQUEST),
        (LOGGER, "2", REQUEST),
        (METRICS, "", REQUEST),
        (GROUP, "", REQUEST),
        (3, "x", REQUEST),
    ],
)
async def test_what_cannot_be_described(peer: RawPeer, kind: int, name: str, code: int) -> None:
    got = await describe(peer, kind, name)
    assert (got.error_code, got.configs) == (code, [])
    assert bool(got.error_message) == (code != UNKNOWN), "as in Kafka"


# Topics


async def test_a_topics_configuration_is_set_and_counts_at_once(
    cluster: Cluster, peer: RawPeer
) -> None:
    entry = ("max.message.bytes", SET, " 100 ")
    assert await alter(peer, TOPIC, "t", entry) == 0
    assert await shown(peer, TOPIC, "t", "max.message.bytes") == (
        "100",
        1,
        [("max.message.bytes", "100", 1), ("message.max.bytes", "1048588", 5)],
    )
    got = (await peer.call(produce("t", batch_bytes(40)), 9)).responses[0].partition_responses[0]
    assert got.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(peer, TOPIC, "t", ("max.message.bytes", DELETE, None)) == 0
    got = (await peer.call(produce("t", batch_bytes(40)), 9)).responses[0].partition_responses[0]
    assert got.error_code == 0


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
        assert await alter(peer, TOPIC, "t", ("cleanup.policy", operation, value)) == 0
        assert (await shown(peer, TOPIC, "t", "cleanup.policy"))[:2] == (expected, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "abc"),
        ("retention.ms", "-5"),
        ("nope", "1"),
        ("message.format.version", "2.0"),
        ("cleanup.policy", "compact,,delete"),
        ("cleanup.policy", "foo"),
        ("remote.storage.enable", "true"),
        ("follower.replication.throttled.replicas", "x"),
        ("min.cleanable.dirty.ratio", "2"),
    ],
)
async def test_values_that_a_topic_cannot_have(peer: RawPeer, name: str, value: str) -> None:
    assert await alter(peer, TOPIC, "t", (name, SET, value)) == INVALID
    assert await replace(peer, TOPIC, "t", (name, value)) == INVALID


@pytest.mark.parametrize(
    ("topic", "entries", "code"),
    [
        ("t", [("retention.ms", SET, None)], REQUEST),
        ("t", [("a", DELETE, None), ("b", SET, None), ("c", SET, None)], REQUEST),
        ("t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], REQUEST),
        ("t", [("retention.ms", APPEND, "1")], INVALID),
        ("t", [("nope", SUBTRACT, "1")], INVALID),
        ("t", [("retention.ms", 9, "1")], -1),
        ("t", [("segment.ms", SET, "y"), ("cleanup.policy", SET, "z")], INVALID),
        ("nope", [("retention.ms", SET, "1")], UNKNOWN),
        ("nope", [("retention.ms", SET, "x")], INVALID),
        ("", [], REQUEST),
        ("t", [], 0),
        ("t", [("nope", DELETE, None)], 0),
    ],
)
async def test_requests_for_topics(
    peer: RawPeer, topic: str, entries: list[Entry], code: int
) -> None:
    assert await alter(peer, TOPIC, topic, *entries) == code


async def test_a_resource_may_be_named_once(peer: RawPeer) -> None:
    for module, options in ((incremental_alter_configs, 1), (alter_configs, 2)):
        twice = [module.AlterConfigsResource(TOPIC, "t", []) for _ in range(2)]
        request: Any = (
            incremental_alter_configs.IncrementalAlterConfigsRequest(twice, False)
            if options == 1
            else alter_configs.AlterConfigsRequest(twice, False)
        )
        got = (await peer.call(request, options)).responses
        assert [one.error_code for one in got] == [REQUEST] * 2


async def test_the_older_api_takes_away_what_it_does_not_name(peer: RawPeer) -> None:
    await alter(peer, TOPIC, "t", ("retention.ms", SET, "1"))
    assert await replace(peer, TOPIC, "t", validate_only=True) == 0
    assert (await shown(peer, TOPIC, "t", "retention.ms"))[1] == 1
    assert await replace(peer, TOPIC, "t", ("segment.ms", "5")) == 0
    assert (await shown(peer, TOPIC, "t", "retention.ms"))[1] == 4
    assert await shown(peer, TOPIC, "t", "segment.ms") == ("5", 1, [("segment.ms", "5", 1)])
    assert await replace(peer, LOGGER, "1", ("root", "INFO")) == REQUEST
