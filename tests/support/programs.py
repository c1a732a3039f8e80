"""Running a program to its end: what the tools of the tests call Maven, Java and keytool with.

A program that fails is an error with the end of its output. It starts nothing that stays: `jvm`
does that.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def output_of(
    command: Sequence[str], failure: str, timeout: float, env: Mapping[str, str] | None = None
) -> str:
    """The output of a program, its standard error included.

    Raises:
        RuntimeError: It failed; the message begins with ``failure``.
        subprocess.TimeoutExpired: It took longer than ``timeout`` seconds.
    """
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{failure}:\n{done.stdout[-4000:]}")
    return done.stdout
