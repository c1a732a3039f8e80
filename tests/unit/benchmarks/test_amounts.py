"""Compared entries get equal record counts, so that start-up costs weigh the same for each."""

from __future__ import annotations

import pytest

from benchmarks.amounts import records_for, warm_up_for
from benchmarks.broker import Address
from benchmarks.cells import CELLS, Cell
from benchmarks.entries import BESIDE, ENTRIES
from benchmarks.floors import looked_at, read_floors
from benchmarks.results import ROUNDS
from benchmarks.runner import FEW, FEWER, Plan, Session
from benchmarks.values import shares

EXCEPTIONS = {
    "kafka-python send",
    "confluent aio 1,000 tasks",
    "confluent aio 1,000 tasks, tuned",
    "confluent aio poll",
}
"""Named in the README; no floor covers them."""
THROUGHPUT = [
    cell
    for cell in CELLS.values()
    if cell.workload in ("produce", "consume") and not cell.settings.get("spread")
]


@pytest.mark.parametrize("divided", [1, 3])
@pytest.mark.parametrize("cell", THROUGHPUT, ids=lambda cell: cell.name)
def test_all_entries_of_a_cell_get_the_same_but_for_the_named_ones(
    cell: Cell, divided: int
) -> None:
    found = {
        (records_for(cell, ENTRIES[name], None, divided), warm_up_for(cell, cell.amount // divided))
        for name in cell.entries
        if name not in EXCEPTIONS
    }
    assert len(found) == 1


@pytest.mark.parametrize("name", ["kclient enqueue", "kclient send_many"])
def test_each_partition_gets_a_full_batch_before_growth_is_measured(name: str) -> None:
    cell = CELLS["produce: 1,000 partitions"]
    records = warm_up_for(cell, records_for(cell, ENTRIES[name]))
    assert records * 100 > 1_000 * cell.settings["batch_size"]


def test_the_users_record_count_applies_to_all_entries() -> None:
    cell = CELLS["consume: base"]
    assert {records_for(cell, ENTRIES[name], 777) for name in cell.entries} == {777}


def test_growth_keeps_its_own_amounts_whatever_the_user_sets() -> None:
    cell = CELLS["produce: 1,000 partitions"]
    assert records_for(cell, ENTRIES["kclient enqueue"], 777) == 1_000_000


def test_what_floors_compare_is_equal_also_where_entries_are_limited() -> None:
    for floor in read_floors():
        for bound in floor.against:
            assert bound.entry not in EXCEPTIONS, floor.row
    compared = {name for names in BESIDE.values() for name in names}
    assert compared & EXCEPTIONS, "the README names these as compared, but not by a floor"


def test_what_floors_compare_runs_in_every_round_and_all_else_in_the_first_few() -> None:
    every = looked_at(read_floors())
    session = Session(Address("nowhere:1", None, None, "x"), Plan((), every=every), None)  # type: ignore[arg-type]
    base, gzip = CELLS["consume: base"], CELLS["consume: gzip"]
    for entry in ("kclient poll", "confluent consume", "aiokafka async for"):
        assert session._wanted(base, entry, ROUNDS - 1)
    assert session._wanted(gzip, "kclient poll", FEWER - 1)
    assert not session._wanted(gzip, "kclient poll", FEWER)
    assert session._wanted(base, "kafka-python poll", FEW - 1)
    assert not session._wanted(base, "kafka-python poll", FEW)
    idle = CELLS["idle: 100 consumers"]
    assert not session._wanted(idle, idle.entries[0], idle.rounds)
    session.plan = Plan(())
    assert session._wanted(gzip, "kclient poll", 100), "the user said how many rounds"


@pytest.mark.parametrize("count", [1, 999, 1_000, 1_001, 2_500])
def test_odd_numbers_are_dealt_out_whole(count: int) -> None:
    found = shares(count, 1_000)
    assert [number for part in found for number in part] == list(range(count))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
