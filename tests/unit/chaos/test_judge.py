"""The judge of chaos runs finds each planted violation, and none in a healthy run."""

from __future__ import annotations

import pytest

from tests.chaos.ledger import Fate
from tests.chaos.readers import Act
from tests.history import Kind, Written
from tests.unit.chaos.runs import Run


@pytest.fixture
def run() -> Run:
    """A hundred acknowledged records of two producers; nothing is read yet."""
    made = Run()
    for number in range(100):
        made.send(number % 2)
    return made


def in_log(run: Run, partition: int, *, producer: int = 0) -> list[int]:
    """Return the numbers of a producer's records in a log, in order."""
    account = run.ledger.accounts[producer]
    return [n for n in range(len(account)) if account.partition[n] == partition]


def renumber(log: list[Written]) -> None:
    log[:] = [written._replace(offset=at) for at, written in enumerate(log)]


def kinds(run: Run) -> set[Kind]:
    verdict = run.judge()
    assert not verdict
    return verdict.report.kinds


def test_a_run_as_it_should_be_is_well(run: Run) -> None:
    run.read()
    verdict = run.judge()
    assert verdict, str(verdict.report)
    assert (verdict.report.acknowledged, verdict.report.written) == (100, 100)
    assert verdict.report.delivered == 100


def test_both_partitions_and_all_sorts_of_records_are_in_it(run: Run) -> None:
    made = [run.recipe.make(0, number) for number in range(200)]
    assert {one.partition for one in made} == {None, 0, 1}
    assert {one.key is None for one in made} == {True, False}
    assert any(one.headers for one in made)
    assert max(len(one.value) for one in made) > 16_000
    assert run.logs[0] and run.logs[1]


def test_an_acknowledged_record_that_is_missing_is_lost(run: Run) -> None:
    run.logs[1].pop()
    run.read()
    assert Kind.LOST_WRITE in kinds(run)


def test_a_record_that_is_there_twice_is_a_duplicate(run: Run) -> None:
    run.append(1, 7)
    run.read()
    assert kinds(run) == {Kind.DUPLICATE}


def test_records_in_another_order_are_reordered(run: Run) -> None:
    first, second = run.offer(), run.offer()
    while run.home(0, first) != run.home(0, second):
        run.fail(first, False)
        first, second = second, run.offer()
    log = run.logs[run.home(0, first)]
    for number, offset in ((second, len(log)), (first, len(log) + 1)):
        run.append(0, number)
        run.ack(0, number, offset)
    run.read()
    assert kinds(run) == {Kind.REORDERED}


def test_a_record_that_was_reported_unwritten_and_is_found_is_named(run: Run) -> None:
    number = run.offer()
    run.fail(number, False)
    run.read()
    assert run.judge(), "it isn't there yet"
    run.append(0, number)
    run.read()
    assert kinds(run) == {Kind.FAILED_WRITE_FOUND}


@pytest.mark.parametrize("there", [True, False])
def test_a_record_that_may_be_written_may_be_there_or_not(run: Run, there: bool) -> None:
    number = run.offer()
    run.fail(number, True)
    if there:
        run.append(0, number)
    run.read()
    verdict = run.judge()
    assert verdict
    assert verdict.report.unknown == 1


def test_a_failure_that_does_not_state_whether_it_is_written_is_wrong(run: Run) -> None:
    number = run.offer()
    run.fail(number, None)
    run.read()
    verdict = run.judge()
    assert not verdict
    assert verdict.unsaid == [f"one {number}: DeliveryTimedOut"]
    assert run.ledger.accounts[0].fate[number] == Fate.UNSAID


def test_a_record_without_an_outcome_is_unresolved(run: Run) -> None:
    run.append(0, run.offer())
    run.read()
    assert kinds(run) == {Kind.UNRESOLVED}


def test_a_fate_reported_twice_is_named(run: Run) -> None:
    run.fail(3, True)
    run.read()
    assert kinds(run) == {Kind.RESOLVED_TWICE}


def test_another_offset_than_reported_is_wrong(run: Run) -> None:
    number = run.offer()
    run.append(0, number)
    run.ack(0, number, 0)
    run.read()
    assert kinds(run) == {Kind.WRONG_OFFSET}


def test_a_record_in_another_partition_than_reported_is_misrouted(run: Run) -> None:
    number = run.offer()
    other = 1 - run.home(0, number)
    log = run.logs[other]
    log.append(run.written(0, number, len(log)))
    run.ack(0, number, -1)
    run.read()
    assert kinds(run) == {Kind.MISROUTED}


def test_a_record_whose_key_changed_is_altered(run: Run) -> None:
    log = run.logs[0]
    log[4] = log[4]._replace(key=b"another")
    run.read()
    assert kinds(run) == {Kind.ALTERED}


def test_a_record_whose_bytes_changed_is_lost_and_a_phantom(run: Run) -> None:
    log = run.logs[0]
    value = log[4].value
    assert value is not None
    log[4] = log[4]._replace(value=value[:-1] + b"?")
    run.read()
    assert kinds(run) >= {Kind.LOST_WRITE, Kind.PHANTOM}


@pytest.mark.parametrize(
    "value", [b"what?", b"9.1.abc", b"0.70.abc", None, b"0.1%s." % (b"0" * 30)]
)
def test_a_record_that_no_producer_sent_is_named(run: Run, value: bytes | None) -> None:
    log = run.logs[0]
    log.append(Written(len(log), None, value))
    run.read()
    assert kinds(run) == {Kind.PHANTOM}


def test_a_record_that_was_refused_may_not_be_there(run: Run) -> None:
    number = run.offer()
    run.ledger.accounts[0].refused.add(number)
    run.fail(number, False)
    run.read()
    assert run.judge()
    run.append(0, number)
    run.read()
    assert kinds(run) == {Kind.FAILED_WRITE_FOUND}


# Reads.


def test_a_record_that_a_consumer_was_not_given_is_skipped(run: Run) -> None:
    for written in run.logs[0][1:]:
        run.trails[0].take_written(written)
    run.trails[1].act(Act.POSITION, 0)
    assert Kind.POLL_SKIP in kinds(run)


def test_a_consumer_that_is_given_nothing_has_not_seen_what_is_there(run: Run) -> None:
    assert kinds(run) == {Kind.UNSEEN}


def test_a_record_given_twice_is_doubled_unless_it_was_sought(run: Run) -> None:
    run.read()
    run.trails[0].act(Act.SEEK, 3)
    for written in run.logs[0][3:]:
        run.trails[0].take_written(written)
    assert run.judge()
    run.trails[0].take_written(run.logs[0][5])
    assert kinds(run) == {Kind.POLL_DOUBLED}


def test_a_record_of_a_paused_partition_is_named(run: Run) -> None:
    run.trails[0].act(Act.PAUSE)
    run.read()
    assert kinds(run) == {Kind.POLL_PAUSED}


def test_a_record_that_the_log_has_otherwise_is_named(run: Run) -> None:
    run.read()
    mine = in_log(run, 0)
    run.trails[0].act(Act.SEEK, 0)
    run.trails[0].take_written(run.written(0, mine[1], 0))
    assert Kind.POLL_PHANTOM in kinds(run)


def test_a_log_that_was_not_read_to_its_end_is_reported(run: Run) -> None:
    run.read()
    ends = {partition: len(log) for partition, log in run.logs.items()}
    verdict = run.judge({**ends, 1: ends[1] + 1})
    assert not verdict
    assert verdict.report
    assert verdict.unread == [f"chaos-1 has {ends[1]} records from 0 to {ends[1] + 1}"]


def test_numbers_of_offsets_in_a_log_are_as_they_are(run: Run) -> None:
    """A log that lost one record in the middle; the later ones moved up."""
    del run.logs[0][2]
    renumber(run.logs[0])
    run.read()
    assert kinds(run) >= {Kind.LOST_WRITE, Kind.WRONG_OFFSET}
