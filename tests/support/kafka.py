"""Real Apache Kafka brokers for tests, one per release, on loopback ports of a reserved range.

Behaviour and interop tests acquire a broker for a pytest session; CI keeps one up between several:

    python -m tests.support.kafka start 4.3.0     prints the address, and leaves it running
    python -m tests.support.kafka status
    python -m tests.support.kafka stop 4.3.0      or: stop all

A state file in the cache directory names the process of a release and the sessions that use it. The
last session to release it stops it, unless it was started to stay. Processes are ended by pid, and
only if their command line proves that they were started here. A broker that does not come up is an
error with its log.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.support import jvm, raw_admin, tls
from tests.support.broker_settings import (
    CLUSTER_ID,
    NONE,
    Ports,
    jwks_option,
    log_option,
    uses_zookeeper,
    write_settings,
)
from tests.support.class_path import cache_directory, class_path, parse_version, require_java
from tests.support.programs import output_of

RELEASES = ("4.3.0", "3.9.1", "2.8.2", "1.0.2")
"""The releases that CI runs against."""

START_TIMEOUT = 90.0
STOP_GRACE = 20.0
_FORMAT_TIMEOUT = 60.0
PORTS = range(22000, 23000)
_PORT_ATTEMPTS = 3
"""Start attempts: another program may take a port between the choice and the bind."""
_JVM_OPTIONS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that serves tests, as the state file keeps it."""

    version: str
    bootstrap: str
    tls_bootstrap: str
    processes: tuple[jvm.JavaProcess, ...]
    """The broker first, then its ZooKeeper: without ZooKeeper an old broker cannot stop."""
    sasl_bootstrap: str = ""
    """SASL_PLAINTEXT, of a secured broker."""
    sasl_tls_bootstrap: str = ""
    """SASL_SSL, of a secured broker."""
    oidc_bootstrap: str = ""
    """SASL_PLAINTEXT with signed tokens alone, of a secured broker of 4.0 and later."""
    stays: bool = False
    """Started by hand or by CI: sessions come and go without ending it."""
    users: tuple[int, ...] = field(default=())
    """The pids of the pytest sessions that use it."""

    def alive(self) -> bool:
        """Whether all of its processes still run."""
        return all(process.alive() for process in self.processes)


def acquire(version: str, *, stay: bool = False) -> RunningBroker:
    """Return the running broker of a release for this process, starting it where there is none.

    Raises:
        ToolMissing: Java or Maven are not installed.
        RuntimeError: The broker did not come up; the end of its log is in the message.
    """
    parse_version(version)
    with _locked(version):
        broker = _read_state(version)
        if broker is None or not broker.alive():
            if broker is not None:
                _end(broker)
            broker = _start(version)
        users = {pid for pid in broker.users if pid_exists(pid)}
        if not stay:
            users.add(os.getpid())
        broker = replace(broker, stays=broker.stays or stay, users=tuple(sorted(users)))
        _write_state(broker)
    return broker


def release(version: str) -> None:
    """Release a broker that was acquired; the last user of one that need not stay stops it."""
    with _locked(version):
        broker = _read_state(version)
        if broker is None:
            return
        users = tuple(pid for pid in broker.users if pid != os.getpid() and pid_exists(pid))
        if broker.stays or users:
            _write_state(replace(broker, users=users))
        else:
            _end(broker)


def stop(version: str) -> bool:
    """Stop the broker of a release even if it is in use; return whether there was one."""
    with _locked(version):
        broker = _read_state(version)
        if broker is None:
            return False
        _end(broker)
    return True


@contextlib.contextmanager
def private(
    version: str,
    purpose: str,
    *,
    secured: bool = False,
    settings: Mapping[str, object] = NONE,
    jvm_options: Sequence[str] = (),
) -> Iterator[RunningBroker]:
    """A broker of one test, which may stop or hurt it; ended and deleted at the end.

    One that is ``secured`` has listeners with SASL, too: see `broker_settings`; ``settings`` take
    precedence over those.
    """
    parse_version(version)
    name = f"{version}-{purpose}-{os.getpid()}"
    broker = _start(version, name, secured=secured, settings=settings, jvm_options=jvm_options)
    try:
        yield broker
    finally:
        for process in broker.processes:
            if process.alive():
                os.kill(process.pid, signal.SIGCONT)  # a stopped one would not handle SIGTERM
            process.stop(STOP_GRACE)
        shutil.rmtree(_directory() / name, ignore_errors=True)


def running() -> list[RunningBroker]:
    """Return the brokers that run now."""
    states = sorted(_directory().glob("*/state.json"))
    brokers = [_read_state(path.parent.name) for path in states]
    return [broker for broker in brokers if broker is not None and broker.alive()]


def log_tail(version: str, characters: int = 4000) -> str:
    """Return the end of a broker's log, for the report of a failure."""
    log = _directory() / version / "server.log"
    return log.read_text(errors="replace")[-characters:] if log.exists() else "(no log)"


def _start(
    version: str,
    name: str | None = None,
    *,
    secured: bool = False,
    settings: Mapping[str, object] = NONE,
    jvm_options: Sequence[str] = (),
) -> RunningBroker:
    """Start a broker with its files in the folder ``name``, by default that of its release."""
    number = parse_version(version)
    java, jars, store = require_java(), class_path(version), tls.keystore()
    directory = _directory() / (name or version)
    for attempt in range(_PORT_ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with_oidc = secured and number >= (4, 0, 0)
        ports = Ports(*free_ports(3 + 2 * secured + with_oidc, salt=attempt))
        write_settings(directory, number, ports, store, settings)
        base = [java, *_JVM_OPTIONS, *jvm_options, log_option(directory, number)]
        base += [jwks_option()] if with_oidc else []
        started: list[jvm.JavaProcess] = []
        try:
            with contextlib.ExitStack() as held:
                if uses_zookeeper(number):
                    started.insert(0, _start_zookeeper(base, jars, directory, ports, held))
                else:
                    format_storage(base, jars, directory)
                started.insert(0, start_server(base, jars, directory))
                _await_ready(started[0], ports)
            return RunningBroker(
                version,
                f"127.0.0.1:{ports.plain}",
                f"127.0.0.1:{ports.tls}",
                tuple(started),
                f"127.0.0.1:{ports.sasl}" if secured else "",
                f"127.0.0.1:{ports.sasl_tls}" if secured else "",
                f"127.0.0.1:{ports.oidc}" if with_oidc else "",
            )
        except BaseException as error:
            for process in started:
                process.stop(STOP_GRACE)
            port_taken = "BindException" in log_tail(directory.name, 100_000)
            if port_taken and attempt + 1 < _PORT_ATTEMPTS and isinstance(error, RuntimeError):
                continue
            raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _start_zookeeper(
    base: list[str], jars: str, directory: Path, ports: Ports, held: contextlib.ExitStack
) -> jvm.JavaProcess:
    """Start it; the connection that shows that it listens is closed with ``held``.

    One that ends before ZooKeeper 3.4 has its database is never closed there: it would spin on it,
    and log that, for ever.
    """
    settings = str(directory / "zookeeper.properties")
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    process = jvm.launch([*base, main, settings], jars, settings, directory / "server.log")
    deadline = time.monotonic() + START_TIMEOUT
    while process.alive() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            held.enter_context(socket.create_connection(("127.0.0.1", ports.control), 1.0))
            return process
        time.sleep(0.05)
    process.stop(STOP_GRACE)
    raise RuntimeError(f"ZooKeeper did not come up:\n{log_tail(directory.name)}")


def start_server(base: list[str], jars: str, directory: Path) -> jvm.JavaProcess:
    """Launch the broker of a folder; it is not up yet."""
    settings = str(directory / "server.properties")
    return jvm.launch([*base, "kafka.Kafka", settings], jars, settings, directory / "server.log")


def format_storage(base: list[str], jars: str, directory: Path) -> None:
    """Prepare the folder of a KRaft node, whose settings file is written."""
    settings = str(directory / "server.properties")
    output_of(
        [*base, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", settings],
        "formatting the storage failed",
        _FORMAT_TIMEOUT,
        jvm.environment(jars),
    )


def _await_ready(process: jvm.JavaProcess, ports: Ports) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while process.alive():
        try:
            raw_admin.wait_ready(f"127.0.0.1:{ports.plain}", 0.5)
            return
        except raw_admin.RawAdminError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{error}\n{log_tail(_version_of(process))}") from error
    raise RuntimeError(f"the broker ended while starting:\n{log_tail(_version_of(process))}")


def _version_of(process: jvm.JavaProcess) -> str:
    return Path(process.marker).parent.name


def _end(broker: RunningBroker) -> None:
    for process in broker.processes:
        process.stop(STOP_GRACE)
    directory = _directory() / broker.version
    (directory / "state.json").unlink(missing_ok=True)
    shutil.rmtree(directory / "data", ignore_errors=True)  # the log stays, to be read
    shutil.rmtree(directory / "zookeeper", ignore_errors=True)


def free_ports(
    count: int, salt: int, span: range = PORTS, taken: Collection[int] = ()
) -> list[int]:
    """Ports of ``span`` without a listener, and that are not among those ``taken``."""
    first = (os.getpid() * 37 + salt * 301) % len(span)
    found: list[int] = []
    for step in range(len(span)):
        port = span[(first + step) % len(span)]
        if port in taken:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports between {span[0]} and {span[-1]}")


def _directory() -> Path:
    return cache_directory() / "brokers"


@contextlib.contextmanager
def _locked(version: str) -> Iterator[None]:
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{version}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _read_state(version: str) -> RunningBroker | None:
    path = _directory() / version / "state.json"
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    processes = tuple(jvm.JavaProcess(**process) for process in state.pop("processes"))
    return RunningBroker(**state | {"processes": processes, "users": tuple(state["users"])})


def _write_state(broker: RunningBroker) -> None:
    path = _directory() / broker.version / "state.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(broker), indent=1))
    fresh.replace(path)


def pid_exists(pid: int) -> bool:
    """Whether any process has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    usage = "usage: python -m tests.support.kafka start VERSION... | stop VERSION...|all | status\n"
    if not arguments or arguments[0] not in ("start", "stop", "status"):
        sys.stderr.write(usage)
        return 2
    command, versions = arguments[0], arguments[1:]
    if command == "status":
        for broker in running():
            users = f", used by {len(broker.users)}" if broker.users else ""
            sys.stdout.write(
                f"{broker.version} {broker.bootstrap} tls {broker.tls_bootstrap}{users}\n"
            )
        return 0
    if not versions:
        sys.stderr.write(usage)
        return 2
    if command == "start":
        for version in versions:
            sys.stdout.write(f"{acquire(version, stay=True).bootstrap}\n")
        jvm.detach()
        return 0
    for version in [one.version for one in running()] if versions == ["all"] else versions:
        sys.stdout.write(f"{version} {'stopped' if stop(version) else 'was not running'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
