"""No reconnect storms: when clients dial again, on virtual time, and what they log meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

import kclient
from kclient.clock import SystemClock
from kclient.config import NetworkConfig
from kclient.errors import KafkaError
from kclient.hooks import Counters, Hooks
from kclient.network import Lane, NetworkClient, Node
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster, MemoryNet, VirtualLoop
from tests.support.unsupervised import Unsupervised

SCHEDULE = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
"""Seconds between two attempts, each within 20%."""
MOST_IN_20_SECONDS = 28
SLACK = 0.002
"""Seconds that an attempt itself takes on an instant network, timer resolution included."""
HOST = "peer"


def network() -> MemoryNet:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.network


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.001)


# Peers


class HangsUp(asyncio.Protocol):
    """Accepts, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class HangsUpInTheHandshake(asyncio.Protocol):
    """Closes on the ApiVersions request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.close()


class TalksNonsense(HangsUpInTheHandshake):
    """Speaks another protocol."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")  # type: ignore[attr-defined]


PEERS = {
    "refuses": None,
    "hangs up": HangsUp,
    "hangs up in the handshake": HangsUpInTheHandshake,
    "talks nonsense": TalksNonsense,
}


def listen(net: MemoryNet, peer: str, host: str) -> None:
    """Have a peer that is of no use at ``host:9092``."""
    factory = PEERS[peer]
    if factory is not None:
        net.listen(factory, host, 9092)


# The network client alone, always wanting


@contextlib.asynccontextmanager
async def wanting(*hosts: str, lanes: tuple[Lane, ...] = tuple(Lane)) -> AsyncIterator[Any]:
    """A client whose requests to each of the hosts, on all lanes, are made again at once."""
    client = NetworkClient(
        NetworkConfig(bootstrap=((hosts[0], 9092),)),
        clock=SystemClock(),
        dialer=network(),
        supervisor=Unsupervised(),
        hooks=Hooks(),
        counters=Counters(),
        rng=random.Random(3),
    )
    await client.start()
    client.update_nodes([Node(number, host, 9092) for number, host in enumerate(hosts, 1)])

    async def insist(node_id: int, lane: Lane) -> None:
        while True:
            try:
                await client.send(node_id, MetadataRequest(), lane=lane)
            except KafkaError:
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(0.01)

    tasks = [
        asyncio.create_task(insist(node_id, lane))
        for node_id in (-1, *range(1, len(hosts) + 1))
        for lane in lanes
    ]
    try:
        yield client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close(1.0)


def dials_to(net: MemoryNet, host: str) -> list[float]:
    return [when for when, address in net.dials if address.startswith(f"{host}:")]


def bursts(times: list[float]) -> list[float]:
    """Attempts with those left out that were made in the very same moment as another one."""
    return [time for index, time in enumerate(times) if not index or time > times[index - 1] + 1e-9]


def assert_on_schedule(times: list[float]) -> None:
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) >= len(SCHEDULE)
    expected = SCHEDULE + [SCHEDULE[-1]] * len(gaps)
    for index, gap in enumerate(gaps):
        assert 0.8 * expected[index] <= gap <= 1.2 * expected[index] + SLACK, (index, gaps)


@pytest.mark.parametrize("peer", PEERS)
async def test_gaps_follow_the_schedule_however_many_lanes_and_nodes_want_it(peer: str) -> None:
    """All lanes of all nodes at one address share it: a bootstrap node and a broker here."""
    net = network()
    net.latency = (0.0, 0.0)
    listen(net, peer, HOST)
    async with wanting(HOST):
        await asyncio.sleep(20.0)
    times = dials_to(net, HOST)
    # Nothing is known about the peer at first, so all lanes that wanted it dialed.
    assert len(times) - len(bursts(times)) <= 2 * len(Lane)
    assert_on_schedule(bursts(times))
    assert len(bursts(times)) <= MOST_IN_20_SECONDS


@pytest.mark.parametrize("peer", PEERS)
async def test_each_of_several_addresses_has_a_schedule_of_its_own(peer: str) -> None:
    net = network()
    net.latency = (0.0, 0.0)
    hosts = ["a", "b", "c"]
    for host in hosts:
        listen(net, peer, host)
    async with wanting(*hosts, lanes=(Lane.FETCH,)):
        await asyncio.sleep(10.0)
    for host in hosts:
        assert_on_schedule(bursts(dials_to(net, host)))


async def test_a_useful_connection_restarts_the_schedule() -> None:
    net = network()
    net.latency = (0.0, 0.0)
    async with Cluster(brokers=1, network=net) as cluster:
        net.refuse("broker-1")
        async with wanting("broker-1", lanes=(Lane.PRODUCE,)) as client:
            await asyncio.sleep(10.0)
            net.heal()
            await client.send(1, MetadataRequest(), lane=Lane.PRODUCE)
            healed = asyncio.get_running_loop().time()
            net.refuse("broker-1")
            net.cut()
            await asyncio.sleep(10.0)
        assert_on_schedule([healed, *(t for t in dials_to(net, "broker-1") if t > healed)])
        assert cluster.requests.count("Metadata") >= 1


async def test_hanging_up_after_the_handshake_each_time_is_no_reason_to_dial_more_often() -> None:
    net = network()
    net.latency = (0.0, 0.0)
    async with Cluster(brokers=1, network=net) as cluster:
        cluster.faults.close("Metadata", times=None)
        async with wanting("broker-1"):
            await asyncio.sleep(20.0)
    times = dials_to(net, "broker-1")
    rounds: list[float] = []
    for time in times:
        if not rounds or time > rounds[-1] + 0.01:
            rounds.append(time)
    assert_on_schedule(rounds)
    # The lanes and nodes of the first moment; after that one lane tries for all of them.
    assert len(times) <= MOST_IN_20_SECONDS + 2 * len(Lane)


async def test_other_lanes_open_as_soon_as_the_first_one_proved_the_peer_to_be_of_use() -> None:
    net = network()
    async with Cluster(brokers=1, network=net):
        net.refuse("broker-1")
        async with wanting("broker-1") as client:
            await asyncio.sleep(5.0)
            net.heal()
            await until(lambda: any(client.is_connected(1, lane) for lane in Lane))
            first = asyncio.get_running_loop().time()
            await until(lambda: all(client.is_connected(1, lane) for lane in Lane))
            assert asyncio.get_running_loop().time() - first < 0.1


# Whole clients


async def producing(bootstrap: str, until: Callable[[], bool]) -> None:
    producer: Any = kclient.Producer(bootstrap)
    await producer.start()
    while not until():
        with contextlib.suppress(KafkaError):
            producer.send("flights", b"x")
        await asyncio.sleep(0.05)
    with contextlib.suppress(KafkaError):
        await producer.close(timeout=0.0)


async def consuming(bootstrap: str, until: Callable[[], bool]) -> None:
    async with kclient.Consumer(bootstrap, "flights", auto_offset_reset="earliest") as consumer:
        while not until():
            with contextlib.suppress(KafkaError):
                await consumer.poll(timeout=0.1)


async def administering(bootstrap: str, until: Callable[[], bool]) -> None:
    async with kclient.Admin(bootstrap, api_timeout=0.5) as admin:
        while not until():
            with contextlib.suppress(KafkaError):
                await admin.list_topics()
            await asyncio.sleep(0.05)


CLIENTS: dict[str, Callable[[str, Callable[[], bool]], Coroutine[Any, Any, None]]] = {
    "producer": producing,
    "consumer": consuming,
    "admin": administering,
}


class Lines(logging.Handler):
    """What would be in the log of a service, at INFO and above, with the time."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[tuple[float, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        now = asyncio.get_running_loop().time()
        self.lines.append((now, record.name, record.getMessage()))


@contextlib.contextmanager
def log_lines() -> Any:
    logger, lines = logging.getLogger("kclient"), Lines()
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines.lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_at_work_dials_a_useless_peer_at_most_28_times_in_20_seconds(
    client: str, peer: str
) -> None:
    net, loop = network(), asyncio.get_running_loop()
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("flights")
        over = False
        task = asyncio.create_task(CLIENTS[client](cluster.bootstrap, lambda: over))
        await asyncio.sleep(2.0)
        with log_lines() as lines:
            await cluster.crash(1)
            listen(net, peer, "broker-1")
            began = loop.time()
            await asyncio.sleep(20.0)
            dials = [time for time, _ in net.dials if began <= time <= began + 20.0]
            said = list(lines)
        over = True
        await task
    assert 15 <= len(dials) <= MOST_IN_20_SECONDS
    about_connections = [line for line in said if line[1] == "kclient.network"]
    assert 1 <= len(about_connections) <= 3, about_connections
    assert max(Counter(name for _, name, _ in said).values()) <= 3, said


@pytest.mark.parametrize("outage", ["refuse", "freeze", "blackhole"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_at_work_survives_the_outage_of_one_of_three_brokers_quietly(
    client: str, outage: str
) -> None:
    net, loop = network(), asyncio.get_running_loop()
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("flights", partitions=3, replication_factor=1)
        over = False
        task = asyncio.create_task(CLIENTS[client](cluster.bootstrap, lambda: over))
        await asyncio.sleep(2.0)
        with log_lines() as lines:
            if outage == "refuse":
                net.cut("broker-2")
            getattr(net, outage)("broker-2")
            began = loop.time()
            await asyncio.sleep(60.0)
            dials = Counter(where for time, where in net.dials if time >= began)
            said = list(lines)
        net.heal()
        over = True
        await task
    assert dials["broker-2:9092"] <= 3 * MOST_IN_20_SECONDS
    assert dials["broker-1:9092"] + dials["broker-3:9092"] <= 10
    assert len([line for line in said if "node=2" in line[2]]) <= 7, said
    assert len(said) <= 15, said


@pytest.mark.parametrize("count", [150, pytest.param(500, marks=pytest.mark.long)])
async def test_hundreds_of_clients_do_not_come_back_at_once(count: int) -> None:
    """After an outage that began at the same instant for all: a fifth in any 100 ms at most."""
    loop, net = asyncio.get_running_loop(), network()
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("flights")
        clients: list[Any] = [
            kclient.Consumer(cluster.bootstrap, "flights", auto_offset_reset="earliest")
            for _ in range(count)
        ]
        await asyncio.gather(*(client.start() for client in clients))
        await asyncio.sleep(1.0)
        net.refuse()
        net.cut()
        await asyncio.sleep(10.0)
        before, healed = net.stats.connects, loop.time()
        opened: list[float] = []
        net.heal()
        while loop.time() < healed + 3.0:
            opened += [loop.time()] * (net.stats.connects - before - len(opened))
            await asyncio.sleep(0.005)
        await asyncio.gather(*(client.close() for client in clients))
    most = max(sum(when <= t < when + 0.1 for t in opened) for when in set(opened))
    assert len(opened) >= count
    assert most <= 0.2 * len(opened)
