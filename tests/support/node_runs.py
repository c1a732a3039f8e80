"""The runs of three nodes on this machine: their folders, processes and ports.

`tests.support.nodes` writes a state file for each run and asks here for a folder and for ports. A
new run ends what is left of runs whose owner was itself killed. Nothing is ended whose command line
doesn't name a settings file of that run.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support import jvm, kafka
from tests.support.class_path import cache_directory

PORTS = range(23000, 24000)
"""Not those of the single brokers: they would take the port of a node that is down for a while."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Run:
    """Three nodes, as their state file keeps them."""

    owner: int
    """The process that uses them; 0 if they stay until they are stopped by hand."""
    version: str
    bootstrap: str
    ports: tuple[int, ...]
    processes: tuple[jvm.JavaProcess, ...] = ()

    def left_behind(self) -> bool:
        """Whether they are unused, as their owner has died."""
        return self.owner != 0 and not kafka.pid_exists(self.owner)


def begin(purpose: str, version: str, count: int, attempt: int) -> tuple[Path, list[int]]:
    """A folder for a new run, and ports that are kept for it; ends the runs of the dead."""
    directory = home() / f"{purpose}-{os.getpid()}-{next(_numbers)}"
    with _locked():
        for folder, run in runs():
            if run.left_behind():
                end(folder, run)
        taken = {port for _, run in runs() for port in run.ports}
        ports = kafka.free_ports(count, attempt, PORTS, taken)
        directory.mkdir(parents=True)
        write(directory, Run(os.getpid(), version, "", tuple(ports)))
    return directory, ports


def write(directory: Path, run: Run) -> None:
    """Write the state file of a run."""
    fresh = directory / "state.new"
    fresh.write_text(json.dumps(asdict(run), indent=1))
    fresh.replace(directory / "state.json")


def read(directory: Path) -> Run | None:
    """The run of a folder; None if it has none."""
    try:
        state = json.loads((directory / "state.json").read_text())
    except (OSError, ValueError):
        return None
    processes = tuple(jvm.JavaProcess(**process) for process in state.pop("processes"))
    return Run(**state | {"ports": tuple(state["ports"]), "processes": processes})


def runs() -> Sequence[tuple[Path, Run]]:
    """All runs that there are, of every owner."""
    folders = sorted(path.parent for path in home().glob("*/state.json"))
    found = [(folder, read(folder)) for folder in folders]
    return [(folder, run) for folder, run in found if run is not None]


def end(directory: Path, run: Run) -> None:
    """End its processes by SIGKILL, paused ones as well, and remove its folder."""
    for process in run.processes:
        process.kill()
    shutil.rmtree(directory, ignore_errors=True)


def home() -> Path:
    """Where the folders of runs are."""
    return cache_directory() / "nodes"


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
