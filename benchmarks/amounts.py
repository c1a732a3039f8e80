"""How many records a run gets, so that every client works for about the same time.

Fast paths need many records to be measured at all, slow ones few to be done in time. What is shown
is per record, so amounts may differ. Consumers read topics to their end, so theirs come in steps:
doors of like speed share a topic.
"""

from __future__ import annotations

from typing import Any

from benchmarks.cells import Cell
from benchmarks.doors import Door

STEPS = (1_500_000, 300_000, 100_000, 30_000, 10_000, 3_000, 1_000)
MOST_BYTES = 250_000_000
"""Of values in one run."""
PURE_FACTOR = 8.0
_PER_BYTE = 0.0007
"""Expected microseconds per byte of a value beyond the first 100."""
_CODEC_OUT = {"lz4": 0.15, "snappy": 0.15, "zstd": 0.35, "gzip": 3.0}
_CODEC_IN = {"lz4": 0.04, "snappy": 0.06, "zstd": 0.08, "gzip": 0.3}


def expected_cost(cell: Cell, door: Door) -> float:
    """Microseconds of CPU that a record of this cell may take."""
    settings: dict[str, Any] = cell.settings
    size: int = settings.get("size", 100)
    codec: str = settings.get("codec", "none")
    cost: float = door.cost * (PURE_FACTOR if settings.get("pure") else 1.0)
    extra = (_CODEC_OUT if cell.workload == "produce" else _CODEC_IN).get(codec, 0.0)
    return cost + (extra + _PER_BYTE * (size - 100)) * (1.0 if codec == "none" else size / 100)


def records_for(
    cell: Cell, door: Door, seconds: float, fixed: int | None = None, scale: float = 1.0
) -> int:
    """Records of one run that should take about ``seconds`` of CPU.

    Args:
        fixed: What the user said, for all runs of cells that don't say it themselves.
        scale: Of what cells say themselves, where they allow it.
    """
    size: int = cell.settings.get("size", 100)
    told = cell.records.get(door.name, cell.records.get(""))
    if told is not None:
        return min(door.most, int(told * scale) if cell.scales else told)
    if fixed is not None:
        return min(door.most, fixed)
    wanted = min(seconds * 1e6 / expected_cost(cell, door), MOST_BYTES / size, door.most)
    if cell.workload == "consume":
        return min(STEPS, key=lambda step: abs(step - wanted) / (step + wanted))
    step = 10_000 if wanted >= 20_000 else 1_000
    return max(1_000, min(STEPS[0], int(wanted) // step * step))


def warm_up_for(cell: Cell, records: int) -> int:
    """Records that go before: enough to have all code and connections in use."""
    size: int = cell.settings.get("size", 100)
    told: int = cell.settings.get("warm_up", 5_000)
    return max(1, min(told, records // 2, 8_000_000 // size))
