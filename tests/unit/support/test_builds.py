"""The tests report modules that run in another build than the one under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.builds import compiled_modules

PROJECT = Path(__file__).parents[3]


def noticed(wanted: str, *loaded: str) -> list[str]:
    """Return the modules in another build, of a fresh pure process with ``loaded`` modules."""
    code = (
        "import sys\n"
        "from tests.support.builds import in_another_build\n"
        f"sys.modules.update(dict.fromkeys({loaded!r}, sys))\n"
        f"print(*in_another_build({wanted!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, "KCLIENT_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.split()


def test_each_module_that_has_a_twin_is_known_and_there() -> None:
    modules = compiled_modules()
    assert len(modules) > 10
    for module in modules:
        package, _, name = module.rpartition(".")
        folder = PROJECT / package.replace(".", "/")
        assert (folder / f"{name}.py").is_file()
        assert (folder / f"_{name}_c.pxd").is_file()


def test_a_twin_that_is_loaded_in_a_pure_run_is_noticed() -> None:
    assert noticed("pure") == []
    assert noticed("pure", "kclient.producer._append_c") == ["kclient.producer.append"]


def test_each_module_without_its_twin_in_a_compiled_run_is_noticed() -> None:
    pure = noticed("cython", "kclient.record._record_c")
    assert "kclient.producer.append" in pure
    assert {*pure, "kclient.record.record"} == set(compiled_modules())
