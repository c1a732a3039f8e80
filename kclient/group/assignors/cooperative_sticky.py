"""The assignor "cooperative-sticky": as sticky, but members keep what they own meanwhile (KIP-429).

A partition that is to move from one member to another is given to nobody at first: its owner gives
it up when it sees that, and joins again, and then the new one gets it. So no partition is ever read
by two members, and those that don't move are read all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct, error

from kclient.group.assignors.sticky import named, solve
from kclient.group.assignors.sticky_constrained import Constrained
from kclient.group.assignors.sticky_input import NO_GENERATION, Claim, Input
from kclient.hooks import MemberSubscription, TopicsView
from kclient.types import TopicPartition

_GENERATION = Struct(">i")


class CooperativeStickyAssignor:
    """Java's CooperativeStickyAssignor; differs from it as ``StickyAssignor`` does from Java's."""

    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION
        self._newest = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation of this member's last assignment, for leaders that want it here."""
        return _GENERATION.pack(self._generation)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Remembers the generation; what a member owns is in its subscription anyway."""
        self._generation = generation

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``hooks.Assignor``. Partitions that must be given up first go to nobody."""
        given = Input(cluster, members, read_claim)
        self._newest = max(self._newest, given.newest_generation)
        found = solve(given, self._newest)
        moved = found.moved if isinstance(found, Constrained) else _moved(given, found.shares)
        shares = [
            [part for part in share if moved.get(part, -1) != member]
            for member, share in enumerate(found.shares)
        ]
        return named(given, shares)


def read_claim(member: MemberSubscription) -> Claim:
    """What a member owns. Of old members the generation is in the user data."""
    if member.generation >= 0:
        return Claim(member.owned, member.generation)
    if member.user_data is None:
        return Claim(member.owned, None)
    try:
        return Claim(member.owned, _GENERATION.unpack_from(member.user_data)[0])
    except error:
        return Claim(member.owned, NO_GENERATION)


def _moved(given: Input, shares: Sequence[Sequence[int]]) -> dict[int, int]:
    """Partitions that a member gets that doesn't own them and another one must give up."""
    added: dict[int, int] = {}
    revoked: set[int] = set()
    for member, share in enumerate(shares):
        owned = set(given.known(given.subscriptions[member].owned))
        added |= {part: member for part in share if part not in owned}
        revoked |= owned.difference(share)
    return {part: member for part, member in added.items() if part in revoked}
