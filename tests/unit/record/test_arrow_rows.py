"""Arrow columns are encoded to the same bytes as records appended one by one, in both builds."""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kclient.errors import InvalidArgument, InvalidConfig, SerializationFailed
from kclient.producer import arrow_source
from kclient.producer.arrow_source import ArrowSource
from kclient.record.arrow_rows import (
    BAD_HEADER,
    BAD_NAME,
    BAD_PARTITION,
    BAD_TIMESTAMP,
    TOO_LARGE,
)
from kclient.record.implementation import Implementation

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
LAYOUTS = {
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "dictionary": pa.dictionary(pa.int8(), pa.binary()),
    "run_end": pa.run_end_encoded(pa.int32(), pa.binary()),
}
TEXTS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int16(), pa.string()),
}

Rows = list[dict[str, Any]]


def test_run_ends_are_decoded_where_the_compute_module_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    column = encoded([b"a", b"a", b"b"], LAYOUTS["run_end"])
    monkeypatch.delattr(pa, "compute")
    assert arrow_source._plain(column).to_pylist() == [b"a", b"a", b"b"]


def encoded(values: list[Any], kind: Any) -> Any:
    """Return an array, also of types that pyarrow can't create from objects."""
    if isinstance(kind, pa.RunEndEncodedType):
        return pa.compute.run_end_encode(pa.array(values, kind.value_type), kind.run_end_type)
    return pa.array(values, kind)


def batches_of(source: ArrowSource, build: Implementation, limit: int = 400) -> list[bytes]:
    """Batches of all rows in order, each full before the next."""
    done: list[Any] = []
    builder = build.BatchBuilder(limit)
    for batch in source.batches:
        for _, rows in source.slices(batch):
            row = 0
            while (row := rows.append(builder, row, rows.count, NOW)) < rows.count:
                done.append(builder)
                builder = build.BatchBuilder(limit)
    return [each.encode() for each in (*done, builder) if each.record_count]


def appended(rows: Rows, build: Implementation, limit: int = 400) -> list[bytes]:
    """The same with ``append``."""
    done: list[Any] = []
    builder = build.BatchBuilder(limit)
    for row in rows:
        stamp = row.get("timestamp")
        headers = tuple((h["name"], h["value"]) for h in row.get("headers") or ())
        record = (NOW if stamp is None else stamp, row.get("key"), row["value"], headers or None)
        if builder.append(*record) < 0:
            done.append(builder)
            builder = build.BatchBuilder(limit)
            builder.append(*record)
    return [each.encode() for each in (*done, builder) if each.record_count]


maybe_bytes = st.none() | st.binary(max_size=40)
header = st.fixed_dictionaries({"name": st.text(max_size=5), "value": maybe_bytes})
record = st.fixed_dictionaries(
    {
        "key": maybe_bytes,
        "value": maybe_bytes | st.binary(min_size=120, max_size=500),
        "headers": st.none() | st.lists(header, max_size=3),
        "timestamp": st.none() | st.integers(0, 2**45),
    }
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, Rows]:
    """A table in chunks and slices, and its rows."""
    rows = draw(st.lists(record, max_size=30))
    before, behind = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    filler = {"key": b"?", "value": b"filler", "headers": None, "timestamp": 1}
    padded = [filler] * before + rows + [filler] * behind
    kinds = {
        "key": LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))],
        "value": LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))],
        "timestamp": pa.int64(),
        "headers": HEADERS,
    }
    names = ["value", *draw(st.sets(st.sampled_from(["key", "timestamp", "headers"])))]
    columns = {name: encoded([row[name] for row in padded], kinds[name]) for name in names}
    table = pa.table(columns).slice(before, len(rows))
    cut = draw(st.integers(0, len(rows)))
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    return table, [{name: row[name] for name in names} for row in rows]


@given(made=tables(), step=st.integers(1, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_columns_give_the_bytes_that_appending_gives(
    build: Implementation, made: tuple[Any, Rows], step: int
) -> None:
    table, rows = made
    source = ArrowSource(table)
    source._step = step
    assert batches_of(source, build) == appended(rows, build)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bytes_in_every_layout(build: Implementation, layout: str) -> None:
    values = [b"a", None, b"", b"abc" * 30, b"a"]
    table = pa.table({"value": encoded(values, LAYOUTS[layout])})
    rows: Rows = [{"value": value} for value in values]
    assert batches_of(ArrowSource(table), build) == appended(rows, build)
    assert batches_of(ArrowSource(table[2:]), build) == appended(rows[2:], build)


@pytest.mark.parametrize("layout", TEXTS)
def test_texts_in_every_layout(build: Implementation, layout: str) -> None:
    texts = ["ä", None, "", "long " * 20]
    table = pa.table({"value": pa.array(texts, TEXTS[layout]), "key": ["k"] * 4})
    rows: Rows = [{"value": None if t is None else t.encode(), "key": b"k"} for t in texts]
    assert batches_of(ArrowSource(table), build) == appended(rows, build)


def test_values_of_one_length_and_columns_of_nulls(build: Implementation) -> None:
    values = [b"abc", None, b"def"]
    fixed = pa.table({"value": pa.array(values, pa.binary(3))})
    assert batches_of(ArrowSource(fixed[1:]), build) == appended(
        [{"value": value} for value in values[1:]], build
    )
    nulls = pa.table({name: pa.nulls(2) for name in arrow_source.COLUMNS})
    assert batches_of(ArrowSource(nulls), build) == appended([{"value": None}] * 2, build)


@pytest.mark.parametrize(
    "kind",
    [
        HEADERS,
        pa.map_(pa.string(), pa.binary()),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.string())])),
        pa.list_(
            pa.struct(
                [("name", pa.dictionary(pa.int8(), pa.string())), ("value", pa.string_view())]
            )
        ),
    ],
    ids=str,
)
def test_headers_as_lists_and_maps(build: Implementation, kind: Any) -> None:
    given: list[Any] = [None, [], [("a", "1"), ("ü", None), ("a", "")], [("b", "x" * 300)]]
    if not pa.types.is_map(kind):
        names = [kind.value_type.field(index).name for index in range(2)]
        made: list[Any] = [
            None if h is None else [dict(zip(names, p, strict=True)) for p in h] for h in given
        ]
    else:
        made = [h if h is None else [(n, v and v.encode()) for n, v in h] for h in given]
    table = pa.table({"value": [b"v"] * 4, "headers": pa.array(made, kind)})
    rows: Rows = [
        {
            "value": b"v",
            "headers": [
                {"name": n, "value": None if v is None else v.encode()} for n, v in h or ()
            ],
        }
        for h in given
    ]
    for first in range(4):
        assert batches_of(ArrowSource(table[first:]), build) == appended(rows[first:], build)


@pytest.mark.parametrize(
    ("unit", "number"), [("s", 7), ("ms", 7000), ("us", 7000999), ("ns", 7 * 10**9)]
)
def test_timestamps_of_every_unit(build: Implementation, unit: str, number: int) -> None:
    table = pa.table(
        {"value": [b"a", b"b"], "timestamp": pa.array([number, None], pa.timestamp(unit, "UTC"))}
    )
    rows: Rows = [{"value": b"a", "timestamp": 7000}, {"value": b"b", "timestamp": None}]
    assert batches_of(ArrowSource(table), build) == appended(rows, build)


def targets_of(table: Any, partitions: int) -> list[int]:
    found: list[int] = []
    source = ArrowSource(table)
    for batch in source.batches:
        for _, rows in source.slices(batch):
            targets = array("i", [99] * rows.count)
            assert rows.route(targets, 1, rows.count, partitions) == rows.count
            assert targets[0] == 99
            assert rows.route(targets, 0, rows.count, partitions) == rows.count
            found += targets
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions_by_column_by_key_and_unassigned(build: Implementation, layout: str) -> None:
    keys = [b"", b"k", None, b"foobar", b"\xff" * 7, None]
    table = pa.table(
        {
            "value": [b"v"] * 6,
            "key": encoded(keys, LAYOUTS[layout]),
            "partition": pa.array([None, None, None, None, 9, 2], pa.int16()),
        }
    )
    by_key = [build.partition_of_key(key, 7) for key in (b"", b"k", b"foobar")]
    assert targets_of(table, 7) == [by_key[0], by_key[1], -1, by_key[2], 9, 2]
    assert targets_of(table[1:], 7) == [by_key[1], -1, by_key[2], 9, 2]


def test_route_stays_within_the_targets(build: Implementation) -> None:
    source = ArrowSource(pa.table({"value": [b"v"] * 3}))
    ((_, rows),) = source.slices(source.batches[0])
    with pytest.raises(InvalidArgument):
        rows.route(array("i", [0, 0]), 0, 3, 4)
    with pytest.raises(InvalidArgument):
        rows.route(array("i", [0] * 9), 0, 4, 4)
    with pytest.raises(InvalidArgument):
        rows.route(array("i", [0] * 9), -1, 3, 4)


def test_routing_ends_at_last_and_early_with_much_to_hash(build: Implementation) -> None:
    source = ArrowSource(pa.table({"value": [b"v"] * 9, "key": [b"k" * 3_000_000] * 9}))
    ((_, rows),) = source.slices(source.batches[0])
    targets = array("i", [99] * 9)
    assert rows.route(targets, 3, 4, 7) == 4
    assert [target == 99 for target in targets] == [True] * 3 + [False] + [True] * 5
    assert rows.route(targets, 5, 5, 7) == 5
    # At least one row, however long its key.
    assert 0 < (first := rows.route(targets, 0, 9, 7)) <= 2
    assert first < rows.route(targets, first, 9, 7) <= first + 2


def test_pieces_are_smaller_where_rows_have_many_headers(build: Implementation) -> None:
    def first_piece(headers: int, step: int = 8_000) -> int:
        pairs = [[("n", b"v")] * headers] * step
        made = pa.array(pairs, pa.map_(pa.string(), pa.binary()))
        source = ArrowSource(pa.table({"value": [b"v"] * step, "headers": made}))
        source._step = step
        ((_, rows),) = source.slices(source.batches[0])
        pieces = [0]
        while pieces[-1] < rows.count:
            pieces.append(rows.piece(pieces[-1]))
        assert pieces == sorted(set(pieces))
        return pieces[1]

    assert first_piece(50) < first_piece(5) <= first_piece(0) <= 8_000
    assert first_piece(100_000, 2) == 1


def faults_of(table: Any, largest: int = 1000) -> list[tuple[int, int]]:
    source, found = ArrowSource(table), []
    for batch in source.batches:
        for first, rows in source.slices(batch):
            wrong, reported, _ = rows.check(0, rows.count, largest, 100)
            assert wrong == len(reported)
            found += [(first + row, fault) for row, fault in reported]
    return found


def test_rows_are_checked_before_any_is_sent(build: Implementation) -> None:
    ok: dict[str, Any] = {"value": b"v", "partition": 1, "timestamp": 5, "headers": []}
    rows = [
        ok,
        {**ok, "value": b"x" * 1000},
        {**ok, "partition": -1},
        {**ok, "partition": 2**31},
        {**ok, "timestamp": -2},
        {**ok, "timestamp": 2**63 - 1},
        {**ok, "timestamp": -1},
        {**ok, "headers": [{"name": None, "value": b""}]},
        {**ok, "headers": [None]},
        {**ok, "headers": [{"name": "n", "value": b"x" * 980}]},
    ]
    columns = {name: [row[name] for row in rows] for name in ok}
    table = pa.table(columns | {"headers": pa.array(columns["headers"], HEADERS)})
    assert faults_of(table) == [
        *((1, TOO_LARGE), (2, BAD_PARTITION), (3, BAD_PARTITION), (4, BAD_TIMESTAMP)),
        *((5, BAD_TIMESTAMP), (7, BAD_HEADER), (8, BAD_HEADER), (9, TOO_LARGE)),
    ]


def test_names_of_headers_that_are_not_utf8_are_a_fault(build: Implementation) -> None:
    names: list[bytes] = [b"", b"n", "ü€😀".encode(), b"a\xff", "ü".encode()[:1], b"\xed\xa0\x80"]
    pairs = [[("first", b"\xff"), (name, b"\xff")] for name in names]
    table = pa.table(
        {
            "value": [b"v"] * len(names),
            "headers": pa.array(pairs, pa.map_(pa.binary(), pa.binary())),
        }
    )
    assert faults_of(table) == [(3, BAD_NAME), (4, BAD_NAME), (5, BAD_NAME)]
    source = ArrowSource(table[1:])
    ((_, rows),) = source.slices(source.batches[0])
    assert [rows.bad_name(row) for row in range(5)] == [None, None, *names[3:]]


def test_a_time_that_overflows_milliseconds_is_refused(build: Implementation) -> None:
    stamps = pa.array([2**62, 2**63 - 1, -1, 1], pa.timestamp("s"))
    table = pa.table({"value": [b"v"] * 4, "timestamp": stamps})
    assert faults_of(table) == [(0, BAD_TIMESTAMP), (1, BAD_TIMESTAMP), (2, BAD_TIMESTAMP)]


def test_the_highest_partition_and_rows_beyond_the_count(build: Implementation) -> None:
    source = ArrowSource(pa.table({"value": [b"v"] * 4, "partition": [3, None, 8, 0]}))
    ((_, rows),) = source.slices(source.batches[0])
    assert rows.check(0, 4, 1000, 10) == (0, [], 8)
    assert rows.check(0, 2, 1000, 10) == (0, [], 3)
    assert rows.check(0, 4, 1000, 10, 4) == (1, [(2, BAD_PARTITION)], 3)
    assert rows.check(0, 4, 1000, 1, 1) == (2, [(0, BAD_PARTITION)], 0)
    assert rows.check(3, 4, 1000, 1, 1) == (0, [], 0)
    for first, last in ((-1, 4), (0, 5), (3, 2)):
        with pytest.raises(InvalidArgument, match="rows"):
            rows.check(first, last, 1000, 10)


def test_no_more_faults_are_reported_than_wanted(build: Implementation) -> None:
    source = ArrowSource(pa.table({"value": [b"v" * 9] * 50}))
    ((_, rows),) = source.slices(source.batches[0])
    assert rows.check(0, 50, 10, 3) == (50, [(0, TOO_LARGE), (1, TOO_LARGE), (2, TOO_LARGE)], -1)


@pytest.mark.parametrize("ends", [(0, 5, 3), (0, -1, 2), (0, 2, 99), (-5, 0, 1)])
@pytest.mark.parametrize("wide", [False, True])
def test_offsets_that_lead_out_of_the_data_are_an_error(
    build: Implementation, ends: tuple[int, ...], wide: bool
) -> None:
    numbers = array("q" if wide else "i", ends)
    broken = build.ArrowBytes(2, 0, None, 8 if wide else 4, numbers, 0, b"abcd")
    fine = build.ArrowBytes(2, 0, None, 0, b"", 2, b"abcd")
    for rows in (build.ArrowRows(2, broken), build.ArrowRows(2, fine, broken)):
        with pytest.raises(InvalidArgument, match="broken"):
            rows.check(0, 2, 1000, 10)
        with pytest.raises(InvalidArgument, match="broken"):
            rows.append(build.BatchBuilder(), 0, 2, NOW)


def test_buffers_that_are_too_short_are_an_error(build: Implementation) -> None:
    with pytest.raises(InvalidArgument, match="buffer"):
        build.ArrowBytes(5, 0, None, 4, array("i", [0, 1]), 0, b"abc")
    with pytest.raises(InvalidArgument, match="buffer"):
        build.ArrowBytes(9, 0, b"\xff", 4, array("i", [0] * 10), 0, b"")
    with pytest.raises(InvalidArgument, match="buffer"):
        build.ArrowInts(3, 1, None, array("q", [0] * 3))
    rows = build.ArrowRows(1, build.ArrowBytes(1, 0, None, 0, b"", 10, b"abc"))
    with pytest.raises(InvalidArgument, match="broken"):
        rows.append(build.BatchBuilder(), 0, 1, NOW)
    with pytest.raises(InvalidArgument, match="rows"):
        rows.append(build.BatchBuilder(), 0, 2, NOW)


def test_headers_that_lead_out_of_the_pairs_are_an_error(build: Implementation) -> None:
    pairs = pa.StructArray.from_arrays([pa.array(["a"]), pa.array([b"1"])], ["name", "value"])
    headers = pa.Array.from_buffers(
        pa.list_(pairs.type), 2, [None, pa.py_buffer(array("i", [0, 7, 1]))], children=[pairs]
    )
    source = ArrowSource(pa.table({"value": [b"v"] * 2, "headers": headers}))
    ((_, rows),) = source.slices(source.batches[0])
    with pytest.raises(InvalidArgument, match="broken"):
        rows.check(0, 2, 1000, 10)


def test_numbers_that_lie_across_their_bounds(build: Implementation) -> None:
    ends = pa.py_buffer(b"?" + array("i", [0, 1, 3]).tobytes())[1:]
    odd = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"abc")])
    assert batches_of(ArrowSource(pa.table({"value": odd})), build) == appended(
        [{"value": b"a"}, {"value": b"bc"}], build
    )


def test_a_row_as_objects(build: Implementation) -> None:
    headers = pa.array([[{"name": "n", "value": None}], None], HEADERS)
    table = pa.table({"value": [b"v", None], "key": [None, b"k"], "headers": headers})
    source = ArrowSource(table)
    ((_, rows),) = source.slices(source.batches[0])
    assert rows.record(0, NOW) == (NOW, None, b"v", (("n", None),), 21 + 1 + 11)
    assert rows.record(1, NOW) == (NOW, b"k", None, None, 22)
    assert rows.key(1) == b"k"


# Rejected data


class Streaming:
    """Another library's table, with only the PyCapsule interface."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Single:
    """Another library's record batch, likewise."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def test_whatever_has_the_capsule_interface_is_taken(build: Implementation) -> None:
    table = pa.table({"value": [b"a", b"b"], "key": ["k", None]})
    rows: Rows = [{"value": b"a", "key": b"k"}, {"value": b"b"}]
    wanted = appended(rows, build)
    (batch,) = table.to_batches()
    for data in (table, batch, Streaming(table), Single(batch), table.to_reader()):
        assert batches_of(ArrowSource(data), build) == wanted


def test_data_frames_of_pandas_and_their_index(build: Implementation) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"value": [b"a", b"b", None], "key": ["x", None, "z"]})
    wanted: Rows = [{"value": b"b"}, {"value": None, "key": b"z"}]
    assert batches_of(ArrowSource(frame.iloc[[1, 2]]), build) == appended(wanted, build)


@pytest.mark.parametrize("wrong", [None, 5, b"value", [{"value": b"v"}], {"value": [b"v"]}])
def test_what_is_no_arrow_data(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"send_many.*|.*not a {type(wrong).__name__}"):
        ArrowSource(wrong)


def test_an_array_without_columns_is_no_table() -> None:
    with pytest.raises(InvalidArgument, match="not a table"):
        ArrowSource(Single(pa.array([1, 2])))


def test_an_unknown_column_is_named_with_the_nearest() -> None:
    with pytest.raises(
        InvalidArgument, match=r"'Values'.*allowed are value, .*did you mean 'value'"
    ):
        ArrowSource(pa.table({"Values": [b"v"]}))


def test_a_table_without_values() -> None:
    with pytest.raises(InvalidArgument, match="no column 'value'; its columns: 'key'"):
        ArrowSource(pa.table({"key": [b"v"]}))


def test_a_column_twice() -> None:
    values = pa.array([b"v"])
    with pytest.raises(InvalidArgument, match="two columns 'value'"):
        ArrowSource(pa.Table.from_arrays([values, values], names=["value", "value"]))


@pytest.mark.parametrize(
    ("name", "kind", "error"),
    [
        ("value", pa.int64(), SerializationFailed),
        ("key", pa.list_(pa.binary()), SerializationFailed),
        ("headers", pa.string(), SerializationFailed),
        ("headers", pa.list_(pa.struct([("n", pa.string()), ("value", pa.binary())])),
         SerializationFailed),
        ("partition", pa.float64(), InvalidArgument),
        ("timestamp", pa.int32(), InvalidArgument),
        ("timestamp", pa.date32(), InvalidArgument),
    ],
)  # fmt: skip
def test_a_wrong_type_is_named_with_those_allowed(name: str, kind: Any, error: Any) -> None:
    table = pa.table({"value": pa.nulls(1), name: pa.nulls(1).cast(kind)})
    with pytest.raises(error, match=rf"'{name}'.*allowed is"):
        ArrowSource(table)


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()], ids=str)
def test_dictionaries_of_views_as_polars_has_them(build: Implementation, view: Any) -> None:
    """The type of polars' Categorical and Enum columns; pyarrow itself can't decode them."""
    column = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, None, 1, 2], pa.uint32()), pa.array([b"EWR", b"JFK", None]).cast(view)
    )
    values = [b"JFK", b"EWR", None, b"JFK", None]
    table = pa.table({"key": column, "value": column})
    rows: Rows = [{"key": value, "value": value} for value in values]
    assert batches_of(ArrowSource(table), build) == appended(rows, build)
    assert batches_of(ArrowSource(table[1:3]), build) == appended(rows[1:3], build)


def test_headers_in_dictionaries_of_views(build: Implementation) -> None:
    texts = pa.array(["a", "b"], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.uint32()), texts)
    pairs = pa.StructArray.from_arrays([column, column], ["name", "value"])
    table = pa.table({"value": [b"v"] * 2, "headers": pa.ListArray.from_arrays([0, 1, 3], pairs)})
    a, b = ({"name": text, "value": text.encode()} for text in "ab")
    rows: Rows = [{"value": b"v", "headers": each} for each in ([a], [b, b])]
    assert batches_of(ArrowSource(table), build) == appended(rows, build)


def test_a_dictionary_of_views_is_cast_once_however_many_slices_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = pa.array([str(number) for number in range(5000)], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array(list(range(5000)), pa.uint32()), texts)
    source = ArrowSource(pa.table({"value": column}))
    cast: list[int] = []
    plain = arrow_source._plain

    def counting(array: Any) -> Any:
        cast.append(len(array) if pa.types.is_string_view(array.type) else 0)
        return plain(array)

    monkeypatch.setattr(arrow_source, "_plain", counting)
    assert len(list(source.slices(source.batches[0]))) > 3
    assert sum(cast) == 5000


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        ("key", pa.array(["a"], pa.string_view()), SerializationFailed),
        ("timestamp", pa.array([1], pa.timestamp("s")).dictionary_encode(), InvalidArgument),
    ],
)
def test_a_column_that_pyarrow_can_not_decode_is_named(name: str, values: Any, error: Any) -> None:
    column = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), values)
    source = ArrowSource(pa.table({"value": [b"v"], name: column}))
    with pytest.raises(error, match=rf"'{name}' .*run_end_encoded.*has no kernel.*cast"):
        list(source.slices(source.batches[0]))


def test_without_pyarrow_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InvalidConfig, match=r"kclient\[arrow\]"):
        ArrowSource(object())


def test_slices_of_what_must_be_cast_stay_small(build: Implementation) -> None:
    """A dictionary is small, however large its decoded values are."""
    large = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), [b"x" * 100_000])
    source = ArrowSource(pa.table({"value": large}))
    sizes = [rows.count for _, rows in source.slices(source.batches[0])]
    assert sum(sizes) == 300
    assert max(sizes[1:]) <= 21


def test_plain_slices_grow() -> None:
    source = ArrowSource(pa.table({"value": [b"v"] * 50_000}))
    sizes = [rows.count for _, rows in source.slices(source.batches[0])]
    assert sizes[0] == arrow_source.FIRST_ROWS
    assert max(sizes) == arrow_source.MOST_ROWS
