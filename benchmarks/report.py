"""The report in the terminal: a table per cell, then the verdicts. Reads results, measures nothing.

A door that could not run is a row with its reason. Ratios say how many times more a peer's door
costs; which door of a peer is beside which of ours is in ``doors.BESIDE``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.cells import CELLS, Cell
from benchmarks.doors import BESIDE, CLIENTS, DOORS, KCLIENT
from benchmarks.floors import Verdict
from benchmarks.results import Run, Summary, ratio, summarize

_STYLES = {"holds": "green", "doesn't hold": "bold red", "not decided": "yellow"}


def show(console: Console, runs: Sequence[Run]) -> None:
    """All cells that were run."""
    summaries = summarize(runs)
    for name in dict.fromkeys(run.cell for run in runs):
        cell = CELLS[name]
        rows = [summaries[name, door] for door in cell.doors if (name, door) in summaries]
        console.print(_table(cell, rows, runs))


def _table(cell: Cell, rows: Sequence[Summary], runs: Sequence[Run]) -> Table:
    table = Table(title=cell.name, title_style="bold", title_justify="left", caption=cell.note)
    table.add_column("door", no_wrap=True)
    for heading in ("CPU us/record", "+-", "records/s"):
        table.add_column(heading, justify="right")
    peers = [
        client
        for client in CLIENTS
        if client != KCLIENT and any(DOORS[one.door].client == client for one in rows)
    ]
    for client in peers:
        table.add_column(f"{client} costs", justify="right")
    table.add_column("", no_wrap=False)
    for one in rows:
        style = "bold" if DOORS[one.door].client == KCLIENT else ""
        style = "dim" if DOORS[one.door].tuned else style
        reason = f"not run: {one.missing}" if one.missing else ""
        reason = f"failed: {one.error}" if one.error else reason
        cells = ["", "", ""]
        if one.figures:
            cells = [
                f"{one.figures[cell.figure]:.3f}",
                f"{one.spread(cell.figure):.0%}",
                f"{one.figures['per_second']:,.0f}",
            ]
        times = [_times(cell, one, client, runs) for client in peers]
        table.add_row(one.door, *cells, *times, f"[yellow]{escape(reason)}[/]", style=style)
    return table


def _times(cell: Cell, mine: Summary, client: str, runs: Sequence[Run]) -> str:
    """How many times more than ours the nearest door of a client costs."""
    for other in BESIDE.get(mine.door, ()):
        if DOORS[other].client == client and other in cell.doors:
            times = ratio(runs, (cell.name, mine.door), (cell.name, other), cell.figure)
            return "" if times is None else f"{times:.2f}x"
    return ""


def show_verdicts(console: Console, verdicts: Sequence[Verdict]) -> None:
    """The rows that must hold."""
    table = Table(title="what must hold", title_style="bold", title_justify="left")
    for heading in ("row", "measured", "limit", ""):
        table.add_column(heading)
    for verdict in verdicts:
        word = f"[{_STYLES[verdict.holds]}]{verdict.holds}[/]"
        table.add_row(verdict.row, verdict.measured, verdict.limit, word)
    console.print(table)
    held = sum(verdict.holds == "holds" for verdict in verdicts)
    console.print(f"{held} of {len(verdicts)} bounds hold")
