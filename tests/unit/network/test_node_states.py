"""NodeStates: gaps between attempts, one probe at a time, reset by a usable connection only."""

from __future__ import annotations

import random

import pytest

from kclient.backoff import Backoff
from kclient.errors import BrokerUnreachable
from kclient.network.node_states import NodeStates

ERROR = BrokerUnreachable("refused")
EXPECTED_GAPS = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def new_states(seed: int = 0) -> NodeStates:
    return NodeStates(Backoff(0.05, 1.0), Backoff(10.0, 30.0), random.Random(seed))


def fail_once(states: NodeStates, now: float) -> float:
    """One attempt that fails at ``now``; gives the wait after it."""
    assert states.can_dial(1, now)
    states.dialing(1)
    states.failed(1, now, ERROR)
    return states.retry_at(1) - now


def test_an_unknown_node_may_be_dialed() -> None:
    states = new_states()
    assert states.can_dial(1, 0.0)
    assert states.retry_at(1) == 0.0
    assert states.failures(1) == 0


@pytest.mark.parametrize("seed", range(20))
def test_gaps_double_up_to_the_maximum_within_twenty_percent(seed: int) -> None:
    states, now = new_states(seed), 100.0
    for expected in EXPECTED_GAPS:
        gap = fail_once(states, now)
        assert 0.8 * expected <= gap <= 1.2 * expected
        assert not states.can_dial(1, now + gap - 0.001)
        now += gap
    assert states.failures(1) == len(EXPECTED_GAPS)


def test_gaps_are_jittered() -> None:
    assert len({round(fail_once(new_states(seed), 0.0), 6) for seed in range(20)}) > 15


def test_only_a_usable_connection_resets_the_back_off() -> None:
    states, now = new_states(), 0.0
    for _ in range(6):
        now += fail_once(states, now)
    states.dialing(1)
    assert states.retry_at(1) > 0  # TCP may be open by now, that says nothing
    states.usable(1)
    assert states.retry_at(1) == 0.0
    assert states.last_error(1) is None
    states.lost(1, now, ERROR)
    assert 0.04 <= states.retry_at(1) - now <= 0.06


def test_a_listener_that_accepts_and_hangs_up_is_tried_as_rarely_as_a_closed_port() -> None:
    states, now, attempts = new_states(), 0.0, 0
    while now < 20.0:
        attempts += 1
        now += fail_once(states, now)
    assert attempts <= 28


def test_lanes_that_break_together_count_once() -> None:
    states = new_states()
    for lane in range(4):
        states.lost(1, 5.0 + lane * 0.001, ERROR)
    assert states.failures(1) == 1
    assert states.retry_at(1) <= 5.06


def test_after_a_failure_only_one_lane_probes_the_node() -> None:
    states = new_states()
    now = fail_once(states, 0.0)
    states.dialing(1)
    assert states.is_probed(1)
    assert not states.can_dial(1, now)
    states.usable(1)
    assert not states.is_probed(1)
    assert states.can_dial(1, now)


def test_a_node_without_failures_may_be_dialed_by_all_lanes_at_once() -> None:
    states = new_states()
    states.dialing(1)
    assert states.can_dial(1, 0.0)


def test_an_abandoned_attempt_counts_as_nothing() -> None:
    states = new_states()
    now = fail_once(states, 0.0)
    states.dialing(1)
    states.abandoned(1)
    assert states.failures(1) == 1
    assert states.can_dial(1, now)


def test_nodes_do_not_share_their_back_off() -> None:
    states = new_states()
    fail_once(states, 0.0)
    assert states.can_dial(2, 0.0)


def test_forgetting_a_node_forgets_its_back_off() -> None:
    states = new_states()
    fail_once(states, 0.0)
    states.forget(1)
    assert states.can_dial(1, 0.0)
    assert states.last_error(1) is None


def test_the_setup_timeout_grows_with_attempts_that_timed_out() -> None:
    states, now = new_states(), 0.0
    for expected in (10.0, 20.0, 30.0, 30.0):
        assert 0.8 * expected <= states.setup_timeout(1) <= 1.2 * expected
        states.dialing(1)
        states.failed(1, now, ERROR, setup_timed_out=True)
        now = states.retry_at(1)
    states.dialing(1)
    states.usable(1)
    assert states.setup_timeout(1) <= 12.0


def test_the_setup_timeout_does_not_grow_with_refusals() -> None:
    states = new_states()
    for _ in range(3):
        fail_once(states, states.retry_at(1))
    assert states.setup_timeout(1) <= 12.0
