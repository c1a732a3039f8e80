"""The stages of moving partitions: what each leads to, and what none of them allows."""

from __future__ import annotations

import pytest

from kclient.consumer.handover_stage import TRANSITIONS, Event, Stage
from kclient.transitions import IllegalTransition, step


def test_every_stage_is_explained_and_every_event_happens() -> None:
    assert set(TRANSITIONS) == set(Stage)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)
    assert all(len(member.value) > 20 for member in (*Stage, *Event))


def test_a_move_can_be_over_at_every_stage() -> None:
    moving = set(Stage) - {Stage.SETTLED}
    assert {step(TRANSITIONS, stage, Event.ENDED) for stage in moving} == {Stage.SETTLED}


def test_each_move_begins_with_giving_up() -> None:
    assert TRANSITIONS[Stage.SETTLED] == {Event.BEGUN: Stage.GIVING}


@pytest.mark.parametrize("stage", [Stage.SETTLED, Stage.TAKING, Stage.LOSING])
@pytest.mark.parametrize("event", [Event.GIVEN, Event.LOST])
def test_nothing_is_taken_or_lost_but_by_whoever_moves_and_only_once(
    stage: Stage, event: Event
) -> None:
    with pytest.raises(IllegalTransition, match=f"{event.name} in state {stage.name}"):
        step(TRANSITIONS, stage, event)
