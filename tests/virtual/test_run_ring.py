"""Handlers in groups in which everything breaks: nothing skipped, no order lost, all committed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from kclient.consumer.handlers.failures import Failures
from kclient.consumer.handlers.run import Runner
from kclient.consumer.handlers.tracker import Schedule, Tracker
from kclient.types import OffsetAndMetadata
from tests.virtual.group_run import run, run_many
from tests.virtual.handler_run import HandlerScene

SEEDS, OPERATIONS = 20, 150
RUNS = 12
Planted = Callable[[pytest.MonkeyPatch], None]


def test_handlers_get_all_in_order_whatever_breaks() -> None:
    totals = run_many(0, RUNS, OPERATIONS, scene=HandlerScene)
    assert not totals.failures, "\n".join(totals.failures)
    assert totals.operations == RUNS * OPERATIONS
    for what in ("crash_member", "crash_broker", "interrupt", "oversleep", "records read again"):
        assert totals.counts[what] > RUNS


def test_a_seed_gives_the_same_run_of_handlers_every_time() -> None:
    one, other = (run(7, 60, trace=True, scene=HandlerScene) for _ in range(2))
    assert one.trace == other.trace


def a_gap_is_committed(patch: pytest.MonkeyPatch) -> None:
    finish = Tracker.finish

    def planted(tracker: Tracker, job: Any) -> None:
        finish(tracker, job)
        if job.track.jobs and not job.track.void:
            job.track.done = OffsetAndMetadata(job.record.offset + 1, job.record.leader_epoch)

    patch.setattr(Tracker, "finish", planted)


def order_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Schedule, "add", lambda schedule, job: schedule.ready.append(job))
    patch.setattr(Schedule, "leave", lambda schedule, job: None)


def a_retry_lets_others_pass(patch: pytest.MonkeyPatch) -> None:
    put_back = Runner.put_back

    def planted(runner: Runner, job: Any, wait: float) -> None:
        runner._schedule.leave(job)
        put_back(runner, job, wait)

    patch.setattr(Runner, "put_back", planted)


def what_is_given_back_is_not_sought(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runner, "_give_back", lambda runner, track: runner._tracker.restart(track))


def lost_partitions_are_handled_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runner, "dropped", lambda runner, partitions: None)


def nobody_drains(patch: pytest.MonkeyPatch) -> None:
    async def planted(runner: Runner, partitions: Any, deadline: float) -> None:
        pass

    patch.setattr(Runner, "drain", planted)


def what_is_paused_stays_so(patch: pytest.MonkeyPatch) -> None:
    finish = Runner.finish

    def planted(runner: Runner, job: Any) -> None:
        job.track.rest_until = float("inf")
        finish(runner, job)

    patch.setattr(Runner, "finish", planted)


def a_dead_letter_is_finished_before_it_is_there(patch: pytest.MonkeyPatch) -> None:
    send = Failures._send

    async def planted(failures: Failures, job: Any, *rest: Any) -> None:
        failures._runner.finish(job)
        await send(failures, job, *rest)

    patch.setattr(Failures, "_send", planted)


@pytest.mark.parametrize(
    "planted",
    [
        a_gap_is_committed,
        order_is_forgotten,
        a_retry_lets_others_pass,
        what_is_given_back_is_not_sought,
        lost_partitions_are_handled_on,
        nobody_drains,
        what_is_paused_stays_so,
        a_dead_letter_is_finished_before_it_is_there,
    ],
    ids=lambda planted: planted.__name__,
)
def test_a_bug_that_is_planted_is_found(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch)
    runs = (run(seed, OPERATIONS, scene=HandlerScene) for seed in range(2 * SEEDS))
    assert any(outcome.failures for outcome in runs)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fifty_groups_of_handlers_keep_their_promises(
    capsys: pytest.CaptureFixture[str], fewer_seeds: int
) -> None:
    totals = run_many(0, 50 // fewer_seeds, 500, scene=HandlerScene)
    with capsys.disabled():
        sys.stdout.write(f"\n{totals}\n")
    assert not totals.failures, "\n".join(totals.failures)
