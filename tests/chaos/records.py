"""The records: each one follows from the seed, its producer's number and its own number.

So millions of them need not be kept: ``load`` makes a record when it is sent, and ``rows`` makes
it again to compare all of it. No state beyond the seed; nothing is sent here.
"""

from __future__ import annotations

import random
import re
import zlib
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

KEYS = 61
"""Different keys, more than partitions."""
_FILL_SIZE = 32 * 1024
_LARGE_EVERY, _LARGE = 997, 16 * 1024
"""Now and then a record of 16 KiB, so that a cut falls into the middle of one."""
_NAME = re.compile(rb"(\d{1,4})\.(\d{1,12})\.")


class Made(NamedTuple):
    """A record to send, or as it must have arrived."""

    key: bytes | None
    value: bytes
    headers: Headers
    partition: int | None
    """Where it is sent to; None where the client chooses."""


class Recipe:
    """Makes the records of one run.

    Args:
        seed: Of the run.
        partitions: How many the topic has.
    """

    def __init__(self, seed: int, partitions: int) -> None:
        rng = random.Random(f"records {seed}")
        words = [rng.randbytes(2).hex() for _ in range(64)]
        parts = [rng.choice(words) + rng.randbytes(2).hex() for _ in range(_FILL_SIZE // 8)]
        self._fill = "".join(parts).encode()  # half repeats, so that codecs have something to do
        self._seed = seed
        self._partitions = partitions

    def make(self, producer: int, number: int) -> Made:
        """Make a record; half of them for a partition, a quarter each with a key or with none."""
        dice = zlib.crc32(b"%d.%d.%d" % (self._seed, producer, number))
        at = (dice >> 8) % (_FILL_SIZE - _LARGE)
        size = _LARGE if number % _LARGE_EVERY == 1 else 8 + (dice >> 16) % 150
        value = b"%d.%d." % (producer, number) + self._fill[at : at + size]
        headers = (("dice", b"%d" % dice),) if dice % 13 == 0 else ()
        kind = dice % 4
        if kind < 2:
            return Made(None, value, headers, (dice >> 4) % self._partitions)
        key = b"k%d" % ((dice >> 4) % KEYS) if kind == 2 else None
        return Made(key, value, headers, None)


def name_of(value: bytes | None) -> tuple[int, int] | None:
    """The (producer, number) that a value names; None where it names none."""
    found = _NAME.match(value or b"")
    return None if found is None else (int(found[1]), int(found[2]))
