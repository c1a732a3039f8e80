"""A fetch request out of a session's wishes, sans-IO. Called by ``fetcher`` once it is to be sent.

What differs between versions is here: names or topic ids, sessions, leader epochs, the rack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

if TYPE_CHECKING:
    from kclient.consumer.fetch_session import SessionRequest

LAST_BY_NAME: Final = 12
"""Last version that names topics; from 13 on they go by id (KIP-516)."""
CONSUMER_ID: Final = -1
"""Replica id of those who are none."""
_NO_SESSION_ID: Final = 0
_NO_SESSION_EPOCH: Final = -1
_FIRST_WITH_SESSIONS: Final = 7


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The request-wide numbers.

    Attributes:
        max_wait_ms: For which the broker waits where there is too little.
        min_bytes: Below which it waits.
        max_bytes: Of the whole response.
        isolation_level: As on the wire.
        rack: Ours, empty for none.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    rack: str = ""


def fetch_request(version: int, wishes: SessionRequest, limits: FetchLimits) -> FetchRequest:
    """The message for ``version``, which the connection negotiated."""
    sessions = version >= _FIRST_WITH_SESSIONS
    request = FetchRequest(
        replica_id=CONSUMER_ID,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        session_id=wishes.session_id if sessions else _NO_SESSION_ID,
        session_epoch=wishes.epoch if sessions else _NO_SESSION_EPOCH,
        rack_id=limits.rack if version >= 11 else "",
    )
    by_id = version > LAST_BY_NAME
    request.topics = _wanted(wishes, by_id)
    if sessions:
        request.forgotten_topics_data = _forgotten(wishes, by_id)
    return request


def _wanted(wishes: SessionRequest, by_id: bool) -> list[FetchTopic]:
    topics: dict[object, FetchTopic] = {}
    for partition, ask in wishes.partitions.items():
        key: object = ask.topic_id if by_id else partition.topic
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic()
            if by_id and ask.topic_id is not None:
                topic.topic_id = ask.topic_id
            else:
                topic.topic = partition.topic
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=ask.leader_epoch,
                fetch_offset=ask.offset,
                partition_max_bytes=ask.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(wishes: SessionRequest, by_id: bool) -> list[ForgottenTopic]:
    topics: dict[object, ForgottenTopic] = {}
    for partition, topic_id in wishes.forgotten.items():
        key: object = topic_id if by_id else partition.topic
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ForgottenTopic()
            if by_id and topic_id is not None:
                topic.topic_id = topic_id
            else:
                topic.topic = partition.topic
        topic.partitions.append(partition.partition)
    return list(topics.values())
