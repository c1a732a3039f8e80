"""Member: the state of one member of a group, and its next step. Sans-IO, the one writer of it.

``membership`` does what the state requires and records the outcome, ``heartbeats`` records the
coordinator's responses meanwhile, the application may leave. Only the membership's one task makes
the steps on the way in, so it only needs to check the state to see whether what it did is void.

A member that wants to join, or must join again, first revokes what the group may assign to another
one (PREPARING), and sends JoinGroup (JOINING), to which the coordinator responds when all members
have joined or their time is up. That begins a generation; the leader assigns, and all members
request their assignment (SYNCING). Heartbeats keep a member in its group from then on (STABLE), and
report when the next rebalance begins; ``HeartbeatTimer`` knows when they are due.

A member that was silent for a session, or whose membership was reported as over, has lost its
assignment: others may have it by now. It stops at once (LOST), notifies its host, and joins again.
That the coordinator moves to another broker is no event here: the generation goes with it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kclient.frozen import Frozen, frozen
from kclient.transitions import step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kclient.errors import KafkaError

MOST_BYTES = 96 * 2**20
"""Bytes of a member's metadata, or of all assignments together. Brokers close the connection on a
request over ``socket.request.max.bytes``, 100 MiB by default; the rest of that is for names."""


class MemberState(enum.Enum):
    """The state of a member."""

    OUTSIDE = "Not in the group, and not on its way into it."
    PREPARING = "A rebalance begins: what must be given up is being given up."
    JOINING = "JoinGroup is under way, or about to be sent again."
    SYNCING = "A generation has begun: its leader assigns, and SyncGroup waits for the outcome."
    STABLE = "In the group, with an assignment."
    LOST = "No member any more, though it was: the application is being notified."
    FAILED = "It can't be a member, whatever it tries."
    CLOSED = "It has left for good."


class MemberEvent(enum.Enum):
    """What happens to a member."""

    REBALANCE = "It wants to join, or the group rebalances."
    PREPARED = "All that had to be given up was."
    JOINED = "JoinGroup was answered with a generation."
    AGAIN = "The generation is over before it was complete: join again."
    SYNCED = "SyncGroup was answered with an assignment."
    OVER = "The membership is over, by the coordinator's word or by silence."
    NOTIFIED = "The application was notified of the loss."
    LEFT = "It leaves the group, and may come back."
    FAILED = "An error that no further attempt can mend."
    CLOSED = "It leaves for good."


_S, _E = MemberState, MemberEvent
_ENDS = {_E.LEFT: _S.OUTSIDE, _E.FAILED: _S.FAILED, _E.CLOSED: _S.CLOSED}
TRANSITIONS: Final[Mapping[MemberState, Mapping[MemberEvent, MemberState]]] = {
    _S.OUTSIDE: {_E.REBALANCE: _S.PREPARING, **_ENDS},
    _S.PREPARING: {_E.PREPARED: _S.JOINING, _E.OVER: _S.LOST, **_ENDS},
    _S.JOINING: {_E.JOINED: _S.SYNCING, _E.AGAIN: _S.JOINING, _E.OVER: _S.LOST, **_ENDS},
    _S.SYNCING: {_E.SYNCED: _S.STABLE, _E.AGAIN: _S.JOINING, _E.OVER: _S.LOST, **_ENDS},
    _S.STABLE: {_E.REBALANCE: _S.PREPARING, _E.OVER: _S.LOST, **_ENDS},
    _S.LOST: {_E.NOTIFIED: _S.PREPARING, **_ENDS},
    _S.FAILED: {_E.CLOSED: _S.CLOSED},
    _S.CLOSED: {},
}
_OPEN = {MemberState.PREPARING, MemberState.JOINING, MemberState.SYNCING, MemberState.STABLE}


@frozen
class Generation(Frozen):
    """The identity of this member in a group, as the coordinator knows it.

    Each rebalance begins a new one; commits carry the one that their records were read under, so
    that the coordinator can fence a member that was left behind.

    Attributes:
        generation_id: Its number.
        member_id: The member's, assigned by the coordinator.
        instance_id: Its ``group_instance_id``; None for a dynamic member.
        protocol: The protocol that the members agreed on.
        is_leader: Whether this member assigns.
    """

    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol: str = ""
    is_leader: bool = False


OUTSIDE = Generation(-1, "")
"""Stands for no membership, as for commits of a consumer that assigns by hand."""


@frozen
class MemberProtocol(Frozen):
    """A protocol that a member supports, and its metadata, for JoinGroup."""

    name: str
    metadata: bytes


@frozen
class JoinedMember(Frozen):
    """A member as it is passed to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class MembershipHost(Protocol):
    """The user of a membership. All calls come from the membership's one task, one at a time.

    None may raise: errors of the application's listener or assignor are for its next call.
    """

    protocol_type: str
    """The same for all members of a group, such as ``consumer``."""

    def protocols(self) -> Sequence[MemberProtocol]:
        """The protocols to offer in the JoinGroup being sent, in order of preference."""

    async def prepare(self, deadline: float) -> None:
        """A rebalance begins: revoke what must be revoked before the group is joined again.

        Heartbeats go on meanwhile. After ``deadline``, on the client's clock, the other members
        don't wait any longer.
        """

    def interrupt(self) -> None:
        """The generation is over: end the waits of ``prepare``, ``assigned`` or ``leaving``."""

    async def assign(
        self, protocol: str, members: Sequence[JoinedMember], generation: Generation
    ) -> Mapping[str, bytes] | KafkaError:
        """Assign as the leader: bytes by member id; an error where that isn't possible.

        More than ``MOST_BYTES`` in all count as such an error.

        The order of ``members`` is the coordinator's. One that is left out gets no bytes.
        """

    async def assigned(self, generation: Generation, assignment: bytes) -> KafkaError | None:
        """The rebalance is over: take this assignment over.

        Returns an error where it can't be used: the group is joined again after a while, which
        grows each time.
        """

    def shorten_deadline(self, deadline: float) -> None:
        """Shorten the waits of ``prepare`` and ``assigned`` to ``deadline``, for a close.

        Afterwards, ``leaving`` is called.
        """

    async def leaving(self, deadline: float) -> None:
        """Revoke everything, as a member still, before the group is left; no rebalance follows.

        It may wait for others until ``deadline``. The group is left a while later in any case.
        """

    async def lost(self, error: KafkaError) -> None:
        """This is no member any more: others have, or may have, its assignment by now."""

    def on_join_refused(self, error: KafkaError) -> None:
        """It can't be a member for now, and is tried again after a while.

        For the application's next call; of several errors it may raise only the first.
        """

    def failed(self, error: KafkaError) -> None:
        """It can never be a member: nothing is tried any more. For the application's next call."""


class Member:
    """One member of one group.

    Attributes:
        state: See ``MemberState``.
        member_id: Assigned by the coordinator; empty while it has none.
        generation: The latest that it is in; None where there is none.
        has_assignment: It owns an assignment: one was made, and neither lost nor revoked.
        rejoin_reason: Why to join again; None where no rejoin is requested.
        error: Why it is LOST or FAILED.
        last_error: The latest trouble of any kind; None since the last success.
        rebalances: How many were completed.
        refused: The coordinator refused the latest join; that may pass.
        attempt: Changes when pending work becomes void: by a loss, a leave or an end.
    """

    def __init__(self) -> None:
        self.state = MemberState.OUTSIDE
        self.member_id = ""
        self.generation: Generation | None = None
        self.has_assignment = False
        self.rejoin_reason: str | None = None
        self.error: KafkaError | None = None
        self.last_error: KafkaError | None = None
        self.rebalances = 0
        self.refused = False
        self.attempt = 0

    @property
    def sends_heartbeats(self) -> bool:
        """Whether the coordinator expects heartbeats."""
        return self.generation is not None and self.state in (
            MemberState.PREPARING,
            MemberState.SYNCING,
            MemberState.STABLE,
        )

    @property
    def at_risk(self) -> bool:
        """Whether it loses something when no heartbeat gets through."""
        return self.sends_heartbeats or (self.has_assignment and self.state is MemberState.JOINING)

    @property
    def ended(self) -> bool:
        """Nothing will be tried any more."""
        return self.state in (MemberState.FAILED, MemberState.CLOSED)

    # Requests

    def request_rejoin(self, reason: str) -> None:
        """Join, or join again as soon as the present rebalance is over. The first reason counts."""
        if self.rejoin_reason is None and not self.ended:
            self.rejoin_reason = reason

    def begin(self) -> bool:
        """Begin a rebalance if one is requested; False where there is nothing to do."""
        if self.rejoin_reason is None:
            return False
        self._apply(MemberEvent.REBALANCE)
        return True

    # Outcomes

    def prepared(self) -> None:
        """Everything that had to be revoked was."""
        self._apply(MemberEvent.PREPARED)

    def asks(self) -> str:
        """Take the reason for the JoinGroup that is made now; it covers all requests so far."""
        reason, self.rejoin_reason = self.rejoin_reason, None
        return reason or ""

    def take_id(self, member_id: str) -> bool:
        """Store the id that the coordinator assigned to join again with. False if it isn't new."""
        known, self.member_id = self.member_id, member_id
        return member_id not in ("", known)

    def joined(self, generation: Generation) -> None:
        """Record that a generation has begun."""
        self._apply(MemberEvent.JOINED)
        self.member_id = generation.member_id
        self.generation = generation

    def synced(self) -> None:
        """Record that the assignment has come."""
        self._apply(MemberEvent.SYNCED)
        self.has_assignment = True
        self.rebalances += 1
        self.refused = False
        self.last_error = None

    def again(self, error: KafkaError) -> None:
        """Join again; the assignment is kept."""
        self.last_error = error
        self._apply(MemberEvent.AGAIN)

    def refuse(self, error: KafkaError) -> None:
        """Record that the coordinator refuses it for now. Nothing is lost by that alone."""
        self.refused = True
        self.last_error = error

    def over(self, error: KafkaError, *, forget_id: bool = False) -> bool:
        """End the membership. False where that is known already, or nothing was lost."""
        if self.state not in _OPEN:
            return False
        self.attempt += 1
        self.last_error = error
        self.generation = None
        if forget_id:
            self.member_id = ""
        if not self.has_assignment:
            if self.state is not MemberState.PREPARING:
                self._apply(MemberEvent.AGAIN)
            return False
        self._apply(MemberEvent.OVER)
        self.error = error
        return True

    def loss_reported(self) -> None:
        """Record that the host knows of the loss."""
        self.has_assignment = False
        self.error = None
        self.request_rejoin("the membership was lost")
        self._apply(MemberEvent.NOTIFIED)

    def leave(self, *, keep_id: bool = False) -> str:
        """Leave, until the next rejoin is requested. Returns the member id until now.

        ``keep_id``: No LeaveGroup is sent: the member keeps its id for when it comes back. Without
        one it would take the place of a static member that has replaced it meanwhile.
        """
        if self.ended:
            return ""
        self._apply(MemberEvent.LEFT)
        self.error = None
        member_id = self._forget()
        if keep_id:
            self.member_id = member_id
        return member_id

    def fail(self, error: KafkaError, *, forget_id: bool = False) -> None:
        """Fail for good, as no further attempt can succeed.

        The id is kept for LeaveGroup, unless it is another member's or unknown by now.
        """
        if not self.ended:
            self._apply(MemberEvent.FAILED)
            self.attempt += 1
            self.error = self.last_error = error
            self.generation = None
            if forget_id:
                self.member_id = ""
            self.rejoin_reason = None

    def close(self) -> str:
        """Leave for good. Returns the member id until now."""
        if self.state is MemberState.CLOSED:
            return ""
        self._apply(MemberEvent.CLOSED)
        return self._forget()

    def _forget(self) -> str:
        member_id, self.member_id = self.member_id, ""
        self.attempt += 1
        self.generation = None
        self.has_assignment = self.refused = False
        self.rejoin_reason = None
        return member_id

    def _apply(self, event: MemberEvent) -> None:
        self.state = step(TRANSITIONS, self.state, event)


class HeartbeatTimer:
    """When heartbeats of one member are due, when its session is over, and how late they were.

    A session counts from when the latest answered heartbeat was *sent*: the coordinator's own count
    began later, so no other member has our assignment before we know.

    Args:
        interval: Seconds between two.
        session: Seconds without one after which the coordinator removes the member.

    Attributes:
        patience: Seconds after which a coordinator that doesn't respond is looked for elsewhere.
        answered_at: When the latest one with a response was sent; before the first, -inf.
        due: When to send the next one.
        blocks: How often one came late by more than ``interval``, as nothing else could run.
        longest_block: Seconds of the longest such delay.
    """

    def __init__(self, interval: float, session: float) -> None:
        self.interval = interval
        self.session = session
        self.patience = session / 3
        self.answered_at = -math.inf
        self.due = math.inf
        self.blocks = 0
        self.longest_block = 0.0

    @property
    def session_ends_at(self) -> float:
        """When the session ends."""
        return self.answered_at + self.session

    def answered(self, sent_at: float) -> None:
        """Record that the coordinator received a heartbeat sent at ``sent_at``."""
        self.answered_at = max(self.answered_at, sent_at)
        self.due = sent_at + self.interval

    def failed(self, now: float, wait: float) -> None:
        """Schedule the next try soon, as a heartbeat got no response."""
        self.due = now + min(wait, self.interval)

    def woke(self, now: float) -> float:
        """Return by how many seconds a heartbeat is late, if that is worth a log line; else 0."""
        late = now - self.due
        if late <= self.interval:
            return 0.0
        self.blocks += 1
        self.longest_block = max(self.longest_block, late)
        return late
