"""``Shard``: the groups and offsets of one partition of ``__consumer_offsets``.

Made by the coordinator when its broker leads the partition, filled from the log, and dropped when
another broker leads. Requests come in as calls with the moment, responses go out through reply
functions, at once or later; state that must persist is appended through ``append`` and takes effect
once that reports success. It never waits: ``deadlines`` has actions that are due later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.leave_group import MemberIdentity, MemberResponse
from kclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kclient.testing.groups import offsets
from kclient.testing.groups.classic_group import ClassicGroup, Event, State, SyncReply, join_refusal
from kclient.testing.groups.joins import JoinRequest, Joins
from kclient.testing.groups.offsets import CommittedOffset, Offsets
from kclient.testing.groups.rebalances import Rebalances, Write, sync_answer
from kclient.testing.groups.records import (
    EndMarker,
    GroupRecord,
    OffsetRecord,
    Record,
    decode_batches,
    group_from,
    group_record,
    group_tombstone,
    new_group_record,
    offset_tombstone,
)
from kclient.testing.groups.writes import Append, Writes
from kclient.testing.log_state import NO_ID
from kclient.testing.responses import ApiError
from kclient.testing.timers import Moment

if TYPE_CHECKING:
    from kclient.testing.groups.coordinator import GroupCoordinator

FetchReply: TypeAlias = Callable[
    [ErrorCode, dict[str, dict[int, CommittedOffset]], set[tuple[str, int]]], None
]
"""Takes the code, the offsets by topic and partition, and the partitions without a stable one."""


class Shard:
    """Groups of one partition.

    Args:
        host: The broker's coordinator.
        append: Appends records to the partition's log.
        epoch: The leader epoch that it was made in.

    Attributes:
        groups: By name.
        offsets: Of these groups.
    """

    def __init__(self, host: GroupCoordinator, append: Append, epoch: int) -> None:
        self.epoch = epoch
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self._host = host
        self._settings = host.settings
        self._writes = Writes(
            append, host.deadlines, self._appended, self._committed, host.settings
        )
        self._rebalances = Rebalances(
            host.settings, host.deadlines, self.groups.get, self._writes.perform
        )
        self._joins = Joins(host.settings, self._rebalances, host.new_id)
        self._next_check_ms = 0

    # The log

    def load(self, batches: Iterable[bytes | bytearray], moment: Moment) -> None:
        """Load the state from the partition's log; members' sessions begin now."""
        for one in decode_batches(batches):
            if isinstance(one, EndMarker):
                self.offsets.end(one.producer_id, one.committed)
            else:
                self._appended(one.record, one.producer_id)
                self._committed(one.record, one.producer_id)
        self._next_check_ms = moment.wall_ms + self._settings.retention_check_ms
        for group in tuple(self.groups.values()):
            for member in group.members.values():
                self._rebalances.touch(group, member, moment)
            if len(group.members) > self._settings.max_size:
                self._writes.perform(self._rebalances.prepare(group, moment), moment)

    def unload(self, moment: Moment) -> None:
        """Unload all groups; waiting requests fail with NOT_COORDINATOR."""
        groups = tuple(self.groups.values())
        self.groups.clear()
        for group in groups:
            self._rebalances.forget(group)
            group.apply(Event.UNLOADED, moment.wall_ms)
            for member in group.members.values():
                member.answer_join(join_refusal(ErrorCode.NOT_COORDINATOR, member.member_id))
                member.answer_sync(SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        self._writes.abandon(ErrorCode.NOT_LEADER_OR_FOLLOWER, moment)

    def _appended(self, record: Record, producer_id: int) -> None:
        if isinstance(record, GroupRecord):
            self._replace_group(record)
            return
        group_id = record.key.group
        if record.value is not None and group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id)
        self.offsets.append(record, producer_id)

    def _replace_group(self, record: GroupRecord) -> None:
        group_id = record.key.group
        was = self.groups.pop(group_id, None)
        if was is not None:
            self._rebalances.forget(was)
            was.apply(Event.UNLOADED, was.state_since_ms)
        if record.value is not None:
            self.groups[group_id] = group_from(group_id, record.value)

    def _committed(self, record: Record, producer_id: int) -> None:
        if isinstance(record, OffsetRecord) and producer_id == NO_ID:
            self.offsets.commit(record)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """The marker that ends a transaction is in the log of this partition."""
        self.offsets.end(producer_id, committed)

    # Membership

    def join(self, call: JoinRequest, moment: Moment) -> None:
        """JoinGroup; creates the group if a client without member id joins."""
        group_id = call.request.group_id
        group = self.groups.get(group_id)
        if group is not None:
            self._writes.perform(self._joins.join(group, call, moment), moment)
            return
        if call.request.member_id:
            call.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
            return
        group = self.groups[group_id] = ClassicGroup(group_id, moment.wall_ms)
        write = self._joins.join(group, call, moment)
        self._writes.perform(write or self._first_write(group, call), moment)

    def _first_write(self, group: ClassicGroup, call: JoinRequest) -> Write:
        def done(code: ErrorCode, then: Moment) -> None:
            if code is not ErrorCode.NONE and self.groups.get(group.group_id) is group:
                self._rebalances.forget(group)
                del self.groups[group.group_id]
                call.refuse(code, "")

        return Write((new_group_record(group),), done)

    def sync(self, request: SyncGroupRequest, reply: SyncReply, moment: Moment) -> None:
        """SyncGroup: the leader's contains the assignment, the others wait for it."""
        group = self.groups.get(request.group_id)
        try:
            if group is None or group.state is State.EMPTY:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            member = group.check_member(request.member_id, request.group_instance_id)
            _check_sync(group, request)
        except ApiError as refused:
            reply(SyncGroupResponse(error_code=refused.code))
            return
        self._rebalances.note_sync(group, member.member_id)
        if group.state is State.STABLE:
            reply(sync_answer(group, member))
            return
        member.sync_reply = reply
        if group.leader == member.member_id:
            self._writes.perform(self._assignment(group, request), moment)

    def _assignment(self, group: ClassicGroup, request: SyncGroupRequest) -> Write:
        assignments = {one.member_id: bytes(one.assignment) for one in request.assignments}
        generation = group.generation

        def done(code: ErrorCode, then: Moment) -> None:
            if group.state is not State.COMPLETING_REBALANCE or group.generation != generation:
                return  # a member joined or left meanwhile
            if code is ErrorCode.NONE:
                self._rebalances.assign(group, assignments, then)
                return
            self._rebalances.fail_syncs(group, code, then)
            self._writes.perform(self._rebalances.rebalance_or_complete(group, then), then)

        return Write((group_record(group, assignments),), done)

    def heartbeat(self, request: HeartbeatRequest, moment: Moment) -> ErrorCode:
        """Heartbeat: restarts the session; the code reports the state of the group."""
        group = self.groups.get(request.group_id)
        try:
            if group is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            member = group.check_member(request.member_id, request.group_instance_id)
        except ApiError as refused:
            return refused.code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalances.touch(group, member, moment)
        if group.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self,
        group_id: str,
        members: Sequence[MemberIdentity],
        reply: Callable[[ErrorCode, list[MemberResponse]], None],
        moment: Moment,
    ) -> None:
        """LeaveGroup: removes members, each with a code of its own."""
        group = self.groups.get(group_id)
        answers = [
            MemberResponse(
                one.member_id,
                one.group_instance_id,
                ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, one),
            )
            for one in members
        ]
        write: Write | None = None
        if group is not None and any(one.error_code == ErrorCode.NONE for one in answers):
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                write = self._rebalances.rebalance_or_complete(group, moment)
            elif group.state is State.PREPARING_REBALANCE:
                write = self._rebalances.complete_unless_first(group, moment)
        if write is None:
            reply(ErrorCode.NONE, answers)
            return
        self._writes.perform(
            write._replace(
                done=lambda code, _: reply(code, [] if code is not ErrorCode.NONE else answers)
            ),
            moment,
        )

    def _leave_one(self, group: ClassicGroup, one: MemberIdentity) -> ErrorCode:
        member_id = one.member_id
        if not member_id:  # an admin removes a static member
            member_id = group.static_members.get(one.group_instance_id or "", "")
        elif member_id not in group.pending_members:
            try:
                group.check_member(member_id, one.group_instance_id)
            except ApiError as refused:
                return refused.code
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._rebalances.unwatch(group, member_id)
        member = group.members.get(member_id)
        if member is not None:
            member.answer_join(join_refusal(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        group.remove(member_id)
        return ErrorCode.NONE

    # Offsets

    def commit(
        self,
        request: offsets.CommitRequest,
        entries: Sequence[offsets.CommitEntry],
        reply: Callable[[list[ErrorCode]], None],
        moment: Moment,
    ) -> None:
        """OffsetCommit, or TxnOffsetCommit: one code per entry."""
        self._tidy(moment, request.group_id)
        group = self.groups.get(request.group_id)
        try:
            offsets.check_commit(group, request)
        except ApiError as refused:
            reply([refused.code] * len(entries))
            return
        member = None if group is None else group.members.get(request.member_id)
        if (
            group is not None
            and member is not None
            and group.state in (State.STABLE, State.PREPARING_REBALANCE)
        ):
            self._rebalances.touch(group, member, moment)
        records, codes = offsets.commit_records(request, entries, self._settings, moment.wall_ms)
        if not records:
            if group is None:
                self.groups[request.group_id] = ClassicGroup(request.group_id, moment.wall_ms)
            reply(codes)
            return

        def done(code: ErrorCode, _: Moment) -> None:
            reply(codes if code is ErrorCode.NONE else [code] * len(entries))

        self._writes.perform(Write(tuple(records), done, True, request.producer), moment)

    def fetch(
        self,
        group_id: str,
        stable: bool,
        reply: FetchReply,
        moment: Moment,
    ) -> None:
        """OffsetFetch: the committed offsets; with ``stable`` once all appended ones are.

        With ``stable``, it also returns the partitions that open transactions have offsets for.
        """
        self._tidy(moment, group_id)

        def done(code: ErrorCode, _: Moment) -> None:
            if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                code = ErrorCode.NOT_COORDINATOR  # the only code that older consumers handle
            unstable = self.offsets.pending(group_id) if stable else set()
            reply(code, {} if code is not ErrorCode.NONE else self.offsets.read(group_id), unstable)

        if stable:
            self._writes.perform(Write((), done), moment)
        else:
            done(ErrorCode.NONE, moment)

    def delete_offsets(
        self,
        group_id: str,
        entries: Sequence[tuple[str, int]],
        reply: Callable[[list[ErrorCode]], None],
        fail: Callable[[ErrorCode], None],
        moment: Moment,
    ) -> None:
        """OffsetDelete: one code per (topic, partition), or one for the group."""
        self._tidy(moment, group_id)
        group = self.groups.get(group_id)
        try:
            if group is None:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
            group.check_offset_delete()
        except ApiError as refused:
            fail(refused.code)
            return
        records, codes = offsets.delete_records(group, self.offsets, entries)

        def done(code: ErrorCode, _: Moment) -> None:
            if code is ErrorCode.NONE:
                reply(codes)
            else:
                fail(code)

        self._writes.perform(Write(tuple(records), done, replay=True), moment)

    # Administration

    def known(self, moment: Moment) -> list[ClassicGroup]:
        """All groups."""
        self._tidy(moment)
        return list(self.groups.values())

    def delete_group(
        self, group_id: str, reply: Callable[[ErrorCode], None], moment: Moment
    ) -> None:
        """DeleteGroups, of one: with its offsets, if it has no members."""
        self._tidy(moment, group_id)
        group = self.groups.get(group_id)
        if group is None:
            reply(ErrorCode.GROUP_ID_NOT_FOUND)
        elif group.state is not State.EMPTY:
            reply(ErrorCode.NON_EMPTY_GROUP)
        else:
            records: list[Record] = [
                *(offset_tombstone(group_id, *one) for one in self._all_offsets(group_id)),
                group_tombstone(group_id),
            ]
            self._writes.perform(
                Write(tuple(records), lambda code, _: reply(code), replay=True), moment
            )

    def _all_offsets(self, group_id: str) -> list[tuple[str, int]]:
        known = [one[:2] for one in self.offsets.appended(group_id)]
        return known + sorted(self.offsets.pending(group_id) - set(known))

    def _tidy(self, moment: Moment, group_id: str | None = None) -> None:
        """Remove expired offsets and groups, and the group's offsets in deleted topics.

        Kafka does the first every ten minutes and the second on the deletion; here both wait for
        the next request, so that idle groups cost nothing.
        """
        records: list[Record] = []
        if group_id is not None:
            records += offsets.orphans(group_id, self.offsets, self._host.topic_id)
        if records:
            self._writes.perform(Write(tuple(records), replay=True), moment)
        if moment.wall_ms < self._next_check_ms:
            return
        self._next_check_ms = moment.wall_ms + self._settings.retention_check_ms
        records = []
        for group in self.groups.values():
            gone, none_left = offsets.expired(group, self.offsets, self._settings, moment)
            records += gone
            if none_left and group.state is State.EMPTY:
                records.append(group_tombstone(group.group_id))
        if records:
            self._writes.perform(Write(tuple(records), replay=True), moment)


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> None:
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    for asked, has in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if asked is not None and has is not None and asked != has:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is State.PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
