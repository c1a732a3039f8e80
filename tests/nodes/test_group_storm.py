"""Groups under a storm of 90 s: nothing is skipped, no member is silent, all recover in time.

The ten minutes are `python -m tests.nodes.group_storm`.
"""

from __future__ import annotations

import random
import sys
import time

import pytest

from tests.nodes.group_storm import MODES, Strike, Wishes, reported, storm, strikes
from tests.support.nodes import Nodes

SECONDS = 90.0


def test_every_kind_of_strike_comes_in_each_round() -> None:
    plan = strikes(random.Random(1))
    rounds = [[next(plan) for _ in Strike] for _ in range(3)]
    assert all(set(one) == set(Strike) for one in rounds)
    assert rounds[0] != rounds[1]


@pytest.mark.timeout(300)
async def test_groups_recover_from_whatever_happens_to_members_and_nodes(
    nodes: Nodes, topic: str
) -> None:
    began = time.monotonic()

    def emit(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {line}\n")

    outcomes = await storm(Wishes(seconds=SECONDS), nodes, topic, emit)
    for outcome in outcomes.values():
        assert not outcome.wrong, reported(outcomes)
        assert not outcome.slow(), reported(outcomes)
    assert set(outcomes) == set(MODES)
    assert min(len(one.blows) for one in outcomes.values()) >= len(Strike)
