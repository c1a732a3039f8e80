"""When heartbeats are due, when a session is over, and what counts as late. Time is a number."""

from __future__ import annotations

import pytest

from kclient.group.member import HeartbeatTimer


def test_the_session_counts_from_the_sending_of_the_heartbeat() -> None:
    timer = HeartbeatTimer(3.0, 10.0)
    timer.answered(100.0)
    assert (timer.due, timer.session_ends_at) == (103.0, 110.0)
    timer.answered(103.0)  # the response itself came later
    assert (timer.due, timer.session_ends_at) == (106.0, 113.0)


def test_an_old_response_never_moves_the_session_back() -> None:
    timer = HeartbeatTimer(3.0, 10.0)
    timer.answered(100.0)
    timer.answered(99.0)
    assert timer.session_ends_at == 110.0


def test_after_a_failure_it_is_tried_again_soon() -> None:
    timer = HeartbeatTimer(3.0, 10.0)
    timer.answered(100.0)
    timer.failed(103.0, 0.5)
    assert (timer.due, timer.session_ends_at) == (103.5, 110.0)
    timer.failed(103.5, 60.0)
    assert timer.due == 106.5


@pytest.mark.parametrize(
    ("woke", "late"), [(103.0, 0.0), (106.0, 0.0), (106.5, 3.5), (133.0, 30.0)]
)
def test_late_is_what_is_over_an_interval_behind(woke: float, late: float) -> None:
    timer = HeartbeatTimer(3.0, 10.0)
    timer.answered(100.0)
    assert timer.woke(woke) == late
    assert (timer.blocks, timer.longest_block) == (int(late > 0), late)


def test_a_silent_coordinator_is_given_a_third_of_the_session() -> None:
    assert HeartbeatTimer(3.0, 45.0).patience == 15.0
