"""How many records a run gets: as many as the others of its cell, whichever client it is.

What starting costs inside the watch (first fetches, first batches) is spread over a run's records,
so amounts that differ would favour whoever gets more. Cells say theirs in ``cells``; entries that
would take far too long have a limit of their own, ``Entry.most``, and growth has amounts per entry.
"""

from __future__ import annotations

from benchmarks.cells import Cell
from benchmarks.entries import Entry

WARM_UP_READING = 100_000
"""More than two full responses of four partitions; librdkafka's queue takes as many."""
WARM_UP_WRITING = 20_000
"""Two windows: the deepest that sent records pile up."""
WARM_UP_SHARE = 5
"""Where growth is compared, writers warm up on one in so many of their records: of a million, over
a thousand partitions, each partition gets a full batch then, and memory for all of them is there.
Readers warm up on a copy of their topics, see ``runner``."""
WARM_UP_BYTES = 20_000_000
READING = ("consume", "hold reading")


def records_for(
    cell: Cell, entry: Entry, fixed: int | None = None, divided: int = 1, scale: float = 1.0
) -> int:
    """Records of one run.

    Args:
        fixed: What the user said, for all runs of cells whose amount isn't part of their meaning.
        divided: A cell's amount is divided by this.
        scale: Of what cells say per entry, where they allow it.
    """
    told = cell.records.get(entry.name, cell.records.get(""))
    if told is not None:
        return min(entry.most, int(told * scale) if cell.scales else told)
    wanted = cell.amount // divided if fixed is None else fixed
    return max(1, min(entry.most, wanted))


def warm_up_for(cell: Cell, records: int) -> int:
    """Records that go before: enough to have code, connections and buffers in use."""
    size: int = cell.settings.get("size", 100)
    usual = WARM_UP_READING if cell.workload in READING else WARM_UP_WRITING
    if cell.settings.get("spread") and cell.workload not in READING:
        usual = records // WARM_UP_SHARE
    told: int = cell.settings.get("warm_up", usual)
    return max(1, min(told, records // 2, WARM_UP_BYTES // size))
