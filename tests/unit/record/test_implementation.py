"""Which build is selected, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from kclient import record
from kclient.record.implementation import chosen, codec, load
from tests.unit.record.conftest import BUILDS


def said(code: str, **environment: str) -> str:
    """Return the output of a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_compiled_build_is_there_unless_the_pure_one_was_asked_for() -> None:
    assert BUILDS[-1] == record.IMPLEMENTATION == codec.name == chosen()
    assert record.Record is codec.Record
    assert record.BatchBuilder is codec.BatchBuilder


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_the_environment_picks(value: str) -> None:
    compiled = find_spec("kclient.record._record_c") is not None
    code = "from kclient.record import IMPLEMENTATION as name; print(name)"
    wanted = "cython" if compiled and value != "1" else "pure"
    assert said(code, KCLIENT_PURE=value) == wanted


def test_each_build_is_itself_and_the_two_are_alike() -> None:
    builds = [load(name) for name in BUILDS]
    for build in builds:
        assert build.Record.__module__ == build.decode_records.__module__
        assert build.Record.__module__.endswith("_c") == (build.name == "cython")
    public = [{name for name in dir(build.Record) if name[0] != "_"} for build in builds]
    assert public[0] == public[-1]
    public = [{name for name in dir(build.BatchBuilder) if name[0] != "_"} for build in builds]
    assert public[0] == public[-1]


def test_the_pure_build_runs_without_cython() -> None:
    code = (
        "import sys; sys.modules['cython'] = sys.modules['Cython'] = None\n"
        "import kclient.record as record\n"
        "builder = record.BatchBuilder(); builder.append(0, b'k', b'v', None)\n"
        "(batch,) = record.read_batches(builder.encode())\n"
        "print(record.IMPLEMENTATION, batch.records('t', 0)[0].value)"
    )
    assert said(code, KCLIENT_PURE="1") == "pure b'v'"


@pytest.mark.parametrize("pure", ["", "1"])
def test_nothing_heavy_is_imported_before_it_is_needed(pure: str) -> None:
    heavy = ("lz4", "snappy", "cramjam", "zstandard", "pyarrow", "ctypes", "Cython", "asyncio")
    code = (
        f"import sys; before = set(sys.modules); import kclient.record\n"
        f"print(sorted(set({heavy!r}) & (set(sys.modules) - before)))"
    )
    assert said(code, KCLIENT_PURE=pure) == "[]"
