"""Member: who we are in a group and what is to be done next. Sans-IO, the one writer of it.

``membership`` does what the state asks for and tells of the outcome, ``heartbeats`` tells what
the coordinator says meanwhile, the user may leave. Only the membership's one task makes the steps
on the way in, so that it needs to look at the state alone to see whether what it did is void.

Who wants to be a member, or must join again, gives up first what the group may give to another
(PREPARING), and sends JoinGroup (JOINING), which the coordinator answers when all members have
joined or their time is up. That begins a generation; the leader says who gets what, and all ask
for their share (SYNCING). Heartbeats keep a member in its group from then on (STABLE), and tell
when the next rebalance begins; ``HeartbeatTimer`` says when they are due.

Whoever was silent for a session, or is told that its membership is over, has lost what it was
given: others may have it by now. It stops at once (LOST), says so to whom it serves, and joins
again. That the coordinator moves to another broker is no event here: the generation goes with it.
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
"""Bytes of a member's metadata, or of all shares together. Brokers close the connection on a
request over ``socket.request.max.bytes``, 100 MiB by default; the rest of that is for names."""


class MemberState(enum.Enum):
    """Where a member stands."""

    OUTSIDE = "Not in the group, and not on its way into it."
    PREPARING = "A rebalance begins: what must be given up is being given up."
    JOINING = "JoinGroup is under way, or about to be sent again."
    SYNCING = "A generation has begun: its leader assigns, and SyncGroup waits for the outcome."
    STABLE = "In the group, with an assignment."
    LOST = "No member any more, though it was: whom it serves is being told."
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
    TOLD = "Whom it serves knows of the loss."
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
    _S.LOST: {_E.TOLD: _S.PREPARING, **_ENDS},
    _S.FAILED: {_E.CLOSED: _S.CLOSED},
    _S.CLOSED: {},
}
_OPEN = {MemberState.PREPARING, MemberState.JOINING, MemberState.SYNCING, MemberState.STABLE}


@frozen
class Generation(Frozen):
    """Who we are in a group, as the coordinator knows us.

    Each rebalance begins a new one; commits carry the one that their records were read under, so
    that the coordinator can refuse whoever was left behind.

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


@frozen
class MemberProtocol(Frozen):
    """A protocol that a member would speak, and its metadata, for JoinGroup."""

    name: str
    metadata: bytes


@frozen
class JoinedMember(Frozen):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class MembershipHost(Protocol):
    """Whom a membership serves. All calls come from the membership's one task, one at a time.

    None may raise: what a user's listener or assignor raises is for the user's next call.
    """

    protocol_type: str
    """The same for all members of a group, such as ``consumer``."""

    def protocols(self) -> Sequence[MemberProtocol]:
        """What to offer in the JoinGroup that is sent now, in order of preference."""

    async def prepare(self, deadline: float) -> None:
        """A rebalance begins: give up what must be given up before the group is joined again.

        Heartbeats go on meanwhile. Past ``deadline``, on the client's clock, the others don't wait
        any longer.
        """

    def interrupt(self) -> None:
        """The generation is over: ``prepare``, ``assigned`` or ``leaving`` waits in vain."""

    async def assign(
        self, protocol: str, members: Sequence[JoinedMember], generation: Generation
    ) -> Mapping[str, bytes] | KafkaError:
        """We lead: what each member gets, by member id; an error where that can't be said.

        More than ``MOST_BYTES`` in all count as such an error.

        The order of ``members`` is the coordinator's. One that is left out gets no bytes.
        """

    async def assigned(self, generation: Generation, assignment: bytes) -> KafkaError | None:
        """The rebalance is over, and this is ours.

        An error where nothing can be done with it: the group is joined again after a while, which
        grows each time.
        """

    def shorten_deadline(self, deadline: float) -> None:
        """``Membership.close`` came: what ``prepare`` and ``assigned`` wait for has no longer than
        ``deadline``. Afterwards, ``leaving`` is called."""

    async def leaving(self, deadline: float) -> None:
        """No rebalance comes any more, and we are a member still: give up everything, which others
        are waited for until ``deadline``. The group is left a while later, whatever comes."""

    async def lost(self, error: KafkaError) -> None:
        """We are no member any more: what was ours is, or may be, another's by now."""

    def on_join_refused(self, error: KafkaError) -> None:
        """It can't be a member for now, and is tried again after a while. For the user's next call,
        which it is no harm to tell only the first of several."""

    def failed(self, error: KafkaError) -> None:
        """It will never be a member: nothing is tried any more. For the user's next call."""


class Member:
    """One member of one group.

    Attributes:
        state: See ``MemberState``.
        member_id: Ours, by the coordinator; empty while it gave none.
        generation: The latest that we are in; None where there is none.
        has_assignment: Something was assigned that nobody said is lost or given up.
        rejoin_reason: Why to join again; None where nobody wants that.
        error: Why it is LOST or FAILED.
        last_error: The latest trouble of any kind; None since the last success.
        rebalances: How many were completed.
        refused: The coordinator wouldn't have us when we last asked; that may pass.
        attempt: Another one once what was under way became void: by a loss, a leave or an end.
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
        """Whether silence ends something."""
        return self.sends_heartbeats or (self.has_assignment and self.state is MemberState.JOINING)

    @property
    def ended(self) -> bool:
        """Nothing will be tried any more."""
        return self.state in (MemberState.FAILED, MemberState.CLOSED)

    # What is wanted

    def request_rejoin(self, reason: str) -> None:
        """Join, or join again as soon as what is under way is over. The first reason counts."""
        if self.rejoin_reason is None and not self.ended:
            self.rejoin_reason = reason

    def begin(self) -> bool:
        """Begin a rebalance if one is wanted; False where there is nothing to do."""
        if self.rejoin_reason is None:
            return False
        self._apply(MemberEvent.REBALANCE)
        return True

    # What came of it

    def prepared(self) -> None:
        """All that had to be given up was."""
        self._apply(MemberEvent.PREPARED)

    def asks(self) -> str:
        """A JoinGroup is made now, with all that is wanted so far: why, for the coordinator."""
        reason, self.rejoin_reason = self.rejoin_reason, None
        return reason or ""

    def take_id(self, member_id: str) -> bool:
        """The coordinator gave us an id to ask again with. False where that is no news."""
        known, self.member_id = self.member_id, member_id
        return member_id not in ("", known)

    def joined(self, generation: Generation) -> None:
        """A generation has begun."""
        self._apply(MemberEvent.JOINED)
        self.member_id = generation.member_id
        self.generation = generation

    def synced(self) -> None:
        """The assignment is here."""
        self._apply(MemberEvent.SYNCED)
        self.has_assignment = True
        self.rebalances += 1
        self.refused = False
        self.last_error = None

    def again(self, error: KafkaError) -> None:
        """Join again; what is held is held still."""
        self.last_error = error
        self._apply(MemberEvent.AGAIN)

    def refuse(self, error: KafkaError) -> None:
        """The coordinator won't have us for now. Nothing is lost by that alone."""
        self.refused = True
        self.last_error = error

    def over(self, error: KafkaError, *, forget_id: bool = False) -> bool:
        """The membership is over. False where that is no news, or nobody has to be told."""
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

    def told(self) -> None:
        """Whom we serve knows of the loss."""
        self.has_assignment = False
        self.error = None
        self.request_rejoin("the membership was lost")
        self._apply(MemberEvent.TOLD)

    def leave(self, *, keep_id: bool = False) -> str:
        """Out, until somebody wants in again. Gives the member id that was ours until now.

        ``keep_id``: The coordinator isn't told: who comes back says who it was. As a nameless
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
        """No further attempt makes sense. The id is kept for saying goodbye with, unless it is
        another's or nobody's by now."""
        if not self.ended:
            self._apply(MemberEvent.FAILED)
            self.attempt += 1
            self.error = self.last_error = error
            self.generation = None
            if forget_id:
                self.member_id = ""
            self.rejoin_reason = None

    def close(self) -> str:
        """Out for good. Gives the member id that was ours until now."""
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
    """When the heartbeats of one member are due, when its session is over, and how late they were.

    A session counts from when the latest answered heartbeat was *sent*: the coordinator's own count
    began later, so nobody else has our share before we know.

    Args:
        interval: Seconds between two.
        session: Seconds without one after which the coordinator takes us for gone.

    Attributes:
        patience: Seconds after which a coordinator that says nothing is looked for elsewhere.
        answered_at: When the latest one that was answered was sent; before the first, -inf.
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
        """The coordinator knows that we were there at ``sent_at``."""
        self.answered_at = max(self.answered_at, sent_at)
        self.due = sent_at + self.interval

    def failed(self, now: float, wait: float) -> None:
        """The coordinator didn't hear of us: try again soon."""
        self.due = now + min(wait, self.interval)

    def woke(self, now: float) -> float:
        """Its time has come. Seconds by which it is late, if that is worth a word; else 0."""
        late = now - self.due
        if late <= self.interval:
            return 0.0
        self.blocks += 1
        self.longest_block = max(self.longest_block, late)
        return late
