"""NodeStates: gaps between attempts, one probe at a time, reset only by a useful connection."""

from __future__ import annotations

import random

import pytest

from kclient.backoff import Backoff
from kclient.errors import BrokerUnreachable
from kclient.network.nodes import NodeStates

ERROR = BrokerUnreachable("refused")
A, B = "one:9092", "two:9092"
EXPECTED_GAPS = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def new_states(seed: int = 0) -> NodeStates:
    return NodeStates(Backoff(0.05, 1.0), Backoff(10.0, 30.0), random.Random(seed))


def fail_once(states: NodeStates, now: float) -> float:
    """Fail one attempt at ``now``; return the wait after it."""
    assert states.can_dial(A, now)
    states.dialing(A)
    states.failed(A, now, ERROR)
    return states.of(A).retry_at - now


def test_an_unknown_address_may_be_dialed() -> None:
    states = new_states()
    assert states.can_dial(A, 0.0)
    assert states.of(A).retry_at == 0.0
    assert states.of(A).failures == 0


@pytest.mark.parametrize("seed", range(20))
def test_gaps_double_up_to_the_maximum_within_twenty_percent(seed: int) -> None:
    states, now = new_states(seed), 100.0
    for expected in EXPECTED_GAPS:
        gap = fail_once(states, now)
        assert 0.8 * expected <= gap <= 1.2 * expected
        assert not states.can_dial(A, now + gap - 0.001)
        now += gap
    assert states.of(A).failures == len(EXPECTED_GAPS)


def test_gaps_are_jittered() -> None:
    assert len({round(fail_once(new_states(seed), 0.0), 6) for seed in range(20)}) > 15


def test_only_a_connection_of_use_resets_the_back_off() -> None:
    states, now = new_states(), 0.0
    for _ in range(6):
        now += fail_once(states, now)
    states.dialing(A)
    assert states.of(A).retry_at > 0  # TCP may be open by now, which proves nothing
    states.usable(A, now)
    states.proved(A)
    assert states.of(A).retry_at == 0.0
    assert states.of(A).last_error is None
    states.lost(A, now, ERROR)
    assert 0.04 <= states.of(A).retry_at - now <= 0.06


@pytest.mark.parametrize("seed", range(5))
def test_one_that_hangs_up_right_after_the_handshake_is_dialed_less_and_less(seed: int) -> None:
    states, now = new_states(seed), 100.0
    for expected in EXPECTED_GAPS:
        states.dialing(A)
        states.usable(A, now)
        assert states.of(A).failures == 0
        states.lost(A, now + 0.01, ERROR, lasted=0.01)
        gap = states.of(A).retry_at - now - 0.01
        assert 0.8 * expected <= gap <= 1.2 * expected
        now = states.of(A).retry_at


def test_a_connection_that_lasted_proves_the_peer_without_any_response() -> None:
    states, now = new_states(), 0.0
    for _ in range(6):
        now += fail_once(states, now)
    states.dialing(A)
    states.usable(A, now)
    states.lost(A, now + 1.0, ERROR, lasted=1.0)
    assert 0.04 <= states.of(A).retry_at - now - 1.0 <= 0.06


def test_after_failures_the_other_lanes_wait_a_moment_for_the_first_one_to_prove_itself() -> None:
    states = new_states()
    now = fail_once(states, 0.0)
    states.dialing(A)
    states.usable(A, now)
    assert not states.can_dial(A, now)
    assert states.can_dial(A, now + 0.05)
    states.proved(A)
    assert states.can_dial(A, now)


def test_a_lane_with_responses_proves_nothing_about_one_that_is_refused() -> None:
    states = new_states()
    now = fail_once(states, 0.0)
    states.proved(A)
    assert states.of(A).failures == 1
    assert not states.can_dial(A, now - 0.001)


def test_a_listener_that_accepts_and_hangs_up_is_tried_as_rarely_as_a_closed_port() -> None:
    states, now, attempts = new_states(), 0.0, 0
    while now < 20.0:
        attempts += 1
        now += fail_once(states, now)
    assert attempts <= 28


def test_lanes_that_break_together_count_once() -> None:
    states = new_states()
    for lane in range(4):
        states.lost(A, 5.0 + lane * 0.001, ERROR)
    assert states.of(A).failures == 1
    assert states.of(A).retry_at <= 5.06


def test_attempts_count_as_unusable_until_one_gives_a_usable_connection() -> None:
    """A peer that accepts but doesn't serve is left for another address of its name."""
    states, now = new_states(), 0.0
    for expected in (1, 2, 3):
        fail_once(states, now)
        assert states.of(A).unusable == expected
        now = states.of(A).retry_at
    states.dialing(A)
    states.usable(A, now)
    assert states.of(A).unusable == 0
    states.lost(A, now, ERROR)
    assert states.of(A).unusable == 0  # the address was usable
    assert states.of(B).unusable == 0


def test_lanes_that_fail_together_count_as_one_unusable_attempt() -> None:
    states = new_states()
    for _ in range(2):
        states.dialing(A)
    for _ in range(2):
        states.failed(A, 0.0, ERROR)
    assert states.of(A).unusable == 1


def test_after_a_failure_only_one_lane_probes_the_node() -> None:
    states = new_states()
    now = fail_once(states, 0.0)
    states.dialing(A)
    assert not states.can_dial(A, now)
    states.usable(A, now)
    states.proved(A)
    assert states.can_dial(A, now)


def test_an_address_without_failures_may_be_dialed_by_all_lanes_at_once() -> None:
    states = new_states()
    states.dialing(A)
    assert states.can_dial(A, 0.0)


def test_an_abandoned_attempt_counts_as_nothing() -> None:
    states = new_states()
    now = fail_once(states, 0.0)
    states.dialing(A)
    states.abandoned(A)
    assert states.of(A).failures == 1
    assert states.can_dial(A, now)


def test_addresses_do_not_share_their_back_off() -> None:
    states = new_states()
    fail_once(states, 0.0)
    assert states.can_dial(B, 0.0)


def test_unused_addresses_are_forgotten_when_their_back_off_is_over() -> None:
    states = new_states()
    gap = fail_once(states, 0.0)
    states.trim(gap - 0.001, ())
    assert states.of(A).failures == 1
    states.trim(gap, (A,))
    assert states.of(A).failures == 1
    states.trim(gap, (B,))
    assert states.of(A).failures == 0
    assert states.of(A).last_error is None


def test_the_setup_timeout_grows_with_attempts_that_timed_out() -> None:
    states, now = new_states(), 0.0
    for expected in (10.0, 20.0, 30.0, 30.0):
        assert 0.8 * expected <= states.setup_timeout(A) <= 1.2 * expected
        states.dialing(A)
        states.failed(A, now, ERROR, setup_timed_out=True)
        now = states.of(A).retry_at
    states.dialing(A)
    states.usable(A, now)
    assert states.setup_timeout(A) <= 12.0


def test_the_setup_timeout_does_not_grow_with_refusals() -> None:
    states = new_states()
    for _ in range(3):
        fail_once(states, states.of(A).retry_at)
    assert states.setup_timeout(A) <= 12.0
