"""Select the build of the record codec: compiled if available, else or on request pure.

``KCLIENT_PURE=1`` in the environment selects the pure build. ``kclient.record`` exports the
selection; tests and benchmarks ``load`` either by name. A compiled module that exists but can't be
loaded is an error and not a silent fall-back, since that is a broken installation.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.record import arrow_rows as _arrow_rows
    from kclient.record import builder as _builder
    from kclient.record import columns as _columns
    from kclient.record import record as _record
    from kclient.types import Headers

_COMPILED = {
    "record": "_record_c",
    "builder": "_builder_c",
    "columns": "_columns_c",
    "murmur": "_murmur_c",
    "arrow_rows": "_arrow_rows_c",
}
"""Source module -> name of its compiled twin; setup.py must build the same list."""


class Implementation(NamedTuple):
    """One build's public parts, under the same names in both."""

    name: str
    Record: type[_record.Record]
    Origin: type[_record.Origin]
    BatchBuilder: type[_builder.BatchBuilder]
    decode_records: Callable[..., tuple[list[_record.Record], int, int]]
    encode_headers: Callable[[Headers], bytes]
    decode_headers: Callable[[bytes], Headers]
    ColumnStore: type[_columns.ColumnStore]
    bitmap: Callable[[bytearray, int], bytearray]
    partition_of_key: Callable[[bytes, int], int]
    ArrowBits: type[_arrow_rows.ArrowBits]
    ArrowBytes: type[_arrow_rows.ArrowBytes]
    ArrowInts: type[_arrow_rows.ArrowInts]
    ArrowHeaders: type[_arrow_rows.ArrowHeaders]
    ArrowRows: type[_arrow_rows.ArrowRows]


def module(name: str, source: str) -> Any:
    """Return the module of ``source`` ("record", "builder", ...) in the build ``name``."""
    return import_module(f"kclient.record.{_COMPILED[source] if name == 'cython' else source}")


def load(name: str) -> Implementation:
    """Load the build ``name``, which is "cython" or "pure".

    Raises:
        ImportError: There is no compiled build here.
    """
    parts: dict[str, Any] = {}
    for source in _COMPILED:
        parts |= vars(module(name, source))
    return Implementation(name, *(parts[part] for part in Implementation._fields[1:]))


def chosen() -> str:
    """Return "cython" or "pure": the build that this process uses."""
    if os.environ.get("KCLIENT_PURE", "") not in ("", "0"):
        return "pure"
    there = all(find_spec(f"kclient.record.{twin}") for twin in _COMPILED.values())
    return "cython" if there else "pure"


def make_record(*fields: Any) -> _record.Record:
    """Unpickle a record into the class of the build in use."""
    return codec.Record(*fields)


codec: Implementation = load(chosen())
"""The build in use."""
