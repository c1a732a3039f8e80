"""The command line of chaos: what it requests, and how it ends."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import __main__ as command
from tests.chaos.judge import Verdict
from tests.chaos.ledger import Ledger
from tests.chaos.measures import Fault
from tests.chaos.plan import Wishes
from tests.chaos.report import Result
from tests.history import Kind


class Stage:
    """Stand-in for the nodes and the run.

    Attributes:
        asked: The requested runs.
        verdict: The verdict that a run returns.
        level: The clients' log level during the run.
    """

    def __init__(self) -> None:
        self.asked: list[Wishes] = []
        self.verdict = Verdict()
        self.level = 0
        self.dies: Exception | None = None

    @contextlib.contextmanager
    def three_nodes(self, version: str, *, purpose: str) -> Iterator[None]:
        assert (version, purpose) == ("4.3.0", "chaos")
        if self.dies is not None:
            raise self.dies
        yield None

    async def run(self, wishes: Wishes, nodes: None, emit: Callable[[str], object]) -> Result:
        self.asked.append(wishes)
        self.level = logging.getLogger("kclient").getEffectiveLevel()
        emit("at work")
        ledger = Ledger()
        account = ledger.open("one")
        for number in range(20):
            account.ok(account.offer(float(number)), number + 0.1, 0, number)
        account.fail(account.offer(20.0), 20.1, "DeliveryTimedOut", True)
        fault = Fault("kill", 5.0, 1, frozenset({0}))
        return Result(wishes, ledger, [fault], self.verdict, {"load": 1.0}, found=20)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()
    monkeypatch.setattr(command, "three_nodes", made.three_nodes)
    monkeypatch.setattr(command, "run", made.run)
    return made


SMALL = ["--records", "20", "--kills", "1", "--cuts", "0", "--seed", "3"]


def test_a_run_that_is_well_ends_with_0_and_a_report(
    stage: Stage, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main([*SMALL, "--json", str(tmp_path / "out.json")]) == 0
    assert stage.asked == [Wishes(records=20, kills=1, cuts=0, seed=3)]
    said = capsys.readouterr().out
    assert "at work" in said
    assert said.endswith("passed: chaos with seed 3\n")
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["passed"] is True
    assert written["acked"] == 20
    assert written["wishes"]["seed"] == 3


def test_a_violation_ends_it_with_1(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.verdict.report.add(Kind.LOST_WRITE, "this one")
    assert command.main(SMALL) == 1
    said = capsys.readouterr().out
    assert "LOST_WRITE x 1" in said and "this one" in said
    assert said.endswith("FAILED: chaos with seed 3\n")


def test_a_run_that_is_not_what_was_asked_for_ends_it_with_1(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*SMALL, "--stops", "2"]) == 1
    assert "WRONG not what was asked for: 0 stops of 2" in capsys.readouterr().out


def test_nodes_that_do_not_come_up_end_it_with_1_and_the_reason(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.dies = RuntimeError("node 2 ended while starting")
    assert command.main(SMALL) == 1
    said = capsys.readouterr()
    assert "node 2 ended while starting" in said.err
    assert "FAILED: the run with seed 3 did not come to an end" in said.out


def test_clients_log_errors_only_unless_more_is_wanted_and_as_before_behind_it(
    stage: Stage,
) -> None:
    before = logging.getLogger("kclient").level
    levels = []
    for options in ([], ["--verbose"]):
        command.main([*SMALL, *options])
        levels.append(stage.level)
    assert levels == [logging.ERROR, logging.WARNING]
    assert logging.getLogger("kclient").level == before


def test_without_options_it_is_the_run_of_ci(stage: Stage) -> None:
    command.main([])
    assert stage.asked == [Wishes()]


@pytest.mark.parametrize(
    "wrong",
    [["--minutes", "0"], ["--kills", "-1"], ["--partitions", "0"], ["--compression", "zip"]],
)
def test_what_can_not_be_is_refused(stage: Stage, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(wrong)
    assert ended.value.code == 2
    assert stage.asked == []
