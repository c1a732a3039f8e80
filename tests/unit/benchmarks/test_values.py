"""Values are equal for all clients, compress like real ones, and the check finds errors."""

from __future__ import annotations

import zlib

import pytest

from benchmarks.job import Job
from benchmarks.tally import Tally
from benchmarks.values import checksum, keys, pool, rows, values, windows

numpy = pytest.importorskip("numpy")


def job(**changes: object) -> Job:
    return Job("kclient poll", "nowhere:1", 10, topics=("a",), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [100, 1024, 100 * 1024])
def test_values_have_their_size_and_compress_two_to_threefold(size: int) -> None:
    found = pool(size)
    assert {len(value) for value in found} == {size}
    batch = b"".join(found)[: 128 * 1024]
    assert 2.0 <= len(batch) / len(zlib.compress(batch)) <= 4.0


def test_windows_are_the_values_in_pieces() -> None:
    pieces = list(windows(100, 25, 10))
    assert [len(piece) for piece in pieces] == [10, 10, 5]
    assert [value for piece in pieces for value in piece] == list(values(100, 25))


def test_rows_go_round_topics_and_keys_from_any_beginning() -> None:
    one = job(keyed=True)
    whole = list(rows(one, list(values(100, 6))))
    again = list(rows(one, list(values(100, 3)))) + list(rows(one, list(values(100, 6))[3:], 3))
    assert whole == again
    assert [key for _, _, key, _ in whole] == keys()[:6]


def test_the_check_takes_records_in_any_order_and_pieces() -> None:
    tally = Tally(job())
    found = list(values(100, 3_000))
    for piece in (found[1_000:], found[:1], found[1:1_000]):
        tally.add(piece)
    tally.check(3_000)


def test_the_check_takes_columns() -> None:
    arrow = pytest.importorskip("pyarrow")
    tally = Tally(job())
    column = arrow.array(list(values(100, 50)), arrow.binary())
    tally.add_column(column.slice(0, 20))
    tally.add_column(column.slice(20))
    tally.check(50)


@pytest.mark.parametrize("wrong", ["lost", "twice", "changed", "short"])
def test_the_check_sees_what_is_wrong(wrong: str) -> None:
    found = list(values(100, 100))
    if wrong == "lost":
        found.pop(7)
    elif wrong == "twice":
        found[7] = found[8]
    elif wrong == "changed":
        found[7] = found[7][:-1] + b"\0"
    else:
        found[7] = found[7][:-4]
    tally = Tally(job())
    tally.add(found)
    with pytest.raises(ValueError, match="the topic has"):
        tally.check(100)


def test_a_pool_that_is_used_twice_counts_twice() -> None:
    size, count = 100 * 1024, len(pool(100 * 1024))
    assert checksum(size, 2 * count) == 2 * checksum(size, count) % 2**32


def test_a_job_survives_its_journey_to_the_worker() -> None:
    one = job(warm_topics=("w",), codec="lz4", ca="ca.pem")
    assert Job.from_json(one.to_json()) == one
