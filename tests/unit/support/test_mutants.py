"""Which mistakes ``tests.mutants`` plants, one at a time by switches, and which tests it runs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.mutants import switch
from tests.mutants.__main__ import MOST_SECONDS, plans_of
from tests.mutants.sites import sites_in, with_switches

TEXT = '''"""About it."""

from __future__ import annotations

LIMIT = 3


def pick(values: list[int], most: int = 2) -> list[int]:
    """The first ones."""
    found = []
    for value in values:
        if value < 0 and most > 0:
            continue
        found.append(value + 1)
    return found
'''
MISTAKES = [
    "value < 0 and most > 0 -> value < 0 or most > 0",
    "value < 0 -> value <= 0",
    "0 -> 1",
    "most > 0 -> most >= 0",
    "0 -> 1",
    "continue -> pass",
    "found.append(value + 1) -> pass",
    "value + 1 -> value - 1",
    "1 -> 2",
    "return found -> return None",
]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Return the names of TEXT, executed with all of its mistakes behind switches."""
    stand_in = ModuleType("kclient._mutant")
    stand_in.__dict__["is_on"] = switch.is_on
    monkeypatch.setitem(sys.modules, "kclient._mutant", stand_in)
    monkeypatch.setattr(switch, "active", -1)
    monkeypatch.setattr(switch, "passed", set())
    names: dict[str, Any] = {}
    exec(with_switches(TEXT, {place: 100 + place for place in range(len(MISTAKES))}), names)
    yield names


def shown(text: str) -> list[str]:
    return [f"{site.right} -> {site.wrong}" for site in sites_in("a.py", text)]


def test_mistakes_are_found_in_functions_only_and_in_the_order_of_the_text() -> None:
    assert shown(TEXT) == MISTAKES
    assert {(one.function, one.line > 7) for one in sites_in("a.py", TEXT)} == {("pick", True)}


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError(1 + 1) from None",
        "assert 1 < x",
        "log.warning('%s', x + 1)",
        "self._log.warning('%s', x + 1)",
        "return None",
        "y = f'{x + 1}'",
        "y = 'a' + x",
        "y: Literal[1] = x",
        "if cython.compiled: x = 1 + 1",
    ],
)
def test_what_no_test_can_notice_or_should_pin_is_left_alone(body: str) -> None:
    found = shown(f"def f(self, x):\n    {body}\n")
    assert [one for one in found if not one.startswith("raise ")] == []


def test_without_a_switch_on_nothing_changes_and_visited_places_are_known(
    module: dict[str, Any],
) -> None:
    assert module["pick"]([1, -1]) == [2]
    assert switch.passed == set(range(100, 110))
    switch.passed.clear()
    assert module["pick"]([]) == []
    assert switch.passed == {109}


@pytest.mark.parametrize(
    ("place", "values", "outcome"),
    [
        (0, [1], []),
        (1, [0, 1], [2]),
        (2, [0, 1], [2]),
        (5, [1, -2], [2, -1]),
        (6, [1], []),
        (7, [1], [0]),
        (8, [1], [3]),
        (9, [1], None),
    ],
)
def test_a_switch_makes_its_own_mistake_and_no_other(
    module: dict[str, Any],
    place: int,
    values: list[int],
    outcome: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switch, "active", 100 + place)
    assert module["pick"](values) == outcome


def test_the_quickest_tests_are_run_for_a_mutant_and_one_at_least() -> None:
    slow = MOST_SECONDS * 2
    plans = plans_of(3, {"long": (slow, [0, 1]), "short": (0.1, [1]), "middle": (1.0, [1])})
    assert plans == {0: ["long"], 1: ["short", "middle"], 2: []}


def test_switched_source_is_still_python_with_its_docstring_first() -> None:
    tree = ast.parse(with_switches(TEXT, {0: 7}))
    assert ast.get_docstring(tree) == "About it."
    assert isinstance(tree.body[1], ast.ImportFrom) and tree.body[1].module == "__future__"
