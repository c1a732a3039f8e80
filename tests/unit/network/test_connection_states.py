"""The states of a Connection: the table is complete, and apply() follows it."""

from __future__ import annotations

import pytest

from kclient.network.connection import (
    HANDSHAKE,
    TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
)
from kclient.transitions import IllegalTransition
from tests.unit.network.connections import (
    new_connection,
)


class TestTable:
    def test_every_state_and_event_has_a_sentence(self) -> None:
        for member in [*ConnectionState, *ConnectionEvent]:
            assert member.value.endswith(".")
            assert len(member.value) > 10

    def test_every_state_is_in_the_table_and_every_target_exists(self) -> None:
        assert set(TRANSITIONS) == set(ConnectionState)
        for row in TRANSITIONS.values():
            assert set(row.values()) <= set(ConnectionState)

    def test_every_event_moves_something(self) -> None:
        assert {event for row in TRANSITIONS.values() for event in row} == set(ConnectionEvent)

    def test_every_state_is_reached_from_the_first_and_can_end(self) -> None:
        def reached(start: ConnectionState) -> set[ConnectionState]:
            seen, frontier = {start}, [start]
            while frontier:
                for target in TRANSITIONS[frontier.pop()].values():
                    if target not in seen:
                        seen.add(target)
                        frontier.append(target)
            return seen

        assert reached(ConnectionState.DIALING) == set(ConnectionState)
        for state in ConnectionState:
            assert ConnectionState.CLOSED in reached(state)

    def test_nothing_leaves_closed(self) -> None:
        assert TRANSITIONS[ConnectionState.CLOSED] == {}

    def test_the_handshake_is_all_that_comes_before_ready(self) -> None:
        usable = ("READY", "REAUTHENTICATING", "DRAINING", "CLOSED")
        assert {s for s in ConnectionState if s.name not in usable} == HANDSHAKE

    @pytest.mark.parametrize("state", ConnectionState)
    @pytest.mark.parametrize("event", ConnectionEvent)
    def test_apply_follows_the_table(self, state: ConnectionState, event: ConnectionEvent) -> None:
        connection = new_connection()
        connection.state = state
        if event in TRANSITIONS[state]:
            connection.apply(event)
            assert connection.state is TRANSITIONS[state][event]
        else:
            with pytest.raises(IllegalTransition, match=event.name):
                connection.apply(event)
