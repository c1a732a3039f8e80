"""Kafka's command line tools in one JVM, driven by lines to `Driver.java`.

A tool that exits with another status than 0 is an error unless it is expected to.
"""

from __future__ import annotations

import atexit
import base64
import functools
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.foreign.login import Login
from tests.foreign.scene import Scene, equal, true
from tests.support import jvm
from tests.support.class_path import class_path, require_java

RELEASE = "4.3.0"
_PROGRAM = Path(__file__).with_name("Driver.java")
_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
_PACKAGES = {
    "ConfigCommand": "kafka.admin",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
}


class Said(NamedTuple):
    """What a tool did."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Its output without empty lines."""
        return [line for line in self.out.splitlines() if line.strip()]


class Tools:
    """The JVM; the tools know the brokers by ``--bootstrap-server``."""

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        self._bootstrap = bootstrap
        config = None if login is None else file_of(login.java(), "client.properties")
        self._login = () if config is None else ("--command-config", config)
        self._process = subprocess.Popen(
            [require_java(), *_OPTIONS, str(_PROGRAM)],
            env=jvm.environment(class_path(RELEASE)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End it."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(20.0)

    def run(self, tool: str, *arguments: str, stdin: str = "", status: int = 0) -> Said:
        """Run a tool to its end.

        Raises:
            AssertionError: It exited with another status than it should.
        """
        said = self._said("run", stdin, *self._command(tool, arguments))
        if said.status != status:
            raise AssertionError(f"{tool} {' '.join(arguments)}: {said}")
        return said

    def start(self, tool: str, *arguments: str) -> int:
        """Start a tool beside others; its number."""
        return int(self._answer("start", *self._command(tool, arguments)))

    def output(self, number: int) -> Said:
        """What a tool has printed so far."""
        return self._said("output", str(number))

    def stop(self, number: int) -> Said:
        """End a tool as Ctrl-C does."""
        return self._said("stop", str(number))

    def _command(self, tool: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
        name = f"{_PACKAGES.get(tool, 'org.apache.kafka.tools')}.{tool}"
        option = "--broker-list" if tool == "TransactionalMessageCopier" else "--bootstrap-server"
        where = (option, self._bootstrap, *self._login)
        if tool in ("FeatureCommand", "TransactionsCommand"):  # what it is to do comes last
            return (name, *where, *arguments)
        return (name, *arguments, *where)

    def _said(self, *words: str) -> Said:
        status, out, err = self._answer(*words).split(" ")
        return Said(int(status), _decoded(out), _decoded(err))

    def _answer(self, *words: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        order, *rest = words
        self._process.stdin.write(" ".join([order, *map(_encoded, rest)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the JVM ended at {words}")
        return answer.strip()


@functools.cache
def tools(scene: Scene) -> Tools:
    """The one JVM of this process; it ends with it."""
    made = Tools(scene.bootstrap, scene.login)
    atexit.register(made.close)
    return made


@functools.cache
def file_of(text: str, name: str) -> str:
    """The path of a file with ``text``; deleted when this process ends."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / name
    path.write_text(text)
    return str(path)


def write(scene: Scene, topic: str, lines: Iterable[str], *arguments: str) -> None:
    """Write lines by the console producer."""
    text = "".join(f"{line}\n" for line in lines)
    said = tools(scene).run("ConsoleProducer", "--topic", topic, *arguments, stdin=text)
    true(not said.err, f"the console producer failed: {said.err}")


def read(scene: Scene, topic: str, count: int, *arguments: str) -> list[str]:
    """Read so many records, by default from the beginning, as the console consumer prints them."""
    where = () if "--offset" in arguments else ("--from-beginning",)
    limits = ("--max-messages", str(count), "--timeout-ms", "30000")
    said = tools(scene).run("ConsoleConsumer", "--topic", topic, *where, *limits, *arguments)
    equal(said.err.strip().splitlines()[-1], f"Processed a total of {count} messages")
    return said.out.splitlines()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"


def _decoded(text: str) -> str:
    return "" if text == "-" else base64.b64decode(text).decode(errors="replace")
