"""The state machine of a classic group: states, members, leader, protocol, generation.

A group is EMPTY until a member joins. It then collects joins (PREPARING_REBALANCE), responds to
all of them with a new generation, waits for the leader's assignment (COMPLETING_REBALANCE), and is
STABLE until a member joins, leaves or changes its protocols. It is DEAD once its coordinator has
unloaded it. ``rebalances.py`` and ``joins.py`` decide when to take which step; a step that the
table doesn't have raises ``IllegalTransition``. No time, no waiting; protocols and assignments are
opaque except for the topics that consumers subscribe to.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.errors import ProtocolError
from kclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kclient.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kclient.protocol.messages.sync_group import SyncGroupResponse
from kclient.testing.responses import ApiError
from kclient.transitions import step

JoinReply: TypeAlias = Callable[[JoinGroupResponse], None]
SyncReply: TypeAlias = Callable[[SyncGroupResponse], None]
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class Member:
    """One member.

    Attributes:
        member_id: Assigned by the coordinator.
        instance_id: ``group.instance.id`` of a static member (KIP-345).
        client_id: Sent by the client.
        client_host: Its address, in Java's notation.
        rebalance_timeout_ms: How long it may take to rejoin.
        session_timeout_ms: How long it may send no heartbeat.
        protocol_type: ``consumer``, ``connect``, ...
        protocols: (name, metadata), the preferred one first.
        assignment: From the leader, opaque.
        is_new: Its first JoinGroup is still waiting: its session expires all the same.
        join_reply: Responds to the waiting JoinGroup.
        sync_reply: Responds to the waiting SyncGroup.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_reply: JoinReply | None = field(default=None, repr=False)
    sync_reply: SyncReply | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether it has a ``group.instance.id``."""
        return self.instance_id is not None

    @property
    def awaits_join(self) -> bool:
        """Whether its JoinGroup is waiting."""
        return self.join_reply is not None

    @property
    def awaits_sync(self) -> bool:
        """Whether its SyncGroup is waiting."""
        return self.sync_reply is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether its session can't expire, as it waits for the group itself."""
        return not self.is_new and (self.awaits_join or self.awaits_sync)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for that protocol.

        Raises:
            KeyError: It doesn't support the protocol.
        """
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: Container[str]) -> str:
        """The first of its protocols that all members support.

        Raises:
            KeyError: There is none.
        """
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(self.member_id)

    def answer_join(self, response: JoinGroupResponse) -> None:
        """Respond to its JoinGroup if one is waiting."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(response)

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Respond to its SyncGroup; return False if none is waiting."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is None:
            return False
        reply(response)
        return True


CONSUMER = "consumer"
_VERSION_BYTES = 2


class State(enum.Enum):
    """States of a group."""

    EMPTY = "has no members; there may be offsets, and ids that were given out but not used yet"
    PREPARING_REBALANCE = "collects joins, which are parked"
    COMPLETING_REBALANCE = "has a new generation, and waits for the leader's assignment"
    STABLE = "has given its members their assignments"
    DEAD = "was deleted, or another broker coordinates it"

    @property
    def shown(self) -> str:
        """Kafka's name of it, as in ListGroups and DescribeGroups."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Event(enum.Enum):
    """Events of a group."""

    REBALANCE = "a new generation is needed"
    JOINED = "the joins are in, or those who didn't join are out"
    EMPTIED = "a generation without members begins"
    ASSIGNED = "the leader's assignment is written down"
    UNLOADED = "the coordinator lets go of it"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.EMPTY: {Event.REBALANCE: State.PREPARING_REBALANCE, Event.UNLOADED: State.DEAD},
    State.PREPARING_REBALANCE: {
        Event.JOINED: State.COMPLETING_REBALANCE,
        Event.EMPTIED: State.EMPTY,
        Event.UNLOADED: State.DEAD,
    },
    State.COMPLETING_REBALANCE: {
        Event.REBALANCE: State.PREPARING_REBALANCE,
        Event.ASSIGNED: State.STABLE,
        Event.UNLOADED: State.DEAD,
    },
    State.STABLE: {Event.REBALANCE: State.PREPARING_REBALANCE, Event.UNLOADED: State.DEAD},
    State.DEAD: {Event.UNLOADED: State.DEAD},
}


class ClassicGroup:
    """One group.

    Attributes:
        group_id: Its name.
        state: Its current state.
        previous_state: The state before; EMPTY during the first rebalance.
        state_since_ms: When the state began, in milliseconds of wall time; -1 if not known.
        generation: Counts rebalances.
        protocol_type: None for a group that only stores offsets.
        protocol_name: The protocol selected from those of all members; None in an empty group.
        leader: Id of the member that computes the assignment.
        members: By member id, in the order of joining.
        static_members: Member id by ``group.instance.id``.
        pending_members: Ids that were assigned (KIP-394) and didn't join yet.
        pending_syncs: Members that got the generation but didn't send their SyncGroup yet.
        new_member_added: A member joined since the first rebalance began.
        subscribed_topics: None if they aren't known from the members' metadata.
    """

    def __init__(self, group_id: str, wall_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_since_ms = wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        self.pending_syncs: set[str] = set()
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None

    def apply(self, event: Event, wall_ms: int) -> State:
        """Take a step of the machine. Raises IllegalTransition."""
        state = step(TRANSITIONS, self.state, event)
        self.previous_state, self.state = self.state, state
        self.state_since_ms = wall_ms
        return state

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin in this state."""
        return Event.REBALANCE in TRANSITIONS[self.state]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members' timeouts, 0 at least, as they may be negative."""
        return max([0, *(one.rebalance_timeout_ms for one in self.members.values())])

    @property
    def joined_count(self) -> int:
        """Number of members whose JoinGroup is waiting."""
        return sum(one.awaits_join for one in self.members.values())

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined, including those that only got their id."""
        return not self.pending_members and all(one.awaits_join for one in self.members.values())

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers, whose metadata has their subscriptions."""
        return self.protocol_type == CONSUMER

    # Members

    def add(self, member: Member) -> None:
        """Add ``member``; the first one becomes leader and sets the protocol type."""
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or an assigned id; the oldest of the other members becomes leader."""
        removed = self.members.pop(member_id, None)
        if removed is not None and removed.instance_id is not None:
            self.static_members.pop(removed.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace_static(self, instance_id: str, member_id: str, new_id: str) -> Member:
        """Assign another id to a static member; requests that wait under the old one are fenced."""
        old = self.members.pop(member_id)
        old.answer_join(join_refusal(ErrorCode.FENCED_INSTANCE_ID, member_id))
        old.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        self.members[new_id] = new = replace(old, member_id=new_id, is_new=False)
        if self.leader == member_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        return new

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request names.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def elect_joined_leader(self) -> bool:
        """Make a joined member the leader if the leader hasn't joined; False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaits_join:
            return True
        for member in self.members.values():
            if member.awaits_join:
                self.leader = member.member_id
                return True
        return False

    # Protocols

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols may join."""
        names = set(protocols)
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        return bool(names & self._common()) or (not self.members and bool(names))

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those all support; of equals the first."""
        common = self._common()
        votes = Counter(member.vote(common) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _common(self) -> set[str]:
        spoken = [{name for name, _ in one.protocols} for one in self.members.values()]
        return set.intersection(*spoken) if spoken else set()

    def begin_generation(self, wall_ms: int) -> None:
        """Start the next generation, with the current members."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        self.apply(Event.JOINED if self.members else Event.EMPTIED, wall_ms)
        self.pending_syncs.clear()

    def read_subscriptions(self) -> frozenset[str] | None:
        """Topics of all members; None if their metadata isn't Kafka's consumer protocol."""
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(_subscription(member.metadata(self.protocol_name)))
        except ProtocolError:
            return None
        return frozenset(topics)

    def subscribes_to(self, topic: str) -> bool:
        """Whether members consume ``topic``; if unknown, True for consumers."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    # Responses

    def join_answer(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """The response for ``member_id`` in this generation; only the leader gets the members."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=list(self._listed()) if self.leader == member_id else [],
        )

    def _listed(self) -> Iterator[JoinGroupResponseMember]:
        for one in self.members.values():
            yield JoinGroupResponseMember(
                one.member_id, one.instance_id, one.metadata(self.protocol_name)
            )

    # Checks for offset requests

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Raise ApiError unless that member and generation may commit offsets.

        A transaction may also commit for no member, as producers did before KIP-447, and while the
        members wait for their assignments.
        """
        if generation < 0 and self.state is State.EMPTY:
            return  # from an admin client, or a consumer with manual assignment
        if generation < 0 and not member_id and instance_id is None:
            if transactional:
                return
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.check_member(member_id, instance_id)
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is State.COMPLETING_REBALANCE and not transactional:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_delete(self) -> None:
        """Raise ApiError (NON_EMPTY_GROUP) if there are members other than consumers."""
        if self.state is not State.EMPTY and not self.is_consumer_group:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)


def join_refusal(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The response to a JoinGroup that failed."""
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


def protocols_of(requested: Iterable[tuple[str, bytes]]) -> Protocols:
    """Protocols of a request, each name once."""
    return tuple({name: bytes(metadata) for name, metadata in requested}.items())


def _subscription(metadata: bytes) -> list[str]:
    """Topics in the metadata of a consumer: all versions begin with the fields of version 0."""
    if len(metadata) < _VERSION_BYTES or metadata[0] & 0x80:
        raise ProtocolError("no subscription")
    try:
        read = ConsumerProtocolSubscription.decode(metadata, 0, _VERSION_BYTES)
    except ProtocolError as error:
        if error.field != "(end)" or error.offset is None:
            raise
        read = ConsumerProtocolSubscription.decode(metadata[: error.offset], 0, _VERSION_BYTES)
    return read.topics
