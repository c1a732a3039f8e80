"""What a target of the fuzzer is, and the list of them.

A target makes a mutant from a random source (so each mutant follows from a seed and its number,
and can be made again alone) and judges it: the outcome if that is an allowed one, an exception if
the code under test did what it must not. ``portion.py`` runs them.
"""

from __future__ import annotations

import importlib
import random
from typing import Any, NamedTuple, Protocol


class Mutant(NamedTuple):
    """One mutant.

    Attributes:
        operator: How it was made.
        repaired: Lengths (and CRCs, where there are some) were made right around the damage.
        data: Its bytes.
        about: What it is a mutant of, for texts.
        extra: What the target needs to judge it.
    """

    operator: str
    repaired: bool
    data: bytes
    about: str
    extra: Any = None


class Verdict(NamedTuple):
    """The outcome of a mutant.

    Attributes:
        outcome: In a few words.
        reached: A field of the body, or a record, was read before the outcome was known.
        ways: Operator, whether repaired, whether a field was read, of each mutant, where one number
            stands for several.
    """

    outcome: str
    reached: bool
    ways: tuple[tuple[str, bool, bool], ...] | None = None


class Target(Protocol):
    """Something that reads bytes."""

    traced: bool
    """Every so often its memory is measured with tracemalloc."""

    def mutant(self, source: random.Random) -> Mutant:
        """Make one."""

    def judge(self, mutant: Mutant) -> Verdict:
        """Let it be read. Raises what must not happen."""


class Broken(AssertionError):
    """The code under test did what it must not."""


MODULES = {
    "frames": "tests.fuzz.frames",
    "fetch": "tests.fuzz.fetches",
    "metadata": "tests.fuzz.slices",
    "handshake": "tests.fuzz.handshakes",
    "batches": "tests.fuzz.differ",
    "requests": "tests.fuzz.requests",
    "broker": "tests.fuzz.broker",
    "clients": "tests.fuzz.clients",
    "planted": "tests.fuzz.planted",
}
"""Name -> the module, whose ``make`` makes the target."""


def target(name: str) -> Target:
    """The target of that name."""
    made: Target = importlib.import_module(MODULES[name]).make()
    return made


def source_of(seed: int, number: int) -> random.Random:
    """Where everything about mutant ``number`` of ``seed`` comes from."""
    return random.Random(seed << 32 | number)
