"""The registry of cells has every factor, entry and client that the bench promises."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.amounts import WARM_UP_READING, records_for, warm_up_for
from benchmarks.cells import CELLS, Cell
from benchmarks.entries import BESIDE, CLIENTS, ENTRIES, KCLIENT, NOBODY
from benchmarks.floors import read_floors
from benchmarks.report import COLUMNS
from benchmarks.runner import choose

FACTORS = (
    "lz4",
    "zstd",
    "snappy",
    "gzip",
    "1 KiB",
    "100 KiB",
    "key",
    "headers",
    "uvloop",
    "pure build",
    "TLS",
    "1 partition",
    "10 partitions",
    "100 partitions",
    "1,000 partitions",
    "1 topic",
    "32 topics",
)


@pytest.mark.parametrize("factor", ["base", *FACTORS])
@pytest.mark.parametrize("workload", ["produce", "consume"])
def test_each_factor_is_a_cell_of_its_own(workload: str, factor: str) -> None:
    cell = CELLS[f"{workload}: {factor}"]
    assert cell.workload == workload
    assert any(ENTRIES[entry].client == KCLIENT for entry in cell.entries)


def test_a_cell_differs_from_the_base_in_what_it_is_named_after() -> None:
    assert CELLS["produce: base"].settings == {}
    assert CELLS["produce: lz4"].settings == {"codec": "lz4"}
    assert CELLS["consume: 1 KiB"].settings == {"size": 1024}
    assert CELLS["produce: pure build"].settings == {"pure": True}
    assert CELLS["consume: uvloop"].settings == {"loop": "uvloop"}
    one, many = CELLS["produce: 10 partitions"], CELLS["produce: 1,000 partitions"]
    assert {**one.settings, "partitions": 1_000} == many.settings
    assert CELLS["consume: 1 topic"].settings == CELLS["consume: 32 topics"].settings


def test_about_forty_cells() -> None:
    assert 38 <= len(CELLS) <= 48


def test_the_base_has_every_entry_of_ours() -> None:
    ours = {entry.name for entry in ENTRIES.values() if entry.client == KCLIENT}
    wanted = {
        f"kclient {name}"
        for name in (
            "send",
            "send, gathered",
            "enqueue",
            "enqueue_nowait",
            "send_many",
            "send_arrow",
            "1,000 tasks",
            "poll",
            "async for",
            "poll_arrow",
        )
    }
    assert wanted <= ours
    based = {*CELLS["produce: base"].entries, *CELLS["consume: base"].entries}
    assert wanted <= based


def test_every_client_writes_and_reads_in_the_base() -> None:
    for cell in ("produce: base", "consume: base"):
        assert {ENTRIES[entry].client for entry in CELLS[cell].entries} == set(CLIENTS)


@pytest.mark.parametrize("cell", CELLS.values(), ids=lambda cell: cell.name)
def test_a_cell_can_be_run_and_shown(cell: Cell) -> None:
    assert len(set(cell.entries)) == len(cell.entries) > 0
    figures = [figure for _, figure, _ in COLUMNS[cell.workload]]
    assert cell.figure in figures
    for name in cell.entries:
        entry = ENTRIES[name]
        assert entry.workload == cell.workload
        records = records_for(cell, entry)
        size = cell.settings.get("size", 100)
        assert 1 <= records <= 260_000_000 / size
        growth = cell.settings.get("spread")
        most = records // 2 if growth else WARM_UP_READING
        assert 0 < warm_up_for(cell, records) <= most or records == 1
        assert warm_up_for(cell, records) < records or records == 1


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.name)
def test_the_module_of_an_entry_is_there(entry: object) -> None:
    module = ENTRIES[entry.name].run.partition(":")[0]  # type: ignore[attr-defined]
    assert importlib.util.find_spec(f"benchmarks.clients.{module}")


def test_kclients_entries_stand_beside_entries_of_the_same_workload() -> None:
    for mine, others in BESIDE.items():
        for other in others:
            assert ENTRIES[mine].workload == ENTRIES[other].workload
            assert ENTRIES[other].client != KCLIENT
            assert not ENTRIES[other].tuned, "equal settings gate"


def test_floors_name_cells_and_entries_that_exist() -> None:
    floors = read_floors()
    assert len(floors) > 20
    for floor in floors:
        assert floor.entry in CELLS[floor.cell].entries, floor.row
        assert floor.bare is None or floor.bare in CELLS[floor.cell].entries, floor.row
        for bound in floor.against:
            assert bound.entry in CELLS[bound.cell].entries, floor.row
            assert not ENTRIES[bound.entry].tuned, "equal settings gate"


def test_quick_leaves_out_cells_and_tuned_entries_but_no_client() -> None:
    quick = choose(tuple(CELLS.values()), True, None)
    assert 8 <= len(quick) < len(CELLS) / 2 + 1
    entries = {entry for cell in quick for entry in cell.entries}
    assert not any(ENTRIES[entry].tuned or ENTRIES[entry].slow for entry in entries)
    assert {ENTRIES[entry].client for entry in entries} == {*CLIENTS, NOBODY}


def test_only_picks_cells_or_entries_by_a_piece_of_their_name() -> None:
    cells = tuple(CELLS.values())
    assert [cell.name for cell in choose(cells, False, "lz4")] == ["produce: lz4", "consume: lz4"]
    found = choose(cells, False, "POLL_ARROW")
    entries = {"kclient poll_arrow", "kclient poll_arrow, in a group"}
    assert {entry for cell in found for entry in cell.entries} == entries
    assert choose(cells, False, "nothing like it") == ()
