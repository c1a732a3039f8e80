"""The state machine of a classic group: its table, and each transition as requests cause it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.groups.classic_group import TRANSITIONS, ClassicGroup, Event, State
from kclient.transitions import IllegalTransition
from tests.unit.testing.group_rig import Rig

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


def empty() -> Rig:
    rig = Rig()
    rig.join()
    return rig


def preparing() -> Rig:
    rig = Rig()
    rig.alone()
    rig.enter()
    return rig


def completing() -> Rig:
    rig = Rig()
    rig.enter()
    rig.pass_time(0)
    return rig


def stable() -> Rig:
    rig = Rig()
    rig.alone()
    return rig


MAKE = {
    State.EMPTY: empty,
    State.PREPARING_REBALANCE: preparing,
    State.COMPLETING_REBALANCE: completing,
    State.STABLE: stable,
}


def somebody_joins(rig: Rig) -> None:
    rig.enter()


def all_leave(rig: Rig) -> None:
    rig.leave(*rig.group().members)


def the_leader_joins(rig: Rig) -> None:
    rig.join(rig.group().leader or "")


def the_leader_assigns(rig: Rig) -> None:
    group = rig.group()
    rig.sync(group.generation, group.leader or "", protocol=group.protocol_name)


WALKS: dict[tuple[State, Event], Callable[[Rig], None]] = {
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
    rig = MAKE[state]()
    group = rig.group()
    assert group.state is state
    taken: list[Event] = []
    apply = group.apply

    def note(one: Event, wall_ms: int) -> State:
        taken.append(one)
        return apply(one, wall_ms)

    group.apply = note  # type: ignore[method-assign]
    WALKS[state, event](rig)
    assert taken[0] is event


@pytest.mark.parametrize("state", MAKE)
def test_a_group_is_dead_when_its_coordinator_unloads_it(state: State) -> None:
    rig = MAKE[state]()
    group = rig.group()
    rig.shard.unload(rig.moment)
    assert group.state is State.DEAD
    assert not rig.shard.groups
    assert not len(rig.deadlines)


def test_waiting_members_get_an_error_when_the_coordinator_unloads() -> None:
    rig = Rig()
    first, _ = rig.alone()
    joining = rig.enter()
    rig.shard.unload(rig.moment)
    assert joining[0].error_code == ErrorCode.NOT_COORDINATOR
    rig = Rig()
    first, second, _ = rig.pair()
    other = rig.join(second, metadata=b"news")
    rig.join(first)
    generation = other[0].generation_id
    syncing = rig.sync(generation, second)
    rig.shard.unload(rig.moment)
    assert syncing[0].error_code == ErrorCode.NOT_COORDINATOR
