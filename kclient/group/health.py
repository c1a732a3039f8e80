"""What a membership tells about itself, as a frozen value. Sans-IO."""

from __future__ import annotations

from kclient.frozen import Frozen, Snapshot, frozen


@frozen
class MembershipHealth(Snapshot, Frozen):
    """A snapshot of how a member of a group is.

    Attributes:
        group_id: The group.
        state: A name of ``MemberState``, such as ``STABLE``.
        joined: It is a member and has an assignment, also while the group rebalances.
        generation: Of the group; None outside.
        member_id: Ours; None outside.
        instance_id: Our ``group_instance_id``; None for a dynamic member.
        is_leader: Whether we assign.
        coordinator: The broker that leads the group, as text; None while it isn't known.
        last_heartbeat_age: Seconds since the latest heartbeat that was answered was sent; None
            before the first and outside.
        rebalances: How many were completed.
        last_error: The latest trouble, as text; None since the last success.
        late_heartbeats: How often user code blocked the loop for longer than
            ``heartbeat_interval`` when a heartbeat was due.
        longest_block: Seconds of the longest such delay.
    """

    group_id: str
    state: str
    joined: bool
    generation: int | None
    member_id: str | None
    instance_id: str | None
    is_leader: bool
    coordinator: str | None
    last_heartbeat_age: float | None
    rebalances: int
    last_error: str | None
    late_heartbeats: int
    longest_block: float
