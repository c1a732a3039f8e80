"""The leak watcher and the skip policy catch violations, in pytest runs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]

WRONG = """
import asyncio, socket
import pytest

KEPT = []

async def test_task():
    KEPT.append(asyncio.get_running_loop().create_task(asyncio.Event().wait()))

async def test_timer():
    asyncio.get_running_loop().call_later(1000, print)

async def test_open_socket():
    KEPT.append(socket.socket())

async def test_never_retrieved():
    asyncio.get_running_loop().create_future().set_exception(ValueError())

async def test_clean():
    await asyncio.sleep(0)

def test_skipped():
    pytest.skip("on a whim")

@pytest.mark.skipif(True, reason="on a whim")
def test_marked():
    pass

@pytest.mark.xfail
def test_hopeless():
    assert False
"""
WHOLE_MODULE = "import pytest\npytest.importorskip('no_such_package')\n"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return pytest's output for these files under the plugins of this project."""
    where = tmp_path_factory.mktemp("inner")
    (where / "test_wrong.py").write_text(WRONG)
    (where / "test_whole_module.py").write_text(WHOLE_MODULE)
    inherited = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    options = ["-o", "asyncio_mode=auto", "-rA", "--continue-on-collection-errors"]
    done = subprocess.run(
        [*command, *options, "--rootdir", str(where), str(where)],
        cwd=where,
        env={**inherited, "PYTHONPATH": str(PROJECT), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("kind", ["task", "timer", "open socket", "never retrieved"])
def test_what_a_test_leaves_behind_fails_it(kind: str, said: str) -> None:
    name = f"test_wrong.py::test_{kind.replace(' ', '_')} - "
    (line,) = [line for line in said.splitlines() if line.startswith("ERROR") and name in line]
    assert "left behind by this test" in line
    assert kind in line


def test_a_clean_test_passes(said: str) -> None:
    assert "PASSED test_wrong.py::test_clean" in said
    assert "ERROR test_wrong.py::test_clean" not in said


@pytest.mark.parametrize("name", ["skipped", "marked", "hopeless"])
def test_an_unlisted_skip_is_a_failure(name: str, said: str) -> None:
    lines = [line for line in said.splitlines() if f"test_wrong.py::test_{name} - " in line]
    assert lines
    assert lines[0].startswith(("FAILED", "ERROR"))
    assert "not listed" in lines[0]


def test_a_skipped_module_is_a_failure(said: str) -> None:
    assert "a module must not be skipped" in said
