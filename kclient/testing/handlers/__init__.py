"""Which APIs the embedded cluster serves: one file per API, one row each.

Their versions are in ``served_versions.py``, and a broker may be made to serve fewer. ``dispatch``
calls ``handle(call, request)``, which returns the response, a ``Deferred`` where it has to wait, or
None where no answer is wanted. What is only refused has a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kclient.protocol.message import Response
from kclient.protocol.registry import API_NAMES
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    group_heartbeats,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

Handle: TypeAlias = Callable[[Call, Any], "Response | Deferred[Any] | None"]


class Served(NamedTuple):
    """One API."""

    api_key: int
    handle: Handle

    @property
    def name(self) -> str:
        """Kafka's name of it."""
        return API_NAMES[self.api_key]


SERVED: dict[int, Served] = {
    row.api_key: row
    for row in (
        Served(0, produce.handle),
        Served(1, fetch.handle),
        Served(2, list_offsets.handle),
        Served(3, metadata.handle),
        Served(8, offset_commit.handle),
        Served(9, offset_fetch.handle),
        Served(10, find_coordinator.handle),
        Served(11, join_group.handle),
        Served(12, heartbeat.handle),
        Served(13, leave_group.handle),
        Served(14, sync_group.handle),
        Served(15, describe_groups.handle),
        Served(16, list_groups.handle),
        Served(18, api_versions.handle),
        Served(19, create_topics.handle),
        Served(20, delete_topics.handle),
        Served(21, delete_records.handle),
        Served(22, init_producer_id.handle),
        Served(23, offset_for_leader_epoch.handle),
        Served(32, describe_configs.handle),
        Served(33, alter_configs.handle),
        Served(35, describe_log_dirs.handle),
        Served(37, create_partitions.handle),
        Served(42, delete_groups.handle),
        Served(43, elect_leaders.handle),
        Served(44, alter_configs.handle_incremental),
        Served(47, offset_delete.handle),
        Served(60, describe_cluster.handle),
        Served(74, list_config_resources.handle),
        Served(75, describe_topic_partitions.handle),
    )
}

REFUSED: dict[int, Served] = {
    row.api_key: row
    for row in (
        Served(68, group_heartbeats.handle_consumer),
        Served(76, group_heartbeats.handle_share),
    )
}
"""Of parts that come later: advertised, since clients wait for ever for some of what isn't."""
