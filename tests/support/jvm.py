"""One Java program in the background: started with a log, known by its command line, ended by pid.

`tests.support.kafka` starts ZooKeeper and brokers through it. A pid alone proves nothing (systems
reuse them), so a process counts as started here only while its command line still names its own
file. It must not know anything about Kafka.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL = 0.05
"""Seconds between two looks at a process that is being ended or stopped."""

_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class JavaProcess:
    """A background process, as it is kept in a state file."""

    pid: int
    marker: str
    """A piece of its command line that no other process has: the path of its settings file."""

    def alive(self) -> bool:
        """Whether the pid still belongs to the process that was started."""
        child = _children.get(self.pid)
        if child is not None:  # not reaped yet, so the pid cannot belong to another
            return child.poll() is None
        return self.marker in _command_line(self.pid)

    def stop(self, grace: float) -> None:
        """End it: SIGTERM, after `grace` seconds SIGKILL. Returns when it has ended."""
        if self.alive():
            os.kill(self.pid, signal.SIGTERM)
            self._gone_within(grace)
        self.kill()

    def kill(self) -> None:
        """End it by SIGKILL, be it stopped or not. Returns when it has ended."""
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
        child = _children.pop(self.pid, None)
        if child is not None:
            child.wait(timeout=10.0)
        else:
            self._gone_within(10.0)

    def pause(self) -> None:
        """Stop it by SIGSTOP: its sockets stay open, and it sends nothing. Returns when stopped.

        The signal reaches a process's threads one by one. Until the last has stopped, it may
        still respond to what was sent to it after the call of `os.kill`.
        """
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 10.0
        while set(_thread_states(self.pid)) != {"T"}:
            assert self.alive(), f"{self.pid} has ended"
            if time.monotonic() > deadline:
                self.resume()
                raise AssertionError(f"{self.pid} has not stopped after SIGSTOP")
            time.sleep(_POLL)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL)
        return True


def launch(command: Sequence[str], class_path: str, marker: str, log: Path) -> JavaProcess:
    """Start `command` detached from this terminal and session, its output going to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            env=environment(class_path),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    return JavaProcess(child.pid, marker)


def environment(class_path: str) -> dict[str, str]:
    """The environment that hands over the class path.

    As an argument it would hide the rest of the command line: /proc may show only 4 KiB of it.
    """
    return {**os.environ, "CLASSPATH": class_path}


def detach() -> None:
    """Forget the children of this process: it ends, and they stay."""
    for child in _children.values():
        child.returncode = 0  # keeps Popen from warning about a child that is meant to outlive us
    _children.clear()


def _thread_states(pid: int) -> list[str]:
    """The states of a process's threads, each a letter as of ps(1); "T" is stopped."""
    if not Path("/proc/self").exists():
        listed = ["ps", "-o", "state=", "-p", str(pid)]
        return [subprocess.run(listed, capture_output=True, text=True, check=True).stdout[:1]]
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            # The name before the state is in brackets, and may have blanks and brackets in it.
            states.append(stat.read_text().rpartition(") ")[2][0])
    return states


def _command_line(pid: int) -> str:
    if Path("/proc/self").exists():
        with contextlib.suppress(OSError):
            return (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
        return ""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout
