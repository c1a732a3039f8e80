"""Java-identical murmur2, and the partition of a key by it. One source, two builds.

Compiled a second time as ``kclient.record._murmur_c``. The same key must go to the same partition
as from any Java producer, so this is a contract and not a detail.
"""

from __future__ import annotations

from typing import Any

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return Java's partition of ``key``: the same for every client that uses Java's rule."""
    return partition_of(key, len(key), partitions)


def partition_of(data_cstr: Any, size: int, partitions: int) -> int:
    """The same for a key given as bytes, a memory view or a C pointer."""
    return (_murmur2(data_cstr, size) & 0x7FFFFFFF) % partitions


def _murmur2(data_cstr: Any, size: int) -> int:
    """Return Kafka's 32-bit murmur2 (Java's ``Utils.murmur2``) as an unsigned int."""
    mixed = (_SEED ^ size) & _MASK
    pos = 0
    while size - pos >= 4:
        word = (
            data_cstr[pos]
            | data_cstr[pos + 1] << 8
            | data_cstr[pos + 2] << 16
            | data_cstr[pos + 3] << 24
        )
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        mixed = (mixed * _MULTIPLIER) & _MASK
        mixed ^= word
        pos += 4
    left = size - pos
    if left > 0:
        if left == 3:
            mixed ^= data_cstr[pos + 2] << 16
        if left >= 2:
            mixed ^= data_cstr[pos + 1] << 8
        mixed ^= data_cstr[pos]
        mixed = (mixed * _MULTIPLIER) & _MASK
    mixed ^= mixed >> 13
    mixed = (mixed * _MULTIPLIER) & _MASK
    mixed ^= mixed >> 15
    return mixed
