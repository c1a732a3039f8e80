"""How far a fetched piece reaches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kclient.consumer.fetch_response import BatchSpan, measure
from kclient.errors import CorruptRecord
from kclient.record import read_batches
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch, control, gapped

P = TopicPartition("t", 0)
LOG = batch(5, 3) + control(8, 1, 1) + gapped(batch(9, 2), 6)


def span(data: bytes, offset: int = 5) -> BatchSpan:
    return measure(memoryview(data), offset, P)


def test_it_ends_behind_the_last_batch_and_its_gap() -> None:
    assert span(LOG) == (16, True)


def test_what_the_broker_cut_off_does_not_count() -> None:
    assert span(LOG + batch(16, 4)[:-1]) == (16, True)
    assert span(LOG + batch(16, 4)[:5]) == (16, True)


def test_nothing_whole_ends_where_it_began() -> None:
    assert span(b"") == (5, True)
    assert span(batch(5, 3)[:-1]) == (5, True)


def test_a_length_that_can_not_be_right_ends_it_uncleanly() -> None:
    assert span(LOG + b"\x00" * 20) == (16, False)


def test_a_last_header_that_can_not_be_right_ends_it_uncleanly() -> None:
    broken = bytearray(batch(16, 1))
    broken[16] = 9  # magic
    assert span(LOG + bytes(broken)) == (5, False)


def test_it_never_goes_back() -> None:
    assert span(batch(0, 3), offset=50) == (50, True)


@given(st.data())
def test_it_agrees_with_reading_all_batches(data: st.DataObject) -> None:
    """Mutated pieces: the end of all that can be read, or unclean where reading raises."""
    piece = bytearray(LOG + batch(16, 2))
    for _ in range(data.draw(st.integers(0, 3))):
        piece[data.draw(st.integers(0, len(piece) - 1))] = data.draw(st.integers(0, 255))
    del piece[data.draw(st.integers(0, len(piece))) :]
    found = span(bytes(piece), 0)
    ends = [0]
    try:
        ends += [one.next_offset for one in read_batches(bytes(piece))]
    except CorruptRecord:
        return  # it is raised when the reader comes there, whatever was measured
    assert found == (max(0, ends[-1]), True)
