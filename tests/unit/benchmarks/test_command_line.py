"""Bad options are refused before anything is measured; later failures lose no measurements."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as bench
from benchmarks.broker import Address
from benchmarks.entries import ENTRIES
from benchmarks.job import Job
from benchmarks.results import Run
from benchmarks.runner import Plan, Session, _outcome
from benchmarks.saved import NotASession, load, save
from benchmarks.worker import files_of_kclient, run
from kclient.errors import KafkaError

CELL, MINE = "consume: base", "kclient poll"


@pytest.fixture
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> Any:
        raise AssertionError("measured")

    monkeypatch.setattr(bench, "measure", measure)


@pytest.mark.parametrize("option", ["--rounds", "--records"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", ""])
def test_numbers_are_whole_and_positive(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main([f"{option}={value}"])
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert f"argument {option}: {value!r} is not a whole number of at least 1" in text


@pytest.mark.usefixtures("nothing_is_measured")
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--tls-bootstrap", "h:1"], "--bootstrap"),
        (["--bootstrap", "h:1", "--ca", "x.pem"], "--tls-bootstrap"),
        (["--json", "FOLDER/none/a.json"], "--json"),
        (["--json", "FOLDER"], "--json"),
        (["--plots", "FOLDER/file/charts"], "--plots"),
        (["--only", "nosuch"], "nosuch"),
        (["--python", "FOLDER/none"], "--python"),
    ],
)
def test_what_can_not_be_followed_is_refused_before_measuring(
    arguments: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    said = [argument.replace("FOLDER", str(tmp_path)) for argument in arguments]
    assert bench.main(said) == 2
    text = capsys.readouterr().err
    assert word in text
    assert said[-1] in text or "--ca" in text or "--tls" in text
    assert text.count("\n") == 1


def test_another_interpreter_is_given_the_same_options(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    program.chmod(0o755)
    assert bench.main(["--only", "lz4", "--python", str(program)]) == 3
    assert capfd.readouterr().out.startswith("-m benchmarks --only lz4 ")


def test_looking_whether_a_file_can_be_written_leaves_nothing_and_spoils_nothing(
    tmp_path: Path,
) -> None:
    bench.try_file(tmp_path / "new.json")
    assert list(tmp_path.iterdir()) == []
    old = tmp_path / "old.json"
    old.write_text("kept")
    bench.try_file(old)
    assert old.read_text() == "kept"


def test_the_report_comes_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [Run(CELL, MINE, 0, {"cpu_us": 0.123, "records": 7, "per_second": None})]
    monkeypatch.setattr(bench, "measure", lambda *_: ({}, runs))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench, "save", full)
    assert bench.main(["--json", str(tmp_path / "a.json")]) == 1
    found = capsys.readouterr()
    assert "0.123" in found.out
    assert "No space left" in found.err


def test_a_reader_of_the_report_that_went_away_loses_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [Run(CELL, MINE, 0, {"cpu_us": 0.123})]
    monkeypatch.setattr(bench, "measure", lambda *_: ({}, runs))

    def gone(*_: Any) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(bench, "report", gone)
    with pytest.raises(SystemExit):
        bench.main(["--json", str(tmp_path / "a.json")])
    assert load(tmp_path / "a.json") == ({}, runs)


def test_profile_reports_when_no_entry_has_the_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.profiling import session

    monkeypatch.setattr("shutil.which", lambda *_, **__: "/py-spy")
    options = argparse.Namespace(only="nosuch", bootstrap="h:1", records=None)
    assert session.profile(options) == 2
    assert "nosuch" in capsys.readouterr().err
    assert [entries for _, entries, _ in session.chosen("POLL_ARROW")] == [["kclient poll_arrow"]]


def test_topics_that_can_not_be_deleted_lose_no_session() -> None:
    def delete(names: Any) -> None:
        raise KafkaError("the broker is gone")

    reported: list[str] = []
    topics: Any = SimpleNamespace(delete=delete)
    session = Session(Address("nowhere:1", None, None, "x"), Plan(()), topics, reported.append)
    session.drop(["a"])
    assert "the broker is gone" in reported[0]


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "not json", '{"about": {}, "runs": []}', '{"about": {}, "runs": [1]}', None],
)
@pytest.mark.parametrize("option", ["--show", "--compare"])
def test_what_is_no_session_is_refused_in_one_line(
    text: str | None, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.json"
    if text is not None:
        path.write_text(text)
    assert bench.main([option, *[str(path)] * (2 if option == "--compare" else 1)]) == 1
    error = capsys.readouterr().err
    assert str(path) in error
    assert error.count("\n") == 1
    with pytest.raises(NotASession):
        load(path)


def test_cells_that_were_renamed_are_skipped_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.json"
    save(path, {}, [Run(CELL, MINE, 0, {"cpu_us": 0.123})])
    content = json.loads(path.read_text())
    content["runs"].append({**content["runs"][0], "cell": "consume: gone"})
    path.write_text(json.dumps(content))
    assert bench.main(["--show", str(path)]) == 0
    text = capsys.readouterr().out
    assert "0.123" in text
    assert "consume: gone" in text
    assert bench.main(["--compare", str(path), str(path)]) == 0


def test_a_entry_of_ours_that_can_not_be_imported_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(entry: Any) -> Any:
        raise ImportError("no such thing")

    monkeypatch.setattr(type(ENTRIES[MINE]), "function", function)
    ours = run(Job(MINE, "nowhere:1", 1))
    assert "no such thing" in ours["error"]
    assert "missing" in run(Job("confluent consume", "nowhere:1", 1))
    assert bench.ours_failed([Run(CELL, MINE, 0, ours)])


def test_a_worker_that_breaks_after_its_figures_has_failed() -> None:
    assert "code -11" in _outcome('{"cpu_us": 1.0}\n', "", -11)["error"]
    assert "boom" in _outcome('{"cpu_us": 1.0}\n', "boom\n", 1)["error"]
    assert _outcome('{"error": "x"}\n', "", 1) == {"error": "x"}
    assert "error" in _outcome('{"cpu_us": 1.', "", 0)


def test_files_that_change_meanwhile_are_noticed() -> None:
    session = Session(Address("nowhere:1", None, None, "x"), Plan(()), None)  # type: ignore[arg-type]
    job = Job(MINE, "nowhere:1", 1)
    good = {"cpu_us": 1.0, "build": "cython", "files": "a"}
    assert session._same_build(job, good) == good
    assert "changed" in session._same_build(job, {**good, "files": "b"})["error"]
    assert files_of_kclient() == files_of_kclient() != ""
