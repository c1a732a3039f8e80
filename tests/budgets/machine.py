"""Runs hot paths under valgrind and alone, and gives what a record costs.

Everything that could make counts swing is pinned: hash seed, address layout, environment, clocks
and randomness (see ``still``), and how the C library copies memory. So two runs of one build in one
folder give the same counts to the last digit, on a busy machine too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.budgets import profile
from tests.budgets.hot_path import FACTOR, HotPath

PROJECT = Path(__file__).resolve().parents[2]
MARK = "getpgrp"
"""A function of the C library that nothing but the workload calls."""
SECONDS = 900.0
"""Time limit of one process with its children."""
_TUNABLES = ":".join(f"glibc.cpu.x86_rep_{kind}_threshold={1 << 30}" for kind in ("movsb", "stosb"))
"""Valgrind counts ``rep movsb`` as one instruction per byte, and whether it is used depends on the
processor: copies are to be loops of vectors everywhere."""


class CantCount(RuntimeError):
    """Nothing can be counted: a program is missing, or the workload failed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one record (or request) costs.

    Attributes:
        instructions: Executed.
        calls: Of C functions; a call of a Python function shows as several.
        allocations: Calls of Python's allocator.
        kept: Blocks of memory that its result keeps.
    """

    instructions: float
    calls: float
    allocations: float
    kept: float


def required(program: str, remedy: str) -> str:
    """Where a program is.

    Raises:
        CantCount: It isn't installed. Nothing is skipped for want of it.
    """
    found = shutil.which(program)
    if found is None:
        raise CantCount(f"{program} is missing, so nothing can be counted: {remedy}")
    return found


def measure(paths: Sequence[HotPath], *, pure: bool) -> dict[str, Cost]:
    """What a record costs on each path, by name.

    Raises:
        CantCount: valgrind is missing, or a workload failed.
    """
    valgrind = required("valgrind", "apt-get install -y valgrind")
    names = [path.name for path in paths]
    with tempfile.TemporaryDirectory(prefix="budgets-") as folder:
        profiles = _profiles(valgrind, names, Path(folder), pure=pure)
    blocks = json.loads(_run([*_unmoved(), *_workload("blocks"), *names], pure=pure))
    return {
        path.name: _cost(path, small, large, blocks[path.name])
        for path, small, large in zip(paths, profiles[::2], profiles[1::2], strict=True)
    }


def measure_all(
    jobs: Sequence[tuple[Sequence[HotPath], bool]], *, at_once: int
) -> list[dict[str, Cost]]:
    """As ``measure`` for each pair of paths and ``pure``, so many beside each other."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda job: measure(job[0], pure=job[1]), jobs))


def _cost(
    path: HotPath, small: profile.Profile, large: profile.Profile, blocks: Sequence[int]
) -> Cost:
    more = (FACTOR - 1) * path.count
    return Cost(
        (large.instructions - small.instructions) / more,
        (large.calls - small.calls) / more,
        (large.allocations - small.allocations) / more,
        max(0.0, (blocks[1] - blocks[0]) / more),
    )


def _profiles(
    valgrind: str, names: Sequence[str], folder: Path, *, pure: bool
) -> list[profile.Profile]:
    """Profiles of the smaller and the larger run of each path, one after the other."""
    command = [
        *_unmoved(),
        valgrind,
        "--tool=callgrind",
        f"--dump-before={MARK}",
        "--dump-line=no",
        f"--callgrind-out-file={folder}/%p",
        *_workload("marked"),
    ]
    processes = json.loads(_run([*command, *names], pure=pure))
    found = []
    for name in names:
        parts = sorted(folder.glob(f"{processes[name]}.*"), key=lambda path: int(path.suffix[1:]))
        if len(parts) != 4:
            raise CantCount(f"callgrind wrote {len(parts)} parts for {name}")
        for path in parts[1::2]:
            with path.open() as lines:
                found.append(profile.read(lines))
    if not any(one.allocations for one in found):
        raise CantCount("this Python hides the names of its allocator's functions (stripped?)")
    return found


def _unmoved() -> list[str]:
    """Starts a program at the same addresses each time: sets of objects are ordered by them."""
    return [required("setarch", "it is in Debian's util-linux"), "-R"]


def _workload(mode: str) -> list[str]:
    return [sys.executable, "-m", "tests.budgets.workload", mode]


def _run(command: Sequence[str], *, pure: bool) -> str:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLIBC_TUNABLES": _TUNABLES,
        **({"KCLIENT_PURE": "1"} if pure else {}),
    }
    process = subprocess.Popen(
        command,
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complained = process.communicate(timeout=SECONDS)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # its children, too
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CantCount(f"{' '.join(command[-3:])} took more than {SECONDS:g} s") from None
        raise
    if process.returncode != 0:
        raise CantCount(f"{' '.join(command)} failed:\n{complained.strip()[-3000:]}")
    return said
