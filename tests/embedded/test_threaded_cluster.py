"""A cluster in a thread of its own: a cluster's whole interface, from threads without a loop."""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kclient.errors import (
    BrokerError,
    ClientClosed,
    InvalidArgument,
    RequestTimedOut,
    WrongContext,
)
from kclient.protocol.messages.api_versions import ApiVersionsRequest
from kclient.testing import (
    CleanResult,
    Cluster,
    ControllerElected,
    ErrorCode,
    EventLog,
    LeaderElected,
    RequestLog,
    Tally,
    ThreadedCluster,
    thread_proxy,
    threaded,
)
from kclient.testing.thread_proxy import ThreadProxy
from tests.unit.testing.batches import batch_bytes


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    before = threading.enumerate()
    with ThreadedCluster(Cluster(3)) as one:
        yield one
    assert threading.enumerate() == before


def connect(cluster: ThreadedCluster, broker: int = 1) -> socket.socket:
    return socket.create_connection((cluster.brokers[broker].host, cluster.brokers[broker].port), 9)


def test_what_is_done_to_it_is_done_in_its_loop(cluster: ThreadedCluster) -> None:
    assert cluster.create_topic("t", partitions=2) == "t"
    assert (cluster.topics, cluster.partition_count("t")) == (["t"], 2)
    cluster.append("t", 1, batch_bytes(3))
    assert [one.offset for one in cluster.records("t", 1)] == [0, 1, 2]
    assert cluster.log("t", 1).size_bytes > 0
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("t")


def test_coroutines_are_waited_for(cluster: ThreadedCluster) -> None:
    cluster.crash(1)
    assert not cluster.brokers[1].running
    with pytest.raises(ConnectionRefusedError):
        connect(cluster)
    cluster.restart(1)
    assert cluster.brokers[1].running
    ask_versions(cluster)


def test_faults_come_back_as_live_objects(cluster: ThreadedCluster) -> None:
    fault = cluster.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    assert (fault.times, fault.hits, fault.active) == (2, 0, True)
    assert fault in cluster.faults
    assert list(cluster.faults) == [fault]
    fault.times = 5
    assert next(iter(cluster.faults)).times == 5
    cluster.faults.remove(fault)
    assert not cluster.faults
    with cluster.faults.hold("ApiVersions") as held:
        asked = threading.Thread(target=ask_versions, args=(cluster,))
        asked.start()
        held.wait_hits()
    asked.join()
    assert not cluster.faults
    assert cluster.brokers[1] != cluster.brokers[2]
    assert len({cluster.brokers[1], cluster.brokers[1]}) == 1


def test_requests_can_be_read_and_waited_for(cluster: ThreadedCluster) -> None:
    assert (len(cluster.requests), list(cluster.requests)) == (0, [])
    asked = threading.Thread(target=ask_versions, args=(cluster,))
    asked.start()
    cluster.requests.wait_count("ApiVersions", 1)
    assert cluster.requests.wait_for("ApiVersions", answered=True).broker == 1
    asked.join()
    assert [one.broker for one in cluster.requests.of("ApiVersions")] == [1]


ASK_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def ask_versions(cluster: ThreadedCluster) -> None:
    with connect(cluster) as connection:
        connection.sendall(ASK_VERSIONS)
        assert len(connection.recv(4)) == 4


def test_any_thread_may_call(cluster: ThreadedCluster) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: cluster.create_topic(f"t{index}"), range(40)))
    assert len(cluster.topics) == 40


def test_a_function_that_is_handed_in_may_use_it_too(cluster: ThreadedCluster) -> None:
    seen: list[Any] = []

    def look(request: Any, response: Any) -> None:
        seen.append(cluster.topics)
        with pytest.raises(WrongContext, match="can't close it"):
            cluster.close()

    cluster.create_topic("t")
    cluster.faults.rewrite("ApiVersions", look)
    ask_versions(cluster)
    assert seen == [["t"]]


async def crash(cluster: Any, broker: int) -> None:
    """As a hook of a test; untyped, as the cluster's type declares it blocking, for threads."""
    await cluster.crash(broker)


@pytest.mark.parametrize(
    "make",
    [
        lambda cluster: lambda info: crash(cluster, info.broker),
        lambda cluster: lambda info: cluster.crash(info.broker),
    ],
    ids=["async def", "returned"],
)
def test_a_hook_may_crash_the_broker_that_it_was_called_for(
    cluster: ThreadedCluster, make: Callable[[Any], Any]
) -> None:
    fault = cluster.faults.on("ApiVersions", make(cluster), times=1)
    with connect(cluster) as connection, pytest.raises(ConnectionError):
        connection.sendall(ASK_VERSIONS)
        connection.recv(4)
        raise ConnectionResetError  # an end of the stream is as good
    fault.wait_hits()
    cluster.restart(1)
    ask_versions(cluster)
    cluster.faults.check()


def test_what_a_hook_awaits_comes_back_as_in_threads(cluster: ThreadedCluster) -> None:
    seen: list[object] = []
    threaded: Any = cluster

    async def act(info: Any) -> None:
        seen.append(threaded.create_topic("made"))
        seen.append(await threaded.requests.wait_for("ApiVersions"))
        seen.append(threaded.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER))
        seen.append(await threaded.add_broker())

    cluster.faults.on("ApiVersions", act, times=1)
    ask_versions(cluster)
    name, served, fault, added = seen
    assert (name, added) == ("made", 4)
    assert [served] == cluster.requests.of("ApiVersions")
    assert type(served) is type(fault) is ThreadProxy
    assert list(cluster.faults) == [fault]


def test_a_listener_may_act_at_once_and_in_a_task(cluster: ThreadedCluster) -> None:
    cluster.create_topic("t", assignments=[[1, 2, 3]])
    tasks: list[asyncio.Task[None]] = []
    threaded: Any = cluster

    def listen(event: object) -> None:
        if isinstance(event, LeaderElected) and event.leader == 2:
            cluster.create_topic("at-once")
            tasks.append(asyncio.get_running_loop().create_task(threaded.crash(2)))

    cluster.events.listen(listen)
    cluster.crash(1)
    assert cluster.events.wait_for(LeaderElected, lambda one: one.leader == 3).topic == "t"
    assert "at-once" in cluster.topics
    assert len(tasks) == 1


def test_a_hook_that_forgets_to_await_fails_the_test() -> None:
    with pytest.raises(WrongContext, match=r"Cluster\.crash wasn't awaited .* 'async def'"):
        with ThreadedCluster(Cluster(1)) as cluster:

            def forget(info: Any) -> None:
                cluster.crash(info.broker)

            cluster.faults.on("ApiVersions", forget)
            ask_versions(cluster)
            assert cluster.brokers[1].running


def test_waiting_for_what_never_comes_ends(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_versions(cluster)
    fault = cluster.faults.error("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    requests = cluster.requests
    waits: list[tuple[Callable[..., Any], str]] = [
        (lambda **how: requests.wait_for("Produce", **how), "no Produce within .*ApiVersions"),
        (lambda **how: requests.wait_count("Fetch", 3, **how), "0 of 3 Fetch requests within"),
        (fault.wait_hits, "didn't act 1 time within .*<Fault error"),
    ]
    for wait, text in waits:
        with pytest.raises(RequestTimedOut, match=f"(?s){text}"):
            wait(timeout=0.01)
    assert thread_proxy.WAIT_TIMEOUT == 30.0
    monkeypatch.setattr(thread_proxy, "WAIT_TIMEOUT", 0.01)
    for wait, text in waits:
        with pytest.raises(RequestTimedOut, match=f"(?s){text}"):
            wait()


def test_a_time_that_is_none_is_refused(cluster: ThreadedCluster) -> None:
    fault: Any = cluster.faults.hold("Produce")
    for timeout in (-1, "1"):
        with pytest.raises(InvalidArgument, match="timeout"):
            fault.wait_hits(timeout=timeout)
    fault.wait_hits(0, timeout=None)


def test_a_call_that_takes_too_long_times_out() -> None:
    with ThreadedCluster(Cluster(1), call_timeout=0.05) as cluster:
        with pytest.raises(RequestTimedOut, match=r"wait_count took more than 0\.05 s"):
            cluster.requests.wait_count("Produce", 1)


def test_a_call_that_waits_ends_with_the_cluster() -> None:
    with ThreadPoolExecutor(1) as pool:
        with ThreadedCluster(Cluster(1)) as cluster:
            entered = threading.Event()
            cluster.faults.rewrite("ApiVersions", lambda request, response: entered.set())
            waiting = pool.submit(cluster.requests.wait_count, "Produce", 1)
            ask_versions(cluster)
            assert entered.wait(30)
        with pytest.raises(ClientClosed):
            waiting.result(30)


def test_what_a_function_of_the_test_raises_comes_out_at_the_end() -> None:
    def fail(request: Any) -> None:
        raise LookupError("a mistake of the test")

    with pytest.raises(LookupError, match="a mistake of the test"):
        with ThreadedCluster(Cluster(1)) as cluster:
            cluster.faults.on("ApiVersions", fail)
            with connect(cluster) as connection:
                connection.sendall(ASK_VERSIONS)
                assert connection.recv(4) == b""


def test_what_happens_inside_is_heard_and_waited_for(cluster: ThreadedCluster) -> None:
    cluster.create_topic("t", assignments=[[1, 2, 3]])
    heard: list[object] = []
    cluster.events.listen(heard.append)
    cluster.crash(1)
    elected = cluster.events.wait_for(LeaderElected, lambda one: one.epoch == 1)
    assert elected == LeaderElected("t", 0, 2, 1)
    assert [one.node_id for one in cluster.events.of(ControllerElected)] == [1, 2]
    assert elected in heard
    with pytest.raises(RequestTimedOut, match="no ControllerElected within"):
        cluster.events.wait_for(ControllerElected, lambda one: one.epoch == 3, timeout=0.01)


def test_outside_its_life_only_what_needs_no_loop_works() -> None:
    cluster = ThreadedCluster(Cluster(1))
    with pytest.raises(ClientClosed):
        cluster.crash(1)
    cluster.start()
    cluster.start()
    cluster.create_topic("t")
    cluster.append("t", 0, batch_bytes(2))
    cluster.close()
    cluster.close()
    assert len(cluster.records("t")) == 2
    with pytest.raises(ClientClosed):
        cluster.restart(1)
    with pytest.raises(ClientClosed, match="make another"):
        cluster.start()


def test_one_that_was_never_started_closes() -> None:
    cluster = ThreadedCluster(Cluster(1))
    cluster.close()
    with pytest.raises(ClientClosed):
        cluster.start()


def test_a_start_that_fails_raises_its_reason_and_leaves_no_thread() -> None:
    before = threading.enumerate()
    with ThreadedCluster(Cluster(1)) as first:
        cluster = ThreadedCluster(Cluster(1, port=first.brokers[1].port))
        with pytest.raises(OSError, match="in use"):
            cluster.start()
        cluster.close()
    assert threading.enumerate() == before


def test_what_is_private_stays_so(cluster: ThreadedCluster) -> None:
    with pytest.raises(AttributeError, match="_state"):
        cluster._state  # noqa: B018
    with pytest.raises(AttributeError):
        cluster.nope  # type: ignore[attr-defined]  # noqa: B018
    assert "create_topic" in dir(cluster)
    assert cluster.create_topic.__doc__ == Cluster.create_topic.__doc__


@pytest.mark.parametrize(
    ("real", "blocking"),
    [
        (Cluster, ("_BlockingCluster", "ThreadedCluster")),
        (RequestLog, ("_BlockingLog",)),
        (EventLog, ("_BlockingEvents",)),
    ],
)
def test_type_checkers_know_what_blocks(real: type, blocking: tuple[str, ...]) -> None:
    """Each coroutine of a cluster is declared as a plain function in threaded.py; add new ones."""
    coroutines = {
        name
        for name, function in inspect.getmembers(real)
        if inspect.iscoroutinefunction(function) and not name.startswith("_")
    }
    tree = ast.parse(Path(threaded.__file__).read_text())
    reported = {
        function.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in blocking
        for function in node.body
        if isinstance(function, ast.FunctionDef)
    }
    assert coroutines <= reported


def test_what_comes_back_is_of_use(cluster: ThreadedCluster) -> None:
    cluster.create_topic("t", assignments=[[1, 2]])
    assert cluster.statistics() == Tally()
    assert isinstance(cluster.statistics(), Tally)
    (cleaned,) = cluster.clean("t")
    assert isinstance(cleaned, CleanResult)
    assert cleaned._replace(next_clean_at=None) == CleanResult(0, 0)
    assert cluster.offline == []
    ask_versions(cluster)
    (served,) = cluster.requests.of("ApiVersions")
    assert (served.api, served.errors) == ("ApiVersions", [])
    assert served.request == ApiVersionsRequest()


def test_stand_ins_look_like_what_they_stand_for(cluster: ThreadedCluster) -> None:
    assert repr(cluster) == (f"<Cluster of 3 brokers, 3 up, controller 1, {cluster.bootstrap}>")
    assert repr(cluster.brokers[1]) == f"<Broker 1 at {cluster.brokers[1].address}, up>"
    ask_versions(cluster)
    assert "ApiVersions" in repr(cluster.requests.of("ApiVersions")[0])
    fault = cluster.faults.hang(broker=2)
    assert "2" in repr(fault)
    cluster.close()
    assert repr(cluster) == "<Cluster of 3 brokers, not started>"


def test_one_that_is_busy_can_be_looked_at() -> None:
    release, real = threading.Event(), Cluster(1)

    def hold(request: object) -> None:
        release.wait(30)

    real.faults.on("ApiVersions", hold)
    with ThreadedCluster(real, call_timeout=0.05) as cluster:
        with socket.create_connection(("127.0.0.1", real.brokers[1].port), 30) as connection:
            connection.sendall(ASK_VERSIONS)
            while repr(cluster) != "<Cluster in a thread of its own>":
                pass
            release.set()
            assert len(connection.recv(4)) == 4


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ThreadedCluster(3), "cluster=3 must be a Cluster"),
        (lambda: ThreadedCluster(Cluster), "cluster=.* must be a Cluster"),
        (lambda: ThreadedCluster(Cluster(1), call_timeout=-1), "call_timeout=-1 must be seconds"),
        (lambda: ThreadedCluster(Cluster(1), call_timeout="1"), "call_timeout='1' must be"),
    ],
)
def test_threads_that_cannot_be_are_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make()


def test_debuggers_may_look_at_one_that_was_refused() -> None:
    """They call ``repr``, which recursed without end."""
    with pytest.raises(AttributeError, match="_thread isn't set"):
        repr(object.__new__(ThreadedCluster))


def test_arguments_are_checked_as_without_a_thread(cluster: ThreadedCluster) -> None:
    for call in (
        lambda: cluster.crash("1"),  # type: ignore[arg-type]
        lambda: cluster.leader(5),  # type: ignore[arg-type]
        lambda: cluster.wait_in_sync(timeout=-1),
    ):
        with pytest.raises(InvalidArgument):
            call()


def test_a_cluster_has_one_thread(cluster: ThreadedCluster) -> None:
    one = Cluster(1)
    with ThreadedCluster(one):
        with pytest.raises(WrongContext, match="another event loop"):
            ThreadedCluster(one).start()
        with pytest.raises(WrongContext, match="ThreadedCluster"):
            one.create_topic("t")
    assert not one.brokers[1].running


def test_it_does_all_that_a_cluster_does(cluster: ThreadedCluster) -> None:
    """All public attributes of a cluster can be reached; each coroutine is waited for."""
    cluster.create_topic("t", assignments=[[1, 2]])
    for name in dir(Cluster):
        if not name.startswith("_") and name not in ("start", "close"):
            getattr(cluster, name)
    cluster.stop(2)
    cluster.restart(2, in_sync_within=5.0)
    cluster.move(2)
    cluster.swap_addresses(1, 2)
    cluster.wait_in_sync(timeout=30.0)
    added = cluster.add_broker(rack="r")
    assert sorted(cluster.brokers) == [1, 2, 3, added]
    cluster.remove_broker(added)
    cluster.isolate(1)
    cluster.reconnect()
    cluster.wait_in_sync(1, 2, timeout=30.0)
    assert cluster.isr("t") in ((1, 2), (2, 1))
