"""Processes one partition's part of a fetch response, sans-IO. Called by ``fetcher`` for each.

Data goes into the buffer, errors become a decision: reset the position, fetch from another broker,
retry later, or raise from poll. A part of an outdated request (after a seek, a pause or an
unassignment) is dropped whole. It reads response fields and changes partitions through
``Subscription`` and ``FetchScheduler`` only.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kclient.consumer.completed_fetch import CompletedFetch
from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import CorruptRecord, broker_error
from kclient.record import read_batches
from kclient.record.layout import BATCH_HEADER_BYTES, LOG_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kclient.config import ConsumerConfig
    from kclient.consumer.completed_fetch import FrameLease
    from kclient.consumer.fetch_buffer import FetchBuffer
    from kclient.consumer.fetch_scheduler import FetchScheduler
    from kclient.consumer.fetch_session import PartitionFetch
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.hooks import ClientLog
    from kclient.protocol.messages.fetch import PartitionData
    from kclient.record import Batch
    from kclient.types import TopicPartition

logger = logging.getLogger("kclient.consumer")

QUIET_FAILURES: Final = 5
"""Failures in a row of a partition that are waited out; then poll raises them."""
NO_REPLICA: Final = -1

_STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""The broker's view and ours differ: refresh it and fetch again; the application isn't involved."""
_FOR_THE_USER: Final = frozenset({ErrorCode.CORRUPT_MESSAGE})
"""Retriable in Kafka's table, but on a fetch the broker's own log is broken."""
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_ENDS = struct.Struct(">q8xb6xi")
"""Base offset, magic, last offset delta."""
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_SMALLEST_MESSAGE_BYTES = 14


class BatchSpan(NamedTuple):
    """What the batches of a fetched piece cover.

    Attributes:
        end_offset: Behind its last whole batch.
        clean: Reading the batches ends without an error of structure.
    """

    end_offset: int
    clean: bool


@dataclass(slots=True)
class FetchFollowUp:
    """What the driver has to do after one response.

    Attributes:
        node_id: The broker that responded.
        stale_topics: The view of these must be refreshed.
        leaders: (topic, partition, leader id, leader epoch) that the broker reported (KIP-951).
        partitions: Parts that brought records.
    """

    node_id: int
    stale_topics: dict[str, None] = field(default_factory=dict)
    leaders: list[tuple[str, int, int, int]] = field(default_factory=list)
    partitions: int = 0


class FetchResponseReader:
    """Reads fetch responses, partition by partition."""

    def __init__(
        self,
        subscription: Subscription,
        buffer: FetchBuffer,
        plan: FetchScheduler,
        config: ConsumerConfig,
        back_off: Callable[[PartitionState], None],
        log: logging.Logger | ClientLog = logger,
    ) -> None:
        """
        Args:
            subscription, buffer, plan: What responses change.
            config: Of the consumer.
            back_off: Called for a partition that must not be fetched again at once.
            log: Where to log.
        """
        self._subscription = subscription
        self._buffer = buffer
        self._plan = plan
        self._config = config
        self._read_committed = config.isolation_level == "read_committed"
        self._back_off = back_off
        self._log = log

    def read(
        self,
        state: PartitionState,
        ask: PartitionFetch,
        part: PartitionData,
        lease: FrameLease,
        news: FetchFollowUp,
        now: float,
    ) -> None:
        """Process the response for one partition to its fetch ``ask``."""
        if not state.assigned or ask.topic_id not in (None, state.topic_id):
            return  # it is about a topic that was deleted since, though offsets may be equal
        asked_since = state.node_id != news.node_id
        if part.error_code == ErrorCode.NONE and not asked_since:
            _see_ends(state, part)
        if state.paused or state.fetch_offset != ask.offset:
            return
        if part.error_code == ErrorCode.NONE:
            self._read_success(state, ask, part, lease, news, now)
        elif asked_since:
            return  # another broker is responsible by now
        elif part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._read_out_of_range(state, ask, part, now)
        else:
            self._read_error(state, part, news, now)

    def _read_success(
        self,
        state: PartitionState,
        ask: PartitionFetch,
        part: PartitionData,
        lease: FrameLease,
        news: FetchFollowUp,
        now: float,
    ) -> None:
        sent_on = part.preferred_read_replica != NO_REPLICA
        if sent_on and state.node_id == news.node_id:
            until = now + self._config.metadata_max_age
            if self._plan.prefer(state, part.preferred_read_replica, until, now):
                news.stale_topics[state.topic_partition.topic] = None
        records = part.records
        if not records:
            if not sent_on:
                self._subscription.in_range(state)
            return
        news.partitions += 1
        if self._buffer.add(self._data(state, ask, part, memoryview(records), lease)):
            self._plan.touch(state)

    def _data(
        self,
        state: PartitionState,
        ask: PartitionFetch,
        part: PartitionData,
        records: memoryview,
        lease: FrameLease,
    ) -> CompletedFetch:
        partition = state.topic_partition
        span = measure(records, ask.offset, partition)
        batches: Iterator[Batch] = read_batches(records, topic_partition=partition)
        if span.clean and span.end_offset <= ask.offset:
            # Brokers send the first batch whole, however large (KIP-74); more bytes won't help.
            span = BatchSpan(ask.offset, False)
            batches = _nothing_readable(batches, partition, ask.offset)
        aborted = None
        if self._read_committed:
            aborted = [(a.producer_id, a.first_offset) for a in part.aborted_transactions or ()]
        return CompletedFetch(
            state,
            ask.offset,
            batches,
            span.end_offset,
            clean=span.clean,
            size_bytes=len(records),
            lease=lease,
            aborted=aborted,
            check_crcs=self._config.check_crcs,
            decompression_cap=self._config.decompression_cap,
        )

    def _read_out_of_range(
        self, state: PartitionState, ask: PartitionFetch, part: PartitionData, now: float
    ) -> None:
        if state.replica is not None:
            # Only the leader knows; a follower may lag behind (KIP-392), for a while: a partition
            # that the leader redirects to it again must not alternate between them without delay.
            self._plan.back_to_leader([state], now)
            self._back_off(state)
            return
        self._subscription.recall()
        if self._buffer.holds(state):
            # Fetched ahead of the position: whatever is buffered comes first, then fetch again.
            self._back_off(state)
            return
        node_id = state.node_id
        if self._subscription.default_reset is not None:
            self._log.info(
                "offset %d is out of range partition=%s node=%s log_start=%d: resetting to %s",
                ask.offset,
                state.topic_partition,
                node_id,
                part.log_start_offset,
                self._subscription.default_reset.name.lower(),
            )
            if self._subscription.reset_out_of_range(state, self._subscription.default_reset):
                self._back_off(state)
            return
        error = broker_error(
            part.error_code,
            f"Fetch of {state.topic_partition} at offset {ask.offset} from broker {node_id} failed",
            topic_partition=state.topic_partition,
            node_id=node_id,
            hint="seek to an offset within the log, or set auto_offset_reset",
        )
        self._subscription.fail(state, error)
        self._back_off(state)

    def _read_error(
        self, state: PartitionState, part: PartitionData, news: FetchFollowUp, now: float
    ) -> None:
        code, node_id = part.error_code, state.node_id
        partition = state.topic_partition
        info = TABLE.get(code)
        self._log.debug(
            "fetch failed partition=%s node=%s error=%s",
            partition,
            node_id,
            info.name if info is not None else code,
        )
        if code in _STALE or (info is not None and info.refresh_metadata):
            self._read_stale(state, part, news, now)
            return
        retriable = info is None or info.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR
        if not retriable or code in _FOR_THE_USER or state.failures >= QUIET_FAILURES:
            doing = (
                f"Fetch of {partition} at offset {state.fetch_offset} from broker {node_id} failed"
            )
            self._subscription.fail(
                state, broker_error(code, doing, topic_partition=partition, node_id=node_id)
            )
        self._back_off(state)

    def _read_stale(
        self, state: PartitionState, part: PartitionData, news: FetchFollowUp, now: float
    ) -> None:
        partition = state.topic_partition
        self._plan.back_to_leader([state], now)
        leader = part.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            # The broker names its successor: that may save a metadata request (KIP-951).
            news.leaders.append((*partition, leader.leader_id, leader.leader_epoch))
        else:
            news.stale_topics[partition.topic] = None
        self._back_off(state)


def _see_ends(state: PartitionState, part: PartitionData) -> None:
    """Store start and end of the log. Valid for any request; a session reports them only once."""
    if part.high_watermark >= 0:
        state.high_watermark = part.high_watermark
    # Before v4 there is none: then all that can be read is stable.
    stable = part.last_stable_offset
    state.last_stable_offset = stable if stable >= 0 else state.high_watermark
    if part.log_start_offset >= 0:
        state.log_start_offset = part.log_start_offset


def _nothing_readable(
    batches: Iterator[Batch], partition: TopicPartition, offset: int
) -> Iterator[Batch]:
    """Yield ``batches``, then raise: none of them reaches the offset that was requested."""
    yield from batches
    raise CorruptRecord(
        f"the broker sent no whole batch of {partition} that reaches offset {offset}",
        offset=offset,
        topic_partition=partition,
    )


def measure(data: memoryview, offset: int, topic_partition: TopicPartition) -> BatchSpan:
    """Walk over the batches in ``data``, which was fetched at ``offset``, without reading them.

    So the next fetch can be sent before anything is decoded. The batches are read one by one when
    poll wants them: a piece of many tiny ones would hold the loop, and take a multiple of its size
    as objects.
    """
    size, pos, last = len(data), 0, -1
    length_of = _LENGTH.unpack_from
    clean = True
    while size - pos >= LOG_OVERHEAD:
        length = length_of(data, pos + _LENGTH_AT)[0]
        if length < _SMALLEST_MESSAGE_BYTES:
            clean = False
            break
        end = pos + LOG_OVERHEAD + length
        if end > size:
            break  # the broker cut it off
        last, pos = pos, end
    if last < 0:
        return BatchSpan(offset, clean)
    if pos - last >= BATCH_HEADER_BYTES:
        base, magic, delta = _ENDS.unpack_from(data, last)
        if magic == 2 and base >= 0 and 0 <= delta < _INT64_MAX - base:
            return BatchSpan(max(base + delta + 1, offset), clean)
    try:
        batch = next(read_batches(data[last:], topic_partition=topic_partition))
    except CorruptRecord:
        return BatchSpan(offset, False)
    return BatchSpan(max(batch.next_offset, offset), clean)
