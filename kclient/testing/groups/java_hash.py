"""What Kafka takes from Java's ``hashCode``: a group's partition, and the order of a HashMap.

Used by the coordinator and by the vote on a group's protocol. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable

_BITS_32 = 0xFFFFFFFF
_SIGN_32 = 1 << 31
_SMALLEST_TABLE = 16


def java_length(text: str) -> int:
    """Length in UTF-16 units, as Java counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def java_hash(text: str) -> int:
    """``String.hashCode``, signed 32 bits."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] | units[index + 1] << 8)) & _BITS_32
    return value - (1 << 32) if value & _SIGN_32 else value


def partition_of(group_id: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that a group belongs to."""
    value = java_hash(group_id)
    return (0 if value == -_SIGN_32 else abs(value)) % partitions


def hash_map_order(names: Iterable[str]) -> list[str]:
    """Names in the order in which a Java HashMap gives them; equal buckets as they came."""
    found = list(dict.fromkeys(names))
    size = _SMALLEST_TABLE
    while len(found) > size * 3 // 4:
        size *= 2

    def bucket(name: str) -> int:
        value = java_hash(name) & _BITS_32
        return (value ^ value >> 16) & (size - 1)

    return sorted(found, key=bucket)
