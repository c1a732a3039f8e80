"""A target with defects in it, by number: a test sees whether the fuzzer finds them."""

from __future__ import annotations

import os
import random

from tests.fuzz.targets import Mutant, Verdict

SOUND, RAISES, HANGS, DIES, HOARDS, GREEDY = 0, 3, 5, 7, 16, 9
"""Numbers of seed 0, and what they do."""


class Planted:
    """The target; see the docstring of the file."""

    traced = True

    def __init__(self) -> None:
        self._numbers = {random.Random(n).getrandbits(64): n for n in range(32)}

    def mutant(self, source: random.Random) -> Mutant:
        """One that knows its number."""
        return Mutant("planted", True, b"x", "nothing", self._numbers[source.getrandbits(64)])

    def judge(self, mutant: Mutant) -> Verdict:
        """Do what the number is for."""
        match mutant.extra:
            case number if number == RAISES:
                raise KeyError("an error that is none of ours")
            case number if number == HANGS:
                while True:
                    pass
            case number if number == DIES:
                os.abort()
            case number if number == HOARDS:
                bytearray(2 << 20)
            case number if number == GREEDY:
                bytearray(1 << 40)
        return Verdict("sound", True)


def make() -> Planted:
    """The target."""
    return Planted()
