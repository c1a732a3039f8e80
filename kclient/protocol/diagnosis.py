"""Find the error in bytes that don't decode, or in a message that doesn't encode.

``Message`` calls this after the fast path has failed. The walk here follows the field tables, one
field at a time; it builds no objects, and skips intact array elements by the fast path, so that it
costs no more than that.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any

from kclient.errors import ProtocolError
from kclient.protocol.primitives import (
    DECODE_ERRORS,
    MAX_STRING,
    Malformed,
    check_uuid,
    read_compact_strings,
    read_strings,
    read_uvarint,
)

if TYPE_CHECKING:
    from kclient.protocol.message import FieldSpec, Message, Struct

PORTION = 256
"""Elements that are read by the fast path at once, to find the malformed one among many."""
STEP = 16
"""Factor by which a portion with a malformed element is reduced."""

_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_SIZED = ("string", "bytes", "records")


def find_decode_fault(
    cls: type[Message], buf: bytes | memoryview, version: int, offset: int
) -> ProtocolError:
    """Return the error of the first field of a ``cls`` at ``offset`` that can't be read."""
    try:
        pos = _Walk(cls, buf, version).struct(cls, offset)
    except ProtocolError as fault:
        return fault
    return ProtocolError(
        f"{cls.__name__} version {version} ends at byte {pos}, but {len(buf)} bytes are there",
        struct=cls.__name__,
        field="(end)",
        offset=pos,
    )


def find_encode_fault(message: Message, version: int, problem: Exception) -> ProtocolError:
    """Return the error of the first field of ``message`` that can't be written."""
    fault = _wrong_value(message, version)
    if fault is None:
        name = type(message).__name__
        return ProtocolError(
            f"{name} can't be encoded in version {version}: {problem}", struct=name
        )
    owner, field, reason = fault
    return ProtocolError(
        f"{owner}.{field} can't be encoded in version {version} of {type(message).__name__}: "
        f"{reason}",
        struct=owner,
        field=field,
    )


def _resolve(owner: type[Struct], name: str) -> type[Struct] | None:
    """Return the class of a field of ``owner``; None if its type is a primitive one."""
    if name in _FIXED or name in _SIZED:
        return None
    found: type[Struct] = getattr(sys.modules[owner.__module__], name)
    return found


class _Walk:
    """Walks over one message field by field; raises ProtocolError at the first malformed one."""

    def __init__(self, cls: type[Message], buf: bytes | memoryview, version: int) -> None:
        self._message = cls
        self._buf = buf
        self._end = len(buf)
        self._version = version
        self._flexible = cls.FIRST_FLEXIBLE is not None and version >= cls.FIRST_FLEXIBLE

    def struct(self, cls: type[Struct], pos: int) -> int:
        fields = [one for one in cls.fields() if one.first <= self._version <= one.last]
        for field in fields:
            if field.tag is None:
                pos = self._guarded(cls, field, pos)
        if self._flexible:
            pos = self._tags(cls, {one.tag: one for one in fields}, pos)
        return pos

    def _guarded(self, cls: type[Struct], field: FieldSpec, pos: int) -> int:
        try:
            return self._field(cls, field, pos)
        except (struct.error, IndexError):
            raise self._fault(cls, field.name, pos, "the bytes end inside of it") from None
        except UnicodeDecodeError as problem:
            reason = f"not UTF-8: {problem.reason} at byte {problem.start} of it"
            raise self._fault(cls, field.name, pos, reason) from None
        except Malformed as problem:
            reason = str(problem) or "a variable-length integer that is too long"
            raise self._fault(cls, field.name, pos, reason) from None

    def _fault(self, cls: type[Struct], field: str, pos: int, reason: str) -> ProtocolError:
        return ProtocolError(
            f"{cls.__name__}.{field} at byte {pos} of {self._end}: {reason} "
            f"({self._message.__name__} version {self._version})",
            struct=cls.__name__,
            field=field,
            offset=pos,
        )

    def _field(self, cls: type[Struct], field: FieldSpec, pos: int) -> int:
        kind = field.type.removeprefix("[]")
        nested = _resolve(cls, kind)
        if field.type.startswith("[]"):
            count, pos = self._length(field, pos, wide=True)
            return pos if count is None else self._elements(field, kind, nested, count, pos)
        if nested is not None:
            if field.null_first <= field.null_last:
                present, pos = self._null_mark(field, pos)
                if not present:
                    return pos
            return self.struct(nested, pos)
        if kind in _FIXED:
            return self._skip(pos, struct.calcsize(">" + _FIXED[kind]))
        size, pos = self._length(field, pos, wide=kind != "string")
        return pos if size is None else self._blob(kind, size, pos)

    def _null_mark(self, field: FieldSpec, pos: int) -> tuple[bool, int]:
        """Read the marker of a nullable struct, which has two formats; False for null."""
        if field.tag is not None:
            mark, pos = read_uvarint(self._buf, pos, self._end)
            return mark > 0, pos
        (mark,) = struct.unpack_from(">b", self._buf, pos)
        return mark >= 0, pos + 1

    def _elements(
        self, field: FieldSpec, kind: str, nested: type[Struct] | None, count: int, pos: int
    ) -> int:
        if kind in _FIXED:
            return self._skip(pos, count * struct.calcsize(">" + _FIXED[kind]))
        if count > self._end - pos:
            raise Malformed(f"{count} elements, but only {self._end - pos} bytes are left")
        portion = PORTION
        while count > 0:
            portion = min(portion, count)
            try:
                pos = self._portion(field, nested, portion, pos)
            except DECODE_ERRORS:
                if portion > 1:
                    portion = max(1, portion // STEP)
                    continue
                # It is this one; if it isn't (the fast path is stricter), it is walked over.
                pos = self._element(field, kind, nested, pos)
            count -= portion
        return pos

    def _portion(self, field: FieldSpec, nested: type[Struct] | None, count: int, pos: int) -> int:
        """Skip elements by the fast path. Raises one of DECODE_ERRORS if one is malformed."""
        args = self._buf, pos, self._end
        if nested is None and field.type != "[]string":
            raise Malformed
        if nested is not None:
            return nested._read_many(*args, self._version, count)[1]
        if self._flexible and not field.never_compact:
            return read_compact_strings(*args, count)[1]
        return read_strings(*args, count)[1]

    def _element(self, field: FieldSpec, kind: str, nested: type[Struct] | None, pos: int) -> int:
        if nested is not None:
            return self.struct(nested, pos)
        size, pos = self._length(field._replace(null_first=1, null_last=0), pos, wide=False)
        return self._blob(kind, size or 0, pos)

    def _length(self, field: FieldSpec, pos: int, *, wide: bool) -> tuple[int | None, int]:
        """Read the length before a variable field; None for null. ``wide``: int32, not int16."""
        size: int
        if self._flexible and not field.never_compact:
            size, pos = read_uvarint(self._buf, pos, self._end)
            size -= 1
        else:
            (size,) = struct.unpack_from(">i" if wide else ">h", self._buf, pos)
            pos += 4 if wide else 2
        if size == -1 and field.null_first <= self._version <= field.null_last:
            return None, pos
        if size == -1:
            raise Malformed("null, which this version doesn't allow")
        if size < 0:
            raise Malformed(f"a negative length ({size})")
        return size, pos

    def _blob(self, kind: str, size: int, pos: int) -> int:
        if kind == "string" and size > MAX_STRING:
            raise Malformed(f"a string of {size} bytes, more than the {MAX_STRING} allowed")
        stop = self._skip(pos, size)
        if kind == "string":
            str(self._buf[pos:stop], "utf-8")
        return stop

    def _skip(self, pos: int, size: int) -> int:
        if size > self._end - pos:
            raise Malformed(f"{size} bytes are needed, but only {self._end - pos} are left")
        return pos + size

    def _tags(self, cls: type[Struct], known: dict[int | None, FieldSpec], pos: int) -> int:
        start = pos
        try:
            count, pos = read_uvarint(self._buf, pos, self._end)
            for _ in range(count):
                tag, pos = read_uvarint(self._buf, pos, self._end)
                size, pos = read_uvarint(self._buf, pos, self._end)
                stop = self._skip(pos, size)
                field = known.get(tag)
                if field is not None and self._guarded(cls, field, pos) != stop:
                    raise self._fault(cls, field.name, pos, f"its tag gives it {size} bytes")
                pos = stop
        except IndexError:
            raise self._fault(cls, "(tags)", start, "the bytes end inside of it") from None
        except Malformed as problem:
            reason = str(problem) or "a variable-length integer that is too long"
            raise self._fault(cls, "(tags)", start, reason) from None
        return pos


def _wrong_value(message: Struct, version: int) -> tuple[str, str, str] | None:
    """Return class, field and reason of the first value that can't be written; None if none."""
    name = type(message).__name__
    for field in message.fields():
        value = getattr(message, field.name, None)
        if not field.first <= version <= field.last:
            continue
        array = field.type.startswith("[]")
        nested = _resolve(type(message), field.type.removeprefix("[]"))
        if value is None and (field.null_first <= version <= field.null_last):
            continue
        if array and not isinstance(value, (list, tuple)):
            return name, field.name, f"a list is needed, not {type(value).__name__}"
        items: Any = value if array else (value,)
        for item in items:
            if nested is not None:
                if not isinstance(item, nested):
                    return name, field.name, f"a {nested.__name__} is needed, not {_kind(item)}"
                inner = _wrong_value(item, version)
                if inner is not None:
                    return inner
                continue
            reason = _wrong_scalar(item, field.type.removeprefix("[]"))
            if reason:
                return name, field.name, reason
    tags = message.unknown_tags or {}
    for tag, raw in tags.items():
        if not isinstance(tag, int) or not isinstance(raw, bytes) or tag < 0:
            return name, "unknown_tags", "they are a dict of int >= 0 -> bytes"
    return None


def _wrong_scalar(value: Any, kind: str) -> str | None:
    if kind == "string":
        if not isinstance(value, str):
            return f"a str is needed, not {_kind(value)}"
        try:
            size = len(value.encode())
        except UnicodeEncodeError as problem:
            return f"not text that UTF-8 can hold: {problem.reason}"
        return f"{size} bytes of text, more than {MAX_STRING}" if size > MAX_STRING else None
    if kind in ("bytes", "records"):
        fits = isinstance(value, (bytes, bytearray, memoryview))
        return None if fits else f"bytes are needed, not {_kind(value)}"
    try:
        struct.pack(">" + _FIXED[kind], check_uuid(value) if kind == "uuid" else value)
    except (struct.error, TypeError, ValueError, OverflowError) as problem:
        return f"not a value of type {kind}: {problem}"
    return None


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
