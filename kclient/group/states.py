"""The states of a member of a classic group, and what moves it from one to another. Sans-IO.

Who wants to be a member, or must join again, gives up first what the group may give to another
(PREPARING), and sends JoinGroup (JOINING), which the coordinator answers when all members have
joined or their time is up. That begins a generation; the leader says who gets what, and all ask
for their share (SYNCING). Heartbeats keep a member in its group from then on (STABLE), and tell
when the next rebalance begins.

Whoever was silent for a session, or is told that its membership is over, has lost what it was
given: others may have it by now. It stops at once (LOST), says so to whom it serves, and joins
again. That the coordinator moves to another broker is no event here: the generation goes with it.
``member`` is the only one that makes steps.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


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
