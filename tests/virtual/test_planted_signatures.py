"""Planted bugs are found for what they do, and not since they can't be called any more.

What a plant puts in place of a function takes the same arguments; else each seed shows a TypeError,
and the runs that look for the bug pass whatever it is.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.virtual import planted, planted_in_brokers, planted_in_groups

PLANTS: list[Callable[[Any], None]] = [
    *(bug.plant for bug in planted.BUGS),
    *planted_in_brokers.BUGS,
    *planted_in_groups.BUGS,
    *planted_in_groups.STALLS,
]


class Patches:
    """Records what a plant would change, and changes nothing."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, Any, Any]] = []

    def setattr(self, target: Any, name: Any, value: Any = None) -> None:
        """Take MonkeyPatch's arguments; of a class in another's place each method counts."""
        if isinstance(target, str):
            real, value = pkgutil.resolve_name(target), name
            for method, function in vars(value).items():
                if inspect.isfunction(function):
                    self.pairs.append((method, getattr(real, method), function))
        else:
            self.pairs.append((name, getattr(target, name), value))


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_is_planted_takes_the_arguments_of_what_it_replaces(
    plant: Callable[[Any], None],
) -> None:
    patches = Patches()
    plant(patches)
    assert patches.pairs
    for name, real, function in patches.pairs:
        if not inspect.isroutine(function):
            continue  # a property or a constant
        taken = inspect.signature(function).parameters.values()
        if not any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in taken):
            assert parameters(function) == parameters(real), name
