"""The sticky assignors where all members want the same topics. Pure; a quick special case.

Each member keeps what it owns up to its quota; the rest is assigned in turn to members below
theirs, first within racks where these matter. With P partitions and M members, P modulo M members
get one more than the others, and those are members that had one more already, if there are any.
"""

from __future__ import annotations

from kclient.group.assignors.inputs import Input


class ConstrainedAssignment:
    """One assignment.

    Attributes:
        shares: Member -> its partitions.
        moved: Partitions that go from one member to another.
    """

    def __init__(self, given: Input) -> None:
        self._given = given
        self._racks = given.racks
        self._least, self._extra = divmod(len(given.parts), len(given.members))
        self._most = self._least + (self._extra > 0)
        self._filled = 0  # members with more than the least
        self._below: list[int] = []  # members with less than the least
        self._at_least: list[int] = []  # members with just the least, that may get one more
        self._given_up: dict[int, int] = {}
        self.shares: list[list[int]] = [[] for _ in given.members]
        self.moved: set[int] = set()
        self._share()

    def _share(self) -> None:
        for member in range(len(self._given.members)):
            self._keep(member)
        self._below.sort()
        self._at_least.sort()
        kept = {part for share in self.shares for part in share}
        left = [part for part in range(len(self._given.parts)) if part not in kept]
        if self._racks.matter:
            left = self._share_within_racks(self._racks.sort(left))
        self._share_out(left)

    def _keep(self, member: int) -> None:
        """Keep of a member's own partitions those that it may keep."""
        parts = self._given.parts
        owned = []
        for part in sorted(self._given.owned[member], key=lambda one: (parts[one].partition, one)):
            if not self._racks.near(part) >> member & 1:
                self._given_up[part] = member
            elif part not in self._given.contested:
                owned.append(part)
        quota = self._least
        if len(owned) < self._least:
            self._below.append(member)
        elif len(owned) >= self._most and self._filled < self._extra:
            quota = self._most
            self._fill()
        elif self._filled < self._extra:
            self._at_least.append(member)
        self.shares[member] = owned[:quota]
        for part in owned[quota:]:
            self._given_up[part] = member

    def _fill(self) -> None:
        self._filled += 1
        if self._filled == self._extra:
            self._at_least.clear()

    def _share_within_racks(self, parts: list[int]) -> list[int]:
        """Assign partitions to members in their racks; returns those that none can take."""
        left: list[int] = []
        first = 0
        for part in parts:
            within = self._racks.within(part)
            index = _next(self._below, within, first)
            if index >= 0:
                member = self._below[index]
                if len(self.shares[member]) + 1 >= self._least:
                    del self._below[index]
                    if self._least < self._most and self._filled < self._extra:
                        self._at_least.append(member)
                else:
                    index += 1
                first = index % len(self._below) if self._below else 0
            else:
                index = _next(self._at_least, within, 0)
                if index < 0:
                    left.append(part)
                    continue
                member = self._at_least.pop(index)
                self._fill()
            self._give(part, member)
        return left

    def _share_out(self, parts: list[int]) -> None:
        """Assign in turn to those below the least, then one each to those at it."""
        index = 0
        for part in parts:
            if self._below:
                index %= len(self._below)
                member = self._below[index]
                self._give(part, member)
                if len(self.shares[member]) == self._least:
                    del self._below[index]
                    self._at_least.append(member)
                else:
                    index += 1
            else:
                self._give(part, self._at_least.pop(0))

    def _give(self, part: int, member: int) -> None:
        self.shares[member].append(part)
        before = self._given_up.get(part, member)
        if before != member or part in self._given.contested:
            self.moved.add(part)


def _next(members: list[int], wanted: int, first: int) -> int:
    """The index of the first wanted member, from ``first`` on and round; -1 if none is."""
    for index in range(first, first + len(members)):
        if wanted >> members[index % len(members)] & 1:
            return index % len(members)
    return -1
