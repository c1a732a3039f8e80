"""Partitioners that choose as other clients do, for topics that these write to as well.

Give one to ``Producer(partitioner=...)``. Without one, records with a key go where Java's producer
sends them.
"""

from __future__ import annotations

import random
import zlib


class ConsistentRandom:
    """librdkafka's default, ``consistent_random``: CRC32 of the key; any partition without a key.

    For topics that confluent-kafka and other clients on librdkafka write to as well. A record whose
    key is null or empty goes to a random partition, each by itself: unlike the default of
    ``Producer``, these don't fill one batch after another.

    Args:
        rng: Source of the random choices; one of its own by default.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng if rng is not None else random.Random()

    def partition(self, topic: str, key: bytes | None, partition_count: int, /) -> int:
        """Return the partition of ``key`` among ``partition_count``."""
        if not key:
            return self._rng.randrange(partition_count)
        return zlib.crc32(key) % partition_count
