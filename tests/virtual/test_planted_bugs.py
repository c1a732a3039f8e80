"""The simulation and the history checker find bugs, and name them: shown with planted ones.

Without a bug, no seed has a violation: ``test_simulation`` runs a thousand. Here each seed that has
shown a bug is run once more without it.
"""

from __future__ import annotations

import pytest

from tests.virtual.planted import BUGS, Planted
from tests.virtual.simulation import Run, quiet, simulate

SEEDS = 200
"""How many seeds a bug may go unseen."""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_checker_names_what_is_wrong_with_a_client_in_which(bug: Planted) -> None:
    with quiet():
        found = first_run_with(bug)
        assert bug.kind in found.report.kinds
        sound = simulate(found.seed)
    assert sound.well, sound.describe()


def first_run_with(bug: Planted) -> Run:
    """The first seed in which the checker names the bug's kind of violation."""
    for seed in range(SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            bug.plant(patch)
            run = simulate(seed)
        if bug.kind in run.report.kinds:
            return run
    pytest.fail(f"{SEEDS} seeds, and no {bug.kind.name}")
