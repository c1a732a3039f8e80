"""Groups of kclient and other clients: all records read, partitions owned once, no member stuck.

With `--broker 4.3.0` on Apache Kafka, by default on the embedded cluster. The groups of all
assignors run at the same time; the first test waits for them.
"""

from __future__ import annotations

import sys
import time

import pytest

from tests.foreign.target import target
from tests.mixed.assignors import FOREIGN
from tests.mixed.run import Wishes, run
from tests.mixed.scenario import Outcome


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """Assignor -> the outcome of its group."""
    begun = time.monotonic()

    def emit(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:6.1f} s  {line}\n")

    with target(request.config.getoption("--broker")) as place:
        return run(place.bootstrap, tuple(FOREIGN), Wishes(), emit)


@pytest.mark.timeout(240)  # the first one waits for all groups
@pytest.mark.parametrize("assignor", FOREIGN)
def test_a_group_of_several_clients_stays_whole(
    assignor: str, outcomes: dict[str, Outcome]
) -> None:
    outcome = outcomes[assignor]
    assert not outcome.wrong, str(outcome)
    assert not outcome.slow(), str(outcome)
    assert len(outcome.blows) >= 12, str(outcome)
    assert outcome.led >= 2, str(outcome)  # it was alone, and then led the others
