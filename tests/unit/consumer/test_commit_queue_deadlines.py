"""When calls of the queue of commits are out of time, and the end of all of them."""

from __future__ import annotations

import math

from kclient.broker_errors import NotCoordinator
from kclient.errors import ClientClosed, RequestTimedOut
from tests.unit.consumer.test_commit_queue import P0, P1, P2, answer, ask, failed, new_queue, take


def test_a_call_is_out_of_time_at_its_deadline_and_has_the_reason() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1}, timeout=10.0)
    other = ask(queue, {P1: 1}, timeout=20.0)
    take(queue)
    answer(queue, (P0, NotCoordinator("gone")), (P1, NotCoordinator("gone")))
    assert queue.deadline == 10.0
    queue.expire(9.9)
    assert not call.done
    queue.expire(10.0)
    error = failed(call)
    assert isinstance(error, RequestTimedOut)
    assert isinstance(error.__cause__, NotCoordinator)
    assert "commit of t-0 by group g did not succeed in 10.0 s; last: NOT_COORDINATOR" in str(error)
    assert not other.done
    assert queue.deadline == 20.0
    assert take(queue, 15.0) == {P1: 1}  # no call waits for the other any more


def test_what_is_in_flight_may_still_be_committed() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1}, timeout=10.0)
    take(queue)
    assert queue.limit == 10.0
    queue.expire(10.0)
    assert "may still" in str(failed(call))
    answer(queue, (P0, None))
    assert queue.committed == {P0: 1}
    assert queue.finished() == [call]


def test_an_obstacle_is_named() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1}, timeout=1.0)
    queue.put_off(0.0)
    assert not queue.take(0.0, lambda partition: True, "nobody is home")
    queue.expire(1.0)
    assert "nobody is home" in str(failed(call))


def test_deadlines_of_calls_that_are_done_are_not_kept() -> None:
    queue = new_queue()
    ask(queue, {P0: 0}, timeout=1.0)
    for number in range(1000):
        take(queue)
        ask(queue, {P1: number})
        answer(queue, (P0, None), (P1, None), (P2, None))
    assert len(queue._deadlines) < 150


def test_a_call_without_a_deadline_waits_for_ever() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1}, timeout=math.inf)
    queue.expire(1e9)
    assert not call.done
    assert queue.deadline == math.inf


def test_the_end_is_an_outcome_for_all_calls() -> None:
    queue = new_queue()
    calls = [ask(queue, {P0: 1})]
    take(queue)
    calls += [ask(queue, {P0: 2}), ask(queue, {P1: 1})]
    queue.end(ClientClosed("closed"))
    assert {type(failed(call)) for call in calls} == {ClientClosed}
    assert queue.idle
    answer(queue, (P0, None))
    assert sorted(queue.finished(), key=lambda one: one.number) == calls
