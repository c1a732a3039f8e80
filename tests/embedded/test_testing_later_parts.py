"""What the embedded cluster doesn't serve yet fails soon with a clear error in every client.

Transactions, consumer groups of KIP-848 and share groups: no client may wait for ever.
Raw responses are in `test_testing_topics.py`, too.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import confluent_kafka
import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kclient.testing import Cluster
from tests.unit.testing.raw_peer import RawPeer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds after which a client's wait counts as endless."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create_topic("t")
        yield cluster


async def blocking(function: Callable[[], T]) -> T:
    """Call a blocking function in another thread."""
    return await asyncio.to_thread(function)


# On the wire


@pytest.mark.parametrize(
    ("request_class", "version", "text"),
    [
        (ConsumerGroupHeartbeatRequest, 0, "consumer groups"),
        (ConsumerGroupHeartbeatRequest, 1, "consumer groups"),
        (ShareGroupHeartbeatRequest, 1, "share groups"),
    ],
)
async def test_heartbeats_of_other_groups_are_advertised_and_refused(
    cluster: Cluster,
    request_class: type[ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest],
    version: int,
    text: str,
) -> None:
    async with RawPeer.to(cluster.bootstrap) as peer:
        listed = (await peer.call(ApiVersionsRequest("a", "1"), 4)).api_keys
        assert request_class.API_KEY in {one.api_key for one in listed}
        got = await peer.call(request_class("g", "m"), version)
    assert got.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert text in got.error_message


# Groups


async def test_librdkafka_gives_a_consumer_group_up(cluster: Cluster) -> None:
    def poll() -> confluent_kafka.Message | None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
            }
        )
        consumer.subscribe(["t"])
        try:
            return consumer.poll(PATIENCE)
        finally:
            consumer.close()

    message = await blocking(poll)
    assert message is not None
    assert "ConsumerGroupHeartbeat fatal error" in str(message.error())
