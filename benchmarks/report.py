"""The report in the terminal: a table per cell, then the verdicts. Reads results, measures nothing.

An entry that could not run has a row with the reason. A ratio is how many times more a peer's entry
costs; ``entries.BESIDE`` has the peer's entry that each of ours is compared with, which is also
named below a table. Fits in a hundred columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.cells import CELLS, Cell
from benchmarks.entries import (
    AIO,
    AIOKAFKA,
    BESIDE,
    CLIENTS,
    CONFLUENT,
    ENTRIES,
    KAFKA_PYTHON,
    KCLIENT,
)
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
WIDE = 125
"""Width of a terminal, in columns, from which on headings needn't be broken."""
_SHORT = {CONFLUENT: "confluent", AIO: "confluent aio"}
_NARROW = {
    CONFLUENT: "con-\nfluent",
    AIO: "con-\nfluent\naio",
    AIOKAFKA: "aio-\nkafka",
    KAFKA_PYTHON: "kafka-\npython",
}
CAPTION = (
    "x: how many times cheaper kclient's CPU per record (or whatever figure +- stands behind) is\n"
    "than that of the peer's entry beside it, named below each table; median of the rounds' ratios"
)
COLUMNS: dict[str, tuple[Column, ...]] = {
    "produce": CPU,
    "consume": CPU,
    "latency": TIMES,
    "transactions": (("mean us", "mean_us", ",.0f"), *TIMES),
    "produce in transactions": CPU,
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
"""Columns of each workload; the spread follows the cell's own figure."""
_STYLES = {"holds": "green", "doesn't hold": "bold red", "not decided": "yellow"}


def subtitle(facts: Mapping[str, Any]) -> str:
    """Return one line about the session's environment; a file may lack any part of it."""
    versions = facts.get("versions", {})
    peers = ", ".join(f"{name} {versions[name]}" for name in PEERS if name in versions)
    return (
        f"Apache Kafka {facts.get('broker', '?')}, Python {facts.get('python', '?')}, "
        f"{facts.get('cpu', '?')} x {facts.get('cores', '?')}; "
        f"kclient {facts.get('kclient.record.IMPLEMENTATION', '?')} build; {peers}"
    )


def chart_subtitle(facts: Mapping[str, Any], runs: Sequence[Run]) -> str:
    """Return a chart's subtitle: how it was measured, and in which environment."""
    day = str(facts.get("when", "?"))[:10]
    rounds = _rounds(runs).partition(" of ")[0]
    return f"lower is better; {day}, medians of {rounds}; {subtitle(facts)}"


def show_about(console: Console, facts: Mapping[str, Any], runs: Sequence[Run]) -> None:
    """Print the session's environment, and how large it was."""

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False)

    say(subtitle(facts))
    load = facts.get("load", [0.0])[0]
    took = f", took {facts['seconds']} s" if "seconds" in facts else ""
    say(f"{facts.get('when', '?')}, {_rounds(runs)}, load at the start {load:.1f}{took}")
    if "check_us" in facts:
        say(f"readers' check of a 100-byte value: {facts['check_us']:.3f} us, in all")
    if facts.get("interrupted"):
        say("interrupted: not all rounds are here", "yellow")
    if load > (facts.get("cores") or 1):
        say("the machine had other work: trust ratios more than figures", "yellow")
    for name in facts.get("unknown", ()):
        say(f"not shown, as this version has no such cell or entry: {name}", "yellow")


def _rounds(runs: Iterable[Run]) -> str:
    """Return rounds and records, as ``3 to 5 rounds of 2,000 to 300,000 records``."""
    rounds: dict[tuple[str, str], int] = {}
    records: set[int] = set()
    for run in runs:
        entry = run.cell, run.entry
        rounds[entry] = max(rounds.get(entry, 0), run.round + 1)
        if "records" in run.outcome:
            records.add(run.outcome["records"])
    count = _range(set(rounds.values()))
    word = "round" if count == "1" else "rounds"
    return f"{count} {word} of {_range(records)} records" if records else f"{count} {word}"


def _range(numbers: set[int]) -> str:
    if not numbers:
        return "0"
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def show(console: Console, runs: Sequence[Run]) -> None:
    """Print all cells that were run."""
    summaries = summarize(runs)
    console.print()
    console.print(CAPTION, style="dim", markup=False, highlight=False)
    for name in dict.fromkeys(run.cell for run in runs):
        cell = CELLS[name]
        rows = [summaries[name, entry] for entry in cell.entries if (name, entry) in summaries]
        console.print()
        console.print(_table(cell, rows, runs, console.width >= WIDE))
        for line in _beside(cell, rows):
            console.print(line, style="dim", markup=False, highlight=False)
        for reason in _reasons(rows):
            console.print(f"  {escape(reason)}", style="yellow", highlight=False, soft_wrap=True)


def _table(cell: Cell, rows: Sequence[Summary], runs: Sequence[Run], wide: bool) -> Table:
    columns = COLUMNS[cell.workload]
    size = _rounds(run for run in runs if run.cell == cell.name)
    table = Table(
        title=f"[bold]{cell.name}[/], {size}",
        title_style="",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0) if wide else (0, 0, 0, 0),
    )
    table.add_column("entry", no_wrap=True)
    for heading, figure, _ in columns:
        words = (
            heading if wide else heading.replace("CPU us/", "CPU us\n/").replace(" each", "\neach")
        )
        table.add_column(words, justify="right", no_wrap=True)
        if figure == cell.figure:
            table.add_column("+-", justify="right", no_wrap=True)
    peers = [
        client
        for client in CLIENTS
        if client != KCLIENT and any(ENTRIES[one.entry].client == client for one in rows)
    ]
    for client in peers:
        words = _SHORT.get(client, client) if wide else _NARROW[client]
        table.add_column(words, justify="right", no_wrap=True)
    for one in rows:
        style = "bold" if ENTRIES[one.entry].client == KCLIENT else ""
        style = "dim" if ENTRIES[one.entry].tuned else style
        times = [_times(cell, one, client, runs) for client in peers]
        table.add_row(one.entry, *_cells(cell, one, columns), *times, style=style)
    return table


def _cells(cell: Cell, one: Summary, columns: Sequence[Column]) -> list[str]:
    if not one.figures:
        word = "failed" if one.error else "not run"
        return [f"[yellow]{word}[/]", *[""] * len(columns)]
    cells = []
    for _, figure, form in columns:
        value = one.figures.get(figure)
        cells.append("-" if value is None else format(value, form))
        if figure == cell.figure:
            cells.append(f"{one.spread(figure):.0%}" if one.runs > 1 else "-")
    return cells


def _beside(cell: Cell, rows: Sequence[Summary]) -> list[str]:
    """Return which peers' entries ours are compared with; ours with the same peers share a line."""
    there = {one.entry for one in rows}
    groups: dict[tuple[str, ...], list[str]] = {}
    for one in rows:
        peers = tuple(name for name in BESIDE.get(one.entry, ()) if name in there)
        if peers:
            groups.setdefault(peers, []).append(one.entry)
    return [f"  beside {'; '.join(ours)}: {'; '.join(peers)}" for peers, ours in groups.items()]


def _reasons(rows: Sequence[Summary]) -> list[str]:
    """Return why entries have no figures, or not all."""
    found = [f"{one.entry} was not run: {one.missing}" for one in rows if one.missing]
    found += [f"{one.entry} failed: {one.error}" for one in rows if one.error]
    return found


def _times(cell: Cell, mine: Summary, client: str, runs: Sequence[Run]) -> str:
    """Return how many times more than ours a client's closest entry costs."""
    for other in BESIDE.get(mine.entry, ()):
        if ENTRIES[other].client == client and other in cell.entries:
            times = ratio(runs, (cell.name, mine.entry), (cell.name, other), cell.figure)
            return "" if times is None else f"{times:,.{2 if times < 100 else 0}f}x"
    return ""


def show_verdicts(console: Console, verdicts: Sequence[Verdict], small: bool = False) -> None:
    """Print the floors and their verdicts; a small session decides none of them."""
    if not verdicts:
        return
    console.print()
    table = Table(title="what must hold", title_style="bold", title_justify="left")
    if small:
        table.title = "what must hold (a session with fewer rounds or records decides nothing)"
    for heading in ("row", "measured", "limit", ""):
        table.add_column(heading)
    for verdict in verdicts:
        word = f"[{_STYLES[verdict.holds]}]{verdict.holds}[/]"
        table.add_row(verdict.row, verdict.measured, verdict.limit, word)
    console.print(table)
    held = sum(verdict.holds == "holds" for verdict in verdicts)
    console.print(f"{held} of {len(verdicts)} bounds hold")
