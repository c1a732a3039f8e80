"""Member: who we are in a group and what is to be done next. Sans-IO, the one writer of it.

``membership`` does what the state asks for and tells of the outcome, ``heartbeats`` tells what
the coordinator says meanwhile, the user may leave. Only the membership's one task makes the steps
on the way in, so that it needs to look at the state alone to see whether what it did is void.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.group.states import TRANSITIONS, MemberEvent, MemberState
from kclient.transitions import step

if TYPE_CHECKING:
    from kclient.errors import KafkaError
    from kclient.group.generation import Generation

_OPEN = {MemberState.PREPARING, MemberState.JOINING, MemberState.SYNCING, MemberState.STABLE}


class Member:
    """One member of one group.

    Attributes:
        state: See ``MemberState``.
        member_id: Ours, by the coordinator; empty while it gave none.
        generation: The latest that we are in; None where there is none.
        holds: Something was assigned that nobody said is lost or given up.
        wish: Why to join again; None where nobody wants that.
        error: Why it is LOST or FAILED.
        last_error: The latest trouble of any kind; None since the last success.
        rebalances: How many were completed.
        refused: The coordinator wouldn't have us when we last asked; that may pass.
        ticket: Another one once what was under way became void: by a loss, a leave or an end.
    """

    __slots__ = (
        "error",
        "generation",
        "holds",
        "last_error",
        "member_id",
        "rebalances",
        "refused",
        "state",
        "ticket",
        "wish",
    )

    def __init__(self) -> None:
        self.state = MemberState.OUTSIDE
        self.member_id = ""
        self.generation: Generation | None = None
        self.holds = False
        self.wish: str | None = None
        self.error: KafkaError | None = None
        self.last_error: KafkaError | None = None
        self.rebalances = 0
        self.refused = False
        self.ticket = 0

    @property
    def beats(self) -> bool:
        """Whether the coordinator expects heartbeats."""
        return self.generation is not None and self.state in (
            MemberState.PREPARING,
            MemberState.SYNCING,
            MemberState.STABLE,
        )

    @property
    def at_risk(self) -> bool:
        """Whether silence ends something."""
        return self.beats or (self.holds and self.state is MemberState.JOINING)

    @property
    def ended(self) -> bool:
        """Nothing will be tried any more."""
        return self.state in (MemberState.FAILED, MemberState.CLOSED)

    # What is wanted

    def want(self, reason: str) -> None:
        """Join, or join again as soon as what is under way is over. The first reason counts."""
        if self.wish is None and not self.ended:
            self.wish = reason

    def begin(self) -> bool:
        """Begin a rebalance if one is wanted; False where there is nothing to do."""
        if self.wish is None:
            return False
        self._apply(MemberEvent.REBALANCE)
        return True

    # What came of it

    def prepared(self) -> None:
        """All that had to be given up was."""
        self._apply(MemberEvent.PREPARED)

    def asks(self) -> str:
        """A JoinGroup is made now, with all that is wanted so far: why, for the coordinator."""
        reason, self.wish = self.wish, None
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
        self.holds = True
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
        self.ticket += 1
        self.last_error = error
        self.generation = None
        if forget_id:
            self.member_id = ""
        if not self.holds:
            if self.state is not MemberState.PREPARING:
                self._apply(MemberEvent.AGAIN)
            return False
        self._apply(MemberEvent.OVER)
        self.error = error
        return True

    def told(self) -> None:
        """Whom we serve knows of the loss."""
        self.holds = False
        self.error = None
        self.want("the membership was lost")
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
            self.ticket += 1
            self.error = self.last_error = error
            self.generation = None
            if forget_id:
                self.member_id = ""
            self.wish = None

    def close(self) -> str:
        """Out for good. Gives the member id that was ours until now."""
        if self.state is MemberState.CLOSED:
            return ""
        self._apply(MemberEvent.CLOSED)
        return self._forget()

    def _forget(self) -> str:
        member_id, self.member_id = self.member_id, ""
        self.ticket += 1
        self.generation = None
        self.holds = self.refused = False
        self.wish = None
        return member_id

    def _apply(self, event: MemberEvent) -> None:
        self.state = step(TRANSITIONS, self.state, event)
