"""``FollowerFetch``: the requests of one follower to one leader, and how it handles the responses.

A fetch session (KIP-227) by topic ids: a request names the partitions whose position changed. If
the leader reports that the logs diverge, the follower truncates its own (KIP-595); if its position
is out of the leader's range, it restarts its log, or truncates it to the leader's end. After an
error it leaves a partition out for a while. Used by ``replication.py``, which connects and waits.
"""

from __future__ import annotations

from collections.abc import Callable

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kclient.testing.controller import Tally
from kclient.testing.events import ClusterEvent, LogTruncated
from kclient.testing.replica import Replica
from kclient.testing.stored_batch import StoredBatch, split_batches
from kclient.types import OffsetSpec

FOR_EVER_MS = (1 << 31) - 1
"""The longest ``max_wait_ms``; the leader sets no timer for such a fetch."""
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 9
_MAX_BYTES = 10 << 20
_PARTITION_BYTES = 1 << 20

_SESSION_CODES = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

Key = tuple[bytes, int]


class FollowerFetch:
    """One follower's fetches from one leader.

    Args:
        node_id: The follower.
        tally: Counts truncations.
        notify: Called with an event for each truncation.
    """

    def __init__(self, node_id: int, tally: Tally, notify: Callable[[ClusterEvent], None]) -> None:
        self._node_id = node_id
        self._tally = tally
        self._notify = notify
        self._mine: dict[Key, Replica] = {}
        self._to_send: dict[Key, None] = {}
        self._to_forget: dict[Key, None] = {}
        self._asked: set[Key] = set()
        self._out_of_range: dict[Key, list[int]] = {}
        self._delayed: dict[Key, float] = {}
        self._epochs: dict[Key, int] = {}
        self._reported_starts: dict[Key, int] = {}
        self._session = (0, 0)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to fetch."""
        return not self._mine

    @property
    def all_delayed(self) -> bool:
        """Whether all partitions were refused and are not due for a retry."""
        return len(self._delayed) >= len(self._mine)

    @property
    def next_retry(self) -> float | None:
        """Time of the next retry of a refused partition; None if none was refused."""
        return min(self._delayed.values(), default=None)

    def is_left_out(self) -> bool:
        """Whether this follower is not in the ISR of some partition."""
        return any(self._node_id not in one.facts.isr for one in self._mine.values())

    def assign(self, replicas: list[Replica]) -> bool:
        """Follow these from now on; return whether the next request has to name a change."""
        mine = {(one.topic_id, one.facts.index): one for one in replicas}
        changed = False
        for key, replica in mine.items():
            if self._mine.get(key) is not replica or key in self._delayed:
                self._delayed.pop(key, None)
                self._to_send[key] = None
                changed = True
            elif self._epochs.get(key) != replica.epoch:
                self._to_send[key] = None
                changed = True
            self._epochs[key] = replica.epoch
        for key in self._mine:
            if key not in mine:
                self._forget(key)
                changed = True
        self._mine = mine
        return changed

    def _forget(self, key: Key) -> None:
        self._to_send.pop(key, None)
        self._delayed.pop(key, None)
        self._epochs.pop(key, None)
        self._reported_starts.pop(key, None)
        if key in self._asked:
            self._to_forget[key] = None

    def begin(self) -> None:
        """Begin a new session, on a new connection."""
        self._session = (0, 0)
        self._asked.clear()
        self._to_forget.clear()
        self._out_of_range.clear()
        self._to_send = dict.fromkeys(key for key in self._mine if key not in self._delayed)

    def revive(self, now: float) -> bool:
        """Fetch partitions again whose retry is due; return whether there are any."""
        due = [key for key, at in self._delayed.items() if at <= now]
        for key in due:
            del self._delayed[key]
            if key in self._mine:
                self._to_send[key] = None
        return bool(due)

    def take(self, response: FetchResponse, now: float, backoff: float) -> bool:
        """Apply a response; refused partitions are fetched again after ``backoff`` seconds.

        Returns:
            Whether to continue at once: not if the leader refused all, or created no session.
        """
        if response.error_code:
            self.begin()
            return response.error_code in _SESSION_CODES
        session_id, epoch = self._session
        self._session = (response.session_id, epoch + 1 if session_id else 1)
        if not response.session_id:
            self.begin()
        for topic in response.responses:
            for part in topic.partitions:
                key = bytes(topic.topic_id), part.partition_index
                replica = self._mine.get(key)
                if replica is None or key not in self._asked:
                    self._to_forget[key] = None
                    continue
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._out_of_range[key] = []
                elif part.error_code:
                    self._refused(key, now + backoff)
                else:
                    self._take(key, replica, part)
        return bool(response.session_id)

    def request(self, session: int) -> FetchRequest:
        """Make the next fetch, for a broker whose epoch is ``session``."""
        topics: dict[bytes, FetchTopic] = {}
        for key in self._to_send:
            self._to_forget.pop(key, None)
            replica = self._mine[key]
            self._reported_starts[key] = replica.log.start_offset
            topic = topics.setdefault(key[0], FetchTopic(topic_id=key[0]))
            topic.partitions.append(
                FetchPartition(
                    key[1],
                    replica.epoch,
                    replica.log.end_offset,
                    replica.last_fetched_epoch,
                    replica.log.start_offset,
                    _PARTITION_BYTES,
                )
            )
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in self._to_forget:
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(
                index
            )
        self._asked |= set(self._to_send)
        self._asked -= set(self._to_forget)
        self._to_send = {}
        self._to_forget = {}
        return FetchRequest(
            replica_state=ReplicaState(self._node_id, session),
            max_wait_ms=FOR_EVER_MS,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            session_id=self._session[0],
            session_epoch=self._session[1],
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def _refused(self, key: Key, until: float) -> None:
        self._tally.fences += 1
        self._delayed[key] = until
        self._to_send.pop(key, None)
        self._to_forget[key] = None

    def _take(self, key: Key, replica: Replica, part: PartitionData) -> None:
        diverging = part.diverging_epoch
        if diverging.epoch >= 0:
            end = replica.log.end_offset
            if replica.truncate_diverging(diverging.epoch, diverging.end_offset):
                self._truncated(replica, end)
            self._to_send[key] = None
            return
        if part.records:
            replica.take(StoredBatch(one) for one in split_batches(part.records))
            self._to_send[key] = None
        replica.follow(part.high_watermark, part.log_start_offset)
        if replica.log.start_offset != self._reported_starts.get(key):
            self._to_send[key] = None  # a DeleteRecords may wait until the leader knows it

    def _truncated(self, replica: Replica, end: int) -> None:
        """Count and report that a log, which ended at ``end``, was truncated."""
        self._tally.truncations += 1
        facts, now = replica.facts, replica.log.end_offset
        self._notify(LogTruncated(facts.topic, facts.index, self._node_id, now, end - now))

    # Partitions whose end isn't within the leader's log

    def list_offsets_request(self) -> ListOffsetsRequest | None:
        """Make a request for the start of the leader's log of one of them, or then for its end."""
        for key in tuple(self._out_of_range):
            replica = self._mine.get(key)
            if replica is None:
                del self._out_of_range[key]
                continue
            spec = OffsetSpec.LATEST if self._out_of_range[key] else OffsetSpec.EARLIEST
            facts = replica.facts
            wanted = ListOffsetsPartition(facts.index, facts.leader_epoch, spec)
            return ListOffsetsRequest(self._node_id, 0, [ListOffsetsTopic(facts.topic, [wanted])])
        return None

    def locate(self, response: ListOffsetsResponse, now: float, backoff: float) -> None:
        """Apply the response to ``list_offsets_request``."""
        topic = response.topics[0]
        part = topic.partitions[0]
        for key, found in tuple(self._out_of_range.items()):
            replica = self._mine.get(key)
            if replica is None or (replica.facts.topic, replica.facts.index) != (
                topic.name,
                part.partition_index,
            ):
                continue
            if part.error_code:
                del self._out_of_range[key]
                self._refused(key, now + backoff)
            elif not found:
                found.append(part.offset)
            else:
                del self._out_of_range[key]
                self._come_back(key, replica, found[0], part.offset, now + backoff)

    def _come_back(self, key: Key, replica: Replica, first: int, last: int, until: float) -> None:
        """Restart the log where the leader's starts, or truncate it to the leader's end."""
        log, end = replica.log, replica.log.end_offset
        if last < end:
            replica.truncate_to(last)
            self._truncated(replica, end)
        elif first > log.end_offset:
            log.restart(first)
        elif log.high_watermark < log.end_offset:
            log.truncate(log.high_watermark)
            self._truncated(replica, end)
        else:
            self._refused(key, until)
            return
        self._to_send[key] = None
