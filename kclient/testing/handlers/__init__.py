"""Which APIs the embedded cluster serves: one row each, and one file per subject.

Their versions are in ``served_versions.py``, and a broker may be made to serve fewer. ``dispatch``
gives call and request to the row's function, which returns the response, a ``Deferred`` where it
has to wait, or None where no answer is wanted. What is only refused has a table of its own.
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
    configs,
    elect_leaders,
    fetch,
    find_coordinator,
    group_admin,
    logs,
    lookups,
    membership,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    topics,
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
        Served(0, produce.produce),
        Served(1, fetch.handle),
        Served(2, lookups.list_offsets),
        Served(3, metadata.metadata),
        Served(8, offset_commit.handle),
        Served(9, offset_fetch.handle),
        Served(10, find_coordinator.handle),
        Served(11, membership.join_group),
        Served(12, membership.heartbeat),
        Served(13, membership.leave_group),
        Served(14, membership.sync_group),
        Served(15, group_admin.describe_groups),
        Served(16, group_admin.list_groups),
        Served(18, api_versions.handle),
        Served(19, topics.create_topics),
        Served(20, topics.delete_topics),
        Served(21, logs.delete_records),
        Served(22, produce.init_producer_id),
        Served(23, lookups.offset_for_leader_epoch),
        Served(32, configs.describe_configs),
        Served(33, configs.alter_configs_of),
        Served(35, logs.describe_log_dirs),
        Served(37, topics.create_partitions),
        Served(42, group_admin.delete_groups),
        Served(43, elect_leaders.handle),
        Served(44, configs.alter_incrementally),
        Served(47, group_admin.delete_offsets),
        Served(60, metadata.describe_cluster),
        Served(74, configs.list_config_resources),
        Served(75, metadata.describe_topic_partitions),
    )
}

REFUSED: dict[int, Served] = {
    row.api_key: row
    for row in (
        Served(68, membership.consumer_group_heartbeat),
        Served(76, membership.share_group_heartbeat),
    )
}
"""Of parts that come later: advertised, since clients wait for ever for some of what isn't."""
