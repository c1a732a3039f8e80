"""The settings as keyword arguments, for type checkers: ``**settings: Unpack[ProducerSettings]``.

Names, types and meaning are those of the classes in ``config``, minus ``bootstrap``, which every
client takes as its first argument. A test compares both, so neither can drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from kclient.hooks import Assignor
from kclient.security import Security

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class CommonSettings(TypedDict, total=False):
    """Keyword settings of every client; durations in seconds, sizes in bytes."""

    client_id: str
    security: Security
    request_timeout: float
    connection_setup_timeout: float
    connection_setup_timeout_max: float
    connections_max_idle: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    receive_frame_limit: int
    send_buffer: int | None
    receive_buffer: int | None
    max_in_flight: int
    bootstrap_timeout: float
    api_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    metadata_max_age: float
    metadata_max_idle: float
    metadata_recovery_rebootstrap_trigger: float
    allow_auto_create_topics: bool
    decompression_cap: int


class AdminSettings(CommonSettings, total=False):
    """Keyword settings of ``Admin``."""


class ProducerSettings(CommonSettings, total=False):
    """Keyword settings of ``Producer``."""

    acks: Literal["all", -1, 0, 1]
    idempotence: bool
    transactional_id: str | None
    transaction_timeout: float
    linger: float
    batch_size: int
    buffer_memory: int
    max_block: float | None
    max_parked: int
    delivery_timeout: float
    max_request_size: int
    compression: Compression
    compression_level: int | None


class MembershipSettings(CommonSettings, total=False):
    """Keyword settings of every member of a group."""

    group_instance_id: str | None
    session_timeout: float
    heartbeat_interval: float


class GroupMemberSettings(MembershipSettings, total=False):
    """Keyword settings of ``GroupMember``."""

    rebalance_timeout: float


class ConsumerSettings(MembershipSettings, total=False):
    """Keyword settings of ``Consumer``."""

    group_protocol: Literal["auto", "classic"]
    partition_assignment_strategy: str | Sequence[str | Assignor]
    max_poll_interval: float
    enable_auto_commit: bool
    auto_commit_interval: float
    exclude_internal_topics: bool

    auto_offset_reset: str | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait: float
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    buffer_memory: int
    check_crcs: bool
    client_rack: str | None
