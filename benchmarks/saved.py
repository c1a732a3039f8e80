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
    """A file isn't what ``--json`` wrote; the text says which and why."""


def save(path: Path, facts: dict[str, Any], runs: Sequence[Run]) -> None:
    """Write everything: what it ran on, every run, their medians, the verdicts."""
    names = list(dict.fromkeys(run.cell for run in runs))
    content = {
        "about": facts,
        "cells": [_described(CELLS[name]) for name in names],
        "summaries": [
            {"cell": one.cell, "door": one.door, "runs": one.runs, "medians": one.figures}
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
    """What ``save`` wrote.

    Raises:
        NotASession: It can't be read, or is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content["about"], [Run(**run) for run in content["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotASession(f"{path} can't be read as a session: {error!r}") from error
