"""The columns of the source, and how a batch of ``poll_arrow`` becomes one of Spark's.

Keys, values and offsets are passed on as they are, without a copy. Values may be decoded into
``data`` and ``error``: one that can't be has no ``data`` and the reason as ``error``, and stops
nothing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute

from kclient.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Spark's names and types, in the order of the connector."""
DATA = "data"
"""The column that values are decoded into, a struct."""
ERROR = "error"
"""Why that was not possible; null where it was."""
_OURS = {"timestampType": "timestamp_type"}
_DECODED = (DATA, ERROR)
_SAME = ("topic", "partition")
"""Not polled where all records are of one partition."""
ROWS = 20_000
"""Rows of a batch for Spark, which works on one while the next one is written."""
Decoder = Callable[[str, bytes], Mapping[str, Any] | None]
"""Makes the fields of ``data`` of topic and value."""


def ddl(*, headers: bool, data: str | None) -> str:
    """The schema, as Spark reads it.

    Args:
        headers: Have the column ``headers``.
        data: DDL of the columns in ``data``, if values are decoded.
    """
    columns = [f"{name} {kind}" for name, kind in TYPES.items() if headers or name != "headers"]
    if data is not None:
        columns += [f"{DATA} struct<{data}>", f"{ERROR} string"]
    return ", ".join(columns)


def check_schema(schema: StructType, *, decodes: bool) -> None:
    """Check the schema that the user gave, of which only the columns are built.

    Raises:
        InvalidConfig: A column is unknown, or of another type.
    """
    names = [column.name for column in schema.fields]
    if decodes and ERROR in names and DATA not in names:
        raise InvalidConfig("the schema has error without data, which it is about: add data to it")
    for column in schema.fields:
        kind = column.dataType.simpleString()
        if column.name in (DATA, ERROR) and decodes:
            continue
        if column.name not in TYPES:
            raise InvalidConfig(
                f"the schema has a column {column.name}: allowed are {', '.join(TYPES)}",
                hint="option valueSchema decodes JSON values into the columns data and error",
            )
        if kind != TYPES[column.name]:
            raise InvalidConfig(
                f"the schema has {column.name} as {kind}: it is {TYPES[column.name]}",
                hint="cast it in a select",
            )


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """What Spark expects of a batch with these columns, exactly."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before pyspark 4.1


def polled(names: Sequence[str], *, several: bool) -> list[str]:
    """The columns of ``poll_arrow`` that these are made of.

    Args:
        names: Spark's.
        several: Records are of several partitions.
    """
    wanted = [
        _OURS.get(name, name)
        for name in names
        if name not in _DECODED and (several or name not in _SAME)
    ]
    if DATA in names:  # made of the value, by a decoder that may want the topic, too
        made_of = ("value", "topic") if several else ("value",)
        wanted += [name for name in made_of if name not in wanted]
    return wanted or ["offset"]


class Converter:
    """Makes Spark's batches.

    Args:
        schema: Arrow's schema of what Spark expects.
        decode: Makes the columns ``data`` and ``error``; None where there are none.
    """

    def __init__(self, schema: pyarrow.Schema, decode: ValueDecoder | None = None) -> None:
        self._schema = schema
        self._decode = decode

    def convert(
        self, batch: pyarrow.RecordBatch, only: tuple[str, int] | None
    ) -> pyarrow.RecordBatch:
        """Convert a batch.

        Args:
            batch: As polled.
            only: Topic and partition of all records; None where the batch has them.
        """
        decoded: dict[str, pyarrow.Array] = {}
        if self._decode is not None:
            kind = self._schema.field(DATA).type
            topics = batch.column("topic") if only is None else only[0]
            decoded[DATA], decoded[ERROR] = self._decode(topics, batch.column("value"), kind)
        same = {} if only is None else dict(zip(_SAME, only, strict=True))
        arrays = [
            decoded[field.name]
            if field.name in decoded
            else pyarrow.repeat(pyarrow.scalar(same[field.name], field.type), batch.num_rows)
            if field.name in same
            else _column(field, batch)
            for field in self._schema
        ]
        if not arrays:
            return pyarrow.RecordBatch.from_struct_array(
                pyarrow.array([{}] * batch.num_rows, pyarrow.struct([]))
            )
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(field: pyarrow.Field, batch: pyarrow.RecordBatch) -> pyarrow.Array:
    name = field.name
    column = batch.column(_OURS.get(name, name))
    if name in ("timestamp", "topic"):
        return column.cast(field.type)
    if name == "headers":
        return _headers(field.type, column)
    return column


def _headers(kind: pyarrow.ListType, column: pyarrow.ListArray) -> pyarrow.Array:
    """Rename the fields; a record without headers has null, as with the connector."""
    pairs = column.values
    renamed = pyarrow.StructArray.from_arrays(
        [pairs.field(0), pairs.field(1)], fields=list(kind.value_type)
    )
    empty = pyarrow.compute.equal(pyarrow.compute.list_value_length(column), 0)
    return pyarrow.ListArray.from_arrays(column.offsets, renamed, type=kind, mask=empty)


def decode_json(topic: str, value: bytes) -> Mapping[str, Any]:
    """An object of JSON.

    Raises:
        ValueError: It is none.
    """
    found = json.loads(value)
    if not isinstance(found, dict):
        raise ValueError(f"JSON, but no object: {value[:60]!r}")
    return found


class ValueDecoder:
    """Decodes a column of values.

    Args:
        decode: For one value.
    """

    def __init__(self, decode: Decoder) -> None:
        self._decode = decode

    def __call__(
        self, topics: str | pyarrow.Array, values: pyarrow.Array, kind: pyarrow.StructType
    ) -> tuple[pyarrow.Array, pyarrow.Array]:
        """The columns ``data``, of type ``kind``, and ``error``. Null values have neither."""
        names_of_topics = repeat(topics) if isinstance(topics, str) else topics.to_pylist()
        names = [field.name for field in kind]
        whole = [field.name for field in kind if pyarrow.types.is_integer(field.type)]
        rows: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for topic, value in zip(names_of_topics, values.to_pylist(), strict=False):
            row, error = None, None
            if value is not None:
                try:
                    fields = self._decode(topic, value)
                    if fields is not None:
                        row = {name: fields.get(name) for name in names}
                        _check_whole(row, whole)
                except Exception as failure:
                    row = None
                    error = _text_of(failure)
            rows.append(row)
            errors.append(error)
        return _typed(rows, errors, kind), pyarrow.array(errors, pyarrow.string())


def _text_of(failure: Exception) -> str:
    text = f"{type(failure).__name__}: {failure}"
    return text.encode(errors="backslashreplace").decode()


def _check_whole(row: Mapping[str, Any], names: list[str]) -> None:
    """Refuse fractions in columns of integers, which pyarrow would cut off."""
    for name in names:
        value = row[name]
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{name} is an integer, not {value}")


def _typed(
    rows: list[dict[str, Any] | None], errors: list[str | None], kind: pyarrow.DataType
) -> pyarrow.Array:
    """The rows as an array; where one doesn't fit, each by itself."""
    try:
        return pyarrow.array(rows, kind)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        pass
    for number, row in enumerate(rows):
        try:
            pyarrow.array([row], kind)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as failure:
            rows[number], errors[number] = None, _text_of(failure)
    return pyarrow.array(rows, kind)
