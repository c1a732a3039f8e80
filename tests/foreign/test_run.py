"""A client that hangs, dies or leaves something out has failed: the matrix claims no more."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.foreign.__main__ import compare, matrix
from tests.foreign.features import FEATURES
from tests.foreign.run import Outcome, Report, outcomes_of
from tests.foreign.scene import Scene, play


def reported(**line: object) -> str:
    return json.dumps(line)


def test_a_feature_that_was_not_reached_has_failed_with_the_last_output() -> None:
    lines = [
        reported(feature="version", status="ok", seen="1.2"),
        reported(feature="load", status="ok", seen=3, seconds=0.5),
        reported(feature="topics.list", status="unable", why="it can't"),
    ]
    wanted = ("load", "topics.list", "topics.grow", "topics.delete")
    report = outcomes_of("some", lines, "last words", -9, wanted)
    assert report.version == "1.2"
    assert report.outcomes["load"] == Outcome("load", "ok", "", 3, 0.5)
    assert report.outcomes["topics.list"].why == "it can't"
    assert report.outcomes["topics.grow"].status == "failed"
    assert "-9" in report.outcomes["topics.grow"].why
    assert "last words" in report.outcomes["topics.grow"].why
    assert report.outcomes["topics.delete"].status == "failed"


def test_a_line_that_was_cut_off_is_a_feature_that_failed() -> None:
    whole = reported(feature="load", status="ok")
    report = outcomes_of("some", [whole[:-3]], "", 1, ("load",))
    assert report.outcomes["load"].status == "failed"


def test_a_feature_that_raises_has_failed_and_the_next_one_is_played(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def broken(_: Scene) -> object:
        raise AssertionError("not so")

    unable = dict.fromkeys(FEATURES, "left out here")
    del unable["load"], unable["topics.list"]
    command = ["--bootstrap", "nowhere:1", "--only", "load", "topics.list"]
    played = {"load": broken, "topics.list": lambda scene: scene.name("x")}
    play("1", played, unable, command)
    version, first, second = map(json.loads, capfd.readouterr().out.splitlines())
    assert version["seen"] == "1"
    assert first["status"] == "failed" and "not so" in first["error"]
    assert second["status"] == "ok" and second["seen"] == "foreign-x"


@pytest.mark.parametrize("unable", [{}, dict.fromkeys([*FEATURES, "made.up"], "")])
def test_a_client_must_report_on_every_feature(unable: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match="left out"):
        play("1", {}, unable, ["--bootstrap", "nowhere:1"])


def test_the_matrix_reports_failures_and_comparisons_report_differences() -> None:
    outcomes = {
        "load": Outcome("load", "failed", "no"),
        "topics.list": Outcome("topics.list", "ok", seen=[1]),
    }
    reports = [Report("some", "1.2", outcomes)]
    table = matrix(reports, tuple(outcomes))
    assert "| 1.2 |" in table and "| FAILED |" in table and "| ok |" in table
    assert "EndTxn" not in table
    spoken = [replace(reports[0], end_versions=(3, 5))]
    assert "| EndTxn | 3, 5 |" in matrix(spoken, tuple(outcomes))
    assert compare(reports, {"some": {"topics.list": [1], "load": 2}}) == ""
    assert "topics.list" in compare(reports, {"some": {"topics.list": [2]}})
