"""The stages of moving partitions to or away from a consumer in a group. Sans-IO.

One move at a time, and each begins with giving up: all of them in an eager rebalance, those that
went to others in a cooperative one, none where nothing goes. Whoever is a member then takes its
share. Where the membership ended before they were given up, what is left is lost: it is, or may be,
another's, so that nothing of it may be committed. ``handover`` is the only one that makes steps.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Stage(enum.Enum):
    """How far a move of partitions has come."""

    SETTLED = "Nothing moves: partitions that are assigned are read."
    GIVING = "What goes is held back, committed, and given up once the user heard of it."
    TAKING = "What came is held back until it is known where to begin, and the user heard of it."
    LOSING = "What is left is another's by now, and the user hears of it."


class Event(enum.Enum):
    """What happens to a move."""

    BEGUN = "The membership, or whoever leaves for the user, moves partitions."
    GIVEN = "The group's answer is there, and all that was to go is gone."
    LOST = "The membership ended, with partitions left."
    ENDED = "It is over, or was broken off."


_ENDS = {Event.ENDED: Stage.SETTLED}
TRANSITIONS: Final[Mapping[Stage, Mapping[Event, Stage]]] = {
    Stage.SETTLED: {Event.BEGUN: Stage.GIVING},
    Stage.GIVING: {Event.GIVEN: Stage.TAKING, Event.LOST: Stage.LOSING, **_ENDS},
    Stage.TAKING: _ENDS,
    Stage.LOSING: _ENDS,
}
