"""Retention and compaction: what is deleted, what stays, and when the next check is due."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient.record.compression import Compression
from kclient.testing.compaction import delete_horizon
from kclient.testing.log import PartitionLog
from kclient.testing.log_cleaner import clean
from kclient.testing.log_state import AbortedTransaction
from kclient.testing.stored_batch import StoredBatch
from tests.unit.testing.batches import ABORT, COMMIT, NOW, stored
from tests.unit.testing.keyed import Pair, compacted, end, put, seen, topic, values

DAY = 86_400_000


def log_of(*timestamps: int, size: int = 1) -> PartitionLog:
    log = PartitionLog()
    for timestamp in timestamps:
        log.append(stored(size, timestamp=timestamp), 0, None)
    log.advance(log.end_offset)
    return log


SIZE = stored(1).size_bytes


# Retention


def test_old_segments_go() -> None:
    log = log_of(NOW, NOW + 10, NOW + 20)
    result = clean(log, topic(retention_ms=100), NOW + 111)
    assert (result.start_offset, result.freed_bytes) == (2, 2 * SIZE)
    assert [batch.base_offset for batch in log.batches] == [2]
    assert log.epochs.entries() == [(0, 2)]


def test_the_active_segment_goes_too_when_it_is_old() -> None:
    log = log_of(NOW)
    assert clean(log, topic(retention_ms=100), NOW + 101).start_offset == 1
    put(log, (b"k", b"new"))
    assert seen(log) == [(1, b"new", NOW)]


def test_a_segment_is_as_old_as_its_youngest_record() -> None:
    log = log_of(NOW, NOW + 500, NOW)
    config = topic(retention_ms=100, internal_segment_bytes=2 * SIZE)
    assert clean(log, config, NOW + 300).start_offset == 0
    assert clean(log, config, NOW + 601).start_offset == 3


def test_retention_ends_at_the_first_segment_that_stays() -> None:
    log = log_of(NOW + 500, NOW, NOW)
    assert clean(log, topic(retention_ms=100), NOW + 300).start_offset == 0


def test_nothing_above_the_high_watermark_goes() -> None:
    log = PartitionLog()
    for _ in range(3):
        log.append(stored(1), 0, None)
    log.advance(1)
    config = topic(retention_ms=0, retention_bytes=0)
    assert clean(log, config, NOW + DAY).start_offset == 1
    log.advance(3)
    assert clean(log, config, NOW + DAY).start_offset == 3


@pytest.mark.parametrize(
    ("retention_bytes", "start"), [(-1, 0), (0, 4), (SIZE, 3), (SIZE + 1, 2), (4 * SIZE, 0)]
)
def test_a_log_that_is_too_large_loses_its_oldest_segments(
    retention_bytes: int, start: int
) -> None:
    log = log_of(*[NOW] * 4)
    config = topic(retention_bytes=retention_bytes, retention_ms=-1)
    assert clean(log, config, NOW).start_offset == start


def test_retention_does_nothing_where_the_policy_has_no_delete() -> None:
    for policy in ("compact", ""):
        log = log_of(NOW)
        config = topic(cleanup_policy=policy, retention_ms=0, retention_bytes=0)
        assert clean(log, config, NOW + DAY).start_offset == 0


def test_it_returns_when_the_next_segment_is_due() -> None:
    log = log_of(NOW, NOW + 10)
    config = topic(retention_ms=100)
    due = clean(log, config, NOW).next_clean_at
    assert due == NOW + 101
    assert clean(log, config, due - 1).start_offset == 0
    later = clean(log, config, due)
    assert (later.start_offset, later.next_clean_at) == (1, NOW + 111)
    assert clean(log, config, NOW + 111).next_clean_at is None


def test_a_log_that_keeps_everything_needs_no_look() -> None:
    assert clean(log_of(NOW), topic(retention_ms=-1), NOW).next_clean_at is None
    assert clean(PartitionLog(), topic(), NOW).next_clean_at is None


# Compaction


def test_of_each_key_the_last_record_stays_with_its_offset() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    put(log, (b"b", b"4"), (b"c", b"5"))
    put(log, (b"z", b"active"))
    result = clean(log, compacted(), NOW)
    assert (result.compacted, result.removed_records) == (True, 2)
    assert seen(log) == [
        (2, b"3", NOW + 2),
        (3, b"4", NOW),
        (4, b"5", NOW + 1),
        (5, b"active", NOW),
    ]
    assert [(one.base_offset, one.last_offset) for one in log.batches] == [(0, 2), (3, 4), (5, 5)]


def test_the_active_segment_is_left_alone() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), (b"a", b"2"))
    assert not clean(log, compacted(), NOW).compacted
    assert values(log) == [b"1", b"2"]
    assert clean(log, compacted(), NOW, force=True).removed_records == 1
    assert values(log) == [b"2"]


def test_a_batch_without_records_goes() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    put(log, (b"z", b"3"))
    clean(log, compacted(), NOW)
    assert [one.base_offset for one in log.batches] == [1, 2]
    assert log.start_offset == 0
    assert seen(log, 0) == seen(log, 1)


def test_the_end_of_what_was_cleaned_stays_though_it_is_empty() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"))
    put(log, (None, b"no key"))  # as before the topic was compacted
    clean(log, compacted(), NOW, force=True)
    last = log.batches[-1]
    assert (last.base_offset, last.record_count, last.size_bytes) == (1, 0, 61)
    assert values(log) == [b"1"]


def test_the_last_sequence_of_a_producer_stays() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), (b"a", b"2"), producer=(7, 0, 0))
    put(log, (b"a", b"3"), producer=(7, 0, 2))
    put(log, (b"a", b"4"))
    put(log, (b"z", b"5"))
    clean(log, compacted(), NOW)
    assert [(one.base_offset, one.record_count) for one in log.batches] == [(2, 0), (3, 1), (4, 1)]
    kept = log.batches[0]
    assert (kept.producer_id, kept.base_sequence, kept.last_sequence) == (7, 2, 2)
    assert kept.computed_crc() == kept.crc
    log.truncate(log.end_offset)  # rebuilds the producer states
    state = log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 2


def test_little_that_is_dirty_waits() -> None:
    log = PartitionLog()
    put(log, *[(b"%d" % n, b"x") for n in range(20)])
    put(log, (b"z", b"1"))
    config = compacted(min_cleanable_dirty_ratio=0.5)
    assert clean(log, config, NOW).compacted
    put(log, (b"z", b"2"))
    assert not clean(log, config, NOW).compacted
    for _ in range(20):
        put(log, (b"z", b"3"))
    assert clean(log, config, NOW).compacted


def test_young_records_are_not_compacted() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), timestamp=NOW)
    put(log, (b"a", b"2"), timestamp=NOW + 50)
    put(log, (b"a", b"3"), timestamp=NOW + 90)
    put(log, (b"z", b"4"), timestamp=NOW + 90)
    config = compacted(min_compaction_lag_ms=100)
    assert clean(log, config, NOW + 99).next_clean_at == NOW + 100
    result = clean(log, config, NOW + 155)
    assert (result.removed_records, result.next_clean_at) == (1, NOW + 190)
    assert values(log) == [b"2", b"3", b"4"]
    assert clean(log, config, NOW + 190, force=True).removed_records == 1


def test_what_waited_long_enough_is_compacted_however_little_it_is() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), timestamp=NOW)
    put(log, (b"a", b"2"), timestamp=NOW + 10)
    put(log, (b"z", b"3"), timestamp=NOW + 10)
    config = compacted(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=100)
    early = clean(log, config, NOW + 100)
    assert (early.compacted, early.next_clean_at) == (False, NOW + 101)
    assert clean(log, config, NOW + 101).removed_records == 1


def test_tombstones_stay_until_their_horizon() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None))
    put(log, (b"z", b"3"))
    config = compacted(delete_retention_ms=100)
    clean(log, config, NOW)
    assert seen(log) == [(1, b"2", NOW + 1), (2, None, NOW), (3, b"3", NOW)]
    assert delete_horizon(log.batches[1]) == NOW + 100
    clean(log, config, NOW + 99, force=True)
    assert values(log) == [b"2", None, b"3"]
    clean(log, config, NOW + 100, force=True)
    assert values(log) == [b"2", b"3"]


def test_compaction_and_retention_together() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), timestamp=NOW)
    put(log, (b"b", b"1"), (b"b", b"2"), timestamp=NOW + 100)
    put(log, (b"z", b"3"), timestamp=NOW + 100)
    config = compacted(cleanup_policy="compact,delete", retention_ms=100)
    result = clean(log, config, NOW + 101)
    assert (result.start_offset, result.removed_records) == (1, 1)
    assert values(log) == [b"2", b"3"]


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches_are_compressed_again(codec: Compression) -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), codec=codec)
    clean(log, compacted(), NOW, force=True)
    assert log.batches[0].codec == codec
    assert seen(log) == [(1, b"2", NOW + 1), (2, b"3", NOW + 2)]


def test_the_brokers_time_is_kept() -> None:
    log = PartitionLog()
    for value in (b"1", b"2"):
        put(log, (b"a", value))
        log.batches[-1].set_times(NOW + 7, log_append_time=True)
    put(log, (b"z", b"3"))
    clean(log, compacted(), NOW)
    assert seen(log)[0] == (1, b"2", NOW + 7)


def test_a_batch_that_cannot_be_read_stops_compaction_and_nothing_is_lost() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), (b"a", b"2"), codec=Compression.GZIP)
    log.batches[0].data[61] ^= 0xFF  # invalid gzip data
    before = bytes(log.batches[0].data)
    result = clean(log, compacted(), NOW, force=True)
    assert not result.compacted
    assert result.uncleanable is not None
    assert bytes(log.batches[0].data) == before


# Transactions


def test_transactions_stay_as_they_are() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"aborted"), producer=(7, 0, 0), transactional=True)
    end(log, ABORT, 7)
    put(log, (b"a", b"committed"), producer=(7, 0, 1), transactional=True)
    end(log, COMMIT, 7)
    put(log, (b"b", b"2"))
    assert clean(log, compacted(), NOW, force=True).removed_records == 0
    assert [one.base_offset for one in log.batches] == [0, 1, 2, 3, 4, 5]
    assert log.transactions.aborted_between(0, 6) == [AbortedTransaction(7, 1, 2)]


def test_an_open_transaction_is_not_touched() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"open"), producer=(7, 0, 0), transactional=True)
    put(log, (b"a", b"2"))
    assert clean(log, compacted(), NOW, force=True).removed_records == 0
    assert values(log) == [b"1", b"open", b"2"]


# For any log

_keys = st.sampled_from([b"a", b"b", b"c", b"d"])
_pairs = st.tuples(_keys, st.one_of(st.none(), st.binary(min_size=1, max_size=4)))
_batches = st.lists(
    st.tuples(
        st.lists(_pairs, min_size=1, max_size=5),
        st.sampled_from([Compression.NONE, Compression.GZIP]),
        st.booleans(),
    ),
    max_size=14,
)


def last_values(records: list[tuple[int, bytes | None]], keys: list[bytes]) -> dict[bytes, bytes]:
    last = {keys[offset]: value for offset, value in records}
    return {key: value for key, value in last.items() if value is not None}


@settings(max_examples=150, deadline=None)
@given(_batches, st.lists(st.integers(0, 300), max_size=4), st.integers(1, 400), st.data())
def test_a_compacted_log_has_the_same_last_values_as_the_full_one(
    batches: list[tuple[list[Pair], Compression, bool]],
    waits: list[int],
    segment_bytes: int,
    data: st.DataObject,
) -> None:
    log, now, sequence = PartitionLog(), NOW, 0
    keys: list[bytes] = []
    full: list[tuple[int, bytes | None, int]] = []
    config = compacted(internal_segment_bytes=segment_bytes, delete_retention_ms=100)
    for pairs, codec, idempotent in batches:
        producer = (1, 0, sequence) if idempotent else (-1, -1, -1)
        sequence += len(pairs) * idempotent
        base = log.end_offset
        put(log, *pairs, timestamp=now, codec=codec, producer=producer)
        keys += [key for key, _ in pairs if key is not None]
        full += [(base + n, value, now + n) for n, (_, value) in enumerate(pairs)]
        if data.draw(st.booleans()):
            clean(log, config, now)
    for wait in waits:
        now += wait
        clean(log, config, now, force=True)
        left = seen(log)
        assert set(left) <= set(full)
        offsets = [offset for offset, _, _ in left]
        assert offsets == sorted(set(offsets))
        assert last_values([one[:2] for one in left], keys) == last_values(
            [one[:2] for one in full], keys
        )
        for start in range(log.end_offset + 1):
            assert seen(log, start) == [one for one in left if one[0] >= start]
    if sequence:
        log.truncate(log.end_offset)
        state = log.producers.get(1)
        assert state is not None
        assert state.last_sequence == sequence - 1


def test_a_lookup_of_the_latest_time_looks_at_records_only() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"), timestamp=NOW + 50, producer=(7, 0, 0))
    put(log, (b"a", b"2"), timestamp=NOW)
    put(log, (b"z", b"3"), timestamp=NOW + 1)
    clean(log, compacted(), NOW)
    assert log.batches[0].record_count == 0
    found = log.offset_of_max_time()
    assert found is not None
    assert (found.offset, found.timestamp) == (2, NOW + 1)


def test_a_batch_is_not_rewritten_where_nothing_changes() -> None:
    log = PartitionLog()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"2"))
    first: StoredBatch = log.batches[0]
    clean(log, compacted(), NOW, force=True)
    assert log.batches[0] is first
