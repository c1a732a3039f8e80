"""A container with one broker, at a port of this machine that is chosen before it starts.

The behaviours' fixture uses it (`pytest --docker`), and so can a command that needs a broker:

    python -m tests.docker.container run [--image NAME] -- COMMAND --bootstrap {bootstrap}

The image is apache/kafka:4.3.0 unless another is named. One of that repository which is neither
present nor in a registry is replaced by what tests/docker/image.py builds, with a notice. The
container is removed at the end; one whose owner was killed is removed when the next starts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docker import engine, image
from tests.support import raw_admin, tls
from tests.support.broker_settings import CLUSTER_ID, COMMON
from tests.support.class_path import parse_version
from tests.support.kafka import free_ports, pid_exists

if TYPE_CHECKING:
    import docker
    from testcontainers.core.container import DockerContainer

OFFICIAL = "apache/kafka"
DEFAULT_IMAGE = f"{OFFICIAL}:4.3.0"
START_TIMEOUT = 90.0
PORTS = range(24000, 25000)

_PORT_ATTEMPTS = 3
"""Start attempts: another program may take a port between the choice and the bind."""
_REMOVALS, _REMOVAL_PAUSE = 3, 1.0
"""Attempts, and seconds between them: an engine may find a file system busy for a moment."""
_PLAIN, _TLS, _CONTROL, _INTERNAL = 9092, 9093, 9094, 9095
_SETTINGS: Mapping[str, object] = {
    **COMMON,
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": f"1@localhost:{_CONTROL}",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT"
    ),
    "listeners": (
        f"PLAINTEXT://:{_PLAIN},SSL://:{_TLS},"
        f"CONTROLLER://localhost:{_CONTROL},INTERNAL://localhost:{_INTERNAL}"
    ),
    "log.dirs": "/tmp/kafka-data",
    "ssl.keystore.type": "PKCS12",
    # The image looks for these in /etc/kafka/secrets.
    "ssl.keystore.filename": "broker.p12",
    "ssl.keystore.credentials": "password",
    "ssl.key.credentials": "password",
}
_HEAP = "-Xms128m -Xmx512m"
_MEMORY = "1g"
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_HOST_LABEL, _OWNER_LABEL = "kclient-test.host", "kclient-test.pid"


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image that the engine has."""

    name: str
    instead_of: str = ""
    """The one that was asked for and why it isn't used, if it isn't."""

    def __str__(self) -> str:
        return self.name + (f" ({self.instead_of})" if self.instead_of else "")


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container whose broker responds."""

    image: FoundImage
    bootstrap: str
    tls_bootstrap: str

    @property
    def version(self) -> tuple[int, int, int]:
        """The release by the tag of its image, else as guessed from what it speaks."""
        return version_of(self.image.name) or raw_admin.guess_release(
            raw_admin.api_versions(self.bootstrap)
        )


def version_of(name: str) -> tuple[int, int, int] | None:
    """The release of Apache Kafka that the tag of an image names, or None: "latest"."""
    try:
        return parse_version(name.rpartition(":")[2])
    except ValueError:
        return None


def find_image(
    client: docker.DockerClient, wanted: str, build: Callable[[str], str] = image.ensure
) -> FoundImage:
    """Find the image that is wanted, or the one that stands in for it.

    Raises:
        RuntimeError: There is none; why is in the message.
    """
    from docker.errors import DockerException, ImageNotFound

    repository, _, tag = wanted.rpartition(":")
    if repository == image.REPOSITORY:
        return FoundImage(build(tag))
    try:
        client.images.get(wanted)
        return FoundImage(wanted)
    except ImageNotFound:
        pass
    try:
        client.images.pull(wanted)
        return FoundImage(wanted)
    except (DockerException, OSError) as error:
        reason = f"{wanted} is neither here nor to be had from a registry ({error})"
        if repository != OFFICIAL or version_of(wanted) is None:
            raise RuntimeError(reason) from error
    try:
        return FoundImage(build(tag), instead_of=reason)
    except RuntimeError as error:
        raise RuntimeError(f"{reason}, and one can't be built: {error}") from error


@contextlib.contextmanager
def running(wanted: str = DEFAULT_IMAGE) -> Iterator[RunningContainer]:
    """A broker in a container, from when it responds until the end of the block.

    Raises:
        EngineMissing: No Docker engine responds.
        RuntimeError: There is no image, or the broker did not come up; with its log.
    """
    with engine.connected() as client:
        found = find_image(client, wanted)
        remove_orphans(client)
    with tempfile.TemporaryDirectory(prefix="kclient-secrets-") as secrets:
        _fill(Path(secrets))
        container, ports = _start(found.name, secrets)
        try:
            addresses = [f"127.0.0.1:{port}" for port in ports]
            _await_ready(container, addresses[0], found.name)
            yield RunningContainer(found, *addresses)
        finally:
            _remove(container)


def remove_orphans(client: docker.DockerClient) -> None:
    """Remove the containers that killed processes of this machine left behind."""
    from docker.errors import NotFound

    mine = {"label": f"{_HOST_LABEL}={socket.gethostname()}"}
    for container in client.containers.list(all=True, filters=mine, ignore_removed=True):
        if not pid_exists(int(container.labels[_OWNER_LABEL])):
            with contextlib.suppress(NotFound):  # another one's sweep took it
                container.remove(force=True, v=True)


def _remove(container: DockerContainer) -> None:
    """End a container. One that the engine can't remove yet is removed when the next starts."""
    from docker.errors import APIError, NotFound

    for attempt in range(_REMOVALS):
        try:
            container.stop()
            return
        except NotFound:
            return
        except APIError as error:
            if attempt + 1 == _REMOVALS:
                sys.stderr.write(f"a container was not removed: {error}\n")
            else:
                time.sleep(_REMOVAL_PAUSE)


def variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings of Kafka as the variables that its image reads."""
    escapes = str.maketrans({"-": "___", "_": "__", ".": "_"})
    return {
        f"KAFKA_{key.translate(escapes).upper()}": str(value) for key, value in settings.items()
    }


def _fill(secrets: Path) -> None:
    """Lay out what the image takes from /etc/kafka/secrets, for whichever user it runs as."""
    shutil.copy(tls.keystore(), secrets / "broker.p12")
    (secrets / "password").write_text(tls.KEYSTORE_PASSWORD)
    secrets.chmod(0o755)
    for path in secrets.iterdir():
        path.chmod(0o644)


def _start(name: str, secrets: str) -> tuple[DockerContainer, list[int]]:
    """Start a container at free ports; choose again if a port was taken meanwhile."""
    from docker.errors import APIError

    for attempt in range(_PORT_ATTEMPTS):
        ports = free_ports(2, salt=attempt, span=PORTS)
        container = _container(name, secrets, *ports)
        try:
            return container.start(), ports
        except BaseException as error:
            container.stop()
            taken = isinstance(error, APIError) and "port is already allocated" in str(error)
            taken |= isinstance(error, APIError) and "address already in use" in str(error)
            if not taken or attempt + 1 == _PORT_ATTEMPTS:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _container(name: str, secrets: str, plain: int, encrypted: int) -> DockerContainer:
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    if "TESTCONTAINERS_RYUK_DISABLED" not in os.environ:
        testcontainers_config.ryuk_disabled = True  # a second image, which may be unavailable
    if testcontainers_config.tc_host_override is None:
        testcontainers_config.tc_host_override = "127.0.0.1"
    advertised = (
        f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted},"
        f"INTERNAL://localhost:{_INTERNAL}"
    )
    container = DockerContainer(
        name,
        env={
            **variables({**_SETTINGS, "advertised.listeners": advertised}),
            "CLUSTER_ID": CLUSTER_ID,
            "KAFKA_HEAP_OPTS": _HEAP,
            "KAFKA_JVM_PERFORMANCE_OPTS": _JVM,
        },
        volumes=[(secrets, "/etc/kafka/secrets", "ro")],
        labels={_HOST_LABEL: socket.gethostname(), _OWNER_LABEL: str(os.getpid())},
        mem_limit=_MEMORY,
        memswap_limit=_MEMORY,
    )
    # Bound to one address, which `with_bind_ports` can't do, so that only this machine sees them.
    published: Any = {
        f"{_PLAIN}/tcp": ("127.0.0.1", plain),
        f"{_TLS}/tcp": ("127.0.0.1", encrypted),
    }
    container.ports.update(published)
    return container


def _await_ready(container: DockerContainer, bootstrap: str, name: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    wrapped = container.get_wrapped_container()
    while True:
        try:
            raw_admin.wait_ready(bootstrap, 0.5)
            return
        except raw_admin.RawAdminError as error:
            wrapped.reload()
            if wrapped.status == "running" and time.monotonic() < deadline:
                continue
            said = wrapped.logs(tail=60).decode(errors="replace")
            raise RuntimeError(
                f"no broker came up in a container of {name}, which is {wrapped.status}: {error}\n"
                f"{said or '(it logged nothing)'}"
            ) from error


def _run(command: list[str], wanted: str) -> int:
    """Run a command beside a container; returns its exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with running(wanted) as broker:
        sys.stdout.write(f"{broker.bootstrap} is {broker.image}\n")
        sys.stdout.flush()
        replaced = [part.replace("{bootstrap}", broker.bootstrap) for part in command]
        return subprocess.run(replaced, check=False).returncode


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.docker.container")
    parser.add_argument("run", choices=["run"])
    parser.add_argument("--image", default=DEFAULT_IMAGE)
    parser.add_argument("command", nargs="+", help="where it says {bootstrap}, the address is put")
    options = parser.parse_args(arguments)
    try:
        return _run(options.command, options.image)
    except (RuntimeError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
