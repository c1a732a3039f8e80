"""Blocks of records that ``send_many`` pulls: their contents, and where they end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.producer._compiled import MemoryBudget, RecordAppender

LIMIT = 1000
PLAIN = (b"", b"value", None, (b"key", b"value"), (None, b"value"), (b"key", None), b"x" * LIMIT)
ODD = (
    "text",
    bytearray(b"x"),
    (b"only one",),
    (b"key", b"value", None),
    ("key", b"value"),
    (b"key", 7),
    b"x" * (LIMIT + 1),
    (b"k", b"x" * LIMIT),
)


def feed_of(records: Iterator[Any]) -> Any:
    appender = RecordAppender(MemoryBudget(10**6), LIMIT + 21)
    return appender.feed(records)


def pulled(feed: Any, most: int) -> list[Any]:
    count = feed.pull(most)
    assert (feed.count, feed.at) == (count, 0)
    taken: list[Any] = feed.block[:count]
    bare = list(takewhile(lambda one: type(one) is bytes and len(one) <= LIMIT, taken))
    assert (feed.bare, feed.bare_bytes) == (len(bare), sum(map(len, bare)))
    return taken


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_block_ends_with_a_record_that_may_be_wrong(odd: object) -> None:
    source = iter([*PLAIN[:3], odd, b"behind"])
    feed = feed_of(source)
    assert pulled(feed, 8) == [*PLAIN[:3], odd]
    assert next(source) == b"behind"


def test_plain_records_fill_a_block() -> None:
    assert pulled(feed_of(iter(PLAIN)), 8) == list(PLAIN)
    source = iter(PLAIN)
    assert pulled(feed_of(source), 2) == list(PLAIN[:2])
    assert next(source) == PLAIN[2]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_the_source_comes_after_the_records_before_it(
    error: type[BaseException],
) -> None:
    def source() -> Iterator[bytes]:
        yield b"1"
        yield b"2"
        raise error("the file is torn")

    feed = feed_of(source())
    assert pulled(feed, 8) == [b"1", b"2"]
    assert isinstance(feed.error, error)
    with pytest.raises(error, match="torn"):
        feed.pull(8)
    assert feed.pull(8) == 0


@given(st.lists(st.sampled_from(PLAIN + ODD)), st.lists(st.integers(1, 8), min_size=1))
def test_blocks_are_all_records_in_order(records: list[Any], sizes: list[int]) -> None:
    feed = feed_of(iter(records))
    found: list[Any] = []
    pulls = 0
    while block := pulled(feed, sizes[pulls % len(sizes)]):
        assert all(any(one is plain for plain in PLAIN) for one in block[:-1])
        found += block
        pulls += 1
    assert all(one is other for one, other in zip(found, records, strict=True))
