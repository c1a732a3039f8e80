"""Arrow's C data interface in ctypes: our buffers handed over without a copy, without pyarrow.

``columnar.py`` describes columns as ``Column`` values; ``export`` makes the two PyCapsules of the
Arrow PyCapsule interface out of them, as pyarrow, polars, DuckDB and others take. Both builds of
the record codec share this file: what it costs is per exported batch and not per row.

Who imports an array owns it until it calls the array's release callback. Until then the buffers
are kept alive in ``_held``, under a key that travels in ``private_data``. Each child has a key of
its own, since an importer may keep a child and release its parent.
"""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_NULLABLE = 2
_SCHEMA_NAME = b"arrow_schema"
_ARRAY_NAME = b"arrow_array"

Buffer: TypeAlias = Any
"""bytes, a bytearray or an array: what has the buffer protocol and does not move."""


@dataclass(frozen=True, slots=True)
class Column:
    """One Arrow array with its type.

    Attributes:
        format: Arrow's format string.
        name: Name of the field.
        length: Rows.
        buffers: As the format wants them; the first is the bitmap of what is not null, or None.
        nulls: How many rows are null.
        nullable: Whether the schema allows nulls.
        children: Of nested types.
        dictionary: The values, where the buffers are indices.
    """

    format: bytes
    name: bytes
    length: int
    buffers: tuple[Buffer | None, ...]
    nulls: int = 0
    nullable: bool = False
    children: tuple[Column, ...] = field(default=())
    dictionary: Column | None = None


class _ArrowSchema(ctypes.Structure):
    pass


class _ArrowArray(ctypes.Structure):
    pass


_ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ArrowSchema))
_ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ArrowArray))
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

_ArrowSchema._fields_ = (
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowSchema))),
    ("dictionary", ctypes.POINTER(_ArrowSchema)),
    ("release", _ReleaseSchema),
    ("private_data", ctypes.c_void_p),
)
_ArrowArray._fields_ = (
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
    ("dictionary", ctypes.POINTER(_ArrowArray)),
    ("release", _ReleaseArray),
    ("private_data", ctypes.c_void_p),
)

_keys = itertools.count(1)
_held: dict[int, tuple[Any, ...]] = {}
_capsuled: dict[int, Any] = {}


def held() -> int:
    """How many exported structures have not been released yet; for tests of leaks."""
    return len(_held)


def _release(pointer: Any) -> None:
    """Release one exported structure and what it still owns; the same for both kinds."""
    node = pointer.contents
    for index in range(node.n_children):
        child = node.children[index]
        if child.contents.release:
            _release(child)
    if node.dictionary and node.dictionary.contents.release:
        _release(node.dictionary)
    _held.pop(node.private_data, None)
    node.release = type(node.release)()


_release_schema = _ReleaseSchema(_release)
_release_array = _ReleaseArray(_release)
_NO_BUFFER = ctypes.c_char(0)


def _address(buffer: Buffer | None) -> tuple[int | None, Any]:
    """Where the buffer lies, and what keeps it there."""
    if buffer is None:
        return None, None
    if len(buffer) == 0:
        return ctypes.addressof(_NO_BUFFER), None
    if isinstance(buffer, bytes):
        return ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value, buffer
    window = ctypes.c_char.from_buffer(buffer)
    return ctypes.addressof(window), window


def _children(nodes: list[Any], kind: Any) -> Any:
    pointers = [ctypes.pointer(node) for node in nodes]
    return (ctypes.POINTER(kind) * len(nodes))(*pointers)


def _schema(column: Column) -> _ArrowSchema:
    nodes = [_schema(child) for child in column.children]
    node = _ArrowSchema()
    key = next(_keys)
    node.format = column.format
    node.name = column.name
    node.flags = _NULLABLE if column.nullable else 0
    node.n_children = len(nodes)
    children = _children(nodes, _ArrowSchema)
    if nodes:
        node.children = ctypes.cast(children, type(node.children))
    if column.dictionary is not None:
        node.dictionary = ctypes.pointer(_schema(column.dictionary))
    node.release = _release_schema
    node.private_data = key
    _held[key] = (column.format, column.name, children, node.dictionary)
    return node


def _array(column: Column) -> _ArrowArray:
    nodes = [_array(child) for child in column.children]
    node = _ArrowArray()
    key = next(_keys)
    places = [_address(buffer) for buffer in column.buffers]
    buffers = (ctypes.c_void_p * len(places))(*(address for address, _ in places))
    node.length = column.length
    node.null_count = column.nulls
    node.n_buffers = len(places)
    node.n_children = len(nodes)
    node.buffers = ctypes.cast(buffers, type(node.buffers))
    children = _children(nodes, _ArrowArray)
    if nodes:
        node.children = ctypes.cast(children, type(node.children))
    if column.dictionary is not None:
        node.dictionary = ctypes.pointer(_array(column.dictionary))
    node.release = _release_array
    node.private_data = key
    _held[key] = (places, buffers, children, node.dictionary)
    return node


_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_name = ctypes.pythonapi["PyCapsule_GetName"]
_capsule_name.restype = ctypes.c_char_p
_capsule_name.argtypes = (ctypes.c_void_p,)
_capsule_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


def _destroy(capsule: int) -> None:
    """A capsule goes: release what nobody took over, and free the structure."""
    address = _capsule_pointer(capsule, _capsule_name(capsule))
    node = _capsuled.pop(address)
    if node.release:
        _release(ctypes.pointer(node))


_destructor = _Destructor(_destroy)
# The interpreter may free this module before the last array: the callbacks must outlive it.
for _callback in (_release_schema, _release_array, _destructor):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


def _capsule(node: Any, name: bytes) -> object:
    address = ctypes.addressof(node)
    _capsuled[address] = node
    return _capsule_new(address, name, ctypes.cast(_destructor, ctypes.c_void_p))


def export_schema(column: Column) -> object:
    """The ``arrow_schema`` capsule of ``column``."""
    return _capsule(_schema(column), _SCHEMA_NAME)


def export(column: Column) -> tuple[object, object]:
    """The ``arrow_schema`` and ``arrow_array`` capsules of ``column``."""
    return export_schema(column), _capsule(_array(column), _ARRAY_NAME)
