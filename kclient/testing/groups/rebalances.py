"""The rebalance of a group from one generation to the next, and the expiry of sessions.

Called by ``joins.py`` and ``shard.py`` with a group, and by deadlines that it sets itself: one per
session, one while joins are collected, one while assignments are awaited. Functions return the
``Write`` that their step needs, or None; ``Perform`` executes it. It never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.sync_group import SyncGroupResponse
from kclient.testing.broker_configs import GroupSettings
from kclient.testing.groups.classic_group import ClassicGroup, Event, Member, State, join_refusal
from kclient.testing.groups.records import Record, group_record
from kclient.testing.log_state import NO_ID, ProducerIdentity
from kclient.testing.timers import DeadlineQueue, Key, Moment

Done: TypeAlias = Callable[[ErrorCode, Moment], None]


class Write(NamedTuple):
    """Records that must be in the log before their change takes effect.

    Attributes:
        records: In order; none means to wait for earlier writes.
        done: Called when they are committed, or with Kafka's code for the failure.
        replay: Whether appending them applies their change; else ``done`` applies it.
        producer: Of the transaction that they are part of, if any.
    """

    records: tuple[Record, ...]
    done: Done | None = None
    replay: bool = False
    producer: ProducerIdentity | None = None

    @property
    def producer_id(self) -> int:
        """Of the transaction, -1 for none."""
        return NO_ID if self.producer is None else self.producer.producer_id


Perform: TypeAlias = Callable[[Write | None, Moment], None]


@dataclass(eq=False, repr=False)
class Rebalances:
    """The steps of the groups of one partition.

    Args:
        settings: Limits and delays.
        deadlines: For steps that are due later.
        find: Returns the group of that name, if it still exists.
        perform: Executes a write.
    """

    _settings: GroupSettings
    _deadlines: DeadlineQueue
    _find: Callable[[str], ClassicGroup | None]
    _perform: Perform

    # Sessions

    def touch(self, group: ClassicGroup, member: Member, moment: Moment) -> None:
        """A member was active: restart its session."""
        self.watch(group, member.member_id, member.session_timeout_ms, moment)

    def watch(self, group: ClassicGroup, member_id: str, timeout_ms: int, moment: Moment) -> None:
        """Start a session of ``timeout_ms``, also for an id that was only assigned."""
        expire = partial(self._expire_session, member_id)
        self._plan(("session", group.group_id, member_id), timeout_ms, moment, expire)

    def unwatch(self, group: ClassicGroup, member_id: str) -> None:
        """End the session of a member."""
        self._deadlines.cancel(("session", group.group_id, member_id))

    def forget(self, group: ClassicGroup) -> None:
        """Cancel all deadlines of the group."""
        for member_id in (*group.members, *group.pending_members):
            self.unwatch(group, member_id)
        self._deadlines.cancel(("join", group.group_id))
        self._deadlines.cancel(("sync", group.group_id))

    def _expire_session(self, member_id: str, group: ClassicGroup, moment: Moment) -> Write | None:
        if member_id in group.pending_members:
            group.remove(member_id)
            return self._complete_if_joined(group, moment)
        member = group.members.get(member_id)
        if member is None or member.needs_no_heartbeat:
            return None
        # It may still be alive, with a waiting JoinGroup: it then joins again.
        member.answer_join(join_refusal(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        group.remove(member.member_id)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            return self.rebalance_or_complete(group, moment)
        return self._complete_if_joined(group, moment)

    def _complete_if_joined(self, group: ClassicGroup, moment: Moment) -> Write | None:
        if group.state is State.PREPARING_REBALANCE and group.all_joined:
            return self._complete_join(group, moment)
        return None

    # Collecting joins

    def rebalance_or_complete(self, group: ClassicGroup, moment: Moment) -> Write | None:
        """Begin a rebalance, or complete the current one if all members have joined."""
        if group.can_rebalance:
            return self.prepare(group, moment)
        return self.complete_unless_first(group, moment)

    def complete_unless_first(self, group: ClassicGroup, moment: Moment) -> Write | None:
        """Complete the joins if all members have joined; a first rebalance waits for its delay."""
        if group.previous_state is State.EMPTY:
            return None
        return self._complete_if_joined(group, moment)

    def prepare(self, group: ClassicGroup, moment: Moment) -> Write | None:
        """Begin to collect joins."""
        if group.state is State.COMPLETING_REBALANCE:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, moment)
        group.pending_syncs.clear()
        self._deadlines.cancel(("sync", group.group_id))
        first = group.state is State.EMPTY
        if first:
            delay = self._settings.initial_rebalance_delay_ms
            left = max(group.rebalance_timeout_ms - delay, 0)
            self._delay_first(delay, left, group, moment)
        group.apply(Event.REBALANCE, moment.wall_ms)
        if first:
            return None
        if group.all_joined:
            return self._complete_join(group, moment)
        self._await_joins(group, moment)
        return None

    def _delay_first(
        self, delay_ms: int, left_ms: int, group: ClassicGroup, moment: Moment
    ) -> None:
        """Delay the first rebalance of a group, and longer while members join."""

        def due(found: ClassicGroup, then: Moment) -> Write | None:
            if not found.new_member_added or not left_ms:
                return self._complete_join(found, then)
            found.new_member_added = False
            longer = min(self._settings.initial_rebalance_delay_ms, left_ms)
            self._delay_first(longer, max(left_ms - delay_ms, 0), found, then)
            return None

        self._plan(("join", group.group_id), delay_ms, moment, due)

    def _await_joins(self, group: ClassicGroup, moment: Moment) -> None:
        timeout_ms = group.rebalance_timeout_ms
        self._plan(("join", group.group_id), timeout_ms, moment, self._complete_join)

    def _complete_join(self, group: ClassicGroup, moment: Moment) -> Write | None:
        """Begin the next generation with the joined members; static members may be late."""
        self._deadlines.cancel(("join", group.group_id))
        for member in tuple(group.members.values()):
            if not member.awaits_join and not member.is_static:
                group.remove(member.member_id)
                self.unwatch(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            self._await_joins(group, moment)  # no member joined: until the sessions have expired
            return None
        group.begin_generation(moment.wall_ms)
        if group.state is State.EMPTY:
            return Write((group_record(group, {}),))
        for member in tuple(group.members.values()):
            member.answer_join(group.join_answer(member.member_id))
            self.touch(group, member, moment)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        expire = partial(self._expire_syncs, group.generation)
        self._plan(("sync", group.group_id), group.rebalance_timeout_ms, moment, expire)
        return None

    # Collecting assignments

    def _expire_syncs(self, generation: int, group: ClassicGroup, moment: Moment) -> Write | None:
        late = sorted(group.pending_syncs)
        waits = group.state in (State.COMPLETING_REBALANCE, State.STABLE)
        if group.generation != generation or not waits or not late:
            return None
        for member_id in late:
            group.remove(member_id)
            self.unwatch(group, member_id)
        return self.prepare(group, moment)

    def note_sync(self, group: ClassicGroup, member_id: str) -> None:
        """A member sent its SyncGroup."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._deadlines.cancel(("sync", group.group_id))

    def assign(self, group: ClassicGroup, assignments: Mapping[str, bytes], moment: Moment) -> None:
        """The leader's assignment is in the log: respond to the SyncGroups that wait for it."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._answer_syncs(group, ErrorCode.NONE, moment)
        group.apply(Event.ASSIGNED, moment.wall_ms)

    def fail_syncs(self, group: ClassicGroup, code: ErrorCode, moment: Moment) -> None:
        """There is no assignment: fail the SyncGroups that wait for it with ``code``."""
        for member in group.members.values():
            member.assignment = b""
        self._answer_syncs(group, code, moment)

    def _answer_syncs(self, group: ClassicGroup, code: ErrorCode, moment: Moment) -> None:
        for member in tuple(group.members.values()):
            if member.answer_sync(sync_answer(group, member, code)):
                # A session that expired while the member waited for others was ignored.
                self.touch(group, member, moment)

    def _plan(
        self,
        key: Key,
        after_ms: int,
        moment: Moment,
        step: Callable[[ClassicGroup, Moment], Write | None],
    ) -> None:
        """Schedule a step of the group that ``key`` names second, if it exists by then."""

        def due(then: Moment) -> None:
            group = self._find(key[1])
            if group is not None:
                self._perform(step(group, then), then)

        self._deadlines.set(key, moment.now + after_ms / 1000, due)


def sync_answer(
    group: ClassicGroup, member: Member, code: ErrorCode = ErrorCode.NONE
) -> SyncGroupResponse:
    """The response with a member's assignment, or with an error."""
    if code is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=code)
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
