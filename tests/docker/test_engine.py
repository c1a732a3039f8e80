"""Without a Docker engine errors name the remedy; an engine of another owner isn't touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker import container, engine, image

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of an engine that isn't there, which DOCKER_HOST names."""
    address = f"unix://{tmp_path / 'docker.sock'}"
    monkeypatch.setenv("DOCKER_HOST", address)
    return address


@pytest.fixture
def no_usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose usual socket has no engine behind it."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(engine, "USUAL", f"unix://{tmp_path / 'docker.sock'}")
    monkeypatch.setenv("KCLIENT_TEST_CACHE", str(tmp_path / "cache"))


def test_a_container_without_an_engine_names_the_remedy(nowhere: str) -> None:
    with pytest.raises(engine.EngineMissing) as raised, container.running():
        pass
    assert nowhere in str(raised.value)
    assert "apt-get install --no-install-recommends docker.io" in str(raised.value)
    assert "python -m tests.docker.engine start" in str(raised.value)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [(engine, ["start"]), (image, ["4.3.0"]), (container, ["run", "--", "true"])],
)
def test_a_command_without_an_engine_fails_and_names_its_address(
    tool: object, arguments: list[str], nowhere: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(arguments) == 1  # type: ignore[attr-defined]
    assert nowhere in capsys.readouterr().err


def test_the_behaviours_without_an_engine_fail_and_name_the_remedy(nowhere: str) -> None:
    done = pytest_says("--docker", "tests/behaviours/test_producer_records.py")
    assert done.returncode == 1
    assert f"No Docker engine answers at {nowhere}" in done.stdout
    assert "passed" not in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        pytest.param(["--broker", "4.3.0"], {}, id="a release"),
        pytest.param([], {"KCLIENT_TEST_BOOTSTRAP": "127.0.0.1:1"}, id="an address"),
    ],
)
def test_docker_and_another_broker_is_refused(
    options: list[str], variables: dict[str, str]
) -> None:
    done = pytest_says("--docker", *options, "tests/behaviours", **variables)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "choose one" in done.stderr


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param({"KCLIENT_TEST_DOCKER": "1"}, id="by variable"),
        pytest.param({}, id="by option"),
    ],
)
def test_the_header_names_docker_and_the_image(variable: dict[str, str]) -> None:
    options = [] if variable else ["--docker"]
    done = pytest_says(
        *options,
        "--docker-image",
        "other/kafka:1",
        "--collect-only",
        "tests/behaviours",
        **variable,
    )
    assert done.returncode == 0, done.stdout
    assert "broker: docker (other/kafka:1)" in done.stdout


def test_an_engine_that_cannot_be_had_here_is_named_with_its_package(
    no_usual: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(engine.EngineMissing, match=r"the package docker\.io"):
        engine.start()


def test_an_engine_is_started_by_root_only(
    no_usual: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_engine(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(engine.EngineMissing, match="needs root"):
        engine.start()


def test_an_engine_that_ends_while_starting_is_an_error_with_its_log(
    no_usual: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_engine(tmp_path, "echo failed to start: no such thing; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(RuntimeError, match="failed to start: no such thing"):
        engine.start()
    assert engine.ours() is None


def test_an_engine_of_another_owner_is_used_and_not_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For another cache directory the engine of this run has another owner."""
    monkeypatch.setenv("KCLIENT_TEST_CACHE", str(tmp_path))
    assert engine.start() is False
    assert engine.stop() is False
    assert engine.version()


def fake_engine(where: Path, script: str) -> None:
    program = where / "dockerd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def pytest_says(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process of its own."""
    left_out = ("PYTEST_", "KCLIENT_TEST_DOCKER", "KCLIENT_TEST_BOOTSTRAP")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *arguments],
        cwd=PROJECT,
        env={**inherited, **variables, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=100.0,
        check=False,
    )
