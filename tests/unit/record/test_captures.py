"""Batches stored by real brokers are read as they were written, in both builds."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.record import Compression, read_batches
from kclient.record.columnar import ColumnBuilder
from kclient.record.implementation import Implementation
from kclient.types import TimestampType
from tests.unit.record.captures import KAFKA_1_0_2, KAFKA_4_3_0, RECORDS

ALL = KAFKA_4_3_0 | KAFKA_1_0_2
DATA = [name for name in ALL if name != "v2-txn"]


def rows_of(name: str) -> list[Any]:
    rows: list[Any] = []
    for batch in read_batches(ALL[name]):
        batch.check_crc()
        rows += batch.records("topic", 0)
    return rows


def codec_of(name: str) -> Compression:
    codecs = [codec for codec in Compression if codec.name.lower() in name.split("-")]
    return Compression.LZ4 if name == "v1-append" else (*codecs, Compression.NONE)[0]


@pytest.mark.parametrize("name", DATA)
def test_records_are_as_they_were_sent(build: Implementation, name: str) -> None:
    rows = rows_of(name)
    magic = int(name[1])
    assert [row.offset for row in rows] == [0, 1, 2, 3, 4]
    assert [(row.key, row.value) for row in rows] == [(key, value) for key, value, _, _ in RECORDS]
    sent_headers = [headers if magic == 2 else () for _, _, headers, _ in RECORDS]
    assert [row.headers for row in rows] == sent_headers


@pytest.mark.parametrize("name", DATA)
def test_timestamps_are_those_of_the_format(build: Implementation, name: str) -> None:
    timestamps = [row.timestamp for row in rows_of(name)]
    types = {row.timestamp_type for row in rows_of(name)}
    if name.endswith("-append"):
        assert len(set(timestamps)) == 1
        assert timestamps[0] > RECORDS[-1][3]
        assert types == {TimestampType.LOG_APPEND_TIME}
    else:
        assert types == {TimestampType.CREATE_TIME}
        assert timestamps == [-1 if name.startswith("v0") else sent for *_, sent in RECORDS]


@pytest.mark.parametrize("name", DATA)
def test_batches_have_their_properties(build: Implementation, name: str) -> None:
    batches = list(read_batches(ALL[name]))
    assert {batch.magic for batch in batches} == {int(name[1])}
    assert {batch.codec for batch in batches} == {codec_of(name)}
    assert batches[-1].next_offset == 5
    assert sum(batch.size_bytes for batch in batches) == len(ALL[name])
    one_each = name in ("v0-none", "v1-none")
    assert len(batches) == (5 if one_each else 1)


@pytest.mark.parametrize("name", DATA)
def test_columns_hold_the_same(build: Implementation, name: str) -> None:
    builder = ColumnBuilder()
    for batch in read_batches(ALL[name]):
        builder.add(batch, "topic", 0)
    table = builder.to_record_batch()
    table.validate(full=True)
    rows = rows_of(name)
    assert table.column("offset").to_pylist() == [row.offset for row in rows]
    assert table.column("key").to_pylist() == [row.key for row in rows]
    assert table.column("value").to_pylist() == [row.value for row in rows]
    assert [
        tuple((header["name"], header["value"]) for header in headers)
        for headers in table.column("headers").to_pylist()
    ] == [row.headers for row in rows]
    stamps = table.column("timestamp").cast("int64").to_pylist()
    assert stamps == [row.timestamp for row in rows]


def test_transactions_end_in_markers(build: Implementation) -> None:
    batches = list(read_batches(KAFKA_4_3_0["v2-txn"]))
    for batch in batches:
        batch.check_crc()
    assert [batch.is_control for batch in batches] == [False, True, False, True]
    assert [batch.control_types() for batch in batches] == [[], [1], [], [0]]
    assert all(batch.is_transactional for batch in batches)
    assert [batch.base_offset for batch in batches] == [0, 5, 6, 11]
    assert {batch.producer_id for batch in batches} == {0}
