"""``kclient dev-cluster`` as its users run it: a process of its own, ended by a signal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import kclient
from kclient.cli import app
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kclient.protocol.primitives import ZERO_UUID
from kclient.testing import ErrorCode
from tests.support.free_ports import ports_in_a_row
from tests.unit.testing.raw_peer import RawPeer

COMMAND = [sys.executable, "-W", "error", "-m", "kclient", "dev-cluster"]
ENVIRONMENT = {**os.environ, "COLUMNS": "40"}  # narrow: addresses must not be broken in two
PATIENCE = 60.0
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """The process, its bootstrap string, and its output up to the last line of the start."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line.rstrip())
                if "Not for production" in line:
                    break
            addresses = [one for one in said if one.startswith("bootstrap: ")]
            assert len(addresses) == 1, said
            yield process, addresses[0].removeprefix("bootstrap: "), said
        finally:
            process.kill()


def failed(*arguments: str) -> str:
    """The error line for invalid arguments."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_clients_until_a_signal_ends_it(number: int) -> None:
    port = ports_in_a_row(3)
    arguments = ["--brokers", "3", "--port", str(port), "--topic", "flights:6", "--topic", "a"]
    with running(*arguments, "--racks", "x,y,z") as (process, bootstrap, said):
        assert bootstrap == ",".join(f"127.0.0.1:{one}" for one in range(port, port + 3))
        assert "3 brokers" in said[0]
        assert "topics (partitions): a (1), flights (6)" in said
        async with asyncio.timeout(PATIENCE), kclient.Producer(bootstrap) as producer:
            await producer.send("flights", b"UA 1545")
            process.send_signal(number)
            assert await asyncio.to_thread(process.wait, PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


async def test_at_an_ipv6_address_it_names_what_clients_take() -> None:
    with running("--port", "0", "--host", "::1", "--topic", "flights") as (_, bootstrap, _said):
        assert bootstrap.startswith("[::1]:")
        async with asyncio.timeout(PATIENCE), kclient.Producer(bootstrap) as producer:
            assert (await producer.send("flights", b"UA 1545")).offset == 0


def test_an_ipv6_address_that_begins_with_a_letter_is_shown_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from kclient.cli.dev_cluster import _greet

    cluster = SimpleNamespace(brokers={1: None}, topics=(), bootstrap="[fd00::1]:9092")
    _greet(cluster)  # type: ignore[arg-type]
    assert "bootstrap: [fd00::1]:9092" in capsys.readouterr().out


def test_a_port_that_is_taken_at_an_ipv6_address_is_named() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        line = failed("--host", "::1", "--port", str(port - 1), "--brokers", "2")
        assert f"{port} is in use on ::1" in line


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], ErrorCode.NONE), (["--no-auto-create-topics"], UNKNOWN)],
)
async def test_topics_are_made_on_demand_unless_that_is_not_wanted(
    arguments: list[str], code: ErrorCode
) -> None:
    asked = MetadataRequest([MetadataRequestTopic(ZERO_UUID, "t")], allow_auto_topic_creation=True)
    with running("--port", "0", *arguments) as (_, bootstrap, said):
        assert "1 broker " in said[0]
        async with asyncio.timeout(PATIENCE), RawPeer.to(bootstrap) as peer:
            first = await peer.call(asked, 12)
            then = await peer.call(asked, 12)
    assert first.topics[0].error_code == UNKNOWN, "Kafka says so while it makes the topic"
    assert then.topics[0].error_code == code


def test_a_port_that_is_taken_is_one_line() -> None:
    port = ports_in_a_row(2)
    with socket.create_server(("127.0.0.1", port + 1)):
        line = failed("--brokers", "2", "--port", str(port))
    assert line.startswith("kclient: Invalid value for '--port': ")
    assert f"{port + 1} is in use on 127.0.0.1; {port} to {port + 1} must be free" in line


@pytest.mark.parametrize(
    ("arguments", "option", "texts"),
    [
        ("--brokers 0", "--brokers", ["'0'", "1 to 100"]),
        ("--brokers 101", "--brokers", ["'101'", "1 to 100"]),
        ("--brokers three", "--brokers", ["'three'", "1 to 100"]),
        ("--port -1", "--port", ["'-1'", "0 to 65535"]),
        ("--port 65535 --brokers 3", "--port", ["65535", "3 brokers", "0 to 65533"]),
        ("--topic flights:none", "--topic", ["'flights:none'", "NAME:PARTITIONS"]),
        ("--port 0 --topic a&b:2", "--topic", ["'a&b'", "'.', '_' and '-'"]),
        ("--port 0 --topic a --topic a", "--topic", ["'a' exists already"]),
        ("--port 0 --topic a:10001", "--topic", ["'a'", "up to 10000 partitions"]),
        ("--brokers 2 --racks x", "--racks", ["'x'", "2 racks"]),
        ("--host 0.0.0.0", "--host", ["'0.0.0.0'", "clients connect to"]),
        ("--port 0 --host 192.0.2.1", "--host", ["'192.0.2.1'", "of this machine"]),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: str,
    option: str,
    texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["kclient", "dev-cluster", *arguments.split()])
    assert app.run() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kclient: Invalid value for '{option}': ")
    for text in texts:
        assert text in line


def test_an_unknown_option_is_one_line() -> None:
    assert "No such option: --broker" in failed("--broker", "3")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_libraries_the_error_names_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from kclient.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kclient: the command line needs more: pip install 'kclient[cli]'\n"


def test_the_command_line_prints_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kclient", "--version"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == f"kclient {kclient.__version__}\n"


def test_starting_loads_no_client_and_no_compression() -> None:
    """It is up in under a second because it loads little; counting modules needs no clock."""
    code = """
import json, sys
import kclient.cli.app
print(json.dumps([one for one in sys.modules if one.startswith("kclient.")]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {one.split(".")[1] for one in json.loads(done.stdout)}
    assert not packages & {"producer", "consumer", "admin", "network", "cluster"}
