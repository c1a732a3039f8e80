"""Leader epochs of a log, as OffsetForLeaderEpoch returns them."""

from __future__ import annotations

import pytest

from kclient.testing.log_state import EpochEnd, LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def test_nothing_is_known_without_epochs() -> None:
    assert epochs().end_of(0, 10) == EpochEnd(-1, -1)
    assert epochs().latest == -1
    assert epochs().at(0) == -1


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),  # no epoch was requested
        (0, (0, 2)),  # older than all: where the first one begins
        (2, (2, 7)),
        (3, (2, 7)),  # between two: the lower one's end
        (4, (4, 12)),  # the latest ends at the log's end
        (5, (-1, -1)),  # newer than all
    ],
)
def test_the_end_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert epochs((2, 2), (4, 7)).end_of(asked, 12) == EpochEnd(*answer)


def test_an_epoch_without_records_gives_way() -> None:
    made = epochs((0, 0), (1, 5), (2, 5))
    assert made.entries() == [(0, 0), (2, 5)]


def test_an_epoch_that_is_known_or_old_changes_nothing() -> None:
    made = epochs((3, 0), (3, 9), (1, 12))
    assert made.entries() == [(3, 0)]


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (4, 1), (5, 3), (100, 3)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert epochs((1, 0), (3, 5)).at(offset) == epoch


def test_deleting_the_start_keeps_the_epoch_that_is_cut() -> None:
    made = epochs((1, 0), (2, 5), (3, 9))
    made.truncate_start(6)
    assert made.entries() == [(2, 6), (3, 9)]


def test_deleting_before_the_first_epoch_changes_nothing() -> None:
    made = epochs((1, 4))
    made.truncate_start(2)
    assert made.entries() == [(1, 4)]


def test_truncating_the_end_forgets_epochs_that_began_there() -> None:
    made = epochs((1, 0), (2, 5), (3, 9))
    made.truncate_end(5)
    assert made.entries() == [(1, 0)]
