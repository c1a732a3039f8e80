"""What is finished of a partition, and which record may run next: against plain models."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient.consumer.handlers.tracker import Bounds, Job, Ordering, Schedule, Tracker
from kclient.record import Record
from kclient.types import OffsetAndMetadata, TopicPartition

P = TopicPartition("t", 0)


def record(offset: int, key: bytes | None = None, partition: int = 0, epoch: int = 4) -> Record:
    return Record("t", partition, offset, 0, key, b"", leader_epoch=epoch)


def taken(tracker: Tracker, *records: Record) -> list[Job]:
    return [tracker.add(tracker.track_of(one), one) for one in records]


def test_finished_is_behind_the_last_of_those_from_the_first_on() -> None:
    tracker = Tracker()
    first, second, third = taken(tracker, record(5), record(7), record(8))
    track = tracker.get(P)
    assert track is not None
    tracker.finish(second)
    assert track.done is None
    assert tracker.in_flight == 3
    assert track.first_unfinished() == OffsetAndMetadata(5, 4)
    tracker.finish(first)
    assert track.done == OffsetAndMetadata(8, 4)
    assert tracker.in_flight == 1
    tracker.finish(third)
    assert track.done == OffsetAndMetadata(9, 4)
    assert tracker.in_flight == 0
    assert track.first_unfinished() == track.done


@given(st.lists(st.integers(1, 5), min_size=1, max_size=60), st.randoms())
def test_finished_is_that_of_a_plain_model(gaps: list[int], rng: random.Random) -> None:
    offsets = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    tracker = Tracker()
    jobs = taken(tracker, *map(record, offsets))
    done: set[int] = set()
    for job in rng.sample(jobs, len(jobs)):
        tracker.finish(job)
        done.add(job.record.offset)
        upto = next((at for at, offset in enumerate(offsets) if offset not in done), len(offsets))
        track = tracker.get(P)
        assert track is not None
        expected = offsets[upto - 1] + 1 if upto else None
        assert (track.done.offset if track.done else None) == expected
        assert tracker.in_flight == len(offsets) - upto


def test_a_partition_that_starts_over_knows_nothing_of_what_ran_before() -> None:
    tracker = Tracker()
    first, second = taken(tracker, record(1), record(2))
    tracker.finish(first)
    old = tracker.get(P)
    assert old is not None
    again = tracker.restart(old)
    assert (old.void, old.halted, again.done) == (True, True, OffsetAndMetadata(2, 4))
    assert tracker.in_flight == 0
    (third,) = taken(tracker, record(2))
    tracker.finish(second)  # a handler that was at work on it before
    assert again.done == OffsetAndMetadata(2, 4)
    tracker.finish(third)
    assert again.done == OffsetAndMetadata(3, 4)


def test_a_record_below_the_last_one_means_that_the_user_sought_back() -> None:
    tracker = Tracker()
    (job,) = taken(tracker, record(9))
    tracker.finish(job)
    taken(tracker, record(3), record(4))
    track = tracker.get(P)
    assert track is not None
    assert track is not job.track
    assert track.done is None
    assert tracker.in_flight == 2


def test_what_was_taken_away_is_forgotten() -> None:
    tracker = Tracker()
    (job,) = taken(tracker, record(9))
    tracker.drop(job.track)
    assert tracker.get(P) is None
    assert tracker.in_flight == 0
    tracker.finish(job)
    assert tracker.in_flight == 0


# Which is next


class Model:
    """Finds out which jobs may start by checking all of them."""

    def __init__(self, ordering: Ordering) -> None:
        self.ordering = ordering
        self.unfinished: list[Job] = []

    def line(self, job: Job) -> object:
        if self.ordering is Ordering.NONE:
            return id(job)
        key = job.record.key if self.ordering is Ordering.KEY else None
        return job.track.partition, key

    def may_start(self, job: Job) -> bool:
        return next(one for one in self.unfinished if self.line(one) == self.line(job)) is job


@settings(max_examples=150)
@given(
    st.sampled_from(Ordering),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, b"a", b"b"])), max_size=40),
    st.randoms(),
)
def test_every_record_starts_once_and_none_overtakes(
    ordering: Ordering, places: list[tuple[int, bytes | None]], rng: random.Random
) -> None:
    tracker, schedule, model = Tracker(), Schedule(ordering), Model(ordering)
    waiting = [record(at, key, partition) for at, (partition, key) in enumerate(places)]
    running: list[Job] = []
    now, finished = 0.0, 0
    while waiting or running or schedule.ready or schedule.delayed:
        step = rng.random()
        now += 1.0
        if waiting and step < 0.4:
            (job,) = taken(tracker, waiting.pop(0))
            model.unfinished.append(job)
            schedule.add(job)
        elif running and step < 0.6:
            job = running.pop(rng.randrange(len(running)))
            schedule.delay(job, now + rng.randrange(1, 5))
        elif running and step < 0.8:
            job = running.pop(rng.randrange(len(running)))
            model.unfinished.remove(job)
            schedule.leave(job)
            tracker.finish(job)
            finished += 1
        else:
            schedule.wake(now)
            started = schedule.next()
            if started is not None:
                assert model.may_start(started)
                assert started not in running
                running.append(started)
            elif not running and not schedule.delayed:
                assert not model.unfinished  # else it would wait for ever
    assert finished == len(places)
    assert all(not track.tails for track in tracker)


def test_those_that_are_due_first_come_first_and_none_before() -> None:
    tracker, schedule = Tracker(), Schedule(Ordering.NONE)
    one, two, three = taken(tracker, record(1), record(2), record(3))
    schedule.delay(one, 30.0)
    schedule.delay(two, 10.0)
    schedule.delay(three, 20.0)
    assert (schedule.next_due, schedule.delayed) == (10.0, 3)
    assert schedule.wake(9.9) == 0
    assert schedule.wake(20.0) == 2
    assert [schedule.next(), schedule.next(), schedule.next()] == [two, three, None]
    assert schedule.next_due == 30.0


def test_what_was_taken_away_is_not_started_and_not_kept() -> None:
    tracker, schedule = Tracker(), Schedule(Ordering.NONE)
    here, gone, late, soon = taken(tracker, record(1), *(record(1, None, p) for p in (1, 2, 3)))
    schedule.add(here)
    schedule.add(gone)
    schedule.delay(late, 5.0)
    schedule.delay(soon, 4.0)
    for job in (gone, late):
        tracker.drop(job.track)
    schedule.forget_void()
    assert schedule.delayed == 1
    assert list(schedule.ready) == [here]
    soon.track.halted = True
    assert schedule.wake(9.0) == 0
    schedule.stopped = True
    assert schedule.next() is None


# How much is taken


@pytest.mark.parametrize("partitions", [1, 10, 1_000])
@pytest.mark.parametrize("concurrency", [1, 64, 1_000])
def test_the_default_limit_suffices_for_all_handlers_and_partitions(
    partitions: int, concurrency: int
) -> None:
    bounds = Bounds(None, concurrency)
    bounds.resize(partitions)
    assert bounds.total >= max(1_024, 16 * concurrency, 16 * partitions)
    assert bounds.share(0) >= 2 * concurrency or partitions == 1
    assert bounds.share(bounds.total) >= 8 or bounds.total // 2 < 8 * partitions


@given(st.integers(1, 5_000), st.integers(1, 500), st.integers(1, 300), st.integers(0, 6_000))
def test_the_limit_is_never_exceeded(
    total: int, concurrency: int, partitions: int, used: int
) -> None:
    bounds = Bounds(total, concurrency)
    bounds.resize(partitions)
    assert 0 <= bounds.limit(used) <= max(0, total - used)
    assert bounds.limit(0) >= 1
    assert 1 <= bounds.share(used) <= total
    # Partitions that make no progress leave space for the others.
    stuck = partitions * bounds.share(total)
    assert stuck <= max(total // 2, partitions)
