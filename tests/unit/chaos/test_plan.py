"""A chaos run's plan follows from the seed, reaches the requested counts, and has a pace."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.chaos.plan import CI_CUTS, CI_KILLS, CI_RECORDS, Blow, Knife, Plan, Wishes

ALL = Wishes(records=2_000_000, kills=12, stops=6, cuts=500, seed=7)


def test_without_options_it_is_the_run_of_ci() -> None:
    plan = Plan(Wishes())
    wishes = plan.wishes
    assert (wishes.records, wishes.kills, wishes.stops, wishes.cuts) == (200_000, 3, 0, 100)
    assert (CI_RECORDS, CI_KILLS, CI_CUTS) == (200_000, 3, 100)
    assert [fault.blow for fault in plan.node_faults()] == [Blow.KILL] * 3


def test_a_count_of_zero_is_not_an_omitted_option() -> None:
    plan = Plan(Wishes(records=10, kills=0, stops=0, cuts=0))
    assert list(plan.node_faults()) == []
    assert plan.wishes.cuts == 0


def test_the_faults_of_nodes_are_as_many_of_each_kind_as_asked_for() -> None:
    faults = list(Plan(ALL).node_faults())
    blows = [fault.blow for fault in faults]
    assert (blows.count(Blow.KILL), blows.count(Blow.STOP)) == (12, 6)
    assert blows != sorted(blows, key=list(Blow).index), "one kind after the other"
    assert all(0 <= fault.partition < 12 for fault in faults)
    for fault in faults:
        low, high = (0.3, 3.0) if fault.blow is Blow.KILL else (5.0, 15.0)
        assert low <= fault.away <= high


def test_a_seed_gives_the_same_plan_and_another_one_another() -> None:
    def of(seed: int) -> tuple[object, ...]:
        plan = Plan(Wishes(kills=12, stops=6, seed=seed))
        return tuple(plan.node_faults()), tuple(islice(plan.cuts(), 100))

    assert of(3) == of(3)
    assert of(3)[0] != of(4)[0]
    assert of(3)[1] != of(4)[1]


def test_cuts_are_of_all_kinds_and_never_end() -> None:
    cuts = list(islice(Plan(Wishes(cuts=5)).cuts(), 200))
    assert {cut.knife for cut in cuts} == set(Knife)
    assert all(0.0 <= cut.depth < 1.0 and cut.rest >= 0.0 for cut in cuts)


def test_the_load_lasts_as_long_as_the_faults_take() -> None:
    plan = Plan(ALL)
    faults = sum(fault.rest for fault in plan.node_faults()) + 12 * 8.0 + 6 * 12.0
    assert plan.rate * plan.seconds == pytest.approx(2_000_000, rel=0.1)
    assert faults <= plan.seconds


def test_cuts_are_spread_over_the_run() -> None:
    plan = Plan(ALL)
    needed = sum(cut.rest for cut in islice(plan.cuts(), 500))
    assert 0.6 * plan.seconds < needed < 1.1 * plan.seconds


def test_a_time_stretches_what_is_asked_for() -> None:
    plan = Plan(Wishes(minutes=10, records=60_000, kills=3, stops=0, cuts=100))
    assert plan.seconds == 600.0
    assert plan.rate == pytest.approx(100.0, rel=0.02)
    rests = [fault.rest for fault in plan.node_faults()]
    assert len(rests) == 3
    assert all(rest > 60.0 for rest in rests)
    assert sum(cut.rest for cut in islice(plan.cuts(), 100)) > 300.0


def test_a_time_alone_has_faults_at_a_steady_rhythm_without_end() -> None:
    plan = Plan(Wishes(minutes=10))
    faults = list(islice(plan.node_faults(), 200))
    assert {fault.blow for fault in faults} == set(Blow)
    assert all(2.0 < fault.rest < 6.0 for fault in faults)
    assert plan.wishes.records is None
    assert plan.rate == 3_000.0


def test_one_kind_may_be_counted_and_the_other_go_on() -> None:
    plan = Plan(Wishes(minutes=10, kills=2, stops=None))
    blows = [fault.blow for fault in islice(plan.node_faults(), 30)]
    assert blows == [Blow.KILL] * 2 + [Blow.STOP] * 28
