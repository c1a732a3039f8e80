"""A container comes up at the port that it advertises, or reports why not, and is removed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kclient
from tests.docker import container, engine, image
from tests.support import raw_admin, tls
from tests.support.kafka import free_ports

COMPOSE = Path(__file__).parents[2] / "examples" / "compose.yaml"


def of_this_process() -> list[Any]:
    """The containers that this process owns."""
    with engine.connected() as client:
        label = f"{container._OWNER_LABEL}={os.getpid()}"
        return list(client.containers.list(all=True, filters={"label": label}))


@pytest.mark.timeout(300)
async def test_a_container_responds_at_the_ports_that_it_advertises() -> None:
    with container.running(f"{image.REPOSITORY}:4.3.0") as broker:
        assert broker.version == (4, 3, 0)
        plain = raw_admin.split_address(broker.bootstrap)
        assert raw_admin.metadata(broker.bootstrap, []).brokers == {1: plain}
        security = kclient.Security.tls(ca_file=tls.certificate())
        async with kclient.Admin(broker.tls_bootstrap, security=security) as admin:
            (node,) = (await admin.describe_cluster()).brokers
        assert f"{node.host}:{node.port}" == broker.tls_bootstrap
        (running,) = of_this_process()
        published = [one for each in running.ports.values() for one in each or ()]
        assert {one["HostIp"] for one in published} == {"127.0.0.1"}
        assert {int(one["HostPort"]) for one in published} == {plain[1], node.port}
    assert not of_this_process()


def test_a_broker_that_does_not_come_up_is_an_error_with_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(container, "_JVM", "-XX:+NoSuchOption")
    with (
        pytest.raises(RuntimeError, match=r"(?s)kafka:4\.3\.0, which is exited.*NoSuchOption"),
        container.running(f"{image.REPOSITORY}:4.3.0"),
    ):
        pass
    assert not of_this_process()


def test_what_a_killed_process_left_is_removed_and_nothing_else() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = image.ensure("4.3.0")
    with engine.connected() as client:
        made = [
            client.containers.create(
                name,
                labels={
                    container._HOST_LABEL: socket.gethostname(),
                    container._OWNER_LABEL: str(pid),
                },
            )
            for pid in (dead.pid, os.getpid())
        ]
        container.remove_orphans(client)
        left = {one.id for one in client.containers.list(all=True)} & {one.id for one in made}
        made[1].remove()
    assert left == {made[1].id}


class PortTaken:
    """A container whose port another program took after it was chosen."""

    def start(self) -> PortTaken:
        from docker.errors import APIError

        raise APIError("driver failed: Bind for 127.0.0.1:24000 failed: port is already allocated")

    def stop(self) -> None:
        pass


def test_a_port_that_was_taken_meanwhile_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[int, ...]] = []

    def create(name: str, secrets: str, *ports: int) -> Any:
        chosen.append(ports)
        return PortTaken() if len(chosen) == 1 else contextlib.nullcontext()

    monkeypatch.setattr(container, "_container", create)
    monkeypatch.setattr(contextlib.nullcontext, "start", lambda self: self, raising=False)
    _, ports = container._start("any", "nowhere")
    assert len(chosen) == 2
    assert not set(chosen[0]) & set(chosen[1])
    assert tuple(ports) == chosen[1]


def test_a_port_that_is_always_taken_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_container", lambda *_: PortTaken())
    with pytest.raises(Exception, match="port is already allocated"):
        container._start("any", "nowhere")


class Held:
    """A container that the engine doesn't remove at the first attempts."""

    def __init__(self, refusals: int, then: type[Exception] | None = None) -> None:
        self.refusals = refusals
        self.then = then
        self.attempts = 0

    def stop(self) -> None:
        from docker.errors import APIError

        self.attempts += 1
        if self.attempts <= self.refusals:
            raise APIError("device or resource busy")
        if self.then is not None:
            raise self.then("gone")


def test_a_container_that_is_busy_is_removed_a_moment_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from docker.errors import NotFound

    monkeypatch.setattr(container, "_REMOVAL_PAUSE", 0.0)
    for held in (Held(0), Held(1), Held(2), Held(1, then=NotFound)):
        container._remove(held)  # type: ignore[arg-type]
        assert held.attempts == held.refusals + 1
    assert not capsys.readouterr().err


def test_a_container_that_stays_busy_is_reported_and_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(container, "_REMOVAL_PAUSE", 0.0)
    held = Held(100)
    container._remove(held)  # type: ignore[arg-type]
    assert held.attempts == container._REMOVALS
    assert "not removed: device or resource busy" in capsys.readouterr().err


@contextlib.contextmanager
def pretended(wanted: str) -> Iterator[container.RunningContainer]:
    yield container.RunningContainer(container.FoundImage(wanted, "no x"), "h:1", "h:2")


def test_a_command_gets_the_address_and_its_status_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(container, "running", pretended)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    script = "import sys; sys.exit(7 if sys.argv[1:] == ['--at=h:1'] else 1)"
    command = [sys.executable, "-c", script, "--at={bootstrap}"]
    assert container.main(["run", "--image", "some:1", "--", *command]) == 7
    assert capsys.readouterr().out == "h:1 is some:1 (no x)\n"


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("num.io.threads", "KAFKA_NUM_IO_THREADS"),
        ("a.with_underscore", "KAFKA_A_WITH__UNDERSCORE"),
        ("a.with-dash", "KAFKA_A_WITH___DASH"),
    ],
)
def test_settings_become_the_variables_of_the_image(key: str, variable: str) -> None:
    assert container.variables({key: 1}) == {variable: "1"}


def test_the_compose_file_starts_a_broker_that_finds_itself_healthy() -> None:
    """With its settings and health check, at another port and in the image that was built here."""
    (port,) = free_ports(1, salt=0, span=container.PORTS)
    text = COMPOSE.read_text().replace("9092", str(port))
    variables = dict(re.findall(r'^      ([A-Z_]+): "?(.*?)"?$', text, re.M))
    command, *check = re.findall(r'^        - "(.*)"$', text, re.M)
    assert command == "CMD"
    with engine.connected() as client:
        broker = client.containers.run(
            image.ensure("4.3.0"),
            environment=variables,
            ports={f"{port}/tcp": ("127.0.0.1", port)},
            mem_limit="1g",
            labels={
                container._HOST_LABEL: socket.gethostname(),
                container._OWNER_LABEL: str(os.getpid()),
            },
            detach=True,
        )
        try:
            raw_admin.wait_ready(f"localhost:{port}", container.START_TIMEOUT)
            status, said = broker.exec_run(check)
            assert status == 0, said.decode()
            seen = raw_admin.metadata(f"localhost:{port}", [])
            assert seen.brokers == {1: ("localhost", port)}
        finally:
            broker.remove(force=True, v=True)
