"""Cleaning of one log: retention by time and by size, and compaction.

``clean`` does at once what Kafka's two threads would do with a log now, by the topic's
configuration, and returns when there may be more to do, so that an idle cluster needs no periodic
timer. It works in segments (``log_state.py``): retention deletes whole ones that lie below the high
watermark; compaction never touches the active one. Called by ``replica_manager.py``, also for
``Cluster.clean``. Pure logic: the time is passed in as ``now_ms``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kclient.errors import CodecUnavailable, CorruptRecord, DecompressionFailed
from kclient.testing.compaction import Round, compact
from kclient.testing.log import PartitionLog
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.topic_configs import TopicConfig


class CleanResult(NamedTuple):
    """The result of cleaning a log.

    Attributes:
        start_offset: Where the log begins now.
        freed_bytes: How much smaller it is.
        removed_records: Records that compaction removed.
        compacted: Whether compaction was due.
        next_clean_at: Milliseconds since the epoch when something may become due though nothing
            is appended; None if nothing will.
        uncleanable: Why compaction failed, for the log message; None if it didn't.
    """

    start_offset: int
    freed_bytes: int
    removed_records: int = 0
    compacted: bool = False
    next_clean_at: int | None = None
    uncleanable: str | None = None


class _Segment(NamedTuple):
    """One segment and its batches."""

    base: int
    next_base: int
    """Base offset of the next segment, or the log's end."""
    batches: Sequence[StoredBatch]

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)

    @property
    def largest_timestamp(self) -> int:
        """Largest timestamp of its records; -1 if none has one."""
        return max((one.max_timestamp for one in self.batches if one.record_count), default=-1)


def clean(
    log: PartitionLog, config: TopicConfig, now_ms: int, *, force: bool = False
) -> CleanResult:
    """Delete and compact what is due.

    Args:
        log: Of one replica; the logs of the leader and of each follower are cleaned separately.
        config: Configuration of the topic.
        now_ms: Milliseconds since the epoch.
        force: Begin a new segment first, and compact however little is dirty. The lag of
            ``min.compaction.lag.ms`` and the retention of tombstones apply all the same.

    Returns:
        What was done.
    """
    before = log.size_bytes
    log.note_segments(config.segment_bytes, config.max_segment_ms)
    if force:
        log.segments.roll(log.end_offset)
    if config.deletes:
        _delete_old(log, config, now_ms)
    removed, compacted, uncleanable = 0, False, None
    if config.compacted:
        try:
            taken = _compact(log, config, now_ms, force)
        except (CorruptRecord, DecompressionFailed, CodecUnavailable) as error:
            uncleanable = str(error)
        else:
            removed, compacted = taken or 0, taken is not None
    return CleanResult(
        log.start_offset,
        before - log.size_bytes,
        removed,
        compacted,
        _next_time(log, config, now_ms),
        uncleanable,
    )


def _segments(log: PartitionLog) -> list[_Segment]:
    bases = log.segments.bases
    ends = [*bases[1:], log.end_offset]
    return [
        _Segment(base, end, log.batches_between(base, end))
        for base, end in zip(bases, ends, strict=True)
    ]


def _deletable(log: PartitionLog) -> list[_Segment]:
    """Segments that retention may delete, oldest first: committed, and not an empty active one."""
    found = []
    for segment in _segments(log):
        if segment.next_base > log.high_watermark or segment.next_base == segment.base:
            break
        found.append(segment)
    return found


def _delete_old(log: PartitionLog, config: TopicConfig, now_ms: int) -> None:
    """Delete the oldest segments by size and by age; the active one is closed before that."""
    over = log.size_bytes - config.retention_bytes
    end = log.start_offset
    for segment in _deletable(log):
        latest, size_bytes = segment.largest_timestamp, segment.size_bytes
        too_much = config.retention_bytes >= 0 and size_bytes <= over
        too_old = latest >= 0 and 0 <= config.retention_ms < now_ms - latest
        if not too_much and not too_old:
            break
        over -= size_bytes
        end = segment.next_base
    if end > log.start_offset:
        if end == log.end_offset:
            log.segments.roll(end)
        log.delete_before(end)
        log.segments.truncate_start(end)


def _first_uncleanable(log: PartitionLog, config: TopicConfig, now_ms: int) -> int:
    """The base of the first segment that compaction must not touch."""
    segments = _segments(log)
    end = min(log.last_stable_offset, log.segments.active_base)
    if config.min_compaction_lag_ms > 0:
        for segment in segments[:-1]:
            if segment.next_base <= log.segments.first_dirty:
                continue
            if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms:
                end = min(end, segment.base)
                break
    return max(base for base in log.segments.bases if base <= max(end, log.segments.bases[0]))


def _compact(log: PartitionLog, config: TopicConfig, now_ms: int, force: bool) -> int | None:
    """Compact if it is due; return how many records were removed, or None if it wasn't due."""
    first_dirty = log.segments.first_dirty
    end = _first_uncleanable(log, config, now_ms)
    segments = [one for one in _segments(log) if one.next_base <= end]
    clean_bytes = sum(one.size_bytes for one in segments if one.next_base <= first_dirty)
    dirty = [one for one in segments if one.next_base > first_dirty]
    dirty_bytes = sum(one.size_bytes for one in dirty)
    if not dirty_bytes and not (force and segments):
        return None
    overdue = _overdue_at(dirty, config)
    if not (
        force
        or (overdue is not None and overdue <= now_ms)
        or dirty_bytes / (clean_bytes + dirty_bytes) > config.min_cleanable_dirty_ratio
    ):
        return None
    before = log.batches_between(segments[0].base, end)
    after = compact(
        before, Round(first_dirty, end, now_ms, config.delete_retention_ms, log.producers)
    )
    log.replace_below(end, after)
    log.segments.first_dirty = end
    return sum(one.record_count for one in before) - sum(one.record_count for one in after)


def _overdue_at(dirty: Sequence[_Segment], config: TopicConfig) -> int | None:
    """When ``max.compaction.lag.ms`` makes compaction due; None if no record has a timestamp."""
    times = [one.batches[0].max_timestamp for one in dirty if one.batches]
    times = [at for at in times if at > 0]
    return min(times) + config.max_compaction_lag_ms + 1 if times else None


def _next_time(log: PartitionLog, config: TopicConfig, now_ms: int) -> int | None:
    times: list[int] = []
    if config.deletes and config.retention_ms >= 0:
        oldest = _deletable(log)[:1]
        if oldest and oldest[0].largest_timestamp >= 0:
            times.append(oldest[0].largest_timestamp + config.retention_ms + 1)
    if config.compacted:
        first_dirty = log.segments.first_dirty
        dirty = [one for one in _segments(log)[:-1] if one.next_base > first_dirty]
        times += [one.largest_timestamp + config.min_compaction_lag_ms for one in dirty]
        overdue = _overdue_at(dirty, config)
        if overdue is not None:
            times.append(overdue)
    return min((at for at in times if at > now_ms), default=None)
