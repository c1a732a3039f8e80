"""The report in the terminal: a table per cell, then the verdicts. Reads results, measures nothing.

A door that could not run is a row with its reason. Ratios say how many times more a peer's door
costs; which door of a peer is beside which of ours is in ``doors.BESIDE``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.cells import CELLS, Cell
from benchmarks.doors import AIO, BESIDE, CLIENTS, CONFLUENT, DOORS, KCLIENT
from benchmarks.floors import Verdict
from benchmarks.results import Run, Summary, ratio, summarize

PEERS = ("confluent-kafka", "librdkafka", "aiokafka", "kafka-python")
Column = tuple[str, str, str]
"""Heading, figure and format."""
CPU: tuple[Column, ...] = (
    ("CPU us/record", "cpu_us", ".3f"),
    ("records/s", "per_second", ",.0f"),
)
TIMES: tuple[Column, ...] = (
    ("p50 us", "p50_us", ",.0f"),
    ("p99 us", "p99_us", ",.0f"),
    ("CPU us/record", "cpu_us", ",.0f"),
)
HOLD: tuple[Column, ...] = (("longest ms", "longest_ms", ".1f"), ("CPU us/record", "cpu_us", ".2f"))
_SHORT = {CONFLUENT: "confluent", AIO: "its aio"}
COLUMNS: dict[str, tuple[Column, ...]] = {
    "produce": CPU,
    "consume": CPU,
    "latency": TIMES,
    "end to end": TIMES,
    "hold reading": HOLD,
    "hold writing": HOLD,
    "idle": (
        ("KiB each", "kib", ",.0f"),
        ("threads each", "native_threads", ".1f"),
        ("CPU ms/s each", "cpu_ms_s", ".2f"),
    ),
    "import": (("CPU ms", "cpu_ms", ".1f"),),
    "metadata": (
        ("decode s", "decode_s", ".2f"),
        ("and update s", "update_s", ".2f"),
        ("longest step ms", "longest_ms", ".1f"),
    ),
}
"""What is shown of each workload; the spread follows the cell's own figure."""
_STYLES = {"holds": "green", "doesn't hold": "bold red", "not decided": "yellow"}


def subtitle(facts: Mapping[str, Any]) -> str:
    """One line on what a session ran on."""
    versions = facts["versions"]
    peers = ", ".join(f"{name} {versions[name]}" for name in PEERS if name in versions)
    return (
        f"Apache Kafka {facts['broker']}, Python {facts['python']}, {facts['cpu']} x "
        f"{facts['cores']}; kclient {facts['kclient.record.IMPLEMENTATION']} build; {peers}"
    )


def show_about(console: Console, facts: Mapping[str, Any]) -> None:
    """What the session ran on."""
    console.print(subtitle(facts), markup=False, highlight=False)
    load = facts["load"][0]
    took = f", took {facts['seconds']} s" if "seconds" in facts else ""
    console.print(f"{facts['when']}, load at the start {load:.1f}{took}", highlight=False)
    check = facts.get("check_us", 0.0)
    console.print(f"readers' check of a 100-byte value: {check:.3f} us, in all", highlight=False)
    if facts.get("interrupted"):
        console.print("[yellow]interrupted: not all rounds are here[/]")
    if load > (facts["cores"] or 1):
        console.print("[yellow]the machine had other work: trust ratios more than figures[/]")


def show(console: Console, runs: Sequence[Run]) -> None:
    """All cells that were run."""
    summaries = summarize(runs)
    for name in dict.fromkeys(run.cell for run in runs):
        cell = CELLS[name]
        rows = [summaries[name, door] for door in cell.doors if (name, door) in summaries]
        console.print(_table(cell, rows, runs))
        for reason in _reasons(rows):
            console.print(f"  {escape(reason)}", style="yellow", highlight=False, soft_wrap=True)


def _table(cell: Cell, rows: Sequence[Summary], runs: Sequence[Run]) -> Table:
    columns = COLUMNS[cell.workload]
    table = Table(title=cell.name, title_style="bold", title_justify="left")
    table.add_column("door", no_wrap=True)
    for heading, figure, _ in columns:
        table.add_column(heading, justify="right")
        if figure == cell.figure:
            table.add_column("+-", justify="right")
    peers = [
        client
        for client in CLIENTS
        if client != KCLIENT and any(DOORS[one.door].client == client for one in rows)
    ]
    for client in peers:
        table.add_column(_SHORT.get(client, client), justify="right")
    for one in rows:
        style = "bold" if DOORS[one.door].client == KCLIENT else ""
        style = "dim" if DOORS[one.door].tuned else style
        times = [_times(cell, one, client, runs) for client in peers]
        table.add_row(one.door, *_cells(cell, one, columns), *times, style=style)
    return table


def _cells(cell: Cell, one: Summary, columns: Sequence[Column]) -> list[str]:
    if not one.figures:
        word = "failed" if one.error else "not run"
        return [f"[yellow]{word}[/]", *[""] * len(columns)]
    cells = []
    for _, figure, form in columns:
        cells.append(format(one.figures[figure], form))
        if figure == cell.figure:
            cells.append(f"{one.spread(figure):.0%}")
    return cells


def _reasons(rows: Sequence[Summary]) -> list[str]:
    """Why doors have no figures, or not all."""
    found = [f"{one.door} was not run: {one.missing}" for one in rows if one.missing]
    found += [f"{one.door} failed: {one.error}" for one in rows if one.error]
    return found


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
