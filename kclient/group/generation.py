"""Generation: who we are in a group, as the coordinator knows us. A value, sans-IO.

Each rebalance begins a new one; commits carry the one that their records were read under, so that
the coordinator can refuse whoever was left behind.
"""

from __future__ import annotations

from kclient.frozen import Frozen, frozen


@frozen
class Generation(Frozen):
    """One generation of a group, from a member's view.

    Attributes:
        generation_id: Its number.
        member_id: Ours, given by the coordinator.
        instance_id: Our ``group_instance_id``; None for a dynamic member.
        protocol: What the members agreed on.
        is_leader: Whether we assign.
    """

    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol: str = ""
    is_leader: bool = False


OUTSIDE = Generation(-1, "")
"""Stands for no membership, as for commits of whoever assigns by hand."""
