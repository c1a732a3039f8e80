"""Responses that come later."""

from __future__ import annotations

from kclient.testing.responses import PendingResult


def test_a_value_reaches_the_listener_before_or_after() -> None:
    heard: list[int] = []
    early: PendingResult[int] = PendingResult()
    early.then(heard.append)
    early.complete(1)
    late: PendingResult[int] = PendingResult()
    late.complete(2)
    late.then(heard.append)
    assert heard == [1, 2]


def test_only_the_first_value_counts() -> None:
    heard: list[int] = []
    deferred: PendingResult[int] = PendingResult()
    deferred.then(heard.append)
    deferred.complete(1)
    deferred.complete(2)
    assert heard == [1]


def test_a_cancelled_one_never_completes() -> None:
    heard: list[int] = []
    deferred: PendingResult[int] = PendingResult()
    deferred.then(heard.append)
    deferred.cancel()
    deferred.complete(1)
    assert heard == []
    assert deferred.done


def test_what_it_holds_is_released_once() -> None:
    gone: list[str] = []
    one: PendingResult[int] = PendingResult(lambda: gone.append("completed"))
    one.complete(1)
    one.cancel()
    other: PendingResult[int] = PendingResult(lambda: gone.append("cancelled"))
    other.cancel()
    other.cancel()
    assert gone == ["completed", "cancelled"]
