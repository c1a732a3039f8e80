"""Reads what callgrind wrote: instructions, calls, and calls of Python's allocator, of one part.

The format is in valgrind's manual, "Callgrind Format Specification". Only what these counts need
is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ALLOCATORS = frozenset(("_PyObject_Malloc", "_PyObject_Calloc", "_PyObject_Realloc"))
"""Python's own allocator: all objects and their parts pass here, unless a free list has one."""
CACHE_MISSES = frozenset(
    (
        "find_name_in_mro",
        "assign_version_tag",
        "_PyDict_GetItem_KnownHash",
        "_Py_dict_lookup",
        "unicodekeys_lookup_unicode",
    )
)
"""What looks for an attribute that CPython's cache of types hasn't got: which names share a place
there depends on their addresses, and so on the folder that one works in. Other lookups in dicts are
left out with them: those show in the instructions."""
_NAME = re.compile(r"\((\d+)\)(?: (.*))?")


class BadProfile(ValueError):
    """These lines are no profile, or one without what is counted."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The counts of one part.

    Attributes:
        instructions: Executed (Ir).
        calls: Of any function of the process, misses of the cache of types left out.
        allocations: Calls of the allocator.
    """

    instructions: int
    calls: int
    allocations: int


def read(lines: Iterable[str]) -> Profile:
    """The counts of a file.

    Raises:
        BadProfile: It has no summary, or something can't be read.
    """
    names: dict[str, str] = {}
    instructions, calls, allocations = -1, 0, 0
    callee = ""
    try:
        for line in lines:
            if line.startswith(("fn=", "cfn=")):
                kind, _, text = line.partition("=")
                number, name = _numbered(text)
                if name:
                    names[number] = name
                if kind == "cfn":
                    callee = names[number]
            elif line.startswith("calls="):
                count = int(line[6:].split()[0])
                if callee.partition(".")[0] not in CACHE_MISSES:  # assign_version_tag.isra.0
                    calls += count
                if callee in ALLOCATORS:
                    allocations += count
            elif line.startswith("summary:"):
                instructions = int(line[8:])
    except (KeyError, ValueError) as error:
        raise BadProfile(f"a profile can't be read: {error!r}") from error
    if instructions < 0:
        raise BadProfile("a profile has no summary")
    return Profile(instructions, calls, allocations)


def _numbered(text: str) -> tuple[str, str]:
    """``(7) name`` or ``(7)``: a name is written out only where it first occurs."""
    found = _NAME.match(text.strip())
    if found is None:
        raise BadProfile(f"{text!r} is no name of a function")
    return found[1], found[2] or ""
