"""Checks a user's cooperative assignor: nobody may get what another member has still to give up.

The leader asks before it sends the shares out, as Java's does; the built-in one needs no check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kclient.hooks import MemberSubscription
from kclient.types import TopicPartition


def given_too_early(
    members: Mapping[str, MemberSubscription], shares: Mapping[str, Sequence[TopicPartition]]
) -> list[TopicPartition]:
    """Partitions that go to a new owner in the round in which the old one loses them, sorted."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, wish in members.items():
        owned, share = set(wish.owned), set(shares.get(member, ()))
        added |= share - owned
        revoked |= owned - share
    return sorted(added & revoked)
