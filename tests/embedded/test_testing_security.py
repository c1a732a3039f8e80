"""Clusters that want TLS or a login, and clients of theirs that renew their sessions."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
import traceback
from typing import Any

import pytest

import kclient
from kclient import InvalidArgument, Secret, Security, TopicPartition
from kclient.testing import Cluster, ClusterSecurity, ErrorCode, run_virtually

USERS = {"alice": "canary-2ea4", "zoe, =": "größe; =,"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CANARY = "canary-3b7f"


def unsecured_token(expires_at: float, subject: str = "alice") -> str:
    parts = ({"alg": "none"}, {"sub": subject, "exp": expires_at})
    encoded = (base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in parts)
    return ".".join(one.rstrip("=") for one in encoded) + "."


async def round_trip(cluster: Cluster, security: Security) -> None:
    cluster.create_topic("flights")
    async with kclient.Producer(cluster.bootstrap, security=security) as producer:
        await producer.send("flights", b"UA 1545")
    async with kclient.Consumer(
        cluster.bootstrap, "flights", group="g", security=security, auto_offset_reset="earliest"
    ) as consumer:
        async with asyncio.timeout(20.0):
            while not (records := await consumer.poll()):
                pass
        assert [record.value for record in records] == [b"UA 1545"]


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("username", USERS)
async def test_clients_log_in(mechanism: str, username: str, tls: bool) -> None:
    security = ClusterSecurity(USERS, tls=tls)
    async with Cluster(security=security) as cluster:
        await round_trip(cluster, security.client(username, mechanism))


async def test_tls_alone() -> None:
    security = ClusterSecurity(tls=True)
    async with Cluster(brokers=2, security=security) as cluster:
        await round_trip(cluster, security.client())
        with pytest.raises(kclient.BootstrapFailed, match="certificate"):
            async with kclient.Admin(cluster.bootstrap, security=Security.tls()):
                pass


async def test_tokens() -> None:
    security = ClusterSecurity(mechanisms=["OAUTHBEARER"])
    async with Cluster(brokers=1, security=security) as cluster:
        good = Security.oauth(lambda: unsecured_token(4e9), unencrypted=True)
        await round_trip(cluster, good)
        bad = Security.oauth(lambda: kclient.Token(CANARY), unencrypted=True)
        assert "token" in await refusal(cluster, bad)


@pytest.mark.parametrize("signed", [True, False])
def test_tokens_of_the_cluster_are_renewed_unseen(signed: bool) -> None:
    security = ClusterSecurity(
        {"alice": CANARY}, mechanisms=["OAUTHBEARER"], signed_tokens=signed, session_lifetime=1800.0
    )

    async def scene() -> int:
        async with Cluster(brokers=1, security=security) as cluster:
            async with kclient.Admin(cluster.bootstrap, security=security.client("alice")) as admin:
                for _ in range(24):
                    await admin.list_topics()
                    await asyncio.sleep(600.0)
                assert not failures(admin)
            return cluster.requests.count("SaslHandshake")

    assert run_virtually(scene(), seed=11) > 8


@pytest.mark.parametrize("fault", ["unsecured", "of another key", "changed", "expired"])
async def test_only_signed_tokens_are_taken(fault: str) -> None:
    def cluster_security(*, signed: bool) -> ClusterSecurity:
        return ClusterSecurity(mechanisms=["PLAIN", "OAUTHBEARER"], signed_tokens=signed)

    security = cluster_security(signed=True)
    if fault == "unsecured":
        token = cluster_security(signed=False).token("alice")
    elif fault == "of another key":
        token = cluster_security(signed=True).token("alice")
    else:
        token = security.token("alice", lifetime=0.0 if fault == "expired" else 3600.0)
    value = Secret(token.value).reveal()
    if fault == "changed":
        head, body, signature = value.split(".")
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        body = base64.urlsafe_b64encode(json.dumps(claims | {"sub": "bob"}).encode()).decode()
        value = f"{head}.{body.rstrip('=')}.{signature}"
    async with Cluster(brokers=1, security=security) as cluster:
        await round_trip(cluster, security.client("alice", "OAUTHBEARER"))
        # A client sends none that it knows to have expired.
        found = Security.oauth(lambda: kclient.Token(value, expires_at=4e9), unencrypted=True)
        assert "invalid_token" in await refusal(cluster, found)


async def refusal(cluster: Cluster, security: Security) -> str:
    """The error of a client that isn't let in, which doesn't wait for a time-out."""
    with pytest.raises(kclient.BootstrapFailed) as caught:
        async with asyncio.timeout(20.0):
            async with kclient.Admin(cluster.bootstrap, security=security):
                pass
    assert isinstance(caught.value.__cause__, kclient.AuthenticationFailed)
    assert not caught.value.retriable
    assert CANARY not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("username", ["alice", "nobody"])
async def test_wrong_credentials_are_one_error_at_once(mechanism: Any, username: str) -> None:
    security = ClusterSecurity(USERS)
    async with Cluster(brokers=1, security=security) as cluster:
        if mechanism == "PLAIN":
            wrong = Security.sasl_plain(username, CANARY, unencrypted=True)
        else:
            wrong = Security.sasl_scram(username, CANARY, mechanism=mechanism, unencrypted=True)
        text = await refusal(cluster, wrong)
        assert "refuses the credentials" in text


async def test_other_mechanisms_are_never_tried() -> None:
    security = ClusterSecurity(USERS, mechanisms=["PLAIN"])
    async with Cluster(brokers=1, security=security) as cluster:
        scram = Security.sasl_scram("alice", CANARY, unencrypted=True)
        text = await refusal(cluster, scram)
        assert "has no SASL mechanism SCRAM-SHA-512 on that listener: it offers PLAIN" in text
        assert {one.request.mechanism for one in cluster.requests if one.api_key == 17} == {
            "SCRAM-SHA-512"
        }
        assert not [one for one in cluster.requests if one.api_key == 36]


async def test_a_cluster_of_logins_met_without_one_is_said_soon() -> None:
    async with Cluster(brokers=1, security=ClusterSecurity(USERS)) as cluster:
        text = await refusal(cluster, Security.plaintext())
        assert "wants SASL on that listener: it offers PLAIN, SCRAM-SHA-256" in text
        asked = [one for one in cluster.requests if one.api_key == 3]
        assert len(asked) <= 3


async def test_a_login_where_none_is_wanted_is_said() -> None:
    async with Cluster(brokers=1) as cluster:
        found = Security.sasl_plain("alice", CANARY, unencrypted=True)
        assert "wants no SASL on that listener" in await refusal(cluster, found)
        assert not [one for one in cluster.requests if one.api_key == 36]


async def test_a_refused_login_is_for_its_call_and_the_next_one_logs_in_anew() -> None:
    security = ClusterSecurity(USERS)
    current = [USERS["alice"]]
    found = Security.sasl_scram(credentials=lambda: ("alice", current[0]), unencrypted=True)
    async with Cluster(brokers=1, security=security) as cluster:
        async with kclient.Admin(cluster.bootstrap, security=found) as admin:
            await admin.list_topics()
            security.set_password("alice", "another")
            await cluster.restart(1)
            with pytest.raises(kclient.AuthenticationFailed, match="refuses the credentials"):
                await admin.list_topics()
            current[0] = "another"
            async with asyncio.timeout(20.0):
                while True:
                    try:
                        await admin.list_topics()
                        break
                    except kclient.AuthenticationFailed:
                        await asyncio.sleep(0.05)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_sessions_of_ten_seconds_are_renewed_for_minutes_unseen(mechanism: str) -> None:
    security = ClusterSecurity(USERS, session_lifetime=10.0)

    async def scene() -> tuple[int, int]:
        failed: list[Exception] = []
        async with Cluster(security=security) as cluster:
            found = security.client("alice", mechanism)
            cluster.create_topic("flights", partitions=3)
            async with (
                kclient.Producer(cluster.bootstrap, security=found, linger=0.0) as producer,
                kclient.Consumer(
                    cluster.bootstrap, security=found, auto_offset_reset="earliest"
                ) as consumer,
            ):
                consumer.assign([TopicPartition("flights", p) for p in range(3)])
                read = sent = 0
                loop = asyncio.get_running_loop()
                begun = loop.time()
                while loop.time() < begun + 300.0:
                    sends = [producer.send("flights", b"%d" % sent, partition=p) for p in range(3)]
                    for one in sends:
                        try:
                            await one
                        except Exception as error:
                            failed.append(error)
                    sent += len(sends)
                    read += len(await consumer.poll(timeout=0.2))
                    await asyncio.sleep(0.2)
                while read < sent:
                    read += len(await consumer.poll(timeout=1.0))
                requests_failed = failures(producer) + failures(consumer)
            assert not failed
            assert not requests_failed
            return cluster.requests.count("SaslHandshake"), sent

    renewals, sent = run_virtually(scene(), seed=7)
    assert renewals > 170
    assert sent > 300


def test_records_that_come_while_a_session_is_renewed_are_sent_right_after() -> None:
    security = ClusterSecurity(USERS, session_lifetime=10.0)

    async def scene() -> float:
        async with Cluster(brokers=1, security=security) as cluster:
            cluster.create_topic("flights")
            found = security.client("alice", "PLAIN")
            loop = asyncio.get_running_loop()
            async with kclient.Producer(cluster.bootstrap, security=found) as producer:
                await producer.send("flights", b"first")
                cluster.faults.delay("SaslAuthenticate", 0.5, times=10)
                count = cluster.requests.count("SaslAuthenticate")
                while cluster.requests.count("SaslAuthenticate") < count + 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                begun = loop.time()
                await producer.send("flights", bytes(100_000))
                return loop.time() - begun

    assert run_virtually(scene(), seed=10) < 1.0


def test_credentials_that_cant_be_had_for_a_while_harm_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    security = ClusterSecurity(USERS, session_lifetime=100.0)

    async def scene() -> None:
        down = False
        asked = 0

        def credentials() -> tuple[str, str]:
            nonlocal asked
            asked += 1
            if down:
                raise OSError("the vault is sealed")
            return "alice", USERS["alice"]

        async with Cluster(brokers=1, security=security) as cluster:
            cluster.create_topic("flights")
            found = Security.sasl_scram(credentials=credentials, unencrypted=True)
            async with kclient.Producer(cluster.bootstrap, security=found) as producer:
                await producer.send("flights", b"first")
                down, before = True, asked
                for _ in range(96):
                    await producer.send("flights", b"x")
                    await asyncio.sleep(1.0)
                assert asked > before
                down = False
                for _ in range(100):
                    await producer.send("flights", b"x")
                    await asyncio.sleep(1.0)
                assert not failures(producer)

    run_virtually(scene(), seed=9)
    assert "the vault is sealed" in caplog.text


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
@pytest.mark.parametrize("right", [True, False])
async def test_no_secret_reaches_any_text(
    mechanism: Any, right: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    seen: list[str] = []

    class Watcher:
        def observe(self, event: object) -> None:
            seen.append(f"{event} {event!r}")

    users = {"alice": CANARY if right else "another"}
    mechanisms = [*MECHANISMS, "OAUTHBEARER"]
    security = ClusterSecurity(users, mechanisms=mechanisms, session_lifetime=1.5)
    if mechanism == "OAUTHBEARER":
        token = unsecured_token(4e9, subject=CANARY) + ("" if right else CANARY)
        found = Security.oauth(lambda: token, unencrypted=True)
    elif mechanism == "PLAIN":
        found = Security.sasl_plain("alice", CANARY, unencrypted=True)
    else:
        found = Security.sasl_scram("alice", CANARY, mechanism=mechanism, unencrypted=True)
    async with Cluster(brokers=1, security=security) as cluster:
        admin = kclient.Admin(cluster.bootstrap, security=found, observers=[Watcher()])
        try:
            async with admin:
                await admin.describe_cluster()
                await asyncio.sleep(1.6)
                await admin.describe_cluster()
                seen += [str(admin.health()), str(admin.metrics()), repr(admin)]
        except kclient.BootstrapFailed as error:
            assert not right
            told = traceback.TracebackException.from_exception(error, capture_locals=True)
            while told is not None:
                seen += [str(told), *(str(one.locals) for one in told.stack if ours(one))]
                told = told.__cause__ or told.__context__
        else:
            assert right
        seen += [repr(cluster.requests), *(repr(one) for one in cluster.requests)]
    assert seen
    assert not [text for text in [*seen, caplog.text, repr(found)] if CANARY in text]


def ours(frame: traceback.FrameSummary) -> bool:
    """It isn't the test's, which knows the secret."""
    return "tests" not in frame.filename


def failures(client: Any) -> int:
    """How many of its requests had no response in its life."""
    return int(client.metrics().get("network.requests_failed", 0))


def test_a_session_that_cant_be_renewed_ends_with_its_connection() -> None:
    security = ClusterSecurity(USERS, session_lifetime=10.0)

    async def scene() -> None:
        async with Cluster(brokers=1, security=security) as cluster:
            found = security.client("alice")
            async with kclient.Admin(cluster.bootstrap, security=found) as admin:
                await admin.list_topics()
                cluster.faults.error(36, ErrorCode.SASL_AUTHENTICATION_FAILED, times=1)
                await asyncio.sleep(30.0)
                await admin.list_topics()

    run_virtually(scene(), seed=8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"users": {"": "x"}}, "username=''"),
        ({"users": {"a": ""}}, "password is empty"),
        ({"mechanisms": ["GSSAPI"]}, "allowed are PLAIN"),
        ({"mechanisms": "PLAIN"}, "in a sequence"),
        ({"session_lifetime": -1.0}, "session_lifetime"),
        ({"signed_tokens": True}, "needs the mechanism OAUTHBEARER"),
        ({"signed_tokens": 1}, "signed_tokens=1"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        ClusterSecurity(**arguments)


def test_a_memory_network_speaks_no_tls() -> None:
    with pytest.raises(InvalidArgument, match="doesn't speak TLS"):
        Cluster(security=ClusterSecurity(tls=True), network=kclient.testing.MemoryNet())

    async def on_virtual_time() -> None:
        await Cluster(security=ClusterSecurity(tls=True)).start()

    with pytest.raises(InvalidArgument, match="doesn't speak TLS"):
        run_virtually(on_virtual_time())


def test_the_security_of_a_client_is_of_a_known_user() -> None:
    security = ClusterSecurity(USERS)
    with pytest.raises(InvalidArgument, match="username is needed"):
        security.client()
    with pytest.raises(InvalidArgument, match="known are alice"):
        security.client("bob")
    with pytest.raises(InvalidArgument, match="mechanism='OAUTHBEARER'"):
        security.client("alice", "OAUTHBEARER")
    with pytest.raises(InvalidArgument, match="username=''"):
        ClusterSecurity(mechanisms=["OAUTHBEARER"]).client("")
    with pytest.raises(InvalidArgument, match="lifetime=-1"):
        ClusterSecurity(mechanisms=["OAUTHBEARER"]).token("alice", lifetime=-1)


def test_signed_tokens_need_a_package_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc.jwk", None)
    with pytest.raises(kclient.InvalidConfig, match=r"pip install 'kclient\[oauth\]'"):
        ClusterSecurity(mechanisms=["OAUTHBEARER"], signed_tokens=True)
