"""The step of a state machine: looks it up in a table and refuses one that isn't there.

Each machine keeps its theory, states and table in a file of its own package; nothing else belongs
here. ``IllegalTransition`` is a defect of ours, never of a user or a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kclient.errors import ClientError

if TYPE_CHECKING:
    import enum
    from collections.abc import Mapping

StateT = TypeVar("StateT", bound="enum.Enum")
EventT = TypeVar("EventT", bound="enum.Enum")


class IllegalTransition(ClientError):
    """A state machine got an event that its state has no transition for: a defect of ours."""

    fatal = True


def step(table: Mapping[StateT, Mapping[EventT, StateT]], state: StateT, event: EventT) -> StateT:
    """The state after ``event`` in ``state``, or IllegalTransition naming both."""
    target = table[state].get(event)
    if target is None:
        raise IllegalTransition(f"{type(state).__name__}: {event.name} in state {state.name}")
    return target
