"""Members sorted by how many partitions they have, and then by their number. Pure.

Sets of members are the bits of an int, so that "who of those that want this topic has the least" is
a few operations, whatever their count.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class Levels:
    """The members that take part, by the size of their shares.

    Attributes:
        sizes: Member -> its partitions, also of those that don't take part any more.
    """

    __slots__ = ("_at", "_levels", "sizes")

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self._at: dict[int, int] = {}
        self._levels: list[int] = []
        for member in range(len(sizes)):
            self._put(member)

    def change(self, member: int, by: int) -> None:
        """A member gets more, or less."""
        self.drop(member)
        self.sizes[member] += by
        self._put(member)

    def drop(self, member: int) -> None:
        """A member takes no part any more."""
        size = self.sizes[member]
        left = self._at[size] & ~(1 << member)
        if left:
            self._at[size] = left
        else:
            del self._at[size]
            del self._levels[bisect_left(self._levels, size)]

    def first(self, members: int) -> int:
        """The first of ``members``, a set of bits; -1 if none of them takes part."""
        for size in self._levels:
            found = self._at[size] & members
            if found:
                return (found & -found).bit_length() - 1
        return -1

    def above(self, members: int, size: int) -> int:
        """One of ``members`` that has more than ``size``; -1 if none has."""
        for level in reversed(self._levels):
            if level <= size:
                break
            found = self._at[level] & members
            if found:
                return (found & -found).bit_length() - 1
        return -1

    def spread(self) -> int:
        """The difference between the largest and the smallest."""
        return self._levels[-1] - self._levels[0] if self._levels else 0

    def _put(self, member: int) -> None:
        size = self.sizes[member]
        if size not in self._at:
            insort(self._levels, size)
            self._at[size] = 0
        self._at[size] |= 1 << member
