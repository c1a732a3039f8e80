"""The retry schedule: exponential, bounded, with jitter on both sides."""

from __future__ import annotations

import random

import pytest

from kclient.backoff import Backoff


@pytest.mark.parametrize("attempt", [0, 1, 2, 3, 4, 5, 10, 5000])
def test_every_gap_stays_within_its_jitter(attempt: int) -> None:
    backoff = Backoff(0.05, 1.0)
    base = min(0.05 * 2.0 ** min(attempt, 10), 1.0)
    gaps = [backoff.delay(attempt, random.Random(seed)) for seed in range(200)]
    assert all(base * 0.8 <= gap <= base * 1.2 for gap in gaps)
    assert min(gaps) < base * 0.9 and max(gaps) > base * 1.1


def test_no_backoff_is_no_wait() -> None:
    assert Backoff(0.0, 0.0).delay(3, random.Random(1)) == 0.0
