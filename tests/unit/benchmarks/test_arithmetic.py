"""Medians, ratios, verdicts, comparison; and how a failing or missing peer is shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.__main__ import ours_failed
from benchmarks.broker import Address
from benchmarks.compare import differences
from benchmarks.floors import Against, Floor, looked_at, read_floors, verdicts
from benchmarks.report import show, show_verdicts
from benchmarks.results import Run, ratio, summarize
from benchmarks.runner import Plan, Session, _outcome
from benchmarks.saved import NotASession, load, save

CELL, MINE, PEER = "consume: base", "kclient poll", "confluent consume"


def runs(entry: str, *costs: float, cell: str = CELL) -> list[Run]:
    return [
        Run(cell, entry, number, {"cpu_us": cost, "per_second": 1e6 / cost, "build": "cython"})
        for number, cost in enumerate(costs)
    ]


def shown(found: list[Run]) -> str:
    text = io.StringIO()
    console = Console(width=200, file=text)
    show(console, found)
    show_verdicts(console, verdicts(read_floors(), found))
    return text.getvalue()


def test_a_summary_has_median_range_and_spread() -> None:
    summary = summarize(runs(MINE, 0.2, 0.9, 0.1, 0.3, 0.2))[CELL, MINE]
    assert summary.figures["cpu_us"] == 0.2
    assert (summary.lowest["cpu_us"], summary.highest["cpu_us"]) == (0.1, 0.9)
    assert summary.spread("cpu_us") == pytest.approx(2.0)
    assert summary.runs == 5


def test_a_ratio_is_taken_within_rounds() -> None:
    # The machine was half as fast in the second round; the ratio must not change.
    found = runs(MINE, 0.1, 0.2, 0.1) + runs(PEER, 0.3, 0.6, 0.4)
    assert ratio(found, (CELL, MINE), (CELL, PEER), "cpu_us") == pytest.approx(3.0)


def test_a_ratio_needs_a_common_round() -> None:
    assert ratio(runs(MINE, 0.1), (CELL, MINE), (CELL, PEER), "cpu_us") is None
    failed = [Run(CELL, PEER, 0, {"error": "no"}), *runs(MINE, 0.1)]
    assert ratio(failed, (CELL, MINE), (CELL, PEER), "cpu_us") is None


def test_verdicts_hold_fail_or_stay_open() -> None:
    floors = [
        Floor("a", CELL, MINE, at_most=0.2, against=(Against(PEER, CELL, cheaper=3.0),)),
        Floor("b", CELL, PEER, at_most=0.2, against=(Against(MINE, CELL, within=1.5),)),
        Floor("c", CELL, "kclient async for", at_most=0.2),
    ]
    found = verdicts(floors, runs(MINE, 0.1) + runs(PEER, 0.4))
    words = ["holds", "holds", "doesn't hold", "doesn't hold", "not decided"]
    assert [one.holds for one in found] == words
    assert found[1].measured == "4.00x cheaper"
    assert found[3].measured == "4.00x"


def test_the_cost_without_a_client_stands_beside_a_ratio_and_is_measured_in_all_rounds() -> None:
    bare = "no client: asyncio"
    floor = Floor("a", CELL, MINE, against=(Against(PEER, CELL, within=0.6),), bare=bare)
    found = runs(MINE, 0.4) + runs(PEER, 0.5)
    assert verdicts([floor], found)[0].measured == "0.80x"
    (verdict,) = verdicts([floor], found + runs(bare, 0.35))
    assert (verdict.measured, verdict.holds) == ("0.80x (no client: 0.70x)", "doesn't hold")
    assert (CELL, bare) in looked_at([floor])


@pytest.mark.parametrize(
    "text",
    [
        '[[floor]]\nrow = "r"\ncell = "c"\nentry = "d"\n',
        '[[floor]]\nrow = "r"\ncell = "c"\nentry = "d"\nagainst = [{ entry = "x" }]\n',
    ],
)
def test_floors_without_a_bound_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "floors.toml"
    path.write_text(text)
    with pytest.raises(ValueError):
        read_floors(path)


def test_a_missing_peer_is_named_with_its_reason() -> None:
    reason = "confluent-kafka can't be imported: No module named 'confluent_kafka'"
    text = shown([*runs(MINE, 0.1), Run(CELL, PEER, 0, {"missing": reason})])
    assert "not run" in text
    assert reason in text


def test_a_failed_run_is_shown_and_only_ours_is_a_failure_of_the_bench() -> None:
    found = [*runs(MINE, 0.1), Run(CELL, PEER, 0, {"error": "KafkaException: [broke] down"})]
    text = shown(found)
    assert "failed" in text
    assert "KafkaException: [broke] down" in text
    assert not ours_failed(found)
    assert ours_failed([*found, Run(CELL, MINE, 1, {"error": "ValueError: read 3 records"})])


def test_some_good_runs_are_shown_beside_the_error() -> None:
    text = shown([*runs(MINE, 0.123), Run(CELL, MINE, 1, {"error": "once"})])
    assert "0.123" in text
    assert "once" in text


def test_a_worker_that_dies_without_json_leaves_its_last_line() -> None:
    assert _outcome("", "Traceback\nboom: it broke\n", 1) == {"error": "boom: it broke"}
    assert "code -9" in _outcome("", "", -9)["error"]
    assert _outcome('noise\n{"cpu_us": 1.0}\n', "", 0) == {"cpu_us": 1.0}


def session(**changes: Any) -> Session:
    address = Address("nowhere:1", None, None, "x")
    return Session(address, Plan(()), None, **changes)  # type: ignore[arg-type]


def test_what_is_missing_is_not_tried_again_what_fails_twice_neither() -> None:
    from benchmarks.cells import CELLS

    one = session()
    cell = CELLS[CELL]
    one.runs = [Run(CELL, PEER, 0, {"missing": "not there"}), Run(CELL, MINE, 0, {"error": "x"})]
    assert one._gave_up(cell, PEER)
    assert not one._gave_up(cell, MINE)
    one.runs.append(Run(CELL, MINE, 1, {"error": "x"}))
    assert one._gave_up(cell, MINE)


def test_tls_cells_without_a_listener_are_named_not_dropped() -> None:
    from benchmarks.cells import CELLS

    found = list(session()._round(CELLS["produce: TLS"], 0))
    assert {run.entry for run in found} == set(CELLS["produce: TLS"].entries)
    assert all("--tls-bootstrap" in run.outcome["missing"] for run in found)


def test_another_build_than_the_sessions_is_an_error() -> None:
    from benchmarks.job import Job

    one = session(build="cython")
    job = Job(MINE, "nowhere:1", 1)
    assert "error" in one._same_build(job, {"cpu_us": 1.0, "build": "pure"})
    assert one._same_build(job, {"cpu_us": 1.0}) == {"cpu_us": 1.0}


def test_sessions_are_saved_loaded_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    save(path, {"broker": "4.3.0"}, runs(MINE, 0.1, 0.2, 0.3))
    facts, found = load(path)
    assert facts == {"broker": "4.3.0"}
    assert found == runs(MINE, 0.1, 0.2, 0.3)
    (difference,) = differences(found, runs(MINE, 0.25))
    assert (difference.first, difference.second) == (0.2, 0.25)
    assert difference.apart == pytest.approx(0.25)


def test_a_file_that_is_no_session_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text("[]")
    with pytest.raises(NotASession, match=r"b\.json"):
        load(path)
