"""The runner of the guards, on a toy project: what counts as noticed, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guards.__main__ import main, row, try_all
from tests.guards.guard import BadGuard, Guard, read
from tests.guards.trial import Trial, Verdict

PACKAGE = '''
"""Toy."""
__all__ = ["double"]
LIMIT = 10


def double(number):
    if number > LIMIT:
        raise ValueError(number)
    return 2 * number
'''
TESTS = """
import pytest
from toy.core import double

AT_IMPORT = double(3)


def test_limit():
    with pytest.raises(ValueError):
        double(11)


def test_weak():
    assert double


def test_red():
    assert double(2) == 5


@pytest.mark.skip
def test_skipped():
    pass
"""
WORTHLESS = Guard(
    "limit",
    "numbers over ten are refused",
    "toy/core.py",
    "    if number > LIMIT:\n        raise ValueError(number)\n",
    "",
    ("tests/test_toy.py::test_weak",),
)
ENTRY = """
[[guard]]
pitfall = "1"
about = "a"
file = "f.py"
find = '''x'''
replace = ''
tests = ["t.py::test_x"]
"""


def changed(guard: Guard = WORTHLESS, test: str = "test_limit", **fields: str) -> Guard:
    values = {name: getattr(guard, name) for name in ("pitfall", "about", "file", "find")}
    values |= {"replace": guard.replace, **fields}
    return Guard(tests=(f"tests/test_toy.py::{test}",), **values)


GUARDS = {
    "noticed": changed(),
    "weak": WORTHLESS,
    "absent": changed(find="number > 12"),
    "twice": changed(find="number"),
    "syntax": changed(replace="    if:\n"),
    "import": changed(find="LIMIT = 10", replace="import no_such_module"),
    "collection": changed(find="    return 2 * number", replace="    raise KeyError(number)"),
    "no file": changed(file="toy/none.py"),
    "elsewhere": changed(file="tests/test_toy.py", find="AT_IMPORT"),
    "red": changed(test="test_red"),
    "unknown": changed(test="test_none"),
    "skipped": changed(test="test_skipped"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Verdict, str]]:
    """What became of each of these guards."""
    project = tmp_path_factory.mktemp("project")
    (project / "toy").mkdir()
    (project / "toy" / "__init__.py").write_text("")
    (project / "toy" / "core.py").write_text(PACKAGE)
    (project / "tests").mkdir()
    (project / "tests" / "test_toy.py").write_text(TESTS)
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    trials = try_all(project, "toy", list(GUARDS.values()))
    after = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert after == before, "the working tree was touched"
    return {name: (trial.verdict, trial.why) for name, trial in zip(GUARDS, trials, strict=True)}


@pytest.mark.parametrize(
    ("name", "verdict", "why"),
    [
        ("noticed", Verdict.NOTICED, "test_limit: Failed: DID NOT RAISE"),
        ("weak", Verdict.UNNOTICED, "1 tests pass without it"),
        ("absent", Verdict.BROKEN, "0 times in toy/core.py"),
        ("twice", Verdict.BROKEN, "4 times in toy/core.py"),
        ("syntax", Verdict.BROKEN, "doesn't import: SyntaxError"),
        ("import", Verdict.BROKEN, "doesn't import: ModuleNotFoundError"),
        ("collection", Verdict.BROKEN, "collection failure"),
        ("no file", Verdict.BROKEN, "no file toy/none.py"),
        ("elsewhere", Verdict.BROKEN, "no file tests/test_toy.py in toy"),
        ("red", Verdict.BROKEN, "don't pass as things are: test_red: assert 4 == 5"),
        ("unknown", Verdict.BROKEN, "don't pass as things are"),
        ("skipped", Verdict.BROKEN, "test_skipped was skipped"),
    ],
)
def test_the_verdict_on_a_guard(
    outcomes: dict[str, tuple[Verdict, str]], name: str, verdict: Verdict, why: str
) -> None:
    found, said = outcomes[name]
    assert found is verdict, said
    assert why in said


def test_an_entry_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(ENTRY)
    assert read(path) == [Guard("1", "a", "f.py", "x", "", ("t.py::test_x",), False, "some.toml")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('pitfall = "1"', ""),
        ("find = '''x'''", "find = ''"),
        ("replace = ''", "replace = 'x'"),
        ('tests = ["t.py::test_x"]', "tests = []"),
        ('tests = ["t.py::test_x"]', "tests = ['t']\npure = 1"),
        ('about = "a"', 'about = "a"\ncolour = "red"'),
        ('about = "a"', "about = 1"),
        ("[[guard]]", "other = 1\n[[guard]]"),
        ("[[guard]]", "[[guard]"),
    ],
)
def test_an_entry_that_is_not_right_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "some.toml"
    path.write_text(ENTRY.replace(old, new))
    with pytest.raises(BadGuard, match=r"some\.toml"):
        read(path)


def test_the_guards_of_this_project_stand_where_their_entries_say() -> None:
    project = Path(__file__).parents[3]
    guards = [guard for path in (project / "tests/guards").glob("*.toml") for guard in read(path)]
    assert guards
    for guard in guards:
        guard.removed_from((project / guard.file).read_text())
        for test in guard.tests:
            file, *names = test.split("::")  # a whole file is a node id, too
            text = (project / file).read_text()
            assert not names or f"def {names[-1].partition('[')[0]}(" in text, test


def test_a_selection_that_is_empty_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "no such pitfall"]) == 1
    assert main(["no_such_file.toml"]) == 1
    assert "no guard to try" in capsys.readouterr().err


def test_a_line_of_the_table_has_the_verdict_the_pitfall_and_the_reason() -> None:
    line = row(Trial(WORTHLESS, Verdict.UNNOTICED, "1 tests pass without it"))
    for part in ("unnoticed", "limit", WORTHLESS.about, "1 tests pass without it"):
        assert part in line
