"""Charts of a session: one of bars for each base cell, one per factor, one of latencies.

Written as PNG and SVG. The only module of the bench that needs matplotlib. Reads results only.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.cells import CELLS
from benchmarks.entries import (
    AIO,
    AIOKAFKA,
    CONFLUENT,
    ENTRIES,
    JAVA,
    KAFKA_PYTHON,
    KCLIENT,
    NOBODY,
    OWNERS,
    Entry,
)
from benchmarks.results import Run, Summary, summarize

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

COLORS = {
    KCLIENT: "#0f766e",
    CONFLUENT: "#c2703d",
    AIO: "#e3b48f",
    AIOKAFKA: "#64748b",
    KAFKA_PYTHON: "#b8c0cc",
    JAVA: "#a3b18a",
    NOBODY: "#d9c8e8",
}
INK, FAINT = "#1f2937", "#e5e7eb"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "kclient",
}
TUNED = "its own best settings"
HATCH = "////"
LONG_TAIL = 12.0
"""Bars longer than this many times kclient's slowest are cut, with their figure beside them."""


def draw(folder: Path, runs: Sequence[Run], subtitle: str) -> list[Path]:
    """Draw all charts for which there are runs; return the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    summaries = summarize(runs)
    made: list[Path] = []
    with pyplot.rc_context(STYLE):
        for cell, title in (
            ("produce: base", "Writing 100-byte records"),
            ("consume: base", "Reading 100-byte records"),
        ):
            rows = [one for one in summaries.values() if one.cell == cell and one.figures]
            if rows:
                made.append(_bars(folder, cell, title, rows, subtitle))
        for workload, word in (("produce", "Writing"), ("consume", "Reading")):
            made += _factors(folder, workload, word, list(summaries.values()), subtitle)
        rows = [s for s in summaries.values() if s.cell.startswith("latency:") and s.figures]
        if rows:
            made.append(_latency(folder, rows, subtitle))
    return made


def _bars(folder: Path, cell: str, title: str, rows: Sequence[Summary], subtitle: str) -> Path:
    """Horizontal bars, cheapest on top, each with its figure and the range of its runs."""
    rows = sorted(rows, key=lambda one: one.figures["cpu_us"], reverse=True)
    longest = max(one.figures["cpu_us"] for one in rows)
    ours = [one.figures["cpu_us"] for one in rows if ENTRIES[one.entry].client == KCLIENT]
    limit = min(longest, LONG_TAIL * max(ours, default=longest)) * 1.12
    figure, axes = pyplot.subplots(figsize=(10, 1.6 + 0.34 * len(rows)))
    for place, one in enumerate(rows):
        value, client = one.figures["cpu_us"], ENTRIES[one.entry].client
        axes.barh(place, min(value, limit), height=0.68, **_look(one))
        if value <= limit:
            low, high = one.lowest["cpu_us"], min(one.highest["cpu_us"], limit)
            axes.plot([low, high], [place, place], color=INK, linewidth=1.0, alpha=0.55)
        weight = "bold" if client == KCLIENT else "normal"
        at = min(max(value, one.highest["cpu_us"]), limit)
        if value > limit:
            _break(axes, limit * 0.94, place, limit)
        axes.text(at, place, f"  {value:.3g}", va="center", fontsize=9, fontweight=weight)
    axes.set_yticks(range(len(rows)), [one.entry for one in rows])
    for label, one in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if ENTRIES[one.entry].client == KCLIENT else "normal")
    axes.set_xlim(0, limit * 1.09)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_xlabel("client CPU per record, microseconds (user and system, all threads)")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    _legend(axes, [ENTRIES[one.entry] for one in rows])
    return _save(figure, folder, cell, title, subtitle)


def _look(one: Summary) -> dict[str, Any]:
    """A client's colour; hatched where it has its own best settings."""
    entry = ENTRIES[one.entry]
    if not entry.tuned:
        return {"color": COLORS[entry.client]}
    return {"facecolor": "white", "edgecolor": COLORS[entry.client], "hatch": HATCH, "linewidth": 1}


def _break(axes: Any, at: float, place: float, limit: float) -> None:
    """Draw two slanted white lines across a bar that is cut there."""
    for shift in (0.0, limit * 0.012):
        ends = [at + shift - limit * 0.004, at + shift + limit * 0.004]
        axes.plot(ends, [place - 0.42, place + 0.42], color="white", linewidth=2.5, zorder=3)


def _factors(
    folder: Path, workload: str, word: str, summaries: Sequence[Summary], subtitle: str
) -> list[Path]:
    """One small chart per factor, side by side: all entries of a cell as bars."""
    names = [
        name
        for name, cell in CELLS.items()
        if cell.workload == workload and not name.endswith(": base")
    ]
    charts = [
        (name, rows)
        for name in names
        if (rows := [one for one in summaries if one.cell == name and one.figures])
    ]
    if not charts:
        return []
    columns = min(3, len(charts))
    lines = -(-len(charts) // columns)
    figure, grid = pyplot.subplots(
        lines, columns, figsize=(5.2 * columns, 0.6 + 1.95 * lines), squeeze=False
    )
    flat = [axes for line in grid for axes in line]
    for axes, (name, rows) in zip(flat, charts, strict=False):
        _small(axes, CELLS[name].factor, rows)
    for axes in flat[len(charts) :]:
        axes.axis("off")
    title = f"{word}: one factor changed at a time"
    return [_save(figure, folder, f"{workload} factors", title, f"CPU us per record, {subtitle}")]


def _small(axes: Any, title: str, rows: Sequence[Summary]) -> None:
    rows = list(reversed(rows))
    most = max(one.figures["cpu_us"] for one in rows)
    for place, one in enumerate(rows):
        value = one.figures["cpu_us"]
        axes.barh(place, value, height=0.7, **_look(one))
        axes.text(value, place, f" {value:.3g}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [one.entry for one in rows], fontsize=8)
    axes.set_xlim(0, most * 1.18)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)


def _latency(folder: Path, rows: Sequence[Summary], subtitle: str) -> Path:
    """From p50 to p99 on a logarithmic axis, a panel per cell."""
    cells = list(dict.fromkeys(one.cell for one in rows))
    groups = [
        sorted(
            (one for one in rows if one.cell == cell),
            key=lambda one: one.figures["p50_us"],
            reverse=True,
        )
        for cell in cells
    ]
    figure, panels = pyplot.subplots(
        len(cells),
        1,
        figsize=(10, 1.7 + 0.36 * len(rows) + 0.5 * len(cells)),
        height_ratios=[len(group) for group in groups],
        sharex=True,
        squeeze=False,
    )
    for (axes,), cell, group in zip(panels, cells, groups, strict=True):
        axes.set_title(CELLS[cell].factor, loc="left", fontsize=10, fontweight="bold")
        _spans(axes, group)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(right=max(one.figures["p99_us"] for one in rows) * 20)
    axes.set_xlabel("microseconds for one record, linger 0; dot p50, bar p99")
    return _save(figure, folder, "latency", "One record at a time", subtitle)


def _spans(axes: Any, rows: Sequence[Summary]) -> None:
    for place, one in enumerate(rows):
        low, high = one.figures["p50_us"], one.figures["p99_us"]
        color = COLORS[ENTRIES[one.entry].client]
        axes.plot([low, high], [place, place], color=color, linewidth=5, alpha=0.3)
        axes.plot(low, place, "o", color=color, markersize=9)
        axes.plot(high, place, "|", color=color, markersize=11, markeredgewidth=2)
        axes.text(high * 1.12, place, f"{low:,.0f} / {high:,.0f}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [one.entry for one in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)


def _legend(axes: Any, entries: Sequence[Entry]) -> None:
    """On white, so that the grid doesn't go through it."""
    labels = [name for name in OWNERS if any(entry.client == name for entry in entries)]
    handles = [Rectangle((0, 0), 1, 1, color=COLORS[name]) for name in labels]
    if any(entry.tuned for entry in entries):
        labels.append(TUNED)
        handles.append(Rectangle((0, 0), 1, 1, facecolor="white", edgecolor=INK, hatch=HATCH))
    legend = axes.legend(
        handles, labels, loc="upper right", facecolor="white", framealpha=1.0, fontsize=9
    )
    legend.get_frame().set_linewidth(0)
    legend.set_zorder(4)


def _save(figure: Any, folder: Path, name: str, title: str, subtitle: str) -> Path:
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(subtitle, round(width * 15))
    height = max(height, 2.6) + 0.19 * len(lines)
    figure.set_size_inches(width, height)
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.50 + 0.19 * len(lines)) / height))
    figure.text(0.015, 1 - 0.30 / height, title, fontsize=14, fontweight="bold")
    for number, line in enumerate(lines):
        figure.text(0.015, 1 - (0.56 + 0.19 * number) / height, line, fontsize=9, color="#6b7280")
    stem = name.replace(": ", "-").replace(" ", "-")
    path = folder / f"{stem}.png"
    figure.savefig(path, dpi=150)
    figure.savefig(folder / f"{stem}.svg", metadata={"Date": None})
    pyplot.close(figure)
    return path
