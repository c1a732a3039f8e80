"""The state machine of a classic group: its table, and each step of it by what requests do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.groups.classic_group import TRANSITIONS, ClassicGroup, Event, State
from kclient.transitions import IllegalTransition
from tests.unit.testing.group_room import Room

STEPS = [
    (state, event, target)
    for state, events in TRANSITIONS.items()
    for event, target in events.items()
]


def test_every_state_is_in_the_table_and_can_reach_the_end() -> None:
    assert set(TRANSITIONS) == set(State)
    for state in State:
        seen = {state}
        while more := {to for one in seen for to in TRANSITIONS[one].values()} - seen:
            seen |= more
        assert State.DEAD in seen


def test_states_have_the_names_that_kafka_shows() -> None:
    assert [one.shown for one in State] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


@pytest.mark.parametrize(
    ("state", "event"),
    [(state, event) for state in State for event in Event if event not in TRANSITIONS[state]],
)
def test_a_step_that_is_not_in_the_table_is_refused(state: State, event: Event) -> None:
    group = ClassicGroup("g")
    group.state = state
    with pytest.raises(IllegalTransition):
        group.apply(event, 0)


def empty() -> Room:
    room = Room()
    room.join()
    return room


def preparing() -> Room:
    room = Room()
    room.alone()
    room.enter()
    return room


def completing() -> Room:
    room = Room()
    room.enter()
    room.pass_time(0)
    return room


def stable() -> Room:
    room = Room()
    room.alone()
    return room


MAKE = {
    State.EMPTY: empty,
    State.PREPARING_REBALANCE: preparing,
    State.COMPLETING_REBALANCE: completing,
    State.STABLE: stable,
}


def somebody_joins(room: Room) -> None:
    room.enter()


def all_leave(room: Room) -> None:
    room.leave(*room.group().members)


def the_leader_joins(room: Room) -> None:
    room.join(room.group().leader or "")


def the_leader_assigns(room: Room) -> None:
    group = room.group()
    room.sync(group.generation, group.leader or "", protocol=group.protocol_name)


WALKS: dict[tuple[State, Event], Callable[[Room], None]] = {
    (State.EMPTY, Event.REBALANCE): somebody_joins,
    (State.PREPARING_REBALANCE, Event.JOINED): the_leader_joins,
    (State.PREPARING_REBALANCE, Event.EMPTIED): all_leave,
    (State.COMPLETING_REBALANCE, Event.REBALANCE): somebody_joins,
    (State.COMPLETING_REBALANCE, Event.ASSIGNED): the_leader_assigns,
    (State.STABLE, Event.REBALANCE): the_leader_joins,
}


def test_every_step_is_walked() -> None:
    walked = {*WALKS, *((state, Event.UNLOADED) for state in State)}
    assert walked == {(state, event) for state, event, _ in STEPS}


@pytest.mark.parametrize(("state", "event"), WALKS)
def test_requests_take_a_group_through_the_table(state: State, event: Event) -> None:
    room = MAKE[state]()
    group = room.group()
    assert group.state is state
    taken: list[Event] = []
    apply = group.apply

    def note(one: Event, wall_ms: int) -> State:
        taken.append(one)
        return apply(one, wall_ms)

    group.apply = note  # type: ignore[method-assign]
    WALKS[state, event](room)
    assert taken[0] is event


@pytest.mark.parametrize("state", MAKE)
def test_a_group_is_dead_when_its_coordinator_lets_go(state: State) -> None:
    room = MAKE[state]()
    group = room.group()
    room.shard.unload(room.moment)
    assert group.state is State.DEAD
    assert not room.shard.groups
    assert not len(room.deadlines)


def test_who_waits_is_told_when_the_coordinator_lets_go() -> None:
    room = Room()
    first, _ = room.alone()
    joining = room.enter()
    room.shard.unload(room.moment)
    assert joining[0].error_code == ErrorCode.NOT_COORDINATOR
    room = Room()
    first, second, _ = room.pair()
    other = room.join(second, metadata=b"news")
    room.join(first)
    generation = other[0].generation_id
    syncing = room.sync(generation, second)
    room.shard.unload(room.moment)
    assert syncing[0].error_code == ErrorCode.NOT_COORDINATOR
