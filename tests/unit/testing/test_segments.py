"""Where segments begin: by size and by time, computed from the batches afterwards."""

from __future__ import annotations

import pytest

from kclient.testing.log import PartitionLog
from kclient.testing.log_state import Segments
from tests.unit.testing.batches import NOW, stored

DAY = 86_400_000


def log_of(*timestamps: int) -> PartitionLog:
    """Return a log with one record per batch."""
    log = PartitionLog()
    for timestamp in timestamps:
        log.append(stored(1, timestamp=timestamp), 0, None)
    log.advance(log.end_offset)
    return log


SIZE = stored(1).size_bytes


@pytest.mark.parametrize(
    ("segment_bytes", "bases"), [(1, [0, 1, 2, 3]), (2 * SIZE, [0, 2]), (4 * SIZE, [0])]
)
def test_a_segment_ends_before_it_grows_too_large(segment_bytes: int, bases: list[int]) -> None:
    log = log_of(*[NOW] * 4)
    log.note_segments(segment_bytes, DAY)
    assert log.segments.bases == bases


def test_a_segment_ends_when_its_first_batch_is_too_old() -> None:
    log = log_of(NOW, NOW + 10, NOW + 11, NOW + 12, NOW + 21, NOW + 22)
    log.note_segments(1 << 20, 10)
    assert log.segments.bases == [0, 2, 5]


def test_what_was_noted_stays_when_the_limits_change() -> None:
    log = log_of(NOW, NOW, NOW)
    log.note_segments(1, DAY)
    log.append(stored(1), 0, None)
    log.append(stored(1), 0, None)
    log.note_segments(2 * SIZE, DAY)
    assert log.segments.bases == [0, 1, 2, 4]


def test_truncation_opens_the_segment_that_holds_the_end() -> None:
    log = log_of(*[NOW] * 6)
    log.note_segments(2 * SIZE, DAY)
    log.segments.first_dirty = 4
    log.truncate(3)
    assert (log.segments.bases, log.segments.first_dirty) == ([0, 2], 3)
    log.append(stored(1), 1, None)
    log.append(stored(1), 1, None)
    log.note_segments(2 * SIZE, DAY)
    assert log.segments.bases == [0, 2, 4]


def test_an_empty_segment_is_not_closed() -> None:
    segments = Segments(5)
    segments.roll(5)
    assert (segments.bases, segments.active_base) == ([5], 5)
