"""A group's partition, which Kafka takes from Java's ``hashCode``: clients may know it."""

from __future__ import annotations

_BITS_32 = 0xFFFFFFFF
_SIGN_32 = 1 << 31


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
