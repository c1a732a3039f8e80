"""The judge of mixed groups sees what it must: a verdict without wrongs proves something."""

from __future__ import annotations

import json
import math

import pytest

from tests.mixed.judge import Absence, doubled, missing, repeated, silence, skips, wrongs
from tests.mixed.ledger import Ledger, Run, Span
from tests.mixed.members.emitting import report_read
from tests.mixed.scenario import Blow, Outcome


def run(first: int, last: int, member: str = "a", at: float = 0.0) -> Run:
    return Run(at, member, first, last)


def span(member: str, since: float, until: float, *runs: Run) -> Span:
    return Span(member, 0, since, until, runs)


@pytest.mark.parametrize(
    ("reads", "end", "lost"),
    [
        ([], 3, [(0, 2)]),
        ([], 0, []),
        ([run(0, 2)], 3, []),
        ([run(1, 2)], 3, [(0, 0)]),
        ([run(4, 5), run(0, 1), run(1, 2)], 7, [(3, 3), (6, 6)]),
        ([run(0, 1), run(5, 9)], 4, [(2, 3)]),
        ([run(0, 9), run(2, 3)], 10, []),
    ],
)
def test_offsets_that_no_member_read_are_found(
    reads: list[Run], end: int, lost: list[tuple[int, int]]
) -> None:
    assert missing(reads, end) == lost


def test_a_member_that_goes_on_behind_a_gap_has_skipped_it() -> None:
    assert skips(span("a", 0.0, 9.0, run(5, 7), run(9, 9))) == ["a skipped 8 to 8 of partition 0"]
    assert not skips(span("a", 0.0, 9.0, run(5, 7), run(6, 9), run(10, 11)))


def test_a_gap_that_another_member_reads_is_a_skip_still() -> None:
    ledger = Ledger()
    ledger.assigned("a", 1.0, [0])
    ledger.read("a", 1.1, 0, 0, 3)
    ledger.read("a", 1.2, 0, 6, 9)
    ledger.gone("a", 2.0, [0])
    ledger.assigned("b", 2.1, [0])
    ledger.read("b", 2.2, 0, 4, 5)
    ledger.close()
    assert wrongs(ledger, {0: 10}, [], {"a", "b"}) == ["a skipped 4 to 5 of partition 0"]
    assert not wrongs(ledger, {0: 10}, [], {"b"})


def test_two_owners_at_a_time_are_found() -> None:
    spans = [span("a", 1.0, 3.0), span("b", 2.5, 4.0)]
    assert doubled(spans, []) == [
        "partition 0 was b's 0.500 s before it was no longer a's",
    ]
    assert not doubled([span("a", 1.0, 3.0), span("b", 3.0, 4.0)], [])
    assert len(doubled([span("a", 1.0, math.inf), span("b", 2.0, 3.0), span("c", 4, 5)], [])) == 2


def test_what_a_stopped_member_owned_may_be_anothers_from_then_on() -> None:
    spans = [span("a", 1.0, 9.0), span("b", 5.0, 10.0)]
    assert not doubled(spans, [Absence("a", 2.0)])
    assert doubled(spans, [Absence("a", 6.0)])
    assert doubled(spans, [Absence("a", 0.5)]), "it was stopped before it owned it"
    assert doubled(spans, [Absence("b", 2.0)])


def test_what_a_member_is_given_after_it_was_asked_to_leave_may_be_anothers() -> None:
    spans = [span("a", 1.0, 9.0), span("b", 5.0, 10.0)]
    assert not doubled(spans, [Absence("a", 0.5, leaves=True)])
    assert not doubled(spans, [Absence("a", 2.0, leaves=True)])
    assert doubled(spans, [Absence("a", 6.0, leaves=True)])


def test_the_longest_silence_of_an_owner_leaves_out_when_it_was_stopped() -> None:
    spans = [
        span("a", 1.0, 9.0, run(0, 1, at=2.0), run(2, 3, at=5.5), run(4, 4, at=8.0)),
        span("b", 1.0, math.inf, run(0, 1, "b", at=2.0)),
        span("c", 1.0, 3.0),
    ]
    assert silence(spans, []) == 3.5
    assert silence(spans, [Absence("a", 3.0)]) == 2.5
    assert silence(spans[2:], []) == 2.0


def test_records_that_were_read_again_are_counted() -> None:
    ledger = Ledger()
    ledger.read("a", 1.0, 0, 0, 4)
    ledger.read("b", 1.0, 0, 3, 6)
    ledger.read("b", 1.0, 1, 2, 2)
    assert repeated(ledger, {0: 7, 1: 4}) == 2


def test_what_a_member_owns_follows_its_reports() -> None:
    ledger = Ledger()
    assert ledger.owned("a") is None
    ledger.gone("a", 1.0, [])
    assert ledger.owned("a") == frozenset()
    ledger.assigned("a", 1.0, [1, 2])
    ledger.assigned("a", 2.0, [3])
    ledger.gone("a", 3.0, [2])
    assert ledger.owned("a") == {1, 3}
    assert (ledger.moved(1.5), ledger.moved(0.0)) == (1, 3)
    ledger.ended("a", 4.0)
    assert ledger.owned("a") is None
    assert [(one.partition, one.since, one.until) for one in ledger.spans] == [
        (2, 1.0, 3.0),
        (1, 1.0, 4.0),
        (3, 2.0, 4.0),
    ]


def test_a_blow_is_slow_beyond_the_session_the_grace_and_what_the_machine_took() -> None:
    outcome = Outcome("group", "range", 6.0)
    outcome.blows = [
        Blow("in time", 11.0, 0.0, bounded=True),
        Blow("held up", 13.0, 2.5, bounded=True),
        Blow("a start", 20.0, 0.0, bounded=False),
        Blow("slow", 11.5, 0.1, bounded=True),
    ]
    assert [text.partition(":")[0] for text in outcome.slow()] == ["slow"]


def test_records_are_reported_as_runs_without_a_gap(capsys: pytest.CaptureFixture[str]) -> None:
    report_read([(0, 1), (1, 7), (0, 2), (0, 4), (1, 8), (0, 5)])
    report_read([])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["runs"] == [[0, 1, 2], [1, 7, 8], [0, 4, 5]]
