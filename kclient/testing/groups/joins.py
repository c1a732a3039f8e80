"""JoinGroup: checks, member ids, and the response, at once or once all members have joined.

Called by ``shard.py`` for requests whose form was checked. New dynamic members get an id first
(KIP-394); a static member replaces the one with its ``group.instance.id`` (KIP-345), without a
rebalance if that changes nothing (KIP-814). It never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kclient.testing.broker_configs import GroupSettings
from kclient.testing.groups.classic_group import (
    ClassicGroup,
    JoinReply,
    Member,
    Protocols,
    State,
    join_refusal,
    protocols_of,
)
from kclient.testing.groups.rebalances import Rebalances, Write
from kclient.testing.groups.records import group_record
from kclient.testing.responses import ApiError
from kclient.testing.timers import Moment

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_KNOWN_IDS = 4
_FIRST_WITH_SKIPPING = 9


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup and its sender."""

    request: JoinGroupRequest
    version: int
    client_id: str
    client_host: str
    reply: JoinReply

    @property
    def protocols(self) -> Protocols:
        """(name, metadata), the preferred one first."""
        return protocols_of((one.name, one.metadata) for one in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The first version has none: then the session timeout applies."""
        if self.version < _FIRST_WITH_REBALANCE_TIMEOUT:
            return self.request.session_timeout_ms
        return self.request.rebalance_timeout_ms

    def refuse(self, code: ErrorCode, member_id: str | None = None) -> None:
        """Respond with an error; it names the request's member id, unless another is given."""
        named = self.request.member_id if member_id is None else member_id
        self.reply(join_refusal(code, named))


@dataclass(eq=False, repr=False)
class Joins:
    """JoinGroup for the groups of one partition.

    Args:
        settings: Limits.
        rebalances: The steps of the groups.
        new_id: A UUID, in text.
    """

    _settings: GroupSettings
    _rebalances: Rebalances
    _new_id: Callable[[], str]

    def join(self, group: ClassicGroup, call: JoinRequest, moment: Moment) -> Write | None:
        """Add the member, or respond with the reason why not."""
        request = call.request
        if not self._has_space(group, request.member_id):
            group.remove(request.member_id)
            call.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
            return None
        if not group.supports(request.protocol_type, (one.name for one in request.protocols)):
            call.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return None
        if request.member_id:
            return self._known(group, call, moment)
        if request.group_instance_id is not None:
            return self._static(group, call, moment)
        member_id = f"{call.client_id}-{self._new_id()}"
        if call.version < _FIRST_WITH_KNOWN_IDS:
            return self._add(group, call, member_id, moment)
        group.pending_members.add(member_id)
        self._rebalances.watch(group, member_id, request.session_timeout_ms, moment)
        call.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return None

    def _has_space(self, group: ClassicGroup, member_id: str) -> bool:
        most = self._settings.max_size
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            # Joined members count: the last to rejoin a group that is too large are left out.
            return (member is not None and member.awaits_join) or group.joined_count < most
        if group.state is State.EMPTY:
            return True
        return member is not None or len(group.members) < most

    # Members that the group knows

    def _known(self, group: ClassicGroup, call: JoinRequest, moment: Moment) -> Write | None:
        request = call.request
        if request.member_id in group.pending_members:
            if request.group_instance_id is not None:
                call.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "")  # Kafka's coordinator fails here
                return None
            return self._add(group, call, request.member_id, moment)
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except ApiError as refused:
            call.refuse(refused.code)
            return None
        return self._rejoin(group, member, call, moment)

    def _rejoin(
        self, group: ClassicGroup, member: Member, call: JoinRequest, moment: Moment
    ) -> Write | None:
        """A member joins again: it changed something, or didn't get its last response."""
        unchanged = member.protocols == call.protocols
        leads = group.leader == member.member_id
        lost_answer = group.state is State.COMPLETING_REBALANCE and unchanged
        if lost_answer or (group.state is State.STABLE and unchanged and not leads):
            call.reply(group.join_answer(member.member_id))
            return None
        self._update(member, call)
        return self._rebalances.rebalance_or_complete(group, moment)

    @staticmethod
    def _update(member: Member, call: JoinRequest) -> None:
        member.protocols = call.protocols
        member.rebalance_timeout_ms = call.rebalance_timeout_ms
        member.session_timeout_ms = call.request.session_timeout_ms
        member.join_reply = call.reply

    # New members

    def _add(
        self, group: ClassicGroup, call: JoinRequest, member_id: str, moment: Moment
    ) -> Write | None:
        request = call.request
        member = Member(
            member_id,
            request.group_instance_id,
            call.client_id,
            call.client_host,
            call.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            call.protocols,
            is_new=True,
            join_reply=call.reply,
        )
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member)
        # It doesn't know its id yet, so it can't send heartbeats; but it may have stopped.
        patience = self._settings.new_member_join_timeout_ms
        self._rebalances.watch(group, member_id, patience, moment)
        return self._rebalances.rebalance_or_complete(group, moment)

    # Static members

    def _static(self, group: ClassicGroup, call: JoinRequest, moment: Moment) -> Write | None:
        instance_id = call.request.group_instance_id or ""
        member_id = f"{instance_id}-{self._new_id()}"
        known = group.static_members.get(instance_id)
        if known is None:
            return self._add(group, call, member_id, moment)
        leader = group.leader
        was = group.members[known]
        member = group.replace_static(instance_id, known, member_id)
        self._rebalances.unwatch(group, known)
        self._rebalances.touch(group, member, moment)
        self._update(member, call)
        if group.state is State.STABLE:
            if group.protocol_name == group.select_protocol():
                return self._keep_generation(group, call, was, member, leader)
            return self._rebalances.rebalance_or_complete(group, moment)
        if group.state is State.COMPLETING_REBALANCE:
            # The leader may assign to the old id.
            return self._rebalances.prepare(group, moment)
        return self._rebalances.complete_unless_first(group, moment)

    def _keep_generation(
        self,
        group: ClassicGroup,
        call: JoinRequest,
        was: Member,
        member: Member,
        old_leader: str | None,
    ) -> Write:
        """A static member is back unchanged: respond once its new id is in the log."""

        def done(code: ErrorCode, then: Moment) -> None:
            if code is not ErrorCode.NONE:
                self._take_back(group, was, member, old_leader, code, then)
                return
            skips = call.version >= _FIRST_WITH_SKIPPING
            leads = group.leader == member.member_id
            answer = group.join_answer(member.member_id, skip_assignment=skips and leads)
            if not skips:  # the response names its old id as leader, so it doesn't assign (KIP-345)
                answer.leader, answer.members = old_leader or "", []
            member.answer_join(answer)

        assignments = {one.member_id: one.assignment for one in group.members.values()}
        return Write((group_record(group, assignments),), done)

    def _take_back(
        self,
        group: ClassicGroup,
        was: Member,
        member: Member,
        old_leader: str | None,
        code: ErrorCode,
        moment: Moment,
    ) -> None:
        reply, member.join_reply = member.join_reply, None
        if group.state is not State.DEAD and group.members.get(member.member_id) is member:
            group.members = {
                was.member_id if one is member else one.member_id: was if one is member else one
                for one in group.members.values()
            }
            group.static_members[was.instance_id or ""] = was.member_id
            group.leader = old_leader
            self._rebalances.unwatch(group, member.member_id)
            self._rebalances.touch(group, was, moment)
        if reply is not None:
            reply(
                JoinGroupResponse(
                    error_code=code,
                    generation_id=group.generation,
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    leader=old_leader or "",
                )
            )
