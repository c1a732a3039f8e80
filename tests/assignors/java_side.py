"""Calls Java's assignors: runs ``Assign.java`` on the jars of Apache Kafka, once for all input.

Missing tools are errors: a comparison that is skipped proves nothing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from kclient.types import TopicPartition
from tools.protocol.jars import RELEASES, class_path, java

_PROGRAM = Path(__file__).with_name("Assign.java")
_TIMEOUT = 250.0
_NULL = "-"


def ask(lines: Iterable[str]) -> list[str]:
    """Return the output lines, for the input lines that have one."""
    jars = os.pathsep.join(str(jar) for jar in class_path(RELEASES[0]))
    done = subprocess.run(
        [java(), "-cp", jars, str(_PROGRAM)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{_PROGRAM.name} failed:\n{done.stderr[-4000:]}")
    return done.stdout.split("\n")[:-1]


def line(*fields: object) -> str:
    """A line of input; None is null, bytes are hex."""
    return "\t".join(map(_field, fields))


def shown(partitions: Sequence[TopicPartition]) -> str:
    """Partitions as Java's side writes them."""
    return ",".join(f"{topic}:{partition}" for topic, partition in partitions)


def parsed(partitions: str) -> list[TopicPartition]:
    """Partitions as Java's side wrote them."""
    pairs = (one.rpartition(":") for one in partitions.split(",") if one)
    return [TopicPartition(topic, int(partition)) for topic, _, partition in pairs]


def _field(value: object) -> str:
    if value is None:
        return _NULL
    return value.hex() if isinstance(value, bytes) else str(value)
