"""Which APIs the embedded cluster serves, in which versions: one file per API, one row each.

Versions are those of Apache Kafka 4.3.0. ``dispatch.py`` calls ``handle(call, request)``, which
returns the response, a ``Deferred`` where it has to wait, or None where no answer is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kclient.protocol.message import Response
from kclient.protocol.registry import API_NAMES
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

Handle: TypeAlias = Callable[[Call, Any], "Response | Deferred[Response] | None"]


class Served(NamedTuple):
    """One API."""

    api_key: int
    min_version: int
    max_version: int
    handle: Handle

    @property
    def name(self) -> str:
        """Kafka's name of it."""
        return API_NAMES[self.api_key]


SERVED: dict[int, Served] = {
    row.api_key: row
    for row in (
        Served(0, 3, 13, produce.handle),
        Served(1, 4, 18, fetch.handle),
        Served(2, 1, 11, list_offsets.handle),
        Served(3, 0, 13, metadata.handle),
        Served(10, 0, 6, find_coordinator.handle),
        Served(18, 0, 4, api_versions.handle),
        Served(19, 2, 7, create_topics.handle),
        Served(20, 1, 6, delete_topics.handle),
        Served(22, 0, 5, init_producer_id.handle),
        Served(23, 2, 4, offset_for_leader_epoch.handle),
        Served(32, 1, 4, describe_configs.handle),
        Served(37, 0, 3, create_partitions.handle),
        Served(60, 0, 2, describe_cluster.handle),
        Served(75, 0, 0, describe_topic_partitions.handle),
    )
}

api_versions.announce((row.api_key, row.min_version, row.max_version) for row in SERVED.values())
