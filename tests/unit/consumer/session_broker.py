"""A broker's side of fetch sessions (KIP-227), small and written from Kafka's own rules.

The model that ``FetchSession`` is checked against: it resolves each request to the partitions that
the broker would read, or refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kclient.consumer.fetch_session import PartitionFetch, SessionRequest
from kclient.error_codes import ErrorCode
from kclient.types import TopicPartition

Wishes = dict[TopicPartition, PartitionFetch]


@dataclass
class Session:
    """What the broker's cache holds of one session."""

    by_id: bool
    epoch: int = 1
    cached: dict[tuple[object, int], tuple[TopicPartition, PartitionFetch]] = field(
        default_factory=dict
    )

    def key(self, partition: TopicPartition, topic_id: bytes | None) -> tuple[object, int]:
        """Partitions are distinguished by topic id, or by name where there are no ids."""
        return (topic_id if self.by_id else partition.topic, partition.partition)

    def update(self, request: SessionRequest) -> None:
        """Additions and changes first, then what is forgotten: as FetchSession.update does it."""
        for partition, ask in request.partitions.items():
            self.cached[self.key(partition, ask.topic_id)] = (partition, ask)
        for partition, topic_id in request.forgotten.items():
            self.cached.pop(self.key(partition, topic_id), None)

    def wishes(self) -> Wishes:
        """The partitions that would be read, with their fetches."""
        return dict(self.cached.values())


class SessionBroker:
    """Keeps sessions, as many as ``slots``."""

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self.sessions: dict[int, Session] = {}
        self._next_id = 100

    def evict(self) -> None:
        """Drop all sessions."""
        self.sessions.clear()

    def serve(self, request: SessionRequest, by_id: bool) -> tuple[int, int, Wishes]:
        """Error code, session id and what is read for ``request``."""
        if request.full:
            self.sessions.pop(request.session_id, None)
            wishes = dict(request.partitions)
            if request.epoch != 0 or len(self.sessions) >= self.slots:
                return ErrorCode.NONE, 0, wishes
            self._next_id += 1
            session = self.sessions[self._next_id] = Session(by_id)
            session.update(request)
            return ErrorCode.NONE, self._next_id, wishes
        found = self.sessions.get(request.session_id)
        if found is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, {}
        if found.epoch != request.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, {}
        if found.by_id is not by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, {}
        found.update(request)
        found.epoch += 1
        return ErrorCode.NONE, request.session_id, found.wishes()
