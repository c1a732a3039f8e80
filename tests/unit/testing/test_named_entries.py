"""Topics and partitions that requests name, in the format of each API."""

from __future__ import annotations

import random

import pytest

from kclient.protocol import api_versions
from kclient.protocol.message import Request
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kclient.protocol.messages.describe_cluster import DescribeClusterRequest
from kclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kclient.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kclient.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing.api_versions import VERSIONS
from kclient.testing.request_info import (
    Entry,
    named_entries,
    names_partitions,
    names_topics,
)
from tests.unit.protocol.random_messages import random_message
from tests.unit.testing import transaction_calls
from tests.unit.testing.calls import fetch, list_offsets, produce

T_ID = b"t" * 16


def name_of(name: str | None, topic_id: bytes) -> str | None:
    return {ZERO_UUID: name, T_ID: "t"}.get(topic_id)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (produce("t", b"", partition=3), [("t", 3)]),
        (produce(T_ID, b""), [("t", 0)]),
        (produce(b"u" * 16, b""), [(None, 0)]),
        (fetch("t", 1, 2), [("t", 1), ("t", 2)]),
        (list_offsets("t", -1, partition=4), [("t", 4)]),
        (transaction_calls.markers((5, 0), ("t", 1), ("u", 0)), [("t", 1), ("u", 0)]),
        (transaction_calls.add_partitions("x", (5, 0), ("t", 1)), [("t", 1)]),
        (transaction_calls.add_partitions("x", (5, 0), ("t", 1), version=5), [("t", 1)]),
        (transaction_calls.commit_offset("x", (5, 0), "g", 3), [("t", 0)]),
        (MetadataRequest(None), []),
        (MetadataRequest([MetadataRequestTopic(T_ID, None)]), [("t", None)]),
        (DeleteTopicsRequest([DeleteTopicState("t", ZERO_UUID)]), [("t", None)]),
        (DeleteTopicsRequest(topic_names=["t", "u"]), [("t", None), ("u", None)]),
        (
            DescribeConfigsRequest(
                [DescribeConfigsResource(2, "t", None), DescribeConfigsResource(4, "1", None)]
            ),
            [("t", None)],
        ),
        (DescribeLogDirsRequest([DescribableLogDirTopic("t", [5, 6])]), [("t", 5), ("t", 6)]),
        (DescribeLogDirsRequest(None), []),
        (ElectLeadersRequest(0, [TopicPartitions("t", [7])]), [("t", 7)]),
        (OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [8])]), [("t", 8)]),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        "g",
                        topics=[OffsetFetchRequestTopics("t", ZERO_UUID, [9])],
                    ),
                    OffsetFetchRequestGroup("h", topics=None),
                ]
            ),
            [("t", 9)],
        ),
        (DescribeClusterRequest(), []),
    ],
)
def test_what_is_named(request_: Request, expected: list[Entry]) -> None:
    assert list(named_entries(request_, name_of)) == expected


@pytest.mark.parametrize("key", VERSIONS, ids=lambda key: api_versions.API_NAMES[key])
def test_every_request_that_is_served_can_be_looked_through(key: int) -> None:
    rng = random.Random(key)
    message = api_versions.request_class(key)
    lowest, highest = VERSIONS[key]
    for version in range(lowest, highest + 1):
        for _ in range(20):
            made = message.decode(random_message(rng, message, version).encode(version), version)
            for topic, partition in named_entries(made, name_of):
                assert topic is None or isinstance(topic, str)
                assert partition is None or isinstance(partition, int)


@pytest.mark.parametrize("key", VERSIONS, ids=lambda key: api_versions.API_NAMES[key])
def test_what_a_kind_of_request_may_name_is_known(key: int) -> None:
    """A fault for a topic or partition that an API never names could never act."""
    rng = random.Random(key)
    message = api_versions.request_class(key)
    lowest, highest = VERSIONS[key]
    seen: list[Entry] = []
    for version in range(lowest, highest + 1):
        for _ in range(20):
            made = random_message(rng, message, version)
            for resource in getattr(made, "resources", ()):
                resource.resource_type = 2
            seen += named_entries(made, lambda name, _: name or "t")
    assert names_topics(message) == bool(seen)
    assert names_partitions(message) == any(index is not None for _, index in seen)
