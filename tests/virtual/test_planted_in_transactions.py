"""Bugs of transactions are found: planted into the client, the coordinators and the leaders."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.virtual.group_run import run
from tests.virtual.planted_in_transactions import BUGS
from tests.virtual.process_run import ProcessScene

SEEDS = 50
"""How many seeds a bug may go unseen."""
LATER = {
    "a_marker_is_lost": 8,
    "a_new_producer_gets_the_same_epoch": 11,
    "a_late_marker_is_accepted": 10,
    "pending_offsets_are_not_waited_for": 15,
}
"""Where the search begins if there is little time: the seed that showed the bug when it was
planted. All others are seen within a few seeds."""


@pytest.mark.long
@pytest.mark.timeout(10_800)
def test_each_bug_in_transactions_is_found(fewer_seeds: int) -> None:
    """With fewer seeds only some of the bugs are planted, as each run takes seconds."""
    for plant in BUGS[::fewer_seeds]:
        _find(plant, LATER.get(plant.__name__, 0) if fewer_seeds > 1 else 0)


def _find(plant: Callable[[pytest.MonkeyPatch], None], first: int) -> None:
    for seed in range(first, first + SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            broken = run(seed, scene=ProcessScene)
        if broken.failures:
            sound = run(seed, scene=ProcessScene)
            assert not sound.failures, sound.describe()
            return
    pytest.fail(f"{plant.__name__}: {SEEDS} seeds, and nothing was found")
