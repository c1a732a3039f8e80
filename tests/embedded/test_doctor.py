"""``kclient doctor`` on planted faults: it names the one cause of each, and what to change."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from kclient import AdminConfig, Security
from kclient.cli import app
from kclient.doctor.examination import examine
from kclient.doctor.findings import Cause, Step
from kclient.protocol.messages.metadata import MetadataResponseBroker
from kclient.testing import Cluster, ClusterSecurity
from tests.embedded.test_testing_security import unsecured_token

CANARY = "canary-5e1d"
USERS = {"alice": "alice-password"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
Doctor = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
DAY = datetime.timedelta(days=1)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run the command with ``--json``; returns its exit code and document."""

    async def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["kclient", "doctor", "--json", *arguments])
        code = await asyncio.to_thread(app.run)
        out, err = capsys.readouterr()
        assert CANARY not in out + err
        return code, json.loads(out)

    return run


@contextlib.asynccontextmanager
async def serving(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that is no Kafka; gives its address."""
    tasks: set[asyncio.Task[Any]] = set()

    async def attended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            tasks.add(task)
        try:
            await serve(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(attended, "127.0.0.1", 0, ssl=context)
    async with server:
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n")  # which ApiVersions hasn't
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def hasty_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1000)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1000)
    writer.write(b"SSH-2.0-\x1b[31mOpenSSH\r\n")


def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context


def tls_settings(tmp_path: Path, authority: trustme.CA | str, **more: str) -> list[str]:
    """Options for TLS that trusts this authority."""
    pem = authority if isinstance(authority, str) else authority.cert_pem.bytes().decode()
    (tmp_path / "ca.pem").write_text(pem)
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem"), **more}
    return options(**settings)


def options(**settings: str) -> list[str]:
    return [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]


def only_problem(code: int, document: dict[str, Any]) -> dict[str, Any]:
    """The one step that failed, which is the last one of its address."""
    assert code == 1
    assert document["ok"] is False
    (wrong,) = [step for step in document["steps"] if not step["ok"]]
    assert document["steps"][-1] == wrong
    return dict(wrong)


def check(problem: dict[str, Any], step: str, cause: Cause, *words: str) -> None:
    assert (problem["name"], problem["cause"]) == (step, cause.name), problem
    for word in words:
        assert word in problem["detail"] + " | " + problem["advice"]


# What is well


async def test_a_cluster_that_is_well(doctor: Doctor) -> None:
    async with Cluster(3) as cluster:
        code, document = await doctor("--bootstrap", cluster.bootstrap.split(",")[0])
    assert (code, document["ok"]) == (0, True)
    steps = [(step["broker"], step["name"]) for step in document["steps"]]
    names = ["DNS", "TCP", "ApiVersions", "Metadata"]
    assert steps == [(broker, name) for broker in (None, 2, 3) for name in names]
    assert "Apache Kafka 4.3" in document["steps"][2]["detail"]
    assert "3 brokers" in document["steps"][3]["detail"]


async def test_a_secured_cluster_is_told_about_in_full(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = ClusterSecurity(USERS, tls=True, session_lifetime=60.0)
    authority = security.authority
    assert authority is not None
    async with Cluster(1, security=security) as cluster:
        settings = tls_settings(tmp_path, authority) + options(
            **{
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN} username="alice" password="alice-password";',
            }
        )
        code, document = await doctor("--bootstrap", cluster.bootstrap, *settings)
        monkeypatch.setitem(sys.modules, "cryptography", None)
        _, without = await doctor("--bootstrap", cluster.bootstrap, *settings)
    assert code == 0, document
    details = {step["name"]: step["detail"] for step in document["steps"]}
    assert "logged in by PLAIN" in details["SASL"]
    assert "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; sessions last 60 s" in details["SASL"]
    assert details["TLS"].startswith("TLSv1.3, TLS_")
    assert "certificate of CN=broker for localhost, 127.0.0.1, ::1, issued by" in details["TLS"]
    assert "issued by CN=kclient.testing, valid 20" in details["TLS"]
    read_by_ssl = without["steps"][2]["detail"].replace("0:0:0:0:0:0:0:1", "::1")
    assert read_by_ssl == details["TLS"]


# What isn't


async def test_a_name_that_does_not_resolve(doctor: Doctor) -> None:
    problem = only_problem(*await doctor("--bootstrap", "kafka.invalid:9092"))
    check(problem, "DNS", Cause.UNRESOLVED, "kafka.invalid", "bootstrap.servers")


async def test_a_port_where_nothing_listens(doctor: Doctor) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        problem = only_problem(*await doctor("--bootstrap", f"127.0.0.1:{port}"))
    check(problem, "TCP", Cause.REFUSED, "start the broker", "correct the port")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_a_port_that_accepts_and_is_silent(doctor: Doctor, protocol: str) -> None:
    more = ["--timeout", "0.5", "-X", f"security.protocol={protocol}"]
    async with serving(silence) as address:
        problem = only_problem(*await doctor("--bootstrap", address, *more))
    step = "TLS" if protocol == "SSL" else "ApiVersions"
    check(problem, step, Cause.SILENT, "no answer within 0.5 s", "firewall", "isn't Kafka")


async def test_a_peer_that_hangs_up(doctor: Doctor) -> None:
    async with serving(hang_up) as address:
        problem = only_problem(*await doctor("--bootstrap", address))
    check(problem, "ApiVersions", Cause.HUNG_UP, "closed the connection", "load balancer")


async def test_a_tls_listener_without_tls(doctor: Doctor) -> None:
    async with Cluster(1, security=ClusterSecurity(tls=True)) as cluster:
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap))
    check(problem, "ApiVersions", Cause.TLS_LISTENER, "security.protocol=SSL")


async def test_a_plaintext_listener_with_tls(doctor: Doctor) -> None:
    async with Cluster(1) as cluster:
        problem = only_problem(
            *await doctor("--bootstrap", cluster.bootstrap, "-X", "security.protocol=SSL")
        )
    check(problem, "TLS", Cause.PLAINTEXT_LISTENER, "SSL listener", "security.protocol=PLAINTEXT")


async def test_an_authority_that_is_not_trusted(doctor: Doctor, tmp_path: Path) -> None:
    settings = tls_settings(tmp_path, trustme.CA())
    async with Cluster(1, security=ClusterSecurity(tls=True)) as cluster:
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap, *settings))
    check(problem, "TLS", Cause.UNKNOWN_AUTHORITY, "trust CN=kclient.testing", "ssl.ca.location")


@pytest.mark.parametrize(
    ("begin", "end", "cause", "words"),
    [
        (-9 * DAY, -2 * DAY, Cause.EXPIRED, ["renew the broker's certificate"]),
        (2 * DAY, 9 * DAY, Cause.NOT_YET_VALID, ["set the clock of this machine", "for later"]),
    ],
)
async def test_a_certificate_out_of_its_time(
    doctor: Doctor,
    tmp_path: Path,
    begin: datetime.timedelta,
    end: datetime.timedelta,
    cause: Cause,
    words: list[str],
) -> None:
    authority, now = trustme.CA(), datetime.datetime.now(datetime.UTC)
    leaf = authority.issue_cert("127.0.0.1", not_before=now + begin, not_after=now + end)
    async with serving(silence, server_context(leaf)) as address:
        problem = only_problem(
            *await doctor("--bootstrap", address, *tls_settings(tmp_path, authority))
        )
    dates = [f"{now + begin:%Y-%m-%d}", f"{now + end:%Y-%m-%d}"]
    check(problem, "TLS", cause, "this machine's clock has", *dates, *words)


async def test_a_certificate_for_another_name(doctor: Doctor, tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("kafka.example", "broker.example")
    async with serving(silence, server_context(leaf)) as address:
        problem = only_problem(
            *await doctor("--bootstrap", address, *tls_settings(tmp_path, authority))
        )
    names = "name the broker by kafka.example, broker.example in bootstrap.servers"
    check(problem, "TLS", Cause.WRONG_NAME, names, "127.0.0.1 as a subjectAltName")


@pytest.mark.parametrize(
    ("version", "step", "cause", "words"),
    [
        # OpenSSL gives no more precise reason there; Java, and so Kafka, does.
        (ssl.TLSVersion.TLSv1_2, "TLS", Cause.TLS_FAILED, "wants a certificate of the client"),
        (ssl.TLSVersion.TLSv1_3, "ApiVersions", Cause.CLIENT_CERTIFICATE, "ssl.client.auth"),
    ],
)
async def test_a_listener_that_wants_a_certificate(
    doctor: Doctor, tmp_path: Path, version: ssl.TLSVersion, step: str, cause: Cause, words: str
) -> None:
    authority = trustme.CA()
    context = server_context(authority.issue_cert("127.0.0.1"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    authority.configure_trust(context)

    def refuse(listener: socket.socket) -> None:
        """asyncio's TLS closes without the alert that brokers send, so this is without asyncio."""
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                with accepted, contextlib.suppress(OSError):
                    accepted.settimeout(10.0)
                    context.wrap_socket(accepted, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(asyncio.to_thread(refuse, listener))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = tls_settings(tmp_path, authority)
        problem = only_problem(*await doctor("--bootstrap", address, *settings))
        listener.shutdown(socket.SHUT_RDWR)
        await serving
    check(problem, step, cause, words)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_listener_of_sasl_without_sasl(doctor: Doctor, tmp_path: Path, tls: bool) -> None:
    security = ClusterSecurity(USERS, tls=tls, mechanisms=("PLAIN", "SCRAM-SHA-256"))
    async with Cluster(1, security=security) as cluster:
        settings = tls_settings(tmp_path, security.authority) if security.authority else []
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap, *settings))
    protocol = "security.protocol=SASL_SSL" if tls else "security.protocol=SASL_PLAINTEXT"
    check(problem, "Metadata", Cause.SASL_MISSING, "offers PLAIN, SCRAM-SHA-256", protocol)


def login(mechanism: str, password: str) -> list[str]:
    return options(
        **{
            "security.protocol": "SASL_PLAINTEXT",
            "kclient.allow.unencrypted.passwords": "true",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password(doctor: Doctor, mechanism: str) -> None:
    async with Cluster(1, security=ClusterSecurity(USERS)) as cluster:
        settings = login(mechanism, CANARY)
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap, *settings))
    check(problem, "SASL", Cause.PASSWORD, "check user and password", f"user for {mechanism}")


async def test_a_mechanism_that_is_not_enabled(doctor: Doctor) -> None:
    offered = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    async with Cluster(1, security=ClusterSecurity(USERS, mechanisms=offered)) as cluster:
        settings = login("PLAIN", CANARY)
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap, *settings))
    words = ["offers (SCRAM-SHA-256, SCRAM-SHA-512)", "add PLAIN to the broker's"]
    check(problem, "SASL", Cause.MECHANISM, *words)


async def test_sasl_where_the_listener_has_none(doctor: Doctor) -> None:
    async with Cluster(1) as cluster:
        settings = login("PLAIN", CANARY)
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap, *settings))
    check(problem, "SASL", Cause.SASL_UNWANTED, "security.protocol=PLAINTEXT")


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("kafka-1", ["kafka-1 can't be resolved", "known to containers only"]),
        ("kafka.invalid", ["kafka.invalid can't be resolved", "lead to it from here"]),
        ("localhost", ["refused", "a loopback address means this machine"]),
    ],
)
async def test_an_advertised_address_that_leads_nowhere(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, host: str, words: list[str]
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        advertise(monkeypatch, host, port)
        async with Cluster(1) as cluster:
            problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap))
    assert (problem["address"], problem["broker"]) == (f"{host}:{port}", 1)
    step = "TCP" if host == "localhost" else "DNS"
    check(problem, step, Cause.ADVERTISED, "advertised.listeners of broker 1", *words)


async def test_an_advertised_address_of_another_cluster(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(1, seed=1) as other, Cluster(1, seed=2) as cluster:
        host, _, port = other.bootstrap.rpartition(":")
        advertise(monkeypatch, host, int(port))
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap))
    check(problem, "Metadata", Cause.OTHER_CLUSTER, "advertised.listeners of broker 1")


async def test_bootstrap_addresses_of_two_clusters(doctor: Doctor) -> None:
    async with Cluster(1, seed=1) as one, Cluster(2, seed=2) as other:
        _, _, stranger = f"{one.bootstrap},{other.bootstrap}".split(",")
        problem = only_problem(*await doctor("--bootstrap", f"{one.bootstrap},{stranger}"))
    assert problem["address"] == stranger
    check(problem, "Metadata", Cause.OTHER_CLUSTER, "one cluster only in bootstrap.servers")


async def test_an_address_that_two_brokers_advertise(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    advertise(monkeypatch, "kafka.example", 9092)
    async with Cluster(2) as cluster:
        bootstrap = cluster.bootstrap.split(",")[0]
        problem = only_problem(*await doctor("--bootstrap", bootstrap))
    words = ["brokers 1 and 2 both advertise kafka.example:9092", "an address of its own"]
    check(problem, "Metadata", Cause.ADVERTISED, *words)


async def test_an_address_of_a_family_that_the_system_lacks(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str, port: int) -> list[tuple[int, Any]]:
        return [(9999, ("other", port)), (socket.AF_INET, ("127.0.0.1", port))]

    monkeypatch.setattr("kclient.doctor.examination.resolve", resolve)
    async with Cluster(1) as cluster:
        code, document = await doctor("--bootstrap", cluster.bootstrap)
    assert code == 0
    assert document["steps"][1]["detail"].endswith("; 127.0.0.1: connected")


async def test_host_names_that_are_not_verified(doctor: Doctor, tmp_path: Path) -> None:
    security = ClusterSecurity(tls=True)
    assert security.authority is not None
    async with Cluster(1, security=security) as cluster:
        settings = tls_settings(
            tmp_path,
            security.authority,
            **{
                "ssl.endpoint.identification.algorithm": "",
                "kclient.allow.unverified.hostnames": "true",
            },
        )
        _, document = await doctor("--bootstrap", cluster.bootstrap, *settings)
    expected = "; host name NOT verified, as the settings say; certificate of"
    assert expected in document["steps"][2]["detail"]


async def test_an_advertised_address_of_another_listener(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(1, security=ClusterSecurity(tls=True)) as other, Cluster(1) as cluster:
        host, _, port = other.bootstrap.rpartition(":")
        advertise(monkeypatch, host, int(port))
        problem = only_problem(*await doctor("--bootstrap", cluster.bootstrap))
    words = ["advertised.listeners of broker 1 to an address of the same listener"]
    check(problem, "ApiVersions", Cause.TLS_LISTENER, *words)


def advertise(monkeypatch: pytest.MonkeyPatch, host: str, port: int) -> None:
    """Have clusters name that address in their metadata."""

    def broker(node_id: int, _host: str, _port: int, rack: str | None) -> MetadataResponseBroker:
        return MetadataResponseBroker(node_id, host, port, rack)

    monkeypatch.setattr("kclient.testing.handlers.metadata.MetadataResponseBroker", broker)


@pytest.mark.parametrize(
    ("serve", "protocol"), [(http, "PLAINTEXT"), (hasty_http, "PLAINTEXT"), (hasty_http, "SSL")]
)
async def test_a_web_server(doctor: Doctor, serve: Serve, protocol: str) -> None:
    more = ["--timeout", "1", "-X", f"security.protocol={protocol}"]
    async with serving(serve) as address:
        problem = only_problem(*await doctor("--bootstrap", address, *more))
    step = "TLS" if protocol == "SSL" else "ApiVersions"
    check(problem, step, Cause.NOT_KAFKA, "an HTTP server answers", "correct host and port")


async def test_a_server_of_something_else(doctor: Doctor) -> None:
    async with serving(ssh) as address:
        problem = only_problem(*await doctor("--bootstrap", address))
    check(problem, "ApiVersions", Cause.NOT_KAFKA, r"SSH-2.0-\x1b[31m", "correct host and port")


async def oauth_problem(security: Security, timeout: float = 5.0) -> Step:
    """The failed step of a client whose settings no file can have."""
    mechanisms = ("OAUTHBEARER", "PLAIN")
    steps: list[Step] = []
    async with Cluster(1, security=ClusterSecurity(mechanisms=mechanisms)) as cluster:
        config = AdminConfig.of(None, {"bootstrap": cluster.bootstrap, "security": security})
        await examine(config, steps.append, timeout=timeout)
    assert [step.ok for step in steps] == [True, True, True, False]
    assert CANARY not in repr(steps)
    return steps[-1]


async def test_a_token_that_has_expired() -> None:
    token = unsecured_token(1_000_000.0, CANARY)
    found = await oauth_problem(Security.oauth(lambda: token, unencrypted=True))
    assert found.cause is Cause.NO_CREDENTIALS
    assert "a token that expired" in found.detail
    assert "is this machine's clock right" in str(found.advice)


async def test_a_token_that_takes_too_long() -> None:
    async def token() -> str:
        await asyncio.Event().wait()
        return CANARY

    found = await oauth_problem(Security.oauth(token, unencrypted=True), timeout=0.5)
    assert found.cause is Cause.NO_CREDENTIALS
    assert "no answer within 0.5 s" in found.detail
    assert "check what gives them" in str(found.advice)


async def test_a_token_that_is_refused() -> None:
    found = await oauth_problem(Security.oauth(lambda: CANARY, unencrypted=True))
    assert found.cause is Cause.TOKEN
    assert "issuer, audience, scope and expiry" in str(found.advice)


# The command


async def test_text_has_the_steps_the_cause_and_the_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=kafka.invalid:1\nsecurity.protocol=SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="alice" password="{CANARY}";\n'
    )
    async with Cluster(1, security=ClusterSecurity(USERS)) as cluster:
        arguments = ["--properties", str(file), "--bootstrap", cluster.bootstrap]
        arguments += [*options(**{"security.protocol": "SASL_PLAINTEXT"})]
        arguments += [*options(**{"kclient.allow.unencrypted.passwords": "true"})]
        monkeypatch.setattr(sys, "argv", ["kclient", "doctor", *arguments])
        assert await asyncio.to_thread(app.run) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"{cluster.bootstrap} (bootstrap, SASL_PLAINTEXT)"
    assert [line.split()[:2] for line in lines[1:5]] == [
        *(["ok", "DNS"], ["ok", "TCP"], ["ok", "ApiVersions"], ["FAIL", "SASL"])
    ]
    assert lines[5].split(maxsplit=1) == ["Cause:", Cause.PASSWORD.value]
    assert lines[6].split(maxsplit=1)[0] == "Change:"
    assert lines[7] == "1 problem found"
    assert CANARY not in out + err


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ([], ["'--bootstrap'", "HOST:PORT", "bootstrap.servers"]),
        (["--bootstrap", "a:b"], ["bootstrap", "'a:b'", "1 to 65535"]),
        (["--bootstrap", "a:1", "-X", CANARY], ["'-X'", "NAME=VALUE"]),
        (["--bootstrap", "a:1", "-X", f"={CANARY}"], ["'-X'", "NAME=VALUE"]),
        (["--bootstrap", "a:1", "-X", "security.protocol=TLS"], ["TLS", "SASL_SSL"]),
        (["--bootstrap", "a:1", "-X", f"sasl.password={CANARY}"], ["security.protocol is missing"]),
        (["--bootstrap", "a:1", "--properties", "no-such-file"], ["no-such-file"]),
        (["--bootstrap", "a:1", "--timeout", "0"], ["'--timeout'", "'0'", "0.1 to 60"]),
        (["--bootstrap", "a:1", "--timeout", "soon"], ["'--timeout'", "'soon'"]),
    ],
)
def test_a_wrong_option_is_one_line(
    arguments: list[str],
    texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["kclient", "doctor", *arguments])
    assert app.run() == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("kclient: Invalid value")
    assert out == ""
    assert CANARY not in line
    for text in texts:
        assert text in line


async def test_an_interrupt_ends_it_at_once() -> None:
    connected = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await silence(reader, writer)

    async with serving(wait) as address:
        command = ["-W", "error", "-m", "kclient", "doctor", "--bootstrap", address]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(*command, "--timeout", "60"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(60.0):
            await connected.wait()
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
        assert (process.returncode, err) == (130, b"")
