"""One member: its process, the signals that it gets, and the lines that it reports to a ledger.

``scenario`` starts members by the name of their client. Python's report in the lines of
``members.emitting``; Java's are Apache Kafka's own tools, whose output is read as it is. A process
is ended by its pid, and only if it was started here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mixed.assignors import JAVA_NAMES
from tests.mixed.ledger import Ledger
from tests.support import jvm
from tests.support.class_path import class_path, require_java

JAVA_RELEASE = "4.3.0"
_JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx96m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
_TOOLS = "org.apache.kafka.tools."
_LEAVING = 20.0
"""Seconds within which a member that was asked to leave has ended."""
_CONSOLE = re.compile(r"Partition:(\d+)\tOffset:(\d+)")
_LINE_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all members of a group have in common.

    Attributes:
        session: Seconds.
        heartbeat: Seconds.
        request_timeout: Seconds that kclient and librdkafka wait for a response.
    """

    bootstrap: str
    topic: str
    group: str
    assignor: str
    session: float
    heartbeat: float
    request_timeout: float = 30.0


class Member:
    """One member, alive from `start` on.

    Args:
        name: Its client id, which no other member of the run has.
        client: A module of `members`, "java_console" or "java_verifiable".
        way: How it reads and commits, for clients that have more than one way.
        folder: Where its standard error goes.
    """

    def __init__(
        self,
        name: str,
        client: str,
        settings: Settings,
        ledger: Ledger,
        folder: Path,
        way: str = "",
    ) -> None:
        self.name = name
        self.client = client
        self.way = way
        self.frozen = False
        self._settings = settings
        self._ledger = ledger
        self._errors = folder / f"{name}.err"
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.client}{f', {self.way}' if self.way else ''})"

    @property
    def alive(self) -> bool:
        """Whether its process runs, be it frozen."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process; it joins by itself."""
        take, command, env = self._program()
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=env,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_LINE_LIMIT,
            )
        self._reading = asyncio.create_task(self._read(self._process, take))

    def freeze(self) -> None:
        """Stop it by SIGSTOP: its sockets stay open."""
        self._signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)
        self.frozen = False

    def ask(self) -> None:
        """Have a member of kclient report its health; others can't do that."""
        if self.client == "kclient" and self.alive and not self.frozen:
            self._signal(signal.SIGUSR1)

    async def kill(self) -> None:
        """End it by SIGKILL; returns when it has ended and all that it reported is read."""
        if self.alive:
            self._signal(signal.SIGKILL)
        await self._gone()

    async def leave(self) -> int:
        """Ask it to leave; returns its exit status once it has ended.

        Raises:
            TimeoutError: It didn't; it was killed then.
        """
        if self.frozen:
            self.thaw()
        if self.alive:
            self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_LEAVING):
                return await self._gone()
        except TimeoutError:
            await self.kill()
            raise TimeoutError(f"{self} didn't leave in {_LEAVING:g} s") from None

    def last_words(self) -> str:
        """The end of its standard error, and of its reports on other things than records."""
        said = self._errors.read_text(errors="replace")[-1500:] if self._errors.exists() else ""
        return "\n".join([*self._ledger.tail[self.name], said])

    def _signal(self, number: signal.Signals) -> None:
        if not self.alive:
            raise RuntimeError(f"{self} doesn't run:\n{self.last_words()}")
        assert self._process is not None
        self._process.send_signal(number)

    async def _gone(self) -> int:
        assert self._process is not None and self._reading is not None
        status = await self._process.wait()
        await asyncio.wait([self._reading])
        return status

    async def _read(self, process: asyncio.subprocess.Process, take: Callable[[str], None]) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            text = line.decode(errors="replace")
            with contextlib.suppress(ValueError):  # cut short by a kill, or not for us
                take(text)
        await process.wait()
        self._ledger.ended(self.name, time.monotonic())

    def _program(self) -> tuple[Callable[[str], None], Sequence[str], dict[str, str] | None]:
        if self.client == "java_console":
            return self._take_console, [*_java(), *self._console()], _java_environment()
        if self.client == "java_verifiable":
            return self._take_verifiable, [*_java(), *self._verifiable()], _java_environment()
        one = self._settings
        words = ["--bootstrap", one.bootstrap, "--topic", one.topic, "--group", one.group]
        words += ["--name", self.name, "--assignor", one.assignor, "--way", self.way]
        words += ["--session", str(one.session), "--heartbeat", str(one.heartbeat)]
        words += ["--request-timeout", str(one.request_timeout)]
        program = f"tests.mixed.members.{self.client}"
        return self._take, [sys.executable, "-m", program, *words], None

    def _java_settings(self) -> dict[str, object]:
        one = self._settings
        return {
            "client.id": self.name,
            "partition.assignment.strategy": JAVA_NAMES[one.assignor],
            "session.timeout.ms": int(one.session * 1000),
            "heartbeat.interval.ms": int(one.heartbeat * 1000),
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "fetch.max.wait.ms": 100,
            "reconnect.backoff.max.ms": 1000,
        }

    def _console(self) -> list[str]:
        one = self._settings
        words = [f"{_TOOLS}consumer.ConsoleConsumer", "--bootstrap-server", one.bootstrap]
        words += ["--topic", one.topic, "--group", one.group, "--timeout-ms", "120000"]
        for key, value in self._java_settings().items():
            words += ["--command-property", f"{key}={value}"]
        for shown in ("print.partition=true", "print.offset=true", "print.value=false"):
            words += ["--formatter-property", shown]
        return words

    def _verifiable(self) -> list[str]:
        one, file = self._settings, self._errors.with_suffix(".properties")
        file.write_text("".join(f"{key}={value}\n" for key, value in self._java_settings().items()))
        words = [f"{_TOOLS}VerifiableConsumer", "--bootstrap-server", one.bootstrap]
        words += ["--topic", one.topic, "--group-id", one.group, "--command-config", str(file)]
        words += ["--session-timeout", str(int(one.session * 1000))]
        return [*words, "--assignment-strategy", JAVA_NAMES[one.assignor]]

    def _take(self, text: str) -> None:
        """A line of `members.emitting`."""
        line = json.loads(text)
        what, at, ledger = line["what"], line["at"], self._ledger
        if what == "read":
            for partition, first, last in line["runs"]:
                ledger.read(self.name, at, partition, first, last)
            return
        if what != "committed":
            ledger.tail[self.name].append(text.strip()[:2000])
        if what == "up":
            ledger.up[self.name] = at
        elif what == "assigned":
            ledger.assigned(self.name, at, line["partitions"])
            ledger.led += line.get("leads", False)
        elif what in ("revoked", "lost"):
            ledger.gone(self.name, at, line["partitions"])
        elif what == "error":
            ledger.error(self.name, at, f"{line['where']}: {line['error']}")

    def _take_console(self, text: str) -> None:
        """A record as the console consumer prints it."""
        found = _CONSOLE.match(text)
        if found is None:
            self._ledger.tail[self.name].append(text.strip()[:400])
        else:
            partition, offset = int(found[1]), int(found[2])
            self._ledger.read(self.name, time.monotonic(), partition, offset, offset)

    def _take_verifiable(self, text: str) -> None:
        """An event of the verifiable consumer."""
        line, now, ledger = json.loads(text), time.monotonic(), self._ledger
        if line["name"] == "records_consumed":
            for one in line["partitions"]:
                ledger.read(self.name, now, one["partition"], one["minOffset"], one["maxOffset"])
            return
        if line["name"] != "offsets_committed":
            ledger.tail[self.name].append(text.strip()[:400])
        partitions = [one["partition"] for one in line.get("partitions", ())]
        if line["name"] == "partitions_assigned":
            ledger.assigned(self.name, now, partitions)
        elif line["name"] == "partitions_revoked":
            ledger.gone(self.name, now, partitions)


def _java() -> list[str]:
    return [require_java(), *_JAVA_OPTIONS]


def _java_environment() -> dict[str, str]:
    return jvm.environment(class_path(JAVA_RELEASE))
