"""What is counted after the faults of a chaos run, and what a run must reach to pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.ledger import Account, Ledger
from tests.chaos.measures import Fault, recoveries, share_within, spread, windows
from tests.chaos.plan import Wishes
from tests.chaos.report import Result, as_json, figures, passed, shortfalls, text
from tests.unit.chaos.runs import Run

KILL = Fault("kill", 100.0, 1, frozenset({0, 1}), how="kill -9")
CUT = Fault("cut", 200.0, 2, frozenset({1}), producer="one", how="reset")


def acked(account: Account, offered: float, took: float, partition: int = 0) -> None:
    account.ok(account.offer(offered), offered + took, partition, 0)


@pytest.fixture
def ledger() -> Ledger:
    """Two records per second, one per producer and partition; each takes 0.1 s."""
    made = Ledger()
    for name in ("one", "two"):
        made.open(name)
    for second in range(300):
        for partition, account in enumerate(made.accounts):
            acked(account, float(second), 0.1, partition)
    return made


def test_a_window_has_what_was_offered_in_it_and_acknowledged_in_it() -> None:
    ledger = Ledger()
    account = ledger.open("one")
    acked(account, 99.9, 1.0)  # offered before the window
    acked(account, 100.0, 1.0)
    acked(account, 101.0, 3.9)
    acked(account, 102.0, 3.1)  # acknowledged after it
    account.fail(account.offer(103.0), 103.5, "x", False)
    acked(account, 104.9, 0.1)
    acked(account, 105.0, 0.1)  # offered after it
    (window,) = windows(ledger, [KILL])
    assert (window.offered, window.acked) == (5, 3)
    assert window.share == pytest.approx(0.6)


def test_a_window_in_which_nothing_was_offered_is_not_met() -> None:
    ledger = Ledger()
    ledger.open("one")
    (window,) = windows(ledger, [KILL])
    assert window.share == 0.0


def test_faults_that_do_not_count_have_no_window(ledger: Ledger) -> None:
    assert windows(ledger, [replace(CUT, counts=False)]) == []
    assert share_within(ledger, [replace(CUT, counts=False)]) == 0.0


def test_the_share_of_all_counts_each_record_once(ledger: Ledger) -> None:
    """5 s of 300, and 8 s of 300 where two windows overlap."""
    assert share_within(ledger, [KILL]) == pytest.approx(5 / 300)
    assert share_within(ledger, [KILL, replace(KILL, at=103.0)]) == pytest.approx(8 / 300)


def test_recovery_is_the_first_acknowledgement_of_what_was_offered_behind_it() -> None:
    ledger = Ledger()
    one, two = ledger.open("one"), ledger.open("two")
    acked(one, 99.0, 1.5, 0)  # offered before the fault
    acked(one, 100.5, 0.2, 7)  # another partition
    acked(one, 101.0, 2.0, 0)
    acked(one, 102.0, 4.0, 1)
    acked(two, 102.5, 0.25, 0)
    (found,) = recoveries(ledger, [KILL])
    assert (found.first, found.last) == (2.75, 6.0)
    assert (found.slowest, found.who) == (3.0, "one")


def test_recovery_of_a_cut_is_of_the_producer_whose_connection_it_was(ledger: Ledger) -> None:
    one, two = ledger.accounts
    acked(one, 300.0, 2.0, 1)
    acked(two, 300.0, 0.1, 1)
    (found,) = recoveries(ledger, [replace(CUT, at=299.5)])
    assert (found.first, found.last) == (2.5, 2.5)


def test_where_some_partition_has_no_record_its_recovery_is_unknown() -> None:
    ledger = Ledger()
    acked(ledger.open("one"), 100.5, 0.5, 0)
    acked(ledger.open("two"), 100.5, 0.5, 7)
    (found,) = recoveries(ledger, [KILL])
    assert (found.first, found.last) == (1.0, None)
    assert (found.slowest, found.who) == (None, "two")


def test_a_spread_is_least_median_and_most() -> None:
    assert spread([3.0, 1.0, 2.5]) == "1.00 / 2.50 / 3.00 s"
    assert spread([]) == "none"


# What a run must reach.


@pytest.fixture
def result() -> Result:
    """A healthy run that has everything that was requested."""
    run = Run(now=100.0)
    for number in range(1000):
        run.send(number % 2)
    run.fail(run.offer(), True)
    run.read()
    faults = [replace(KILL, at=101.0), replace(CUT, at=102.0), replace(CUT, at=103.0)]
    wishes = Wishes(records=1000, kills=1, stops=0, cuts=2)
    return Result(wishes, run.ledger, faults, run.judge(), found=1000, cuts_made=2)


def short_of(result: Result) -> str:
    known = figures(result)
    assert not passed(result, known)
    (line,) = shortfalls(result, known)
    assert line in text(result, known)
    assert as_json(result, known)["passed"] is False
    return line


def test_a_run_that_is_what_was_asked_for_passes(result: Result) -> None:
    known = figures(result)
    assert shortfalls(result, known) == []
    assert passed(result, known)
    said = text(result, known)
    assert "1,000 records acknowledged of 1,001 offered" in said
    assert "1 kills, 0 stops, 2 cuts" in said
    assert "1 x DeliveryTimedOut, maybe written" in said
    assert as_json(result, known)["passed"] is True


def test_too_few_records_are_a_failure(result: Result) -> None:
    result.wishes = replace(result.wishes, records=1001)
    assert short_of(result) == "1,000 records acknowledged of 1,001"


def test_too_few_kills_are_a_failure(result: Result) -> None:
    result.wishes = replace(result.wishes, kills=2)
    assert short_of(result) == "1 kills of 2"


def test_too_few_stops_are_a_failure(result: Result) -> None:
    result.wishes = replace(result.wishes, stops=1)
    assert short_of(result) == "0 stops of 1"


def test_a_cut_without_a_produce_in_flight_does_not_count(result: Result) -> None:
    result.faults[-1] = replace(result.faults[-1], counts=False)
    assert short_of(result) == "1 cuts of 2"


def test_cuts_that_the_proxy_does_not_know_of_are_a_failure(result: Result) -> None:
    result.cuts_made = 1
    assert short_of(result) == "the proxy cut 1 connections only"


def test_a_fault_behind_which_nothing_is_acknowledged_is_a_failure(result: Result) -> None:
    result.faults.append(replace(KILL, at=200.0))
    assert "0 of 0 records offered within 5 s" in short_of(result)


def test_one_cut_of_fifty_may_have_nothing_behind_it(result: Result) -> None:
    several = [replace(CUT, at=105.0 + number / 100) for number in range(97)]
    result.faults += [*several, replace(CUT, at=900.0)]
    result.cuts_made = 100
    assert shortfalls(result, figures(result)) == []
    result.faults += [replace(CUT, at=901.0), replace(CUT, at=902.0)]
    result.cuts_made = 102
    assert len(shortfalls(result, figures(result))) == 3


def test_a_run_whose_acknowledgements_are_far_from_its_faults_fails(result: Result) -> None:
    account = result.ledger.accounts[0]
    for number in range(9_000):
        acked(account, 500.0 + number, 0.1)
    assert "of all acknowledgements came within 5 s" in short_of(result)


def test_a_run_without_a_failed_record_did_not_try_their_honesty(result: Result) -> None:
    for account in result.ledger.accounts:
        account.why.clear()
    assert "whether failures are honest was not tried" in short_of(result)


def test_a_run_that_was_cut_short_fails(result: Result) -> None:
    result.cut_short = "not reached in 5 s"
    assert short_of(result) == "not reached in 5 s"


def test_a_run_with_a_violation_fails_and_names_it(result: Result) -> None:
    run = Run()
    run.send()
    run.logs[run.home(0, 0)].clear()
    result.verdict = run.judge()
    known = figures(result)
    assert not passed(result, known)
    assert "LOST_WRITE" in text(result, known)


def test_a_failure_without_a_write_status_fails_the_run(result: Result) -> None:
    result.verdict.unsaid.append("one 3: Odd")
    known = figures(result)
    assert not passed(result, known)
    assert "don't say whether the record may have been written: one 3: Odd" in text(result, known)
