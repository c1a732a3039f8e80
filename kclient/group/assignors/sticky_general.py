"""The sticky assignors where members want different topics. Pure.

First each member keeps what it owns and still wants; the rest goes to the member with the fewest
partitions of those that want it, within racks first; then partitions move from members with more to
members with less, until no move makes it more even. If that didn't help, nothing moves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from kclient.group.assignors.inputs import NO_GENERATION, Input

Pair = tuple[int, int]

_MOVES_PER_PARTITION = 20
"""Moves per partition after which it stops in any case. Two or three are many."""


class GeneralAssignment:
    """One assignment.

    Args:
        given: The input.
        newest: The highest generation that the assignor has ever seen.

    Attributes:
        shares: Member -> its partitions.
    """

    def __init__(self, given: Input, newest: int) -> None:
        self._given = given
        self._topic_of = given.topic_of
        self._readers = [0] * len(given.topics)  # topic -> members that want it, as bits
        self._interest = [0] * len(given.topics)  # topic -> how often it is wanted
        for member, wants in enumerate(given.wants):
            for topic in wants:
                self._readers[topic] |= 1 << member
                self._interest[topic] += 1
        self._former = self._former_owners(newest)
        self._owner = [-1] * len(given.parts)
        self._shares: list[dict[int, None]] = [{} for _ in given.members]
        self._of_topic: list[dict[int, int]] = [{} for _ in given.topics]
        self._owners = [0] * len(given.topics)
        self._movements = Movements(given.topic_of)
        self._witness = (-1, -1, -1)
        self._left = 100 + _MOVES_PER_PARTITION * len(given.parts)
        revoked = self._keep()
        self._balance(revoked)
        self.shares = [list(share) for share in self._shares]

    def _former_owners(self, newest: int) -> dict[int, int]:
        """Partition -> its owner in an older generation, if that is a member and wants it still."""
        found: dict[int, tuple[int, int]] = {}
        for member, claim in enumerate(self._given.claims):
            if claim.generation is None and newest <= NO_GENERATION:
                continue
            generation = NO_GENERATION if claim.generation is None else claim.generation
            if claim.generation is not None and generation >= newest:
                continue
            for part in self._given.known(claim.partitions):
                if part not in found or generation > found[part][1]:
                    found[part] = member, generation
        return {part: member for part, (member, _) in found.items() if self._wants(member, part)}

    def _keep(self) -> bool:
        """Keep of owned partitions what each member may keep; returns whether one lost any."""
        revoked = False
        for member, owned in enumerate(self._given.owned):
            for part in owned:
                if self._wants(member, part) and self._given.racks.near(part) >> member & 1:
                    self._give(part, member)
                else:
                    revoked = True
        return revoked

    def _balance(self, revoked: bool) -> None:
        given = self._given
        by_interest = sorted(range(len(given.topics)), key=lambda one: (self._interest[one], one))
        first = [0]
        for count in given.counts:
            first.append(first[-1] + count)
        every = [part for topic in by_interest for part in range(first[topic], first[topic + 1])]
        unassigned = [part for part in every if self._owner[part] < 0]
        self._levels = Levels([len(share) for share in self._shares])
        new_group = not any(self._shares)
        if given.racks.matter:
            self._hand_out(unassigned, within_racks=True)
        self._hand_out(unassigned, within_racks=False)
        movable = [part for part in every if self._interest[self._topic_of[part]] > 1]
        active = {member for member in range(len(given.members)) if self._takes_part(member)}
        for member in range(len(given.members)):
            if member not in active:
                self._levels.drop(member)
        before = [share.copy() for share in self._shares]
        if not revoked:
            mine = set(unassigned)
            self._even_out([part for part in movable if part in mine])
        changed = self._even_out(movable)
        if not new_group and changed and _score(self._shares, active) >= _score(before, active):
            self._shares = before

    def _hand_out(self, parts: list[int], *, within_racks: bool) -> None:
        """Assign each to the member with the fewest partitions that wants it, if there is one."""
        for part in parts:
            if self._owner[part] >= 0:
                continue
            readers = self._readers[self._topic_of[part]]
            member = self._levels.first(
                readers & self._given.racks.near(part) if within_racks else readers
            )
            if member >= 0:
                self._give(part, member)
                self._levels.change(member, 1)

    def _takes_part(self, member: int) -> bool:
        """Whether a member could get more, or has a partition that another one wants."""
        wants = self._given.wants[member]
        counts = self._given.counts
        most = sum(counts) if len(wants) == len(counts) else sum(counts[one] for one in wants)
        share = self._shares[member]
        return len(share) < most or any(self._interest[self._topic_of[part]] > 1 for part in share)

    def _even_out(self, parts: list[int]) -> bool:
        """Move partitions as long as that helps; returns whether it moved any."""
        changed = False
        moved = True
        while moved:
            moved = False
            for part in parts:
                if self._is_even() or not self._left:
                    return changed
                new = self._better_place(part)
                if new >= 0:
                    self._move(self._movements.better(part, self._owner[part], new), new)
                    changed = moved = True
        return changed

    def _better_place(self, part: int) -> int:
        sizes = self._levels.sizes
        limit = sizes[self._owner[part]] - 1
        former = self._former.get(part, -1)
        if former >= 0 and sizes[former] < limit:
            return former
        least = self._levels.first(self._readers[self._topic_of[part]])
        return least if sizes[least] < limit else -1

    def _is_even(self) -> bool:
        """Whether no move of one partition would make it more even."""
        if self._levels.spread() < 2:
            return True
        sizes = self._levels.sizes
        topic, rich, poor = self._witness
        if topic >= 0 and rich in self._of_topic[topic] and sizes[rich] > sizes[poor] + 1:
            return False
        for topic, interest in enumerate(self._interest):
            if interest < 2:
                continue
            poor = self._levels.first(self._readers[topic])
            rich = self._levels.above(self._owners[topic], sizes[poor] + 1)
            if rich >= 0:
                self._witness = topic, rich, poor
                return False
        return True

    def _move(self, part: int, new: int) -> None:
        self._left -= 1
        member, topic = self._owner[part], self._topic_of[part]
        self._movements.note(part, member, new)
        del self._shares[member][part]
        owners = self._of_topic[topic]
        owners[member] -= 1
        if not owners[member]:
            del owners[member]
            self._owners[topic] &= ~(1 << member)
        self._give(part, new)
        self._levels.change(member, -1)
        self._levels.change(new, 1)

    def _give(self, part: int, member: int) -> None:
        topic = self._topic_of[part]
        self._shares[member][part] = None
        self._owner[part] = member
        self._of_topic[topic][member] = self._of_topic[topic].get(member, 0) + 1
        self._owners[topic] |= 1 << member

    def _wants(self, member: int, part: int) -> bool:
        return bool(self._readers[self._topic_of[part]] >> member & 1)


def _score(shares: list[dict[int, None]], members: Iterable[int]) -> int:
    """How uneven: the sum of the differences between any two of these members' sizes."""
    sizes = sorted(len(shares[member]) for member in members)
    last = len(sizes) - 1
    return sum(size * (2 * index - last) for index, size in enumerate(sizes))


class Levels:
    """The members that take part, sorted by how many partitions they have and by their number.

    Sets of members are the bits of an int, so that finding the member with the fewest partitions
    among those that want a topic is a few operations, whatever their count.

    Attributes:
        sizes: Member -> its partitions, also of those that don't take part any more.
    """

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self._at: dict[int, int] = {}
        self._levels: list[int] = []
        for member in range(len(sizes)):
            self._put(member)

    def change(self, member: int, by: int) -> None:
        """Change the size of a member."""
        self.drop(member)
        self.sizes[member] += by
        self._put(member)

    def drop(self, member: int) -> None:
        """Remove a member that takes no part any more."""
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
        """The difference between the largest and the smallest size."""
        return self._levels[-1] - self._levels[0] if self._levels else 0

    def _put(self, member: int) -> None:
        size = self.sizes[member]
        if size not in self._at:
            insort(self._levels, size)
            self._at[size] = 0
        self._at[size] |= 1 << member


class Movements:
    """The movements of partitions between members.

    If a partition is to go from A to B and another one of its topic came from B to A, then that one
    goes back instead: one movement less instead of one more.

    Args:
        topic_of: Partition -> its topic.
    """

    def __init__(self, topic_of: Sequence[int]) -> None:
        self._topic_of = topic_of
        self._where: dict[int, Pair] = {}
        self._came: dict[tuple[int, Pair], set[int]] = {}

    def better(self, part: int, member: int, new: int) -> int:
        """The partition to move to ``new`` in place of ``part`` of ``member``; maybe itself."""
        if part in self._where:
            member = self._where[part][0]
        back = self._came.get((self._topic_of[part], (new, member)), ())
        return min(back, default=part)

    def note(self, part: int, member: int, new: int) -> None:
        """Record that ``part`` moves from ``member`` to ``new``."""
        topic = self._topic_of[part]
        before = self._where.pop(part, None)
        if before is not None:
            self._came[topic, before].remove(part)
            if before[0] == new:
                return
            member = before[0]
        pair = self._where[part] = (member, new)
        self._came.setdefault((topic, pair), set()).add(part)
