"""The ways to spoil a message: each is wrong in one respect, and can be right in all others.

``spoiled`` picks one by the given random source, so a mutant follows from its number. What an
operator can't be applied to (a count where the message has no array) it is never picked for.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tests.fuzz import mutants
from tests.fuzz.seeds import Seed
from tests.fuzz.shape import (
    COMPACT,
    INT16,
    Edits,
    Part,
    leaf,
    prefix_bytes,
    tag_part,
    uvarint,
)

LONG_VARINTS = (b"\x80" * 10, b"\xff" * 10, b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x00")
EDGES = (0, 1, -1, 2, 127, -128, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
BAD_TEXTS = (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"a\0b", b"", b"x" * 300, b"x" * 32768)
BATCHES = mutants.seeds()


class Spoiled(NamedTuple):
    """A spoiled message, not yet in a frame.

    Attributes:
        operator: How it was spoiled.
        repaired: The lengths around the damage were made right.
        header: The header's tagged fields.
        body: The message.
    """

    operator: str
    repaired: bool
    header: bytes
    body: bytes


Operator = Callable[[random.Random, Seed, Edits], None]
_TREE: dict[str, tuple[str, Operator]] = {}
"""Name -> the kind of part that must be there, and what is done."""


def _operator(name: str, kind: str) -> Callable[[Operator], Operator]:
    def enter(function: Operator) -> Operator:
        _TREE[name] = (kind, function)
        return function

    return enter


def _size_of(part: Part) -> int:
    return len(part.content) if part.children is None else len(part.children)


def _announce(edits: Edits, part: Part, value: int | bytes) -> None:
    """Give a part a length or count that it doesn't have."""
    if isinstance(value, int):
        value = prefix_bytes(part.code, value)
    number = b""
    if part.kind == "tag":
        number = part.prefix[: next(i + 1 for i, byte in enumerate(part.prefix) if byte < 0x80)]
    edits.announce(part, number + value)


@_operator("length -1", "blob")
def _length_null(source: random.Random, seed: Seed, edits: Edits) -> None:
    _announce(edits, source.choice(seed.parts["blob"]), -1)


@_operator("length 2^31-1", "blob")
def _length_huge(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["blob"])
    top = 2**15 - 1 if part.code == INT16 else 2**31 - 1
    if part.code == COMPACT:
        top = source.choice((2**31 - 2, 2**31 - 1, 2**32 - 2, 2**15 - 1, 2**15))
    _announce(edits, part, top)


@_operator("length off by one", "blob")
def _length_off(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["blob"])
    _announce(edits, part, _size_of(part) + source.choice((-1, 1)))


@_operator("count negative", "array")
def _count_negative(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["array"])
    _announce(edits, part, source.choice((-1, -2, -(2**31))))


@_operator("count huge", "array")
def _count_huge(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["array"])
    rest = len(seed.root.raw)
    _announce(edits, part, source.choice((2**31 - 1, 2**31 - 2, 2**24, 10**6, rest, rest // 2)))


@_operator("count off by one", "array")
def _count_off(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["array"])
    _announce(edits, part, _size_of(part) + source.choice((-1, 1, 2)))


@_operator("varint of 10 bytes", "varint")
def _long_varint(source: random.Random, seed: Seed, edits: Edits) -> None:
    _announce(edits, source.choice(seed.parts["varint"]), source.choice(LONG_VARINTS))


@_operator("element doubled", "filled")
def _doubled(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["filled"])
    children = list(part.children or ())
    at = source.randrange(len(children))
    edits.rearrange(part, children[: at + 1] + children[at:] * source.choice((1, 1, 2, 50)))


@_operator("element left out", "filled")
def _left_out(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["filled"])
    children = list(part.children or ())
    at = source.randrange(len(children))
    edits.rearrange(part, source.choice(([], children[:at] + children[at + 1 :])))


@_operator("edge value", "fixed")
def _edge_value(source: random.Random, seed: Seed, edits: Edits) -> None:
    for _ in range(source.choice((1, 1, 2, 5))):
        part = source.choice(seed.parts["fixed"])
        if part.type in ("uuid", "float64"):
            edits.replace(part, source.choice((bytes, source.randbytes))(len(part.raw)))
            continue
        bits = 8 * len(part.raw)
        value = source.choice((*EDGES, source.getrandbits(bits))) & ((1 << bits) - 1)
        edits.replace(part, value.to_bytes(len(part.raw), "big"))


@_operator("content", "text or bytes")
def _content(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["text or bytes"])
    edits.fill(part, source.choice((*BAD_TEXTS, source.randbytes(source.randrange(20)))))


@_operator("record batch", "records")
def _record_batch(source: random.Random, seed: Seed, edits: Edits) -> None:
    """Half of these have the batch's own length and CRC right: see ``mutants``."""
    edits.fill(source.choice(seed.parts["records"]), mutants.mutant(source, BATCHES).data)


@_operator("part of another place", "prefixed")
def _transplanted(source: random.Random, seed: Seed, edits: Edits) -> None:
    parts = seed.parts["prefixed"]
    edits.replace(source.choice(parts), source.choice(parts).raw)


@_operator("unknown tag", "tags")
def _unknown_tag(source: random.Random, seed: Seed, edits: Edits) -> None:
    section = source.choice(seed.parts["tags"])
    children = list(section.children or ())
    number = source.choice((0, 1, 2, 3, 99, 127, 128, 2**31 - 1, 2**32))
    many = source.choice((1, 1, 2, 200))
    children += [tag_part(number + i, source.randbytes(i % 9)) for i in range(many)]
    edits.rearrange(section, children)


@_operator("tag size lies", "tags")
def _tag_size(source: random.Random, seed: Seed, edits: Edits) -> None:
    section = source.choice(seed.parts["tags"])
    children = list(section.children or ())
    size = source.choice((uvarint(0), uvarint(6), uvarint(2**31 - 1), *LONG_VARINTS))
    if children and source.random() < 0.5:
        part = source.choice(children)
        _announce(edits, part, size)
    else:
        edits.rearrange(section, [*children, tag_part(source.randrange(4), b"12345", size)])


@_operator("tag doubled", "tag")
def _tag_doubled(source: random.Random, seed: Seed, edits: Edits) -> None:
    part = source.choice(seed.parts["tag"])
    section = part.parent
    if section is not None:
        edits.rearrange(section, [*(section.children or ()), leaf(part.raw)])


def _truncated(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    del body[source.randrange(len(body)) :]


def _flipped(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    for _ in range(source.choice((1, 1, 1, 2, 8))):
        body[source.randrange(len(body))] ^= 1 << source.randrange(8)


def _spliced(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    other = source.choice(others)
    at, begin = source.randrange(len(body)), source.randrange(len(other) + 1)
    body[at : at + source.randrange(64)] = other[begin : begin + source.randrange(64)]


def _inserted(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    at = source.randrange(len(body))
    body[at:at] = source.choice((source.randbytes(source.randrange(1, 9)), *LONG_VARINTS))


def _removed(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    at = source.randrange(len(body))
    del body[at : at + source.randrange(1, 9)]


def _overwritten(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    at = source.randrange(len(body))
    value = struct.pack(">i", source.choice((-1, 2**31 - 1, -(2**31), 0, len(body), 127)))
    body[at : at + 4] = value


def _appended(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    body += source.choice((b"\0", source.randbytes(source.randrange(1, 40)), bytes(body)))


def _noise(source: random.Random, body: bytearray, others: list[bytes]) -> None:
    body[:] = source.randbytes(source.choice((0, 1, 4, 30, 300)))


RAW: dict[str, Callable[[random.Random, bytearray, list[bytes]], None]] = {
    "truncated": _truncated,
    "bits flipped": _flipped,
    "spliced": _spliced,
    "bytes inserted": _inserted,
    "bytes removed": _removed,
    "int32 overwritten": _overwritten,
    "bytes appended": _appended,
    "noise": _noise,
}
"""Those that know nothing of the message's parts."""


@cache
def _applicable(seed: Seed) -> tuple[str, ...]:
    return (*(name for name, (kind, _) in _TREE.items() if seed.parts.get(kind)), *RAW)


def spoiled(source: random.Random, seed: Seed, others: list[bytes]) -> Spoiled:
    """One mutant of ``seed``; ``others`` are bodies to splice in."""
    name = source.choice(_applicable(seed))
    repair = source.random() < 0.5
    edits = Edits(repair=repair)
    if name in _TREE:
        _TREE[name][1](source, seed, edits)
    header = b"" if seed.header is None else edits.render(seed.header)
    body = edits.render(seed.root)
    if name in RAW and body:
        changed = bytearray(body)
        RAW[name](source, changed, others)
        body = bytes(changed)
    return Spoiled(name, repair, header, body)


NAMES = (*_TREE, *RAW)
"""All of them."""
