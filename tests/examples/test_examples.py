"""Each example runs as its docstring describes, in its own process, with and without a broker."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kclient.testing import Cluster

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")
TESTS = [name for name in FILES if name.startswith("test_")]
"""The examples that are tests themselves."""
WITH_OWN_TEST = {"cancelled_flights", "elections", "worker_pool"}
"""The examples whose output has a test of its own."""
SMALL = [name for name in FILES if name not in TESTS and name not in WITH_OWN_TEST]
OWN_CLUSTER = {"elections", "virtual_time", "worker_pool"}
ANYWHERE: dict[str, list[str]] = {
    name: [] for name in FILES if name not in TESTS and name not in OWN_CLUSTER
}
ANYWHERE["flights"] = ["--limit", "2000"]
ANYWHERE["cancelled_flights"] = ["--limit", "2000"]
"""The examples that take `--bootstrap`, with the options that make them quick."""
TOPICS = {"cancelled_flights": 2, "dead_letters": 3}
"""How many topics a run creates, where it is more than one."""
COMPOSE = (ROOT / "examples" / "compose.yaml").read_text(encoding="utf-8")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", *arguments],
        cwd=ROOT,
        # Options of this run must not reach theirs.
        env={key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def output(name: str) -> str:
    """What an example prints on a cluster of its own, without an error or a warning."""
    done = run(f"examples.{name}")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", SMALL)
def test_small_example_runs_clean(name: str) -> None:
    assert output(name)


@pytest.mark.parametrize("name", TESTS)
def test_example_of_tests_passes(name: str) -> None:
    # The plugin is loaded by its module: it need not be installed from this tree.
    plugin = ["-p", "kclient.pytest_plugin", "-p", "no:kclient"]
    done = run("pytest", *plugin, "-p", "no:cacheprovider", "-q", f"examples/{name}.py")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize("name", ANYWHERE)
async def test_an_example_runs_again_on_the_same_broker(name: str) -> None:
    """Topics and records of an earlier run must not be taken for its own."""
    async with Cluster(brokers=1) as cluster:
        command = [f"examples.{name}", *ANYWHERE[name], "--bootstrap", cluster.bootstrap]
        runs = [await asyncio.to_thread(run, *command) for _ in range(2)]
        assert [(done.returncode, done.stderr) for done in runs] == [(0, "")] * 2
        topics = [topic for topic in cluster.topics if not topic.startswith("__")]
        assert len(topics) == 2 * TOPICS.get(name, 1)
        for topic in topics:
            assert any(topic in done.stdout for done in runs)


def test_the_example_of_elections_shows_the_events_when_a_leader_is_cut_off() -> None:
    reported = output("elections")
    events = re.findall(r"^ *[\d.]+ s  (\w+)\(", reported, re.M)
    assert events == [
        *("BrokerFenced", "ControllerLost", "ControllerElected", "IsrShrunk", "LeaderElected"),
        *("BrokerUp", "LogTruncated", "IsrExpanded"),
    ]
    assert reported.endswith("In the log: [b'committed']\n")


def test_the_tasks_of_a_killed_worker_move_to_the_others() -> None:
    before, after = output("worker_pool").split("worker-3 was killed\n")
    had, has = (
        set(re.findall(r"^generation \d+: worker-1 runs (.*)$", reported, re.M)[-1].split(", "))
        for reported in (before, after)
    )
    assert len(had) == 3
    assert len(has) in (4, 5)  # of nine, for two


def test_flights_come_back_once_and_in_order() -> None:
    done = run("examples.flights", "--limit", "20000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Checked: every flight came back once" in done.stdout
    assert "20,000 flights of" in done.stdout
    assert re.search(r"one callback: [\d.]+ ms of thread CPU", done.stdout.replace("\n", " "))


def test_flights_name_an_unreachable_address() -> None:
    done = run("examples.flights", "--limit", "10", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert "BootstrapFailed" in done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_cancelled_flights_are_committed_once_though_their_worker_is_killed() -> None:
    killed, counted, verdict = output("cancelled_flights").splitlines()
    assert killed.endswith("ended by SIGKILL")
    expected, written, committed = re.findall(r"(\d+)(?: of them| records)", counted)
    assert committed == expected
    assert int(written) > int(committed)  # what the killed one left is in the log, uncommitted
    assert verdict == "exactly once"


def test_readme_shows_the_hello_example() -> None:
    """README's lines run when they are pasted: they are the whole of ``examples/hello.py``."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    hello = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")
    docstring, _, code = hello.partition("\n\n")
    assert docstring.endswith('"""')
    assert f"```python\n{code}```\n" in readme


def compose(key: str) -> str:
    """The value of a key that the compose file has exactly once."""
    (value,) = re.findall(rf"^ +{key}: (.*)$", COMPOSE, re.M)
    return str(value).strip('"')


def test_the_compose_file_advertises_the_port_that_it_publishes() -> None:
    (published,) = re.findall(r'^ +- "(127\.0\.0\.1:\d+:\d+)"$', COMPOSE, re.M)
    _, outside, inside = published.split(":")
    assert compose("KAFKA_ADVERTISED_LISTENERS") == f"PLAINTEXT://localhost:{outside}"
    assert f"PLAINTEXT://:{inside}," in compose("KAFKA_LISTENERS")
    assert re.search(rf'- "--bootstrap-server"\n +- "localhost:{inside}"\n', COMPOSE)
    quorum = compose("KAFKA_CONTROLLER_QUORUM_VOTERS")
    assert quorum.startswith(compose("KAFKA_NODE_ID") + "@")
    assert f"CONTROLLER://{quorum.partition('@')[2]}" in compose("KAFKA_LISTENERS")
    # The health check connects inside the container, and then to the advertised address.
    assert outside == inside


def test_the_compose_file_is_plain_yaml() -> None:
    """Two spaces for each level, and nothing but mappings, quoted lists and one-line values."""
    lines = [line for line in COMPOSE.splitlines() if not line.lstrip().startswith("#")]
    depth = 0
    for line in lines:
        match = re.fullmatch(r'((?:  )*)(?:- "[^"]+"|(\w+):( "[^"]*"| [^"\s].*)?)', line)
        assert match, line
        here = len(match[1]) // 2
        assert here <= depth, line
        depth = here + (match[2] is not None and match[3] is None)


def test_readme_and_compose_file_have_the_same_start_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^#   (.+)$", COMPOSE, re.M)
    assert len(commands) == 3
    for command in commands:
        assert f"\n{command.replace('python', '.venv/bin/python')}\n" in readme
    (image,) = re.findall(r"image: apache/kafka:(\S+)", COMPOSE)
    assert f"Apache Kafka {image} at `{compose('KAFKA_ADVERTISED_LISTENERS')[12:]}`" in readme
