"""Compaction of batches: of each key the last record stays, as Kafka's ``Cleaner`` does it.

Two passes over a log: the first notes the last offset of each key among the dirty records, the
second keeps what no later record replaces. Aborted records go; a transaction's marker goes once
none of its batches is left and its delete horizon has passed; so do tombstones (KIP-534). A batch
without records stays where it holds the last sequence of a producer, or the end of what was
cleaned. Used by ``log_cleaner.py``, which says from where to where. Offsets never change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from kclient.testing.batch_filter import (
    delete_horizon,
    records_of,
    with_records,
    without_records,
)
from kclient.testing.producer_states import ProducerStates
from kclient.testing.stored_batch import StoredBatch
from kclient.testing.transaction_index import AbortedTransaction, marker_type

_ABORT = 0
_COMMIT = 1


class Compacted(NamedTuple):
    """What compaction leaves."""

    batches: list[StoredBatch]
    aborted: list[AbortedTransaction]
    """Aborted transactions that still have a batch."""
    removed_records: int


class Round(NamedTuple):
    """One run over a log.

    Attributes:
        first_dirty: What lies below was compacted before.
        end: Nothing from this offset on is touched.
        now_ms: The time, which is compared with delete horizons.
        delete_retention_ms: How far a new delete horizon is away.
        producers: Whose last batches stay.
        aborted: All aborted transactions of the log.
    """

    first_dirty: int
    end: int
    now_ms: int
    delete_retention_ms: int
    producers: ProducerStates
    aborted: Sequence[AbortedTransaction]


class _Transactions:
    """Which transaction each batch is part of, while batches are passed in order."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda one: one.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def is_aborted(self, batch: StoredBatch) -> bool:
        """Pass a batch of data: whether its transaction was aborted."""
        self._open_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborting:
            self._seen.add(batch.producer_id)
            return True
        self._committing.add(batch.producer_id)
        return False

    def is_needless(self, marker: StoredBatch) -> bool:
        """Pass a control batch: whether no batch of its transaction was there."""
        self._open_up_to(marker.last_offset)
        producer_id, kind = marker.producer_id, marker_type(marker)
        if not marker.record_count:
            return True
        if kind == _ABORT:
            aborted = self._aborting.pop(producer_id, None)
            if aborted is None or producer_id not in self._seen:
                return True
            self._seen.discard(producer_id)
            self.kept.append(aborted)
            return False
        if kind == _COMMIT:
            there = producer_id in self._committing
            self._committing.discard(producer_id)
            return not there
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0].first_offset <= offset:
            one = self._waiting.popleft()
            self._aborting.setdefault(one.producer_id, one)


def compact(batches: Sequence[StoredBatch], run: Round) -> Compacted:
    """Compact the batches of a log that lie below ``run.end``.

    Args:
        batches: From the first of the log to the last one below ``run.end``.
        run: What and when.

    Raises:
        CorruptRecord: A batch is not what it should be; nothing was changed.
        DecompressionFailed: One can't be inflated here.
        CodecUnavailable: Its codec's package is missing.
    """
    latest = _latest_offsets(batches, run)
    transactions = _Transactions(run.aborted)
    kept: list[StoredBatch] = []
    before = after = 0
    for batch in batches:
        left = _clean_batch(batch, run, latest, transactions)
        before += batch.record_count
        if left is not None:
            kept.append(left)
            after += left.record_count
    still = [one for one in run.aborted if one.last_offset >= run.end]
    return Compacted(kept, [*transactions.kept, *still], before - after)


def _latest_offsets(batches: Sequence[StoredBatch], run: Round) -> dict[bytes, int]:
    """The last offset of each key among the dirty records that were not aborted."""
    dirty = [one for one in run.aborted if one.last_offset >= run.first_dirty]
    transactions = _Transactions(dirty)
    latest: dict[bytes, int] = {}
    for batch in batches:
        if batch.last_offset < run.first_dirty:
            continue
        if batch.is_control:
            transactions.is_needless(batch)
        elif not transactions.is_aborted(batch):
            for record in records_of(batch):
                if record.key is not None and record.offset >= run.first_dirty:
                    latest[record.key] = record.offset
    return latest


def _clean_batch(
    batch: StoredBatch, run: Round, latest: dict[bytes, int], transactions: _Transactions
) -> StoredBatch | None:
    """What is left of a batch; None where nothing is."""
    horizon = delete_horizon(batch)
    if batch.is_control:
        needless = transactions.is_needless(batch)
        gone = needless and horizon is not None and horizon <= run.now_ms
    else:
        needless = False
        gone = transactions.is_aborted(batch)
    if gone:
        return without_records(batch) if _must_stay(batch, run) else None
    records = records_of(batch)
    if batch.is_control:
        kept = records
    else:
        tombstones_stay = horizon is None or run.now_ms < horizon
        kept = [
            one
            for one in records
            if one.key is not None
            and one.offset >= latest.get(one.key, -1)
            and (tombstones_stay or not one.is_tombstone)
        ]
    if not kept:
        return without_records(batch) if _must_stay(batch, run) else None
    if horizon is None and (needless or any(one.is_tombstone for one in kept)):
        return with_records(batch, kept, run.now_ms + run.delete_retention_ms)
    return batch if len(kept) == len(records) else with_records(batch, kept, horizon)


def _must_stay(batch: StoredBatch, run: Round) -> bool:
    """Whether the batch tells something even without records."""
    if batch.next_offset == run.end:
        return True
    state = run.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
    if state is None:
        return False
    if state.batches:
        return batch.last_offset == state.batches[-1].last_offset
    return batch.is_control and batch.producer_epoch == state.epoch
