"""The budgets: how profiles are read, what exceeds a budget, and that no path is skipped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.budgets import book, machine, plants
from tests.budgets.__main__ import BUILDS, main
from tests.budgets.hot_path import FACTOR, HotPath
from tests.budgets.machine import CantCount, Cost
from tests.budgets.paths import PATHS
from tests.budgets.plants import BadPlant, Plant
from tests.budgets.profile import BadProfile, Profile, read
from tests.budgets.workload import blocks_kept, in_a_child

ROOT = Path(__file__).resolve().parents[3]
PROFILE = """
version: 1
positions: line
events: Ir
summary: 4711

ob=(1) python
fl=(1) obmalloc.c
fn=(1) PyObject_Malloc
0 20
cfn=(2) _PyObject_Malloc
calls=3 120
0 90

fn=(3) list_append
0 10
cfn=(2)
calls=4 120
0 120
cob=(2) libc.so.6
cfn=(4) memcpy
calls=5 7
0 50
"""
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
COST = Cost(instructions=1000.0, calls=40.0, allocations=2.0, kept=1.0)


def test_a_profile_gives_instructions_calls_and_allocations() -> None:
    assert read(PROFILE.splitlines()) == Profile(instructions=4711, calls=12, allocations=7)


def test_lookups_that_depend_on_where_names_lie_in_memory_are_no_calls() -> None:
    missed = "fn=(5) f\ncfn=(6) assign_version_tag.isra.0\ncalls=9 1\n0 9\n"
    assert read((PROFILE + missed).splitlines()) == read(PROFILE.splitlines())


@pytest.mark.parametrize(
    "text",
    ["", "fn=(1) f", "summary: many", "summary: 1\nfn=(7)\ncfn=(7)", "summary: 1\nfn=f"],
)
def test_what_is_no_profile_is_refused(text: str) -> None:
    with pytest.raises(BadProfile):
        read(text.splitlines())


def test_a_record_costs_what_the_larger_run_has_more() -> None:
    path = next(path for path in PATHS if path.name == "append")
    more = 2 * path.count
    small = Profile(1_000_000, 50_000, 3_000)
    large = Profile(1_000_000 + 100 * more, 50_000 + 7 * more, 3_000 + more)
    assert machine._cost(path, small, large, [10, 10]) == Cost(100.0, 7.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("figure", "allowed", "over"),
    [
        ("instructions", 1099.9, 1100.1),
        ("calls", 40.4, 40.6),
        ("allocations", 2.24, 2.26),
        ("kept", 1.14, 1.16),
    ],
)
def test_each_count_has_its_slack(figure: str, allowed: float, over: float) -> None:
    def found(count: float) -> list[book.Excess]:
        counts = {name: getattr(COST, name) for name in Cost.__slots__}
        return book.excesses("compiled", "append", COST, Cost(**{**counts, figure: count}))

    assert found(allowed) == []
    (excess,) = found(over)
    assert excess.figure == figure
    assert str(excess).startswith("compiled append: ")


def test_budgets_are_written_as_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "budgets.toml"
    costs = {"compiled": {"append": COST}, "pure": {"append": COST}}
    book.save(file, costs)
    assert book.load(file) == costs
    assert file.read_text().startswith("# ")


@pytest.mark.parametrize("text", [None, "[compiled", "[compiled.append]\ncalls = 1.0\n"])
def test_without_readable_budgets_nothing_is_within_them(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "budgets.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(book.NoBudget, match="--record"):
        book.load(file)


def test_every_path_has_a_budget_in_every_file() -> None:
    files = sorted(book.HERE.glob("budgets-*.toml"))
    assert files
    for file in files:
        stored = book.load(file)
        assert list(stored["compiled"]) == [path.name for path in PATHS]
        assert list(stored["pure"]) == [path.name for path in PATHS if path.pure]


def test_a_missing_valgrind_fails_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CantCount, match=r"valgrind is missing.*apt-get install"):
        machine.measure(PATHS[:1], pure=False)


def test_the_command_fails_without_valgrind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.budgets", "--only", "append", "--build", "pure"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "valgrind is missing" in done.stderr


def test_a_path_over_its_budget_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "budgets.toml"
    found = {"pure": {"append": COST}}
    monkeypatch.setattr("tests.budgets.__main__.count", lambda *args: found)
    monkeypatch.setattr(book, "file_of_this_python", lambda: file)
    book.save(file, {"pure": {"append": COST}})
    assert main([]) == 0
    book.save(file, {"pure": {"append": Cost(900.0, 40.0, 2.0, 1.0)}})
    assert main([]) == 1
    assert "EXCEEDED  pure append: 1000.00 instructions" in capsys.readouterr().out
    book.save(file, {"pure": {"decode": COST}})
    assert main([]) == 1, "a path without a budget"
    found.clear()
    assert main([]) == 1, "nothing was counted"


def test_recording_some_paths_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "budgets.toml"
    cheaper = Cost(1.0, 1.0, 0.0, 0.0)
    monkeypatch.setattr(
        "tests.budgets.__main__.count", lambda *args: {"compiled": {"append": cheaper}}
    )
    monkeypatch.setattr(book, "file_of_this_python", lambda: file)
    book.save(file, {"compiled": {"append": COST, "decode": COST}, "pure": {"append": COST}})
    assert main(["--record", "--only", "append", "--build", "compiled"]) == 0
    assert book.load(file) == {
        "compiled": {"append": cheaper, "decode": COST},
        "pure": {"append": COST},
    }


@pytest.mark.parametrize("plant", plants.read(plants.HERE / "plants.toml"), ids=lambda p: p.about)
def test_a_plant_finds_its_place(plant: Plant) -> None:
    text = (ROOT / plant.file).read_text()
    assert plant.into(text) != text
    assert plant.build in BUILDS
    known = {path.name for path in PATHS if path.pure or plant.build == "compiled"}
    assert known.issuperset(plant.paths)


def test_a_plant_whose_place_is_ambiguous_is_refused() -> None:
    plant = Plant("a call", ("append",), "kclient/a.py", "f()", "f(), _planted()")
    with pytest.raises(BadPlant, match="2 times"):
        plant.into("f()\nf()\n")


def test_quick_plants_must_not_hide_each_other_in_one_path() -> None:
    plant = Plant("a call", ("append",), "kclient/a.py", "f()", "g()", quick=True)
    with pytest.raises(BadPlant, match="share a path"):
        plants.together([plant, plant])


def test_a_plant_is_noticed_where_its_paths_are_over_and_no_others() -> None:
    group = [Plant("a call", ("append", "send"), "kclient/a.py", "f()", "g()")]
    assert plants.judge(group, {"append", "send"}) == []
    assert plants.judge(group, {"append"}) == ["send is within its budget: a call"]
    assert plants.judge(group, {"append", "crc", "send"}) == ["crc has no plant and is over"]


def test_an_empty_call_exceeds_the_slack_of_every_path_of_records() -> None:
    """A call of an empty Python function counts as three or four calls."""
    per_request = {"single", "produce_request", "fetch_request"}
    for file in book.HERE.glob("budgets-*.toml"):
        for build, rows in book.load(file).items():
            for name, stored in rows.items():
                slower = Cost(stored.instructions, stored.calls + 3, stored.allocations, 0.0)
                found = book.excesses(build, name, stored, slower)
                assert [one.figure for one in found] == ([] if name in per_request else ["calls"])


@pytest.mark.parametrize("first_to_fill", range(1, 7))
def test_kept_memory_is_seen_whenever_a_cache_fills(first_to_fill: int) -> None:
    cache: list[object] = []
    runs = 0

    @contextlib.contextmanager
    def prepare(count: int) -> Iterator[Callable[[], object]]:
        def step() -> object:
            nonlocal runs
            runs += 1
            if runs == first_to_fill:
                cache.extend(object() for _ in range(900))
            return [object() if i % 10 == 0 else None for i in range(count)]

        yield step

    small, large = blocks_kept(HotPath("x", "a tenth is kept", prepare, 1000))
    assert (large - small) / (1000 * (FACTOR - 1)) == pytest.approx(0.1, abs=0.02)


def nothing(count: int) -> contextlib.AbstractContextManager[Callable[[], object]]:
    return contextlib.nullcontext(lambda: count)


@FORKS
def test_what_a_path_leaves_in_its_process_does_not_reach_the_next() -> None:
    left: list[int] = []

    def work(path: HotPath) -> list[int]:
        left.append(path.count)
        return left

    paths = [HotPath("x", "any", nothing, count) for count in (1, 2)]
    assert [in_a_child(work, path) for path in paths] == [[1], [2]]


@FORKS
def test_a_path_that_fails_in_its_process_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    def work(path: HotPath) -> None:
        raise LookupError(f"no {path.name} here")

    with pytest.raises(SystemExit, match="x failed"):
        in_a_child(work, HotPath("x", "any", nothing, 1))
    assert "LookupError: no x here" in capfd.readouterr().err
