"""An encoded message as a tree of its parts, so that a mutant is wrong in one place only.

``parse`` cuts sound bytes up by the field tables; ``render`` puts them together again with some
parts edited. With ``repair`` all lengths, counts and tag sizes around an edit are made right, so
that the decoder gets as far as the edit itself; without, they stay what they were. This is a walk
of its own: it must not lean on the decoders that it helps to test.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

from kclient.protocol.message import FieldSpec, Message, Struct

FIXED = {
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
INT16, INT32, COMPACT, PLAIN = "h", "i", "compact", "plain"
"""How a length or count is written: two kinds of integers, a varint of it plus one, or of it."""


class Part:
    """A piece of a message.

    Attributes:
        kind: fixed, blob, array, struct, tags or tag.
        code: Of a fixed part its layout, of the others how the length or count is written.
        type: Kafka's type of a fixed part or a blob.
        raw: The bytes of the whole part.
        prefix: Those of ``raw`` that are the length or count (for a tag, its number too).
        children: What it is made of; None for fixed parts, blobs, and arrays that are null.
        parent: What it is in.
    """

    __slots__ = ("children", "code", "kind", "parent", "prefix", "raw", "type")

    def __init__(self, kind: str, code: str = "", type_name: str = "") -> None:
        self.kind = kind
        self.code = code
        self.type = type_name
        self.raw = b""
        self.prefix = b""
        self.children: list[Part] | None = None
        self.parent: Part | None = None

    @property
    def content(self) -> bytes:
        """A blob's bytes."""
        return self.raw[len(self.prefix) :]

    def walk(self) -> Iterator[Part]:
        """It and all parts in it."""
        yield self
        for child in self.children or ():
            yield from child.walk()


def leaf(raw: bytes) -> Part:
    """A part that is what it is."""
    part = Part("raw")
    part.raw = raw
    return part


def tag_part(number: int, content: bytes, size: bytes | None = None) -> Part:
    """A tagged field; ``size`` if it is to announce another one."""
    part = Part("tag", PLAIN)
    part.prefix = uvarint(number) + (uvarint(len(content)) if size is None else size)
    part.raw = part.prefix + content
    return part


class _Reader:
    def __init__(self, data: bytes, pos: int, version: int, *, flexible: bool) -> None:
        self.data = data
        self.pos = pos
        self.version = version
        self.flexible = flexible

    def take(self, size: int) -> bytes:
        piece = self.data[self.pos : self.pos + size]
        if size < 0 or len(piece) != size:
            raise ValueError(f"these bytes are not sound at {self.pos}")
        self.pos += size
        return piece

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self, code: str) -> int:
        if code == PLAIN:
            return self.uvarint()
        if code == COMPACT:
            return self.uvarint() - 1
        return int(struct.unpack(f">{code}", self.take(struct.calcsize(code)))[0])


def parse(cls: type[Message], data: bytes, version: int) -> Part:
    """The tree of ``data``, a sound ``cls``."""
    flexible = cls.FIRST_FLEXIBLE is not None and version >= cls.FIRST_FLEXIBLE
    reader = _Reader(data, 0, version, flexible=flexible)
    root = _struct(reader, cls)
    if reader.pos != len(data):
        raise ValueError(f"{cls.__name__} ends at {reader.pos} of {len(data)}")
    return root


def parse_tags(data: bytes) -> Part:
    """The tree of a section of tagged fields none of which is known: that of a header."""
    return _tags(_Reader(data, 0, 0, flexible=True), Struct, {})


def _closed(part: Part, reader: _Reader, start: int, children: list[Part] | None) -> Part:
    part.raw = reader.data[start : reader.pos]
    part.children = children
    for child in children or ():
        child.parent = part
    return part


def _struct(reader: _Reader, cls: type[Struct]) -> Part:
    start = reader.pos
    fields = [one for one in cls.fields() if one.first <= reader.version <= one.last]
    children = [_field(reader, cls, field) for field in fields if field.tag is None]
    if reader.flexible:
        children.append(_tags(reader, cls, {one.tag: one for one in fields}))
    return _closed(Part("struct"), reader, start, children)


def _field(reader: _Reader, cls: type[Struct], field: FieldSpec) -> Part:
    kind = field.type.removeprefix("[]")
    found = getattr(sys.modules[cls.__module__], kind, None)
    nested = found if isinstance(found, type) and issubclass(found, Struct) else None
    compact = reader.flexible and not field.never_compact
    if field.type.startswith("[]"):
        return _array(reader, kind, nested, COMPACT if compact else INT32, compact)
    if nested is not None:
        if field.null_first <= field.null_last:
            return _nullable(reader, nested, tagged=field.tag is not None)
        return _struct(reader, nested)
    return _scalar(reader, kind, compact)


def _nullable(reader: _Reader, nested: type[Struct], *, tagged: bool) -> Part:
    start = reader.pos
    mark = Part("fixed", "b", "int8")
    mark.raw = reader.take(1)
    children = [mark]
    (value,) = struct.unpack(">b", mark.raw)
    if value > 0 or (value == 0 and not tagged):
        children.append(_struct(reader, nested))
    return _closed(Part("struct"), reader, start, children)


def _scalar(reader: _Reader, kind: str, compact: bool) -> Part:
    start = reader.pos
    if kind in FIXED:
        reader.take(struct.calcsize(FIXED[kind]))
        return _closed(Part("fixed", FIXED[kind], kind), reader, start, None)
    code = COMPACT if compact else INT16 if kind == "string" else INT32
    part = Part("blob", code, kind)
    size = reader.length(code)
    part.prefix = reader.data[start : reader.pos]
    reader.take(max(size, 0))
    return _closed(part, reader, start, None)


def _array(
    reader: _Reader, kind: str, nested: type[Struct] | None, code: str, compact: bool
) -> Part:
    start = reader.pos
    part = Part("array", code, kind)
    count = reader.length(code)
    part.prefix = reader.data[start : reader.pos]
    if count < 0:
        return _closed(part, reader, start, None)
    children = [
        _scalar(reader, kind, compact) if nested is None else _struct(reader, nested)
        for _ in range(count)
    ]
    return _closed(part, reader, start, children)


def _tags(reader: _Reader, cls: type[Struct], known: dict[int | None, FieldSpec]) -> Part:
    start, children = reader.pos, []
    section = Part("tags", PLAIN)
    count = reader.uvarint()
    section.prefix = reader.data[start : reader.pos]
    for _ in range(count):
        at = reader.pos
        part = Part("tag", PLAIN)
        number, size = reader.uvarint(), reader.uvarint()
        part.prefix = reader.data[at : reader.pos]
        field = known.get(number)
        inside = leaf(reader.take(size)) if field is None else _field(reader, cls, field)
        children.append(_closed(part, reader, at, [inside]))
    return _closed(section, reader, start, children)


def uvarint(value: int) -> bytes:
    """An unsigned varint, of as many bytes as it takes."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def prefix_bytes(code: str, value: int) -> bytes:
    """A length or count as ``code`` writes it, whatever the value."""
    if code == INT16:
        return (value & 0xFFFF).to_bytes(2, "big")
    if code == INT32:
        return (value & 0xFFFFFFFF).to_bytes(4, "big")
    if code == COMPACT:
        value += 1
    return uvarint(value if value >= 0 else value & 0xFFFFFFFF)


class Edits:
    """What is to be other than in the seed.

    Attributes:
        repair: Make the lengths and counts around the edits right.
    """

    def __init__(self, *, repair: bool) -> None:
        self.repair = repair
        self._touched: set[Part] = set()
        self._whole: dict[Part, bytes] = {}
        self._prefix: dict[Part, bytes] = {}
        self._children: dict[Part, list[Part]] = {}

    def replace(self, part: Part, raw: bytes) -> None:
        """Write ``raw`` in the place of the part."""
        self._whole[part] = raw
        self._touch(part)

    def announce(self, part: Part, prefix: bytes) -> None:
        """Write another length or count, and the same content."""
        self._prefix[part] = prefix
        self._touch(part)

    def fill(self, part: Part, content: bytes) -> None:
        """Give a blob another content."""
        prefix = prefix_bytes(part.code, len(content)) if self.repair else part.prefix
        self.replace(part, prefix + content)

    def rearrange(self, part: Part, children: list[Part]) -> None:
        """Give an array or a section of tags other elements."""
        self._children[part] = children
        self._touch(part)

    def _touch(self, part: Part | None) -> None:
        while part is not None:
            self._touched.add(part)
            part = part.parent

    def render(self, part: Part) -> bytes:
        """The bytes of ``part`` with the edits in it."""
        if part not in self._touched:
            return part.raw
        whole = self._whole.get(part)
        if whole is not None:
            return whole
        children = self._children.get(part, part.children)
        body = part.content if children is None else b"".join(map(self.render, children))
        if part.kind == "struct":
            return body
        prefix = self._prefix.get(part)
        if prefix is None:
            prefix = self._right_prefix(part, children, body) if self.repair else part.prefix
        return prefix + body

    @staticmethod
    def _right_prefix(part: Part, children: list[Part] | None, body: bytes) -> bytes:
        if part.kind != "tag":
            return prefix_bytes(part.code, len(body) if children is None else len(children))
        number = part.prefix[: next(i + 1 for i, byte in enumerate(part.prefix) if byte < 0x80)]
        return number + uvarint(len(body))
