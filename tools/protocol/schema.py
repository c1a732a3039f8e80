"""The model of a message definition that the reader, the merge and the emitters share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

LATEST = 32767
"""The upper end of an open range such as ``3+``."""

FIXED_FORMATS = {
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
"""Types of a fixed size and their code in the ``struct`` module."""


class Versions(NamedTuple):
    """A range of versions, both ends included; empty when ``last`` < ``first``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """``"3+"``, ``"0-4"``, ``"7"``, ``"none"`` or None (also empty)."""
        if text is None or text == "none":
            return NONE
        if text.endswith("+"):
            return cls(int(text[:-1]), LATEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    @property
    def empty(self) -> bool:
        return self.last < self.first

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last

    def covers(self, other: Versions) -> bool:
        return other.empty or (self.first <= other.first and other.last <= self.last)

    def overlap(self, other: Versions) -> Versions:
        both = Versions(max(self.first, other.first), min(self.last, other.last))
        return NONE if both.empty else both

    def union(self, other: Versions) -> Versions:
        """The range of both; a gap between them is an error, since no definition has one."""
        if self.empty or other.empty:
            return self if other.empty else other
        if max(self.first, other.first) > min(self.last, other.last) + 1:
            raise ValueError(f"versions {self} and {other} leave a gap")
        return Versions(min(self.first, other.first), max(self.last, other.last))


NONE = Versions(1, 0)


@dataclass
class Field:
    """One field of a struct, its version ranges already cut to those of its message."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    ignorable: bool
    default: object
    never_compact: bool
    about: str
    struct: Struct | None = None

    @property
    def attribute(self) -> str:
        """The Python name."""
        return snake_case(self.name)

    @property
    def is_fixed(self) -> bool:
        return not self.is_array and self.type in FIXED_FORMATS


@dataclass
class Struct:
    """A list of fields with a name; ``reach`` are the versions in which it can occur."""

    name: str
    fields: list[Field]
    reach: Versions = NONE
    in_array: bool = False
    python_name: str = ""


@dataclass
class Definition:
    """A message: its top struct and all structs below, those that others need first."""

    name: str
    kind: str
    api_key: int | None
    valid: Versions
    flexible: Versions
    top: Struct
    structs: list[Struct] = field(default_factory=list)
    unstable: bool = False

    @property
    def zero_copy(self) -> bool:
        """It carries record batches, which are handed over as slices of the input."""
        every = [*self.structs, self.top]
        return any(one.type == "records" for struct in every for one in struct.fields)


def snake_case(name: str) -> str:
    """``ThrottleTimeMs`` -> ``throttle_time_ms``; ``KRaftVersion`` -> ``kraft_version``."""
    name = name.replace("KRaft", "Kraft").replace("kRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
