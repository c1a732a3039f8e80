"""Every state machine: complete, without dead ends, and drawn as its table is."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.state_diagrams import GUIDES, MACHINES, PAGE, PICTURE, guide, page

Table = Mapping[enum.Enum, Mapping[enum.Enum, enum.Enum]]
TABLES = [pytest.param(table, id=title) for title, (_, table) in MACHINES.items()]


def reachable(table: Table, start: enum.Enum) -> set[enum.Enum]:
    found, todo = {start}, [start]
    while todo:
        for target in table[todo.pop()].values():
            if target not in found:
                found.add(target)
                todo.append(target)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_every_state_has_a_row_and_a_sentence(table: Table) -> None:
    states = type(next(iter(table)))
    assert set(table) == set(states)
    assert all(isinstance(state.value, str) and len(state.value) >= 8 for state in states)


@pytest.mark.parametrize("table", TABLES)
def test_every_event_is_used_somewhere(table: Table) -> None:
    used = {event for row in table.values() for event in row}
    assert used == set(type(next(iter(used))))


@pytest.mark.parametrize("table", TABLES)
def test_every_state_can_be_reached_from_the_first(table: Table) -> None:
    assert reachable(table, next(iter(table))) == set(table)


@pytest.mark.parametrize("table", TABLES)
def test_no_state_is_a_dead_end_unless_it_is_an_end(table: Table) -> None:
    """From every state either an end can be reached, or, without ends, the first state."""
    ends = {state for state, row in table.items() if set(row.values()) <= {state}} or {
        next(iter(table))
    }
    assert all(reachable(table, state) & ends for state in table)


def test_the_page_of_diagrams_agrees_with_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_each_guide_has_its_picture_from_the_table(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert PICTURE.search(text)
    assert text == guide(path)
