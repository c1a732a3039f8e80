"""Values into the columns ``data`` and ``error``: JSON, or a Python function of the user's.

A value that can't be decoded has no ``data`` and the reason as ``error``; it stops nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

import pyarrow

Decoder = Callable[[str, bytes], Mapping[str, Any] | None]
"""Makes the fields of ``data`` of topic and value."""


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
                    error = f"{type(failure).__name__}: {failure}"
            rows.append(row)
            errors.append(error)
        return _typed(rows, errors, kind), pyarrow.array(errors, pyarrow.string())


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
            rows[number], errors[number] = None, f"{type(failure).__name__}: {failure}"
    return pyarrow.array(rows, kind)
