"""Members of classic groups for scenarios: the requests they send, and their state.

`Member` keeps id and generation from the responses: a scenario names only what matters to it.
"""

from __future__ import annotations

import struct
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.heartbeat import HeartbeatRequest
from kclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.run import CLIENT_ID, Pending, Run, until

SESSION_MS = 30_000
REBALANCE_MS = 60_000
GROUP = 0
"""The key type of a group's coordinator."""
MEMBER_ID_REQUIRED = 79
JOIN, SYNC, HEARTBEAT = 9, 5, 4
"""The versions that members speak where a scenario doesn't care."""
FIRST_WITH_LEAVERS = 3
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, in version 0 of the consumer protocol."""
    names = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(
    group: str,
    member_id: str = "",
    *,
    protocols: dict[str, bytes] | None = None,
    kind: str = "consumer",
    instance: str | None = None,
    session_ms: int = SESSION_MS,
    reason: str | None = None,
) -> JoinGroupRequest:
    """A JoinGroup request."""
    offered = {"range": subscription()} if protocols is None else protocols
    return JoinGroupRequest(
        group,
        session_ms,
        REBALANCE_MS,
        member_id,
        instance,
        kind,
        [JoinGroupRequestProtocol(name, data) for name, data in offered.items()],
        reason,
    )


def sync(
    group: str,
    generation: int,
    member_id: str,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    """A SyncGroup request; the leader's has the assignments of all members."""
    given = [SyncGroupRequestAssignment(who, what) for who, what in (assignments or {}).items()]
    return SyncGroupRequest(group, generation, member_id, instance, kind, protocol, given)


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """A LeaveGroup request of version 3 or later: member ids, instance ids of static members."""
    return LeaveGroupRequest(group, members=[MemberIdentity(*one) for one in members])


class Member:
    """One member, over a connection of its own, with a client id of its own.

    Attributes:
        id: The member id from the coordinator; empty before.
        generation: The generation of the last join.
        protocol: The protocol that was chosen then.
        leads: Whether it became the leader then.
    """

    def __init__(self, run: Run, group: str, *, node: int = 1, **joining: Any) -> None:
        self._run = run
        self._node = node
        self.peer = run.peer(f"{CLIENT_ID}-{run.next_number()}", node=node)
        self.group = group
        self.joining = joining
        self.id = ""
        self.generation = -1
        self.protocol = "range"
        self.leads = False

    async def begin_join(self, note: str = "", *, version: int = JOIN) -> Pending:
        """Send a request to join; returns when the coordinator knows the member.

        A new member first fetches its id, unrecorded. The request of a member that the
        coordinator knew already may still be in flight: see `rebalancing`.
        """
        instance = self.joining.get("instance")
        if not self.id and version >= 4 and instance is None:
            found = await self.peer.quietly(join(self.group, **self.joining), version)
            assert found.error_code == MEMBER_ID_REQUIRED, found
            self.id = found.member_id
        before = await self._members()
        asked = join(self.group, self.id, **self.joining)
        pending = await self.peer.begin(asked, version, note)

        async def is_there() -> bool:
            return len(await self._members()) > len(before)

        known = {one.member_id if instance is None else one.group_instance_id for one in before}
        if (self.id if instance is None else instance) not in known:
            await until(is_there)
        return pending

    async def rebalancing(self) -> None:
        """Wait until the coordinator has begun a rebalance: heartbeats of others now report it."""

        async def has_begun() -> bool:
            return (await self._described()).group_state == "PreparingRebalance"

        await until(has_begun)

    async def _members(self) -> list[DescribedGroupMember]:
        return list((await self._described()).members)

    async def _described(self) -> DescribedGroup:
        asked = DescribeGroupsRequest([self.group])
        found = await self._run.quietly(asked, 5, node=self._node)
        described: DescribedGroup = found.groups[0]
        return described

    async def joined(self, pending: Pending) -> Any:
        """Record the response to a join, and keep its fields."""
        return self._note(await pending.answer())

    async def join(self, note: str = "", *, version: int = JOIN) -> Any:
        """Join, and record the response."""
        return await self.joined(await self.begin_join(note, version=version))

    def _note(self, found: Any) -> Any:
        if not found.error_code:
            self.id, self.generation = found.member_id, found.generation_id
            self.protocol = found.protocol_name
            self.leads = found.leader == found.member_id
        return found

    async def sync(self, note: str = "", *, version: int = SYNC, **more: Any) -> Any:
        """Fetch the assignment, and record the response."""
        return await self.peer.ask(self.sync_request(**more), version, note)

    def sync_request(self, **more: Any) -> SyncGroupRequest:
        """The SyncGroup request of `sync`."""
        more.setdefault("instance", self.joining.get("instance"))
        more.setdefault("protocol", self.protocol)
        more.setdefault("kind", self.joining.get("kind", "consumer"))
        return sync(self.group, self.generation, self.id, **more)

    async def heartbeat(self, note: str = "", *, version: int = HEARTBEAT) -> Any:
        """Send a heartbeat, and record the response."""
        beat = HeartbeatRequest(self.group, self.generation, self.id, self.joining.get("instance"))
        return await self.peer.ask(beat, version, note)

    async def settle(self) -> None:
        """Join and sync as the only member, unrecorded."""
        await self.begin_quietly()
        assignments = {self.id: b"all"}
        found = await self.peer.quietly(self.sync_request(assignments=assignments), SYNC)
        assert not found.error_code, found

    async def begin_quietly(self) -> None:
        """Join as the only member, unrecorded."""
        found = await self.peer.quietly(join(self.group, self.id, **self.joining), JOIN)
        if found.error_code == MEMBER_ID_REQUIRED:
            again = join(self.group, found.member_id, **self.joining)
            found = await self.peer.quietly(again, JOIN)
        self._note(found)
        assert not found.error_code, found


async def coordinator(run: Run, group: str) -> None:
    """Wait until a group has a coordinator: the first request for one creates the internal topic.

    Then wait until the coordinator serves the group, which is a moment later.
    """
    wanted = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group])

    async def found() -> bool:
        who = (await run.quietly(wanted, 4)).coordinators[0]
        if who.error_code:
            return False
        asked = DescribeGroupsRequest([group])
        reported = (await run.quietly(asked, 5, node=who.node_id)).groups[0]
        return reported.error_code not in _NOT_YET

    await until(found)


async def new_group(run: Run, stem: str = "group") -> str:
    """The name of a group that doesn't exist yet, once it has a coordinator."""
    group = run.name(stem)
    await coordinator(run, group)
    return group


async def settled(run: Run, stem: str = "group", **joining: Any) -> Member:
    """A group with one member that has its assignment."""
    member = Member(run, await new_group(run, stem), **joining)
    await member.settle()
    return member
