"""Sessions as files: written by ``--json``, read by ``--compare`` and for plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import CELLS, Cell
from benchmarks.floors import read_floors, verdicts
from benchmarks.results import Run, summarize


class NotASession(Exception):
    """A file isn't what ``--json`` wrote; the text has its name and the reason."""


def save(path: Path, facts: dict[str, Any], runs: Sequence[Run]) -> None:
    """Write everything: the environment, every run, their medians, the verdicts."""
    names = list(dict.fromkeys(run.cell for run in runs))
    content = {
        "about": facts,
        "cells": [_described(CELLS[name]) for name in names],
        "summaries": [
            {"cell": one.cell, "entry": one.entry, "runs": one.runs, "medians": one.figures}
            for one in summarize(runs).values()
        ],
        "verdicts": [
            {"row": one.row, "measured": one.measured, "limit": one.limit, "verdict": one.holds}
            for one in verdicts([f for f in read_floors() if f.cell in names], runs)
        ],
        "runs": [run.to_dict() for run in runs],
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _described(cell: Cell) -> dict[str, Any]:
    return {"name": cell.name, "workload": cell.workload, "settings": cell.settings}


def load(path: Path) -> tuple[dict[str, Any], list[Run]]:
    """Read what ``save`` wrote, without runs of cells and entries that this version doesn't have.

    Raises:
        NotASession: The file can't be read, or is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotASession(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise NotASession(f"{path} is not a session: no JSON ({error})") from error
    try:
        facts, runs = content["about"], [_run(run) for run in content["runs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise NotASession(f"{path} is not a session: it isn't what --json writes") from error
    if not isinstance(facts, dict) or not runs:
        raise NotASession(f"{path} is not a session: nothing was measured in it")
    known = [run for run in runs if _known(run)]
    unknown = sorted({f"{run.cell}, {run.entry}" for run in runs if not _known(run)})
    return (facts | {"unknown": unknown} if unknown else facts), known


def _known(run: Run) -> bool:
    return run.cell in CELLS and run.entry in CELLS[run.cell].entries


def _run(content: dict[str, Any]) -> Run:
    run = Run(**content)
    outcome: Any = run.outcome
    if not (isinstance(run.cell, str) and isinstance(run.entry, str)):
        raise TypeError("a run's cell and entry are names")
    if not (isinstance(run.round, int) and isinstance(outcome, dict)):
        raise TypeError("a run has a round and an outcome")
    return run
