"""Each example runs as its docstring says, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("name", SMALL)
def test_small_example_runs_clean(name: str) -> None:
    done = run(f"examples.{name}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_flights_come_back_once_and_in_order() -> None:
    done = run("examples.flights", "--limit", "20000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Checked: every flight came back once" in done.stdout
    assert "20,000 flights of" in done.stdout
    assert re.search(r"one callback: [\d.]+ ms of thread CPU", done.stdout.replace("\n", " "))


def test_flights_say_what_is_wrong_with_an_address() -> None:
    done = run("examples.flights", "--limit", "10", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert "BootstrapFailed" in done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_readme_shows_the_hello_example() -> None:
    """README's ten lines run when they are pasted: they are the whole of ``examples/hello.py``."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    hello = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")
    docstring, _, code = hello.partition("\n\n")
    assert docstring.endswith('"""')
    assert f"```python\n{code}```\n" in readme
