"""The report fits its width, states the session's size and shows no meaningless rate."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.cells import CELLS
from benchmarks.floors import Verdict
from benchmarks.report import chart_subtitle, show, show_about, show_verdicts
from benchmarks.results import Run, summarize
from benchmarks.tally import Watch


def shown(runs: list[Run], width: int = 100) -> str:
    text = io.StringIO()
    console = Console(width=width, file=text)
    show_about(console, {"when": "2031-05-06T07:08:09+00:00"}, runs)
    show(console, runs)
    return text.getvalue()


def every(workload: str, rounds: int = 1) -> list[Run]:
    figures = {"cpu_us": 1234.567, "p50_us": 2_003_123.0, "p99_us": 2_004_123.0, "kib": 600.0}
    figures |= {"native_threads": 5.0, "cpu_ms_s": 0.5, "longest_ms": 64.2, "cpu_ms": 212.0}
    figures |= {
        "mean_us": 2_003_500.0,
        "decode_s": 0.3,
        "update_s": 0.3,
        "per_second": 1_037_422.0,
        "records": 1_000,
    }
    return [
        Run(cell.name, entry, number, dict(figures))
        for cell in CELLS.values()
        if cell.workload == workload
        for entry in cell.entries
        for number in range(rounds)
    ]


@pytest.mark.parametrize("workload", sorted({cell.workload for cell in CELLS.values()}))
@pytest.mark.parametrize("width", [100, 150])
def test_tables_fit_and_nothing_is_cut(workload: str, width: int) -> None:
    text = shown(every(workload), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


def test_rounds_records_date_and_the_meaning_of_a_ratio_are_shown() -> None:
    text = shown(every("consume", rounds=2))
    assert "2031-05-06" in text
    assert "2 rounds of 1,000 records" in text
    assert "how many times cheaper" in text
    assert "beside kclient poll_arrow: confluent consume" in text
    assert "0%" in text
    assert "lower is better; 2031-05-06, medians of 1 round; Apache Kafka" in chart_subtitle(
        {"when": "2031-05-06T"}, every("latency")
    )


def test_one_round_has_no_spread() -> None:
    assert "0%" not in shown(every("consume", rounds=1))


def test_a_small_session_states_that_it_decides_nothing() -> None:
    found = [Verdict("a", "1 us", "<= 2 us", "holds")]
    for small in (True, False):
        text = io.StringIO()
        show_verdicts(Console(width=100, file=text), found, small)
        assert ("decides nothing" in text.getvalue()) is small


def rate(monkeypatch: pytest.MonkeyPatch, waited: float, first: int, after: float) -> object:
    times = iter((0.0, waited, waited + after))
    monkeypatch.setattr("benchmarks.tally.time.perf_counter", lambda: next(times))
    watch = Watch()
    watch.start()
    watch.lap(first)
    watch.stop()
    return watch.outcome(1_000)["per_second"]


def test_a_rate_is_reported_when_nearly_all_came_after_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert rate(monkeypatch, waited=0.5, first=100, after=1.0) == 900
    assert rate(monkeypatch, waited=0.5, first=200, after=1.0) is None
    assert rate(monkeypatch, waited=1.0, first=100, after=0.5) is None


def test_rates_that_are_not_reported_are_shown_as_such() -> None:
    runs = [Run("consume: base", "kclient poll", 0, {"cpu_us": 0.1, "per_second": None})]
    assert "per_second" not in summarize(runs)["consume: base", "kclient poll"].figures
    row = next(line for line in shown(runs).splitlines() if "kclient poll" in line)
    assert row.split()[-2:] == ["-", "-"]
