"""The APIs that are served, and how tests name one: by request class, Kafka's name or number."""

from __future__ import annotations

from typing import TypeAlias

from kclient.errors import InvalidArgument
from kclient.protocol import api_versions
from kclient.protocol.message import Request
from kclient.testing.arguments import meant

VERSIONS: dict[int, tuple[int, int]] = {
    0: (3, 13),  # Produce
    1: (4, 18),  # Fetch
    2: (1, 11),  # ListOffsets
    3: (0, 13),  # Metadata
    8: (2, 10),  # OffsetCommit
    9: (1, 10),  # OffsetFetch
    10: (0, 6),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    18: (0, 4),  # ApiVersions
    19: (2, 7),  # CreateTopics
    20: (1, 6),  # DeleteTopics
    21: (0, 2),  # DeleteRecords
    22: (0, 5),  # InitProducerId
    23: (2, 4),  # OffsetForLeaderEpoch
    32: (1, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    35: (1, 5),  # DescribeLogDirs
    37: (0, 3),  # CreatePartitions
    42: (0, 2),  # DeleteGroups
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    47: (0, 0),  # OffsetDelete
    60: (0, 2),  # DescribeCluster
    68: (0, 1),  # ConsumerGroupHeartbeat
    74: (0, 1),  # ListConfigResources
    75: (0, 0),  # DescribeTopicPartitions
    76: (1, 1),  # ShareGroupHeartbeat
}
"""API key to the lowest and highest version, as in Apache Kafka 4.3.0; see ``dispatch``."""


ApiName: TypeAlias = type[Request] | str | int
"""``ProduceRequest``, ``"Produce"`` or ``0``."""


def api_key_of(api: ApiName) -> int:
    """Kafka's number of an API.

    Raises:
        InvalidArgument: There is no such API.
    """
    if isinstance(api, type) and issubclass(api, Request):
        return api.API_KEY
    if isinstance(api, (str, int)) and not isinstance(api, bool):
        for key, name in api_versions.API_NAMES.items():
            if api in (key, name):
                return key
    raise InvalidArgument(
        f"api {api!r} is neither a request class, nor a name or number of Kafka's"
        + meant(api, api_versions.API_NAMES.values())
    )


def served_key_of(api: ApiName) -> int:
    """Kafka's number of an API that the embedded cluster serves.

    Raises:
        InvalidArgument: There is no such API, or the brokers here don't serve it.
    """
    key = api_key_of(api)
    if key not in VERSIONS:
        raise InvalidArgument(f"{api_versions.API_NAMES[key]} isn't served by the embedded cluster")
    return key
