"""The requests of a member of a classic group, and its responses, by version. Sans-IO.

``membership`` and ``heartbeats`` send what is made here. What older versions lack: a rebalance
timeout (JoinGroup 0: the session's counts), a member id before the first join (below 4), static
members (JoinGroup below 5, the others below 3), protocol names to compare (JoinGroup below 7,
SyncGroup below 5), reasons (JoinGroup below 8, LeaveGroup below 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.errors import NoCommonVersion, broker_error
from kclient.frozen import Frozen, frozen
from kclient.group.error_actions import HINTS, STATIC_HINTS, Api, ErrorAction, action_for
from kclient.group.member import Generation, JoinedMember
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kclient.errors import BrokerError
    from kclient.group.member import MemberProtocol
    from kclient.protocol.messages.join_group import JoinGroupResponse
    from kclient.protocol.messages.leave_group import LeaveGroupResponse
    from kclient.protocol.messages.sync_group import SyncGroupResponse

FIRST_JOIN_FOR_ID = 4
FIRST_STATIC_JOIN, FIRST_STATIC_LEAVE = 5, 3
LONGEST_REASON = 255
"""Characters of a reason; brokers refuse more (KIP-800)."""


@frozen
class GroupRequests(Frozen):
    """The data that all requests of one member have in common.

    Attributes:
        group_id: The group.
        instance_id: ``group_instance_id``; None for a dynamic member.
        session_ms: Milliseconds without a heartbeat after which a member is removed.
        rebalance_ms: Milliseconds that members have to join again.
        protocol_type: The same for all members of a group.
    """

    group_id: str
    instance_id: str | None
    session_ms: int
    rebalance_ms: int
    protocol_type: str

    def join(
        self, member_id: str, protocols: Sequence[MemberProtocol], reason: str, version: int
    ) -> JoinGroupRequest:
        """Build a JoinGroup; raises NoCommonVersion for a static member below version 5."""
        if self.instance_id is not None and version < FIRST_STATIC_JOIN:
            raise NoCommonVersion(
                f"group {self.group_id}: group_instance_id={self.instance_id!r} can't be used",
                hint="static members need brokers from 2.3 on",
            )
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(o.name, bytes(o.metadata)) for o in protocols],
            reason=reason[:LONGEST_REASON] if version >= 8 else None,
        )

    def gives_id(self, member_id: str, version: int) -> bool:
        """Whether the response comes at once, with an id to join again with (KIP-394)."""
        return not member_id and self.instance_id is None and version >= FIRST_JOIN_FOR_ID

    def sync(self, generation: Generation, shares: Mapping[str, bytes]) -> SyncGroupRequest:
        """Build a SyncGroup. ``shares``: the leader's assignments by member id, else empty."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=generation.protocol,
            assignments=[
                SyncGroupRequestAssignment(member, bytes(share)) for member, share in shares.items()
            ],
        )

    def heartbeat(self, generation: Generation) -> HeartbeatRequest:
        """Build a Heartbeat."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self.instance_id,
        )

    def leave(self, member_id: str, reason: str, version: int) -> LeaveGroupRequest:
        """Build a LeaveGroup."""
        if version < FIRST_STATIC_LEAVE:
            return LeaveGroupRequest(group_id=self.group_id, member_id=member_id)
        one = MemberIdentity(
            member_id,
            self.instance_id,
            reason[:LONGEST_REASON] if version >= 5 else None,
        )
        return LeaveGroupRequest(group_id=self.group_id, members=[one])

    # Responses

    def generation(self, answer: JoinGroupResponse) -> Generation:
        """The generation in a JoinGroup response."""
        return Generation(
            answer.generation_id,
            answer.member_id,
            self.instance_id,
            answer.protocol_name or "",
            answer.leader == answer.member_id,
        )

    def members(self, answer: JoinGroupResponse) -> list[JoinedMember]:
        """All members, in the response to the leader; none in those to the others."""
        return [
            JoinedMember(one.member_id, one.group_instance_id, bytes(one.metadata))
            for one in answer.members
        ]

    def agrees(
        self, answer: JoinGroupResponse | SyncGroupResponse, generation: Generation | None = None
    ) -> bool:
        """Whether the response is about our protocol, as far as its version has that."""
        if answer.protocol_type not in (None, "", self.protocol_type):
            return False
        return generation is None or answer.protocol_name in (None, "", generation.protocol)

    def nonsense(self, answer: JoinGroupResponse, offered: Collection[str]) -> str | None:
        """Describe a response that fits none of the offered protocols; None: all is well."""
        if answer.protocol_name not in offered:
            names = ", ".join(sorted(offered))
            return f"protocol {answer.protocol_name!r}, while {names or 'none'} was offered"
        if answer.generation_id < 0 or not answer.member_id:
            return f"member {answer.member_id!r} of generation {answer.generation_id}"
        return None

    def refusal(self, api: Api, code: int, node_id: int | None) -> BrokerError:
        """Make of ``code`` in a response of ``node_id`` the error that names group and member."""
        subject, hint = f"group {self.group_id}", HINTS.get(code)
        if self.instance_id is not None:
            subject += f" as group_instance_id {self.instance_id}"
            hint = hint or STATIC_HINTS.get(code)
        return broker_error(code, f"{api.value} of {subject} failed", node_id=node_id, hint=hint)

    def leave_error(self, answer: LeaveGroupResponse) -> int:
        """The error that requires another attempt; 0 for none."""
        code = answer.error_code
        if not code and answer.members:
            code = answer.members[0].error_code
        return code if code and action_for(Api.LEAVE, code) is not ErrorAction.DONE else 0
