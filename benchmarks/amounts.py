"""How many records a run gets: as many as the others of its cell, whichever client it is.

What starting costs inside the watch (first fetches, first batches) is spread over a run's records,
so different amounts would favour the entry with more. ``cells`` has the amount of each cell;
entries that would take far too long have a limit of their own, ``Entry.most``, and cells of growth
have amounts per entry.
"""

from __future__ import annotations

from benchmarks.cells import Cell
from benchmarks.entries import Entry

WARM_UP_READING = 100_000
"""More than two full responses of four partitions; librdkafka's queue holds as many."""
WARM_UP_WRITING = 20_000
"""Two windows: the most records that are in flight at a time."""
WARM_UP_SHARE = 5
"""Where growth is compared, writers warm up on this fraction (one fifth) of their records: with a
million records and a thousand partitions, each partition then gets a full batch, and memory for all
of them is allocated. Readers warm up on a copy of their topics, see ``runner``."""
WARM_UP_BYTES = 20_000_000
READING = ("consume", "hold reading")


def records_for(
    cell: Cell, entry: Entry, fixed: int | None = None, divided: int = 1, scale: float = 1.0
) -> int:
    """Records of one run.

    Args:
        fixed: The user's ``--records``, for cells whose amount isn't part of what they measure.
        divided: A cell's amount is divided by this.
        scale: Factor for amounts that a cell has per entry, if the cell allows it.
    """
    amount = cell.records.get(entry.name, cell.records.get(""))
    if amount is not None:
        return min(entry.most, int(amount * scale) if cell.scales else amount)
    wanted = cell.amount // divided if fixed is None else fixed
    return max(1, min(entry.most, wanted))


def warm_up_for(cell: Cell, records: int) -> int:
    """Records of the warm-up: enough to have code, connections and buffers in use."""
    size: int = cell.settings.get("size", 100)
    usual = WARM_UP_READING if cell.workload in READING else WARM_UP_WRITING
    if cell.settings.get("spread") and cell.workload not in READING:
        usual = records // WARM_UP_SHARE
    wanted: int = cell.settings.get("warm_up", usual)
    return max(1, min(wanted, records // 2, WARM_UP_BYTES // size))
