"""Invalid calls on a cluster: each is refused at once, and the error names what is allowed."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kclient.errors import (
    BrokerError,
    ClientClosed,
    InvalidArgument,
    LeaderNotAvailable,
    WrongContext,
)
from kclient.testing import Cluster, ThreadedCluster, TopicDefaults, VirtualLoop
from tests.unit.testing.batches import batch_bytes


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        one.create_topic("t", partitions=2)
        yield one


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Cluster("3"), "brokers='3' must be an int"),
        (lambda: Cluster(True), "brokers=True must be an int"),
        (lambda: Cluster(0), "brokers=0 must be an int of at least 1"),
        (lambda: Cluster(2, racks=[1, 2]), r"racks\[0\]=1 must be the name of a rack"),
        (lambda: Cluster(2, racks=["a", ""]), r"racks\[1\]='' must be the name of a rack"),
        (lambda: Cluster(2, racks="ab"), "racks='ab' must be a list"),
        (lambda: Cluster(2, racks=["a"]), "1 racks for 2 brokers"),
        (lambda: Cluster(topic_defaults=3), "topic_defaults=3 must be TopicDefaults"),
        (lambda: TopicDefaults(0), "partitions=0 must be an int of at least 1"),
        (lambda: TopicDefaults(1, 0), "replication_factor=0 must be an int of at least 1"),
        (lambda: Cluster(auto_create_topics="no"), "auto_create_topics='no' must be True or"),
        (lambda: Cluster(broker_configs=5), "broker_configs=5 must be a mapping"),
        (lambda: Cluster(broker_configs={5: 1}), "broker_configs=5 must be a str"),
        (lambda: Cluster(seed="x"), "seed='x' must be an int"),
        (lambda: Cluster(clock=5), "clock=5 must be a Clock"),
    ],
)
def test_clusters_that_cannot_be_are_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda one: one.create_topic(5), "name=5 must be a str"),
        (lambda one: one.create_topic("a", partitions="3"), "partitions='3' must be an int"),
        (lambda one: one.create_topic("a", partitions=True), "partitions=True must be an int"),
        (lambda one: one.create_topic("a", replication_factor="1"), "replication_factor='1'"),
        (lambda one: one.create_topic("a", assignments=[1, 2]), r"assignments=\[1, 2\] must be"),
        (lambda one: one.create_topic("a", assignments=[["1"]]), r"assignments=\[\['1'\]\] must"),
        (lambda one: one.create_topic("a", assignments=[]), r"assignments=\[\] must be"),
        (lambda one: one.create_topic("a", configs=5), "configs=5 must be a mapping"),
        (lambda one: one.add_partitions("t", "4"), "count='4' must be an int"),
        (lambda one: one.delete_topic(None), "name=None must be a str"),
        (lambda one: one.leader(["t"]), r"topic=\['t'\] must be a str"),
        (lambda one: one.leader("t", "0"), "partition='0' must be an int"),
        (lambda one: one.records("t", None), "partition=None must be an int"),
        (lambda one: one.move_leader("t", 0, 9), "broker=9 must be .*: 1, 2, 3"),
        (lambda one: one.log("t", broker="1"), "broker='1' must be .*: 1, 2, 3"),
        (lambda one: one.delete_records("t", 0, -1), "before_offset=-1 must be an int of at least"),
        (lambda one: one.append("t", 0, "x"), "batches='x' must be the bytes"),
        (lambda one: one.append("t", 0, b""), "whole batches of format v2, not 0 and 0"),
        (lambda one: one.append("t", 0, batch_bytes() + b"x"), "not 1 and 1 more bytes"),
        (
            lambda one: one.append("t", 0, bytes(100)),
            "batches can't be: .* no length of 0",
        ),
        (lambda one: one.disconnect(1, 1), "broker 1 can't be parted from itself"),
        (lambda one: one.disconnect(1, 9), "broker=9 must be .*: 1, 2, 3"),
        (lambda one: one.isolate(None), "broker=None must be .*: 1, 2, 3"),
        (lambda one: one.reconnect(1, 1), r"brokers=\(1, 1\) must name each broker once"),
        (lambda one: one.slow_follower(1, -1), "seconds=-1 must be seconds, 0 or more"),
        (lambda one: one.slow_follower(1, float("nan")), "seconds=nan must be seconds"),
        (lambda one: one.elect_leader("t", unclean=1), "unclean=1 must be True or False"),
        (lambda one: one.move_coordinator(5, 1), "group=5 must be a str"),
        (lambda one: one.coordinator(None), "group=None must be a str"),
        (lambda one: one.move_transaction_coordinator("t", 9), "broker=9 must be .*: 1, 2, 3"),
        (lambda one: one.transaction_coordinator(5), "transactional_id=5 must be a str"),
        (lambda one: one.wait_in_sync(9), "broker=9 must be .*: 1, 2, 3"),
        (lambda one: one.wait_in_sync(timeout=-1), "timeout=-1 must be seconds"),
        (lambda one: one.stop(9), "broker=9 must be .*: 1, 2, 3"),
        (lambda one: one.crash(True), "broker=True must be .*: 1, 2, 3"),
        (lambda one: one.restart(1, in_sync_within=-1), "in_sync_within=-1 must be seconds"),
        (lambda one: one.add_broker(rack=5), "rack=5 must be the name of a rack"),
        (lambda one: one.remove_broker(9), "broker=9 must be .*: 1, 2, 3"),
        (lambda one: one.move(1, port=-1), "port=-1 must be 0"),
        (lambda one: one.move(1, host="0.0.0.0"), "host='0.0.0.0' must be an address"),
        (lambda one: one.swap_addresses(1, 1), "name two brokers"),
        (lambda one: one.brokers[1].speak("Metadata", "0", 1), "lowest='0' must be an int"),
    ],
)
async def test_arguments_that_cannot_be_are_refused(
    cluster: Cluster, call: Callable[[Any], Any], text: str
) -> None:
    before = cluster.statistics(), cluster.topics, cluster.bootstrap
    with pytest.raises(InvalidArgument, match=text):
        called = call(cluster)
        if inspect.iscoroutine(called):
            await called
    assert (cluster.statistics(), cluster.topics, cluster.bootstrap) == before
    assert all(one.running for one in cluster.brokers.values())
    assert len(cluster.brokers) == 3
    assert not cluster.faults


@pytest.mark.parametrize(
    "ask",
    [
        lambda one, *what: one.leader(*what),
        lambda one, *what: one.records(*what),
        lambda one, *what: one.isr(*what),
        lambda one, *what: one.high_watermark(*what),
        lambda one, *what: one.elect_leader(*what),
        lambda one, *what: one.log(*what, broker=1),
    ],
)
async def test_an_unknown_topic_or_partition_is_named_with_those_that_exist(
    cluster: Cluster, ask: Callable[..., Any]
) -> None:
    with pytest.raises(BrokerError, match=r"UNKNOWN_TOPIC.*no topic 'nope'; there are t"):
        ask(cluster, "nope", 0)
    with pytest.raises(BrokerError, match=r"UNKNOWN_TOPIC.*no t-2; t has 0 to 1"):
        ask(cluster, "t", 2)


async def test_one_call_makes_no_more_partitions_than_one_request(cluster: Cluster) -> None:
    for call in (
        lambda: cluster.create_topic("big", partitions=10_001),
        lambda: cluster.create_topic("big", assignments=[[1]] * 10_001),
        lambda: cluster.add_partitions("t", 10_003),
    ):
        with pytest.raises(BrokerError, match=r"POLICY_VIOLATION.*up to 10000 partitions"):
            call()
    assert cluster.topics == ["t"]
    assert cluster.partition_count("t") == 2


LOOKS: tuple[Callable[[Cluster], object], ...] = (
    lambda one: one.topics,
    lambda one: one.brokers,
    lambda one: one.cluster_id,
    lambda one: one.controller_id,
    lambda one: one.coordinator("g"),
    lambda one: one.transaction_coordinator("t"),
    lambda one: one.under_replicated,
    lambda one: one.offline,
    lambda one: one.statistics(),
    repr,
)
ACTS: tuple[Callable[[Cluster], Any], ...] = (
    lambda one: one.create_topic("u"),
    lambda one: one.add_partitions("t", 2),
    lambda one: one.delete_topic("t"),
    lambda one: one.move_leader("t", 0, 2),
    lambda one: one.delete_records("t", 0, 0),
    lambda one: one.append("t", 0, batch_bytes()),
    lambda one: one.disconnect(1, 2),
    lambda one: one.isolate(1),
    lambda one: one.reconnect(),
    lambda one: one.slow_follower(1, 1.0),
    lambda one: one.elect_leader("t"),
    lambda one: one.move_coordinator("g", 1),
    lambda one: one.move_transaction_coordinator("t", 1),
    lambda one: one.move_controller(),
    lambda one: one.clean("t"),
    lambda one: one.wait_in_sync(),
    lambda one: one.stop(1),
    lambda one: one.crash(1),
    lambda one: one.restart(1),
    lambda one: one.add_broker(),
    lambda one: one.remove_broker(1),
    lambda one: one.move(1),
    lambda one: one.swap_addresses(1, 2),
)


async def refused(cluster: Cluster, kind: type[Exception], text: str) -> None:
    for act in ACTS:
        with pytest.raises(kind, match=text):
            called = act(cluster)
            if inspect.iscoroutine(called):
                await called


async def test_outside_its_life_one_can_look_but_not_act() -> None:
    cluster = Cluster(2)
    with pytest.raises(ClientClosed, match=r"no addresses .*start"):
        _ = cluster.bootstrap
    for look in LOOKS:
        look(cluster)
    await refused(cluster, ClientClosed, "isn't started .*start")
    async with cluster:
        cluster.create_topic("t")
        bootstrap = cluster.bootstrap
    for look in LOOKS:
        look(cluster)
    assert cluster.bootstrap == bootstrap
    assert cluster.leader("t") == -1
    await refused(cluster, ClientClosed, "isn't started .*start")
    assert not any(one.running for one in cluster.brokers.values())


async def test_a_call_in_another_loop_is_refused_with_the_alternative(cluster: Cluster) -> None:
    failures: list[BaseException] = []

    async def elsewhere() -> None:
        """Cancellation: safe."""
        await refused(cluster, WrongContext, "another event loop.*ThreadedCluster")
        for ends in (cluster.start, cluster.close):
            with pytest.raises(WrongContext):
                await ends()

    def act() -> None:
        try:
            with pytest.raises(WrongContext, match="another thread"):
                cluster.isolate(1)
            asyncio.run(elsewhere())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    await asyncio.to_thread(thread.join)
    if failures:
        raise failures[0]
    assert cluster.controller_id == 1


def test_between_two_runs_of_its_loop_one_can_act() -> None:
    with asyncio.Runner() as runner:
        cluster = Cluster(3, broker_configs={"broker.session.timeout.ms": 1000})
        runner.run(cluster.start())
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        cluster.clean("t")
        runner.run(cluster.wait_in_sync())
        cluster.append("t", 0, batch_bytes())
        cluster.isolate(1)
        cluster.reconnect()
        cluster.move_leader("t", 0, 2)
        cluster.append("t", 0, batch_bytes())
        cluster.move_controller()
        runner.run(cluster.wait_in_sync())
        assert cluster.leader("t") == 2
        assert len(cluster.records("t")) == 2
        runner.run(cluster.close())


def test_a_cluster_whose_loop_was_closed_raises_client_closed() -> None:
    cluster = Cluster(1, network=None)

    loop = VirtualLoop()
    loop.run_until_complete(cluster.start())
    loop.close()
    with pytest.raises(ClientClosed, match=r"loop .* is closed"):
        cluster.create_topic("t")


async def test_the_repr_of_a_cluster_has_its_state(cluster: Cluster) -> None:
    await cluster.crash(1)
    assert repr(cluster) == (f"<Cluster of 3 brokers, 2 up, controller 2, {cluster.bootstrap}>")
    assert repr(cluster.brokers[1]) == f"<Broker 1 at {cluster.brokers[1].address}, down>"
    assert repr(Cluster(1)) == "<Cluster of 1 broker, not started>"
    await cluster.crash(2)
    await cluster.crash(3)
    assert repr(cluster) == f"<Cluster of 3 brokers, 0 up, no controller, {cluster.bootstrap}>"


def test_a_with_of_the_wrong_kind_names_which_is_needed() -> None:
    with pytest.raises(TypeError, match="`async with` is needed for a Cluster"):
        with Cluster(1):  # type: ignore[attr-defined]
            pass


async def test_an_async_with_of_the_wrong_kind_names_which_is_needed() -> None:
    with pytest.raises(TypeError, match="`with` is needed for a ThreadedCluster"):
        async with ThreadedCluster(Cluster(1)):
            pass


async def test_a_host_that_has_no_address_is_named() -> None:
    with pytest.raises(OSError, match=r"'nowhere\.invalid' is no address"):
        await Cluster(1, host="nowhere.invalid").start()


async def test_an_unknown_broker_is_named_with_those_that_exist(cluster: Cluster) -> None:
    with pytest.raises(KeyError, match="broker=9 must be the node id of a broker: 1, 2, 3"):
        cluster.brokers[9]
    assert 9 not in cluster.brokers
    assert cluster.brokers.get(9) is None
    assert cluster.brokers[await cluster.add_broker()].running
    await cluster.remove_broker(4)
    assert sorted(cluster.brokers) == [1, 2, 3]


async def test_partitions_of_brokers_that_are_all_down_have_no_leader(cluster: Cluster) -> None:
    cluster.create_topic("u", assignments=[[1]])
    for broker in (1, 2, 3):
        await cluster.crash(broker)
    assert cluster.controller_id == -1
    assert cluster.leader("t") == cluster.leader("u") == -1
    assert {(one.topic, one.partition) for one in cluster.offline} == {
        ("t", 0),
        ("t", 1),
        ("u", 0),
    }
    await cluster.restart(1)
    assert cluster.leader("u") == 1


async def test_a_log_whose_new_leader_does_not_know_yet_takes_no_appended_batch(
    cluster: Cluster,
) -> None:
    """It was a KeyError: the replica knew no followers."""
    cluster.create_topic("u", assignments=[[2, 3]])
    cluster.disconnect(cluster.controller_id, 3)
    cluster.move_leader("u", 0, 3)
    with pytest.raises(LeaderNotAvailable, match="Appending to u-0 failed"):
        cluster.append("u", 0, batch_bytes())
    cluster.reconnect()
    await cluster.wait_in_sync()
    assert cluster.append("u", 0, batch_bytes()) == 0
