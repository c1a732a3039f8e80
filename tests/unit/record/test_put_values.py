"""Records compared with a plain encoding of them, at the edges of every length on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.record.implementation import Implementation, load
from tests.unit.record.conftest import BUILDS

NOW = 1357016400000
EDGES = (0, 1, 2, 55, 56, 57, 58, 63, 64, 65, 100, 8179, 8180, 8181, 8182, 8191, 8192, 8193)
"""Sizes around those at which the length of a value, or of its record, takes one byte more."""
LARGE = ((1 << 20) - 14, (1 << 20) - 8, (1 << 20) - 1, 1 << 20)
TIMES = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, NOW, -NOW)

sizes = st.sampled_from(EDGES) | st.integers(0, 300)
times = st.sampled_from(TIMES) | st.integers(-10_000, 10_000)
runs = st.lists(st.tuples(times, st.lists(sizes, max_size=20)), max_size=12)


def plain_varint(number: int) -> bytes:
    rest = number * 2 if number >= 0 else -number * 2 - 1
    out = b""
    while rest > 0x7F:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest])


def plain_part(part: bytes | None) -> bytes:
    return plain_varint(-1) if part is None else plain_varint(len(part)) + part


def plain_record(
    index: int, delta: int, key: bytes | None, value: bytes | None, headers: Any = ()
) -> bytes:
    record = b"\0" + plain_varint(delta) + plain_varint(index) + plain_part(key) + plain_part(value)
    record += plain_varint(len(headers))
    for name, content in headers:
        record += plain_part(name.encode()) + plain_part(content)
    return plain_varint(len(record)) + record


def values_of(sizes: list[int]) -> list[bytes]:
    return [bytes([65 + at % 26]) * size for at, size in enumerate(sizes)]


def body(builder: Any) -> bytes:
    return bytes(builder.encode()[61:])


def put_all(builder: Any, timestamp: int, values: list[bytes]) -> int:
    """Put values as ``send_many`` does: together where possible, else singly; return the count."""
    at = 0
    while at < len(values):
        rest = values[at:]
        before = builder.size_bytes
        count, value_bytes = builder.put_values(timestamp, rest, len(rest))
        assert value_bytes == sum(map(len, rest[:count]))
        assert (builder.size_bytes == before) == (count == 0)
        at += count
        if count < len(rest):
            if builder.put(timestamp, None, values[at], b"\0") < 0:
                break
            at += 1
    return at


@pytest.mark.parametrize("name", BUILDS)
@given(runs=runs, limit=st.integers(61, 40_000))
def test_values_are_written_as_they_are_plainly(
    name: str, runs: list[tuple[int, list[int]]], limit: int
) -> None:
    builder: Any = load(name).BatchBuilder(limit)
    expected, count, base, latest = b"", 0, None, -1
    for offset, row in runs:
        timestamp = max(-1, NOW + offset)
        values = values_of(row)
        placed = put_all(builder, timestamp, values)
        for value in values[:placed]:
            base = timestamp if base is None else base
            expected += plain_record(count, timestamp - base, None, value)
            count += 1
            latest = max(latest, timestamp)
        if placed < len(values):
            assert base is not None
            refused = plain_record(count, timestamp - base, None, values[placed])
            assert 61 + len(expected) + len(refused) > limit
        assert builder.record_count == count
        assert builder.size_bytes == 61 + len(expected)
        assert builder.size_bytes <= limit or count == 1
    if count:
        assert (builder.base_timestamp, builder.max_timestamp) == (base, latest)
        assert body(builder) == expected


@pytest.mark.parametrize("name", BUILDS)
@given(
    st.lists(
        st.tuples(
            times,
            st.none() | sizes,
            st.none() | sizes,
            st.lists(st.tuples(st.sampled_from(["", "h", "é" * 40]), st.none() | sizes)),
        ),
        max_size=20,
    )
)
def test_whole_records_are_written_as_they_are_plainly(name: str, rows: list[Any]) -> None:
    builder: Any = load(name).BatchBuilder(1 << 24)
    expected = b""
    for index, (offset, key_size, value_size, sized) in enumerate(rows):
        timestamp = max(-1, NOW + offset)
        key = None if key_size is None else b"k" * key_size
        value = None if value_size is None else b"v" * value_size
        headers = [(one, None if size is None else b"w" * size) for one, size in sized]
        assert builder.append(timestamp, key, value, headers) == index
        delta = timestamp - builder.base_timestamp
        expected += plain_record(index, delta, key, value, headers)
        assert builder.size_bytes == 61 + len(expected)
    if rows:
        assert body(builder) == expected


@pytest.mark.parametrize("size", [*EDGES, *LARGE])
@pytest.mark.parametrize("delta", [0, -1, 63, 64, 8192])
def test_the_last_byte_of_a_batch_is_used_and_not_more(
    build: Implementation, size: int, delta: int
) -> None:
    value = b"v" * size
    records = [plain_record(0, 0, None, b"")]
    records += [plain_record(index, delta, None, value) for index in (1, 2)]
    exact = 61 + len(b"".join(records))
    for limit, fit in ((exact, 2), (exact - 1, 1), (exact + 1, 2)):
        builder = build.BatchBuilder(limit, expected=limit)
        builder.put(NOW, None, b"", b"\0")
        assert put_all(builder, NOW + delta, [value] * 3) == fit
        assert body(builder) == b"".join(records[: 1 + fit])


@pytest.mark.parametrize("edge", [64, 8192])
def test_indexes_that_take_one_byte_more(build: Implementation, edge: int) -> None:
    builder = build.BatchBuilder(1 << 20)
    values = [b"v" * (at % 3) for at in range(edge + 4)]
    assert put_all(builder, NOW, values[: edge - 3]) == edge - 3
    assert put_all(builder, NOW, values[edge - 3 :]) == 7
    expected = [plain_record(index, 0, None, value) for index, value in enumerate(values)]
    assert body(builder) == b"".join(expected)


def test_the_first_record_of_a_batch_is_left_to_put(build: Implementation) -> None:
    builder = build.BatchBuilder()
    assert builder.put_values(NOW, [b"v"], 1) == (0, 0)
    assert builder.record_count == 0


def test_a_closed_batch_takes_no_values(build: Implementation) -> None:
    builder = build.BatchBuilder()
    builder.put(NOW, None, b"v", b"\0")
    builder.encode()
    assert builder.put_values(NOW, [b"v"], 1) == (0, 0)


def test_no_record_fits_behind_a_first_one_above_the_limit(build: Implementation) -> None:
    builder = build.BatchBuilder(100)
    builder.put(NOW, None, b"v" * 5000, b"\0")
    assert builder.put_values(NOW, [b""], 1) == (0, 0)


@pytest.mark.parametrize("odd", ["text", None, bytearray(b"x"), (b"k", b"v")])
def test_what_is_not_bytes_ends_it(build: Implementation, odd: Any) -> None:
    builder = build.BatchBuilder()
    builder.put(NOW, None, b"", b"\0")
    assert builder.put_values(NOW, [b"a", b"bc", odd, b"d"], 4) == (2, 3)
    assert builder.record_count == 3


def test_no_more_than_count_and_no_more_than_there_are(build: Implementation) -> None:
    builder = build.BatchBuilder()
    builder.put(NOW, None, b"", b"\0")
    assert builder.put_values(NOW, [b"a", b"b", b"c"], 2) == (2, 2)
    assert builder.put_values(NOW, [b"a"], 8) == (1, 1)
    assert builder.put_values(NOW, [], 8) == (0, 0)
    assert builder.put_values(NOW, [b"a", b"b"], -1) == (0, 0)
    assert builder.record_count == 4
