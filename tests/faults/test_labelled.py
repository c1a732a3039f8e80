"""The book of labelled records notices each kind of violation."""

from __future__ import annotations

from typing import Any, NamedTuple

from kclient.errors import DeliveryTimedOut, KafkaError
from tests.faults.labelled import Book, Fate


class Found(NamedTuple):
    """A record as a consumer gives it."""

    topic: str
    partition: int
    offset: int
    value: bytes


class Reported:
    """A delivery that is done."""

    def __init__(self, offset: int = 0, error: KafkaError | None = None) -> None:
        self.offset = offset
        self._error = error

    def exception(self) -> KafkaError | None:
        return self._error

    def result(self) -> Any:
        return self


def book_of_two() -> tuple[Book, list[bytes]]:
    """Two records for b-1 that are delivered at 0 and 1."""
    book = Book(["a", "b"], 3)
    values = []
    for offset in range(2):
        number, value = book.make(1, 1, 0)
        book.note(number, Reported(offset))
        values.append(value)
    return book, values


def test_a_good_run_has_no_problem() -> None:
    book, values = book_of_two()
    for offset, value in enumerate(values):
        book.read(Found("b", 1, offset, value))
    assert book.close()[Fate.DELIVERED] == 2 and not book.problems


def test_each_problem_is_found() -> None:
    for kind, reads in {
        "misrouted": [("a", 1, 0, 0), ("b", 1, 1, 1)],
        "doubled": [("b", 1, 0, 0), ("b", 1, 1, 1), ("b", 1, 1, 1)],
        "delivered and missing": [("b", 1, 0, 0)],
        "at another offset": [("b", 1, 0, 0), ("b", 1, 2, 1)],
    }.items():
        book, values = book_of_two()
        for topic, partition, offset, which in reads:
            book.read(Found(topic, partition, offset, values[which]))
        book.close()
        assert list(book.problems) == [kind]


def test_touched_bytes_are_found() -> None:
    for position in range(len(book_of_two()[1][1])):
        book, values = book_of_two()
        touched = bytearray(values[1])
        touched[position] ^= 1
        book.read(Found("b", 1, 1, bytes(touched)))
        assert list(book.problems) == ["corrupt"]


def test_failures_must_be_honest() -> None:
    for maybe, kinds in {
        True: [],
        False: ["found, though reported as not written"],
        None: ["no word on whether it is written"],
    }.items():
        book = Book(["a"], 1)
        number, value = book.make(0, 0, 0)
        book.note(number, Reported(error=DeliveryTimedOut("late", maybe_written=maybe)))
        book.read(Found("a", 0, 0, value))
        book.close()
        assert list(book.problems) == kinds
        assert book.written_in_doubt() == (maybe is not False)


def test_each_fate_is_reported_once() -> None:
    book = Book(["a"], 2)
    number, _ = book.make(0, 0, 0)
    book.make(0, 0, 0)
    for _ in range(2):
        book.note(number, Reported(error=DeliveryTimedOut("late", maybe_written=False)))
    assert book.close() == {
        Fate.PENDING: 1,
        Fate.DELIVERED: 0,
        Fate.IN_DOUBT: 0,
        Fate.NOT_WRITTEN: 1,
    }
    assert book.problems == {"settled twice": 1, "never settled": 1}
