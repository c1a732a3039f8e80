"""One broker's incremental fetch session (KIP-227) and its requests; sans-IO, for ``fetcher``.

The theory: a full fetch request names every partition. A broker that has memory for it responds
with a session id; from then on a request names only what changed since the last one, partitions
that are no longer wanted are *forgotten*, and the response holds only partitions with news. Each
request of a session carries the next epoch. The broker may evict a session at any time
(ID_NOT_FOUND), and a lost response leaves both sides with different epochs (INVALID_SESSION_EPOCH):
then one full request starts over, with the old id in it where it is known, so that the broker drops
the old session.

``asked`` has all that is requested from the broker, whether there is a session or not. It only
changes between requests, so a response is always read against what its request asked for. What
differs between versions of the message (names or topic ids, sessions, leader epochs, the rack) is
in ``fetch_request``.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from kclient.transitions import step
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
"""Epoch of a full request for a new session."""
FINAL_EPOCH: Final = -1
"""Epoch of a full request without a session; with an id in it, the one that ends that session."""
_MAX_EPOCH: Final = 2**31 - 1
LAST_BY_NAME: Final = 12
"""Last version that names topics; from 13 on they go by id (KIP-516)."""
CONSUMER_ID: Final = -1
"""Replica id of clients that are no replica."""
_FIRST_WITH_SESSIONS: Final = 7


class SessionState(enum.Enum):
    """What client and broker hold."""

    INITIAL = "No session: the next request is full and asks for one."
    INCREMENTAL = "Both sides agree: the next request holds only changes."
    BROKEN = (
        "The broker may have another idea of the session: the next request is full, and ends it."
    )
    CLOSED = "This client stops: no request follows, but the one that frees the broker's slot."


class SessionEvent(enum.Enum):
    """What can happen to a session."""

    OPENED = "A full request was answered with a session id."
    DECLINED = "An answer came without a session: the broker has no space, or ended it."
    NOT_FOUND = "The broker doesn't know the session id: it was evicted."
    MISMATCH = "Wrong epoch, lost answer, or an answer that doesn't fit to the request."
    CLOSE = "The consumer closes, or reads nothing more from this broker."


_S, _E = SessionState, SessionEvent
_ALWAYS = {
    _E.DECLINED: _S.INITIAL,
    _E.NOT_FOUND: _S.INITIAL,
    _E.MISMATCH: _S.BROKEN,
    _E.CLOSE: _S.CLOSED,
}
TRANSITIONS: Final[Mapping[SessionState, Mapping[SessionEvent, SessionState]]] = {
    _S.INITIAL: {_E.OPENED: _S.INCREMENTAL, **_ALWAYS},
    _S.INCREMENTAL: _ALWAYS,
    _S.BROKEN: {_E.OPENED: _S.INCREMENTAL, **_ALWAYS},
    _S.CLOSED: {_E.CLOSE: _S.CLOSED},
}


class PartitionFetch(NamedTuple):
    """What is requested of one partition; a changed one must be sent again."""

    offset: int
    max_bytes: int
    leader_epoch: int = -1
    topic_id: bytes | None = None


class SessionRequest(NamedTuple):
    """The session's part of the next fetch request.

    Attributes:
        session_id: 0 where there is none.
        epoch: 0 requests a session, above 0 continues one, -1 ends it.
        partitions: What to name: everything, or the changes.
        forgotten: What the session must drop, with the topic id it was requested by.
    """

    session_id: int
    epoch: int
    partitions: dict[TopicPartition, PartitionFetch]
    forgotten: dict[TopicPartition, bytes | None]

    @property
    def full(self) -> bool:
        """Whether every wanted partition is named."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)


class FetchSession:
    """What is requested from one broker, and what the broker knows of that.

    Attributes:
        state: The state of the machine.
        session_id: The broker's id of the session, 0 without one.
        epoch: Of the next incremental request.
        asked: Every wanted partition, in the order of a full request. Read only.
        topic_names: Topic id to name, of all that was ever requested with an id. Read only.
    """

    def __init__(self) -> None:
        self.state = SessionState.INITIAL
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.asked: dict[TopicPartition, PartitionFetch] = {}
        self.topic_names: dict[bytes, str] = {}
        self._by_id: bool | None = None
        self._without_id = 0
        self._changed: dict[TopicPartition, None] = {}
        self._forgotten: dict[TopicPartition, bytes | None] = {}
        self._sent: SessionRequest | None = None

    def want(self, partition: TopicPartition, ask: PartitionFetch) -> None:
        """Request ``partition`` from now on, in place of what was requested of it before."""
        before = self.asked.get(partition)
        if before == ask:
            return
        if before is not None and before.topic_id != ask.topic_id:
            # Another incarnation of the topic: the broker must drop the old one (KIP-516).
            self._forgotten.setdefault(partition, before.topic_id)
        if self._forgotten.get(partition, b"") == ask.topic_id:
            del self._forgotten[partition]  # dropped and wanted again between two requests
        self.asked[partition] = ask
        self._changed[partition] = None
        if before is None or before.topic_id != ask.topic_id:
            if ask.topic_id is None:
                self._without_id += 1
            else:
                self.topic_names[ask.topic_id] = partition.topic
            if before is not None and before.topic_id is None:
                self._without_id -= 1

    def forget(self, partition: TopicPartition) -> None:
        """No longer request ``partition``."""
        before = self.asked.pop(partition, None)
        if before is None:
            return
        if before.topic_id is None:
            self._without_id -= 1
        self._changed.pop(partition, None)
        self._forgotten.setdefault(partition, before.topic_id)

    @property
    def has_all_ids(self) -> bool:
        """Whether each wanted partition can be requested by topic id (Fetch v13 needs that)."""
        return self._without_id == 0

    def move_to_end(self, partition: TopicPartition) -> None:
        """Name ``partition`` last in full requests: it was just served, others come first."""
        ask = self.asked.pop(partition, None)
        if ask is not None:
            self.asked[partition] = ask

    def next_request(self, by_id: bool) -> SessionRequest:
        """Return what the next fetch request must hold. The caller sends it or reports ``lost``.

        ``by_id``: whether that request names topics by id; a session can't change from one to the
        other, so then a new one is requested.
        """
        if self.state is SessionState.INCREMENTAL and by_id is not self._by_id:
            self._apply(SessionEvent.MISMATCH)
        self._by_id = by_id
        if self.state is SessionState.INCREMENTAL:
            changed = {one: self.asked[one] for one in self._changed} if self._changed else {}
            forgotten = self._forgotten
            if forgotten and not by_id:
                # By its name the new incarnation is the old one, and brokers forget last.
                forgotten = {p: i for p, i in forgotten.items() if p not in self.asked}
            request = SessionRequest(self.session_id, self.epoch, changed, forgotten)
        else:
            request = SessionRequest(self.session_id, INITIAL_EPOCH, dict(self.asked), {})
        self._changed = {}
        self._forgotten = {}
        self._sent = request
        return request

    def answered(
        self, error_code: int, session_id: int, partitions: Collection[TopicPartition]
    ) -> bool:
        """Process a response's head and the partitions it holds; False where it is to be dropped.

        Partitions that weren't requested end the session (the caller ignores them), and so does a
        full response that leaves some out.
        """
        request, self._sent = self._sent, None
        if request is None or self.state is SessionState.CLOSED:
            return False
        if error_code != ErrorCode.NONE:
            not_found = error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._apply(SessionEvent.NOT_FOUND if not_found else SessionEvent.MISMATCH)
            return False
        if session_id == NO_SESSION:
            self._apply(SessionEvent.DECLINED)
        elif not self._fits(request, session_id, partitions):
            self.session_id = session_id
            self._apply(SessionEvent.MISMATCH)
        elif request.full:
            self.session_id = session_id
            self._apply(SessionEvent.OPENED)
        else:
            # The session goes on, and so does the state. Epochs go from 1 to the largest int32 and
            # on with 1 again; 0 would be a full fetch.
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
        return True

    def lost(self) -> None:
        """The request failed without a response: it is unknown whether the broker processed it."""
        if self._sent is not None:
            self._sent = None
            self._apply(SessionEvent.MISMATCH)

    def close(self) -> SessionRequest | None:
        """End it. Returns the request that frees the broker's slot; None if there is none."""
        session_id = self.session_id
        self._apply(SessionEvent.CLOSE)
        if session_id == NO_SESSION:
            return None
        return SessionRequest(session_id, FINAL_EPOCH, {}, {})

    def _fits(
        self, request: SessionRequest, session_id: int, partitions: Collection[TopicPartition]
    ) -> bool:
        if request.full:
            return len(partitions) == len(request.partitions) and all(
                partition in request.partitions for partition in partitions
            )
        if session_id != request.session_id:
            return False
        return not partitions or all(partition in self.asked for partition in partitions)

    def _apply(self, event: SessionEvent) -> None:
        self.state = step(TRANSITIONS, self.state, event)
        if self.state is SessionState.INCREMENTAL:
            self.epoch = 1
        else:
            self.epoch = INITIAL_EPOCH
            if self.state is not SessionState.BROKEN:
                self.session_id = NO_SESSION


class FetchLimits(NamedTuple):
    """The limits of a request as a whole.

    Attributes:
        max_wait_ms: For which the broker waits where there is too little.
        min_bytes: Below which it waits.
        max_bytes: Of the whole response.
        isolation_level: As on the wire.
        rack: The client's, empty for none.
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
        session_id=wishes.session_id if sessions else NO_SESSION,
        session_epoch=wishes.epoch if sessions else FINAL_EPOCH,
        rack_id=limits.rack if version >= 11 else "",
    )
    by_id = version > LAST_BY_NAME
    if wishes.partitions:
        request.topics = _wanted(wishes, by_id)
    if sessions and wishes.forgotten:
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
