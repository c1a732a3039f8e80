"""Random populated messages of kclient's own classes, from their field tables."""

from __future__ import annotations

import random
import struct
import sys
from typing import Any, TypeVar

from kclient.protocol.message import FieldSpec, Message, Struct

S = TypeVar("S", bound=Struct)

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT = "abcXYZ019 ._-äß€漢𝄞\0\n"


def random_struct(rng: random.Random, cls: type[S], version: int, flexible: bool) -> S:
    """Return a ``cls`` with all fields of ``version``; most arrays have two or more elements."""
    values = {
        field.name: _value(rng, cls, field, version, flexible)
        for field in cls.fields()
        if field.first <= version <= field.last and (field.tag is None or rng.random() < 0.7)
    }
    made = cls(**values)
    if flexible and rng.random() < 0.4:
        made.unknown_tags = {
            rng.choice((100, 127, 128, 20000, 2**31 - 2)): rng.randbytes(rng.randrange(200))
            for _ in range(rng.randrange(1, 4))
        }
    return made


def random_message(rng: random.Random, cls: type[Message], version: int) -> Message:
    """Return a ``random_struct`` of a whole message."""
    flexible = cls.FIRST_FLEXIBLE is not None and version >= cls.FIRST_FLEXIBLE
    return random_struct(rng, cls, version, flexible)


def _value(
    rng: random.Random, cls: type[Struct], field: FieldSpec, version: int, flexible: bool
) -> Any:
    if field.null_first <= version <= field.null_last and rng.random() < 0.25:
        return None
    kind = field.type.removeprefix("[]")
    nested = getattr(sys.modules[cls.__module__], kind, None)

    def element() -> Any:
        if isinstance(nested, type) and issubclass(nested, Struct):
            return random_struct(rng, nested, version, flexible)
        return _scalar(rng, kind)

    if not field.type.startswith("[]"):
        return element()
    long = rng.random() < 0.1 and nested is None
    size = rng.randrange(30, 150) if long else rng.choice((0, 2, 2, 3))
    return [element() for _ in range(size)]


def _scalar(rng: random.Random, kind: str) -> Any:
    if kind in _BITS:
        high = 1 << (_BITS[kind] - 1)
        return rng.choice((0, -1, high - 1, -high, rng.randrange(-high, high)))
    if kind == "uint16":
        return rng.randrange(1 << 16)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return struct.unpack(">d", struct.pack(">d", rng.gauss(0.0, 1e6)))[0]
    if kind == "uuid":
        return rng.randbytes(16)
    if kind == "string":
        size = rng.randrange(120, 420) if rng.random() < 0.1 else rng.randrange(12)
        return "".join(rng.choices(_TEXT, k=size))
    size = rng.randrange(120, 20000) if rng.random() < 0.1 else rng.randrange(40)
    return rng.randbytes(size)
