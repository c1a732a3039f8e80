"""What observers receive: an event per request, batch or connection, never per record.

Users import them from ``kclient.hooks``. They are loaded by the first that is emitted, as most
clients have no observer; their base class is in ``types``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.types import Event

if TYPE_CHECKING:
    from kclient.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ConnectionOpened(Event):
    """A connection became usable: versions are known and the peer is authenticated."""

    node_id: int
    lane: str
    address: str
    seconds: float
    """From the start of the dial."""


@dataclass(frozen=True, slots=True)
class ConnectionClosed(Event):
    """A connection ended, or an attempt at one failed (``established`` False)."""

    node_id: int
    lane: str
    established: bool
    reason: str
    in_flight: int
    """Requests that were waiting on it."""


@dataclass(frozen=True, slots=True)
class RequestCompleted(Event):
    """A request got its answer or failed."""

    node_id: int
    lane: str
    api: str
    version: int
    seconds: float
    """From the write to the answer."""
    request_bytes: int
    response_bytes: int
    error: str | None = None
    """Class name of the failure; None when an answer came, whatever error codes it holds."""


@dataclass(frozen=True, slots=True)
class Throttled(Event):
    """A broker asked for silence on one connection (KIP-219)."""

    node_id: int
    lane: str
    api: str
    seconds: float


@dataclass(frozen=True, slots=True)
class MetadataUpdated(Event):
    """A newer view of the cluster is in use."""

    version: int
    brokers: int
    topics: int
    partitions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchDelivered(Event):
    """A batch was acknowledged."""

    topic_partition: TopicPartition
    base_offset: int
    records: int
    size_bytes: int
    attempts: int
    seconds: float
    """From the first record's arrival to the acknowledgement."""


@dataclass(frozen=True, slots=True)
class BatchFailed(Event):
    """A batch was given up."""

    topic_partition: TopicPartition
    records: int
    attempts: int
    error: str
    maybe_written: bool


@dataclass(frozen=True, slots=True)
class BatchRetried(Event):
    """A batch will be sent again."""

    topic_partition: TopicPartition
    records: int
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Fetched(Event):
    """A fetch response arrived."""

    node_id: int
    partitions: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskDied(Event):
    """An internal task ended with an error."""

    name: str
    error: str
