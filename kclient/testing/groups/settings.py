"""``GroupSettings``: the broker configurations for the group rules.

Made by the coordinator from ``BrokerConfig``; tests make their own.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_INT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and delays of groups, each from one of Kafka's broker configurations."""

    initial_rebalance_delay_ms: int = 0
    """How long the first rebalance of an empty group waits for more members."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = MAX_INT
    """Maximum number of members of a group."""
    metadata_max_bytes: int = 4096
    """Limit for the metadata of a committed offset; it counts characters, despite its name."""
    retention_ms: int = 7 * 24 * 3_600_000
    """How long offsets of empty groups are kept."""
    retention_check_ms: int = 600_000
    """How often offsets are checked for that."""
    commit_timeout_ms: int = 5_000
    """How long a write may take to be replicated."""
    partitions: int = 50
    """Number of partitions of ``__consumer_offsets``."""
    replication_factor: int = 3
    segment_bytes: int = 104_857_600

    new_member_join_timeout_ms: int = 300_000
    """How long the first JoinGroup of a member may wait; not configurable in Kafka."""
