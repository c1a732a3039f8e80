"""Requests about configurations, and the cluster that tests send them to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kclient.protocol.messages import alter_configs, incremental_alter_configs
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
INVALID, REQUEST, UNKNOWN = 40, 42, 3
Entry = tuple[str, int, str | None]


@contextlib.asynccontextmanager
async def configured_cluster() -> AsyncIterator[Cluster]:
    """One broker with a topic t."""
    configs = {"log.retention.ms": -1, "log.index.size.max.bytes": 1 << 20, "num.io.threads": 4}
    async with asyncio.timeout(60), Cluster(1, broker_configs=configs) as one:
        one.create_topic("t")
        yield one


async def alter(
    peer: RawPeer, kind: int, name: str, *entries: Entry, validate_only: bool = False
) -> int:
    """The code of an incremental alteration."""
    wanted = incremental_alter_configs.AlterConfigsResource(
        kind, name, [incremental_alter_configs.AlterableConfig(*one) for one in entries]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([wanted], validate_only)
    (got,) = (await peer.call(request, 1)).responses
    assert (got.resource_type, got.resource_name) == (kind, name)
    return int(got.error_code)


async def replace(
    peer: RawPeer, kind: int, name: str, *entries: tuple[str, str | None], **options: bool
) -> int:
    """The same for the older API."""
    wanted = alter_configs.AlterConfigsResource(
        kind, name, [alter_configs.AlterableConfig(*one) for one in entries]
    )
    request = alter_configs.AlterConfigsRequest([wanted], options.get("validate_only", False))
    (got,) = (await peer.call(request, 2)).responses
    return int(got.error_code)


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
