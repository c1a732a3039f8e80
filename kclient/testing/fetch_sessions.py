"""Incremental fetch sessions of one broker (KIP-227), with topic ids (KIP-516).

A session keeps the partitions that a client fetches and what it was last sent of them, so that a
request names only changes and a response only news. ``handlers/fetch.py`` opens a context per
request, reads each wanted partition, and passes the results to ``finish``, which picks those to
send. Pure logic; ``now`` is passed in as seconds, session ids come from an ``rng``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kclient.error_codes import ErrorCode
from kclient.testing.log_state import AbortedTransaction
from kclient.testing.stored_batch import StoredBatch

if TYPE_CHECKING:
    import random

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

DEFAULT_SLOTS = 1000
"""Kafka's ``max.incremental.fetch.session.cache.slots``."""
EVICTION_SECONDS = 120.0
"""A session that was not used for as long may be evicted."""

_MAX_EPOCH = (1 << 31) - 1
_FIRST_VERSION_WITH_IDS = 13


class PartitionKey(NamedTuple):
    """Key of a partition in a session: with the topic id from v13 on, before that the name."""

    topic: bytes | str
    partition: int


@dataclass(slots=True)
class RequestedPartition:
    """One partition of a fetch request."""

    key: PartitionKey
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    name: str | None = None
    """Name of the topic, once its id was resolved: a session keeps the name, too."""


@dataclass(slots=True)
class FetchPartitionData:
    """The result of reading one wanted partition."""

    key: PartitionKey
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[AbortedTransaction] | None = None
    batches: Sequence[StoredBatch] = ()
    cut: bytes | bytearray = b""
    """As much of the next batch as fits into the response."""
    size_bytes: int = 0
    diverging: tuple[int, int] | None = None
    """Epoch and end offset at which the client's log diverges from this one (KIP-595)."""
    preferred_replica: int = -1
    """The replica to fetch from instead (KIP-392)."""
    leader: tuple[int, int] | None = None
    """Id and epoch of the leader, if this broker isn't it (KIP-951)."""


@dataclass(slots=True)
class _Cached:
    wanted: RequestedPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def is_behind(self, answer: FetchPartitionData) -> bool:
        """Whether the client has other values of the high watermark or the log start offset."""
        return (
            self.high_watermark != answer.high_watermark
            or self.log_start_offset != answer.log_start_offset
        )

    def has_news(self, answer: FetchPartitionData) -> bool:
        """Whether ``answer`` must be sent to the client; remembers the values that are sent."""
        news = (
            bool(answer.size_bytes) or answer.diverging is not None or answer.preferred_replica >= 0
        )
        if self.high_watermark != answer.high_watermark:
            self.high_watermark = answer.high_watermark
            news = True
        if self.log_start_offset != answer.log_start_offset:
            self.log_start_offset = answer.log_start_offset
            news = True
        if answer.error_code:
            self.high_watermark = -1  # so that it is sent again once there is no error
            news = True
        return news


@dataclass(slots=True)
class FetchSession:
    """One client's session; ``partitions`` are in the order in which they are read next."""

    session_id: int
    epoch: int
    uses_topic_ids: bool
    last_used: float
    follower: int = -1
    partitions: dict[PartitionKey, _Cached] = field(default_factory=dict)


@dataclass(slots=True)
class FetchContext:
    """One fetch request against its session, if it has one.

    Attributes:
        wanted: The partitions to read, in order.
        error: For the whole response; ``wanted`` is empty then.
        session: Of an incremental fetch.
        creates: A full fetch that requests a new session.
        follower: Node id of a follower, which has one session outside the slots; -1 for clients.
    """

    wanted: list[RequestedPartition]
    error: ErrorCode = ErrorCode.NONE
    session: FetchSession | None = None
    creates: bool = False
    follower: int = -1
    epoch: int = FINAL_EPOCH
    uses_topic_ids: bool = False


class FetchSessions:
    """The session cache of one broker, with a limited number of slots."""

    def __init__(self, rng: random.Random, slots: int = DEFAULT_SLOTS) -> None:
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        self.slots = slots

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """The session with that id."""
        return self._sessions.get(session_id)

    def drop_all(self) -> None:
        """Forget every session, as a restarted broker does."""
        self._sessions.clear()

    def open(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[RequestedPartition],
        forgotten: Iterable[PartitionKey],
        version: int,
        now: float,
        *,
        follower: int = -1,
    ) -> FetchContext:
        """Determine the partitions to read, from the request and its session."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            return FetchContext(
                list(wanted),
                creates=epoch == INITIAL_EPOCH,
                follower=follower,
                uses_topic_ids=version >= _FIRST_VERSION_WITH_IDS,
            )
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext([], ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext([], ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= _FIRST_VERSION_WITH_IDS):
            return FetchContext([], ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, wanted, forgotten, now)

    def _continue(
        self,
        session: FetchSession,
        wanted: Iterable[RequestedPartition],
        forgotten: Iterable[PartitionKey],
        now: float,
    ) -> FetchContext:
        for one in wanted:
            cached = session.partitions.get(one.key)
            if cached is None:
                session.partitions[one.key] = _Cached(one)
            else:
                one.name = cached.wanted.name
                cached.wanted = one
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchContext([])
        session.last_used = now
        session.epoch = next_epoch(session.epoch)
        return FetchContext(
            [cached.wanted for cached in session.partitions.values()],
            session=session,
            epoch=session.epoch,
        )

    def preview(
        self, context: FetchContext, answers: list[FetchPartitionData]
    ) -> list[FetchPartitionData]:
        """The results that ``finish`` would pick; nothing is remembered."""
        session = context.session
        if session is None:
            return answers
        known = session.partitions if session.epoch == context.epoch else {}
        return [
            one for one in answers if one.key in known and replace(known[one.key]).has_news(one)
        ]

    def finish(
        self, context: FetchContext, answers: list[FetchPartitionData], now: float
    ) -> tuple[ErrorCode, int, list[FetchPartitionData]]:
        """Pick the results that are sent.

        Returns:
            Error code and session id of the response, and the results that belong into it.
        """
        if context.error:
            return context.error, NO_SESSION, []
        if context.session is not None:
            return self._finish_incremental(context, context.session, answers)
        if not context.creates:
            return ErrorCode.NONE, NO_SESSION, answers
        return ErrorCode.NONE, self._create(context, answers, now), answers

    def _finish_incremental(
        self, context: FetchContext, session: FetchSession, answers: list[FetchPartitionData]
    ) -> tuple[ErrorCode, int, list[FetchPartitionData]]:
        if session.epoch != context.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, []
        reported = []
        for answer in answers:
            cached = session.partitions.get(answer.key)
            if cached is None or not cached.has_news(answer):
                continue
            reported.append(answer)
            if answer.size_bytes:  # the others come first next time
                session.partitions[answer.key] = session.partitions.pop(answer.key)
        return ErrorCode.NONE, session.session_id, reported

    def _create(self, context: FetchContext, answers: list[FetchPartitionData], now: float) -> int:
        follower = context.follower
        if follower >= 0:
            self._drop_of(follower)
        elif not self._has_space(now):
            return NO_SESSION
        session = FetchSession(
            self._new_id(), next_epoch(INITIAL_EPOCH), context.uses_topic_ids, now, follower
        )
        reported = {answer.key: answer for answer in answers}
        for one in context.wanted:
            answer = reported.get(one.key)
            if answer is not None:
                session.partitions[one.key] = _Cached(
                    one, answer.high_watermark, answer.log_start_offset
                )
        self._sessions[session.session_id] = session
        return session.session_id

    def _drop_of(self, follower: int) -> None:
        """Drop the session of a follower that creates a new one, as its connection was lost."""
        for one in [each for each in self._sessions.values() if each.follower == follower]:
            del self._sessions[one.session_id]

    def _has_space(self, now: float) -> bool:
        """Whether there is a slot for another client; evicts the oldest session if it may."""
        clients = [one for one in self._sessions.values() if one.follower < 0]
        if len(clients) < self.slots:
            return True
        oldest = min(clients, key=lambda one: (one.last_used, one.session_id), default=None)
        if oldest is None or now - oldest.last_used <= EVICTION_SECONDS:
            return False
        del self._sessions[oldest.session_id]
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randrange(1, _MAX_EPOCH)
            if session_id not in self._sessions:
                return session_id


def next_epoch(epoch: int) -> int:
    """The epoch of a session's next request; it wraps to 1, as 0 means a new session."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_EPOCH else epoch + 1
