"""Which batches a read_committed reader may see."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.consumer.completed_fetch import AbortedTransactions
from kclient.record import read_batches
from tests.unit.consumer.log_bytes import batch, control


def visible(data: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    """Base offsets of the data batches that may be seen."""
    filtered = AbortedTransactions(aborted)
    seen = []
    for one in read_batches(data):
        if one.is_control:
            filtered.pass_control(one)
        elif not filtered.hides(one):
            seen.append(one.base_offset)
    return seen


def txn(offset: int, producer_id: int) -> bytes:
    return batch(offset, 1, producer_id=producer_id, transactional=True)


def test_aborted_batches_are_hidden_up_to_their_marker() -> None:
    log = txn(0, 1) + txn(1, 2) + control(2, 1, 0) + txn(3, 1) + control(4, 2, 1)
    assert visible(log, [(1, 0)]) == [1, 3]


def test_batches_without_a_transaction_are_never_hidden() -> None:
    log = batch(0, 1, producer_id=1) + txn(1, 1)
    assert visible(log, [(1, 0)]) == [0]


def test_a_producer_may_abort_twice_and_commit_between() -> None:
    log = b"".join(
        (txn(0, 1), control(1, 1, 0), txn(2, 1), control(3, 1, 1), txn(4, 1), control(5, 1, 0))
    )
    for order in itertools.permutations([(1, 0), (1, 4)]):
        assert visible(log, list(order)) == [2]


def test_a_commit_marker_does_not_end_what_is_hidden() -> None:
    # Of the same producer there can't be one in between; one of another producer means nothing.
    log = txn(0, 1) + control(1, 2, 1) + txn(2, 1) + control(3, 1, 0)
    assert visible(log, [(1, 0)]) == []


def test_an_abort_that_began_before_the_fetched_piece_hides_its_first_batch() -> None:
    assert visible(txn(50, 1) + control(51, 1, 0) + txn(52, 1), [(1, 7)]) == [52]


def test_a_marker_without_its_transaction_in_the_list_changes_nothing() -> None:
    assert visible(control(0, 9, 0) + txn(1, 9), []) == [1]


@pytest.mark.parametrize("kinds", [(0, 1), (1, 0), (1, 1, 0), (0, 0)])
def test_an_abort_marker_counts_wherever_it_stands_in_its_batch(kinds: tuple[int, ...]) -> None:
    after = 1 + len(kinds)
    assert visible(txn(0, 1) + control(1, 1, *kinds) + txn(after, 1), [(1, 0)]) == [after]


@given(st.data())
def test_any_order_of_the_list_hides_the_same(data: st.DataObject) -> None:
    """Random histories of three producers, the list shuffled (one broker is known to do that)."""
    steps = data.draw(st.lists(st.tuples(st.integers(1, 3), st.sampled_from("dca")), max_size=40))
    log, began, expected, aborted = [], {}, [], []
    open_batches: dict[int, list[int]] = {}
    for offset, (producer, what) in enumerate(steps):
        if what == "d":
            began.setdefault(producer, offset)
            open_batches.setdefault(producer, []).append(offset)
            log.append(txn(offset, producer))
        else:
            batches = open_batches.pop(producer, [])
            first = began.pop(producer, None)
            if what == "c":
                expected += batches
            elif first is not None:
                aborted.append((producer, first))
            log.append(control(offset, producer, 1 if what == "c" else 0))
    for batches in open_batches.values():  # a broker sends none beyond the LSO; here all are shown
        expected += batches
    shuffled = data.draw(st.permutations(aborted))
    assert visible(b"".join(log), list(shuffled)) == sorted(expected)
