"""Which mutant is on. Copied into the package as ``kclient._mutant``; imports nothing of it."""

from __future__ import annotations

active = -1
"""The number of the mutant that is on; -1 for none."""
passed: set[int] = set()
"""Numbers of the mutants whose code was run."""


def is_on(number: int) -> bool:
    """Whether the code is to be wrong here."""
    passed.add(number)
    return number == active
