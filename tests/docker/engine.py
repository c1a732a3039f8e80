"""The Docker engine of the tests: the one that runs, or a `dockerd` that they start.

    python -m tests.docker.engine start      needs root and Debian's docker.io, unless one runs
    python -m tests.docker.engine status
    python -m tests.docker.engine stop       ends only what `start` started

The engine is found as Docker's own tools find it: DOCKER_HOST, the context, else the usual socket.
A started one serves that usual socket too, so that every tool finds it; its images and log are in
the cache directory. It must not touch an engine that it didn't start.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import jvm
from tests.support.class_path import cache_directory

if TYPE_CHECKING:
    import docker

USUAL = "unix:///var/run/docker.sock"
START_TIMEOUT = 60.0
STOP_GRACE = 60.0
"""Seconds in which `dockerd` may end its containers before it is killed."""
ANSWER_TIMEOUT = 300
"""Seconds without data from the engine, which sends nothing while it writes a large image."""
_POLL = 0.1


class EngineMissing(RuntimeError):
    """No Docker engine responds, or none can be started; the message names the remedy."""


def address() -> str:
    """Where the engine is, whether it runs or not."""
    from testcontainers.core.docker_client import get_docker_host

    return get_docker_host() or USUAL


@contextlib.contextmanager
def connected() -> Iterator[docker.DockerClient]:
    """A client of the engine that runs.

    Raises:
        EngineMissing: None responds.
    """
    import docker

    where = address()
    try:
        _knock(where)
        client = docker.DockerClient(base_url=where, timeout=ANSWER_TIMEOUT)
    except (docker.errors.DockerException, OSError) as error:
        raise EngineMissing(
            f"No Docker engine answers at {where} ({error}). Start Docker; or, on Debian and as "
            "root: apt-get install --no-install-recommends docker.io && "
            "python -m tests.docker.engine start"
        ) from error
    try:
        yield client
    finally:
        client.close()


def _knock(where: str) -> None:
    """Raise OSError where no engine listens: Docker's client would then leave its socket open."""
    if where.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(where.removeprefix("unix://"))


def version() -> str | None:
    """The version of the engine that responds, or None."""
    try:
        with connected() as client:
            return str(client.version()["Version"])
    except EngineMissing:
        return None


def start() -> bool:
    """Make sure that an engine responds; return whether it had to be started.

    Raises:
        EngineMissing: There is none, and none can be started here.
        RuntimeError: `dockerd` did not come up; the end of its log is in the message.
    """
    if version() is not None:
        return False
    command = _command()
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "dockerd.log"
    log.unlink(missing_ok=True)
    process = jvm.launch(command, "", _marker(), log)
    deadline = time.monotonic() + START_TIMEOUT
    try:
        while version() is None:
            if not process.alive() or time.monotonic() > deadline:
                said = log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"dockerd did not come up:\n{said}")
            time.sleep(_POLL)
    except BaseException:
        process.stop(STOP_GRACE)
        raise
    _state().write_text(json.dumps(asdict(process)))
    return True


def stop() -> bool:
    """End the engine that `start` started; return whether there was one."""
    process = ours()
    if process is None:
        return False
    process.stop(STOP_GRACE)
    _state().unlink(missing_ok=True)
    return True


def ours() -> jvm.JavaProcess | None:
    """The `dockerd` that `start` started, while it runs."""
    try:
        process = jvm.JavaProcess(**json.loads(_state().read_text()))
    except (OSError, ValueError):
        return None
    return process if process.alive() else None


def _command() -> list[str]:
    """The command that starts `dockerd`, or EngineMissing."""
    if address() != USUAL:
        raise EngineMissing(
            f"No Docker engine answers at {address()}, which DOCKER_HOST or Docker's context names:"
            " start it, or unset that to have one started here."
        )
    dockerd = shutil.which("dockerd")
    if dockerd is None:
        raise EngineMissing(
            "dockerd is not on the PATH: install Docker, in Debian the package docker.io "
            "(apt-get install --no-install-recommends docker.io)."
        )
    if os.geteuid() != 0:
        raise EngineMissing(
            "dockerd needs root: start it with the system's own service, or as root."
        )
    # A published port without an address of its own is on the loopback interface only.
    return [dockerd, "--host", USUAL, "--data-root", _marker(), "--ip", "127.0.0.1"]


def _directory() -> Path:
    return cache_directory() / "docker"


def _marker() -> str:
    """Images and containers; no other process has this path in its command line."""
    return str(_directory() / "data")


def _state() -> Path:
    return _directory() / "engine.json"


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    if arguments not in (["start"], ["stop"], ["status"]):
        sys.stderr.write("usage: python -m tests.docker.engine start | stop | status\n")
        return 2
    if arguments == ["start"]:
        try:
            started = start()
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        jvm.detach()
        sys.stdout.write(f"{address()} {'started' if started else 'was running already'}\n")
    elif arguments == ["stop"]:
        sys.stdout.write(f"{'stopped' if stop() else 'none was started from here'}\n")
    else:
        found = version()
        who = f", dockerd {process.pid} of ours" if (process := ours()) else ""
        sys.stdout.write(f"{address()} {f'Docker {found}{who}' if found else 'no answer'}\n")
        return 0 if found else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
