"""Calls Kafka's own classes: runs ``Golden.java`` on the jars of one release.

A request is a line (see there), and all requests of a test run go to one process, since a JVM
takes a second to start. Missing tools are errors: a golden test that is skipped proves nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kclient.protocol.message import LogRecord, Message, Request, Response
from tools.protocol.jars import RELEASES, class_path, java

_PROGRAM = Path(__file__).with_name("Golden.java")
_TIMEOUT = 300.0
_LOG_PACKAGES = {
    "group_log": "group",
    "new_group_log": "group",
    "share_log": "share",
    "transaction_log": "transaction",
}

NEWER, OLDER = RELEASES


class Answer(NamedTuple):
    """What Kafka wrote, and the same as Kafka's JSON."""

    data: bytes
    json: dict[str, Any]


def java_class(message: type[Message]) -> str:
    """The name of Kafka's class for a message class of kclient."""
    name = message.__name__
    if issubclass(message, LogRecord):
        package = _LOG_PACKAGES[message.__module__.rpartition(".")[2]]
        return f"org.apache.kafka.coordinator.{package}.generated.{name}"
    is_data = issubclass(message, (Request, Response)) or name.endswith("Header")
    return f"org.apache.kafka.common.message.{name}{'Data' if is_data else ''}"


def ask(release: str, questions: Sequence[str]) -> list[str]:
    """The lines that ``Golden.java`` returns on the jars of ``release``."""
    jars = os.pathsep.join(str(jar) for jar in class_path(release))
    done = subprocess.run(
        [java(), "-XX:TieredStopAtLevel=1", "-cp", jars, str(_PROGRAM)],
        input="".join(f"{question}\n" for question in questions),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{_PROGRAM.name} failed on Kafka {release}:\n{done.stderr[-4000:]}")
    return done.stdout.splitlines()


def answer_of(line: str) -> Answer | None:
    """A result of ``make`` or ``echo``; None where the release lacks the version."""
    if line == "unsupported":
        return None
    word, data, text = line.split("\t", 2)
    if word != "made":
        raise ValueError(f"unexpected answer {line[:80]!r}")
    return Answer(bytes.fromhex(data), json.loads(text))


def ask_either(questions: Sequence[str]) -> list[Answer]:
    """One result per question: of the newer release, or of the older for versions it dropped."""
    answers = [answer_of(line) for line in ask(NEWER, questions)]
    open_ones = [index for index, answer in enumerate(answers) if answer is None]
    for index, line in zip(open_ones, ask(OLDER, [questions[i] for i in open_ones]), strict=True):
        answers[index] = answer_of(line)
    missing = [question for question, answer in zip(questions, answers, strict=True) if not answer]
    if missing:
        raise RuntimeError(f"no release knows these: {missing[:5]}")
    return [answer for answer in answers if answer is not None]
