"""200,000 mutants with fixed seeds: typed errors, bounded time and memory, both builds agree.

Each target's docstring has the invariants of its mutants. Here is checked that the run was not
vacuous: that mutants got past the first checks, that there were some of each kind, and that neither
all were refused nor all went through.
"""

from __future__ import annotations

import pytest

from tests.fuzz import operators
from tests.fuzz.campaign import COUNTS, Portion, portions, run_portion
from tests.fuzz.tally import Tally

REACHED_AT_LEAST = 1 / 3
"""Share of the mutants of which a field of the body, or a record, must have been read."""
REPAIRED = (0.4, 0.6)
FRAMED = ("frames", "fetch", "metadata", "handshake")


@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    "portion", list(portions(COUNTS)), ids=lambda portion: f"{portion.target}-{portion.first}"
)
def test_only_typed_errors_in_bounded_time_and_memory(portion: Portion, tally: Tally) -> None:
    found = run_portion(portion)
    tally.merge(found)
    target = portion.target
    total = found.total(target)
    assert total >= portion.count
    outcomes = found.outcomes(target)
    assert len(outcomes) >= 3, outcomes
    assert max(outcomes.values()) < 0.9 * total, outcomes
    assert REPAIRED[0] < found.repaired[target] / total < REPAIRED[1]
    assert found.reached[target] >= REACHED_AT_LEAST * total
    if target in FRAMED:
        assert set(operators.NAMES) - {"record batch"} <= set(found.operators(target))


def test_the_run_is_of_200_000_mutants() -> None:
    assert sum(COUNTS.values()) >= 200_000
