"""The orders of Java's collections, which show in what Java's assignors answer.

A HashMap gives its keys by bucket, so the order of members and of topics in Java depends on hash
codes; ours must be the same, or two leaders of one group would share the partitions out
differently. Strings are compared by their UTF-16 units there. What is not imitated: a bucket of
nine and more keys in a table of 64 and more buckets, which Java turns into a tree; with a spread of
hash codes that is not made to collide nobody meets one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_BITS_32 = 0xFFFFFFFF
_SMALLEST_TABLE = 16
_FULL_BUCKET = 8
"""Keys in a bucket after which the next one makes a tree of it, or a small table larger."""
_SMALLEST_TABLE_OF_TREES = 64


def java_hash(text: str) -> int:
    """``String.hashCode`` as an unsigned number of 32 bits."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = value * 31 + unit & _BITS_32
        return value
    units = text.encode("utf-16-le", "surrogatepass")
    for index in range(0, len(units), 2):
        value = value * 31 + (units[index] | units[index + 1] << 8) & _BITS_32
    return value


def partition_hash(topic_hash: int, partition: int) -> int:
    """``TopicPartition.hashCode`` as an unsigned number of 32 bits."""
    return (31 * (31 + partition) + topic_hash) & _BITS_32


def text_key(text: str) -> bytes:
    """Sorts strings as Java's ``compareTo`` does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_texts(texts: Iterable[str]) -> list[str]:
    """``texts`` in Java's natural order."""
    found = list(texts)
    return sorted(found) if all(map(str.isascii, found)) else sorted(found, key=text_key)


class HashOrder(Generic[K]):
    """The order in which a Java HashMap or HashSet gives its keys.

    Args:
        capacity: What the collection's constructor was told; 16 without.
    """

    __slots__ = ("_buckets", "_size", "_table")

    def __init__(self, capacity: int = _SMALLEST_TABLE) -> None:
        self._table = 1 << max(capacity - 1, 0).bit_length()
        self._buckets: dict[int, dict[K, int]] = {}
        self._size = 0

    def put(self, key: K, code: int) -> None:
        """``put`` or ``add`` of a key whose ``hashCode`` is ``code``."""
        spread = code ^ code >> 16
        bucket = self._buckets.setdefault(spread & (self._table - 1), {})
        if key in bucket:
            return
        crowded = len(bucket) >= _FULL_BUCKET
        bucket[key] = spread
        self._size += 1
        if crowded and self._table < _SMALLEST_TABLE_OF_TREES:
            self._grow()
        if self._size > self._table * 3 // 4:
            self._grow()

    def compute(self, key: K, code: int) -> None:
        """``computeIfAbsent``: grows late, and puts a new key in front of its bucket."""
        if self._size > self._table * 3 // 4:
            self._grow()
        spread = code ^ code >> 16
        index = spread & (self._table - 1)
        bucket = self._buckets.get(index, {})
        if key in bucket:
            return
        self._buckets[index] = {key: spread, **bucket}
        self._size += 1
        if len(bucket) >= _FULL_BUCKET - 1 and self._table < _SMALLEST_TABLE_OF_TREES:
            self._grow()

    def remove(self, key: K, code: int) -> None:
        """``remove`` of a key that is there; the table stays as large as it is."""
        index = (code ^ code >> 16) & (self._table - 1)
        bucket = self._buckets[index]
        del bucket[key]
        if not bucket:
            del self._buckets[index]
        self._size -= 1

    def first(self) -> K:
        """The first key."""
        return next(iter(self._buckets[min(self._buckets)]))

    def keys(self) -> list[K]:
        """All keys, in order."""
        return [key for index in sorted(self._buckets) for key in self._buckets[index]]

    def __len__(self) -> int:
        return self._size

    def _grow(self) -> None:
        keys = [item for index in sorted(self._buckets) for item in self._buckets[index].items()]
        self._table *= 2
        self._buckets = {}
        for key, spread in keys:
            self._buckets.setdefault(spread & (self._table - 1), {})[key] = spread


def map_order(texts: Iterable[str]) -> list[str]:
    """Strings in the order of a HashMap or HashSet that they were put into one by one."""
    order = HashOrder[str]()
    for text in dict.fromkeys(texts):
        order.put(text, java_hash(text))
    return order.keys()
