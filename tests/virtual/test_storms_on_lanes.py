"""Whatever happens to addresses, names and nodes: a waiter on a lane gets a response or an error.

Seeded storms over one ``NetworkClient``: what must hold afterwards is that no request is without an
outcome, that every refused lane was notified of capacity, that no address counts as being dialed
without a dial, and that every broker is reached at once.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kclient.clock import SystemClock
from kclient.config import AdminConfig
from kclient.errors import KafkaError
from kclient.hooks import Counters, Hooks
from kclient.network import Lane, NetworkClient, Node
from kclient.network.requests import RequestFuture
from kclient.protocol.messages.metadata import MetadataRequest
from kclient.testing import Cluster, MemoryNet, VirtualLoop, run_virtually
from tests.support.unsupervised import Unsupervised

HOSTS = ("broker-1", "broker-2", "broker-3", "gone")
TRUTH = [Node(number, f"broker-{number}", 9092) for number in (1, 2, 3)]
STEPS = 60
SETTLED = 45.0
"""Seconds: longer than any request, handshake or back-off."""
AT_ONCE = 2.5


class Storm:
    """The faults and requests of one seed."""

    def __init__(self, net: MemoryNet, client: NetworkClient, rng: random.Random) -> None:
        self.net = net
        self.client = client
        self.rng = rng
        self.futures: list[RequestFuture[Any]] = []
        self.refused: set[tuple[int, Lane]] = set()
        client.add_ready_listener(lambda node_id, lane: self.refused.discard((node_id, lane)))

    async def run(self) -> None:
        rng, net = self.rng, self.net
        steps = {
            self.send: 40,
            lambda: self.ask(*self.lane()): 10,
            self.move: 10,
            lambda: net.refuse(self.host()): 5,
            lambda: net.blackhole(self.host()): 5,
            lambda: net.freeze(self.host()): 4,
            lambda: net.cut(self.host()): 4,
            lambda: net.cut_at(self.host(), byte=rng.randrange(400)): 2,
            lambda: net.hang_name(rng.choice(HOSTS)): 2,
            lambda: self.client.replace_connection(*self.lane()): 2,
            self.heal: 6,
        }
        for step in rng.choices(list(steps), list(steps.values()), k=STEPS):
            step()
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice([0.0005, 0.01, 0.1, 1.0, 12.0]))
        self.heal()
        self.client.update_nodes(TRUTH)
        for node in TRUTH:
            for lane in Lane:
                self.ask(node.node_id, lane)

    def host(self) -> str | None:
        return self.rng.choice([None, *HOSTS])

    def lane(self) -> tuple[int, Lane]:
        return self.rng.choice([1, 2, 3, -1, -2]), self.rng.choice(list(Lane))

    def send(self) -> None:
        node_id, lane = self.lane()
        self.futures.append(self.client.send(node_id, MetadataRequest(), lane=lane))

    def ask(self, node_id: int, lane: Lane) -> None:
        if not self.client.can_send(node_id, lane) and node_id in self.client.book.nodes:
            self.refused.add((node_id, lane))

    def move(self) -> None:
        ids = self.rng.sample([1, 2, 3], self.rng.randrange(1, 4))
        self.client.update_nodes([Node(one, self.rng.choice(HOSTS), 9092) for one in ids])
        self.refused = {(node_id, lane) for node_id, lane in self.refused if node_id in ids}

    def heal(self) -> None:
        self.net.heal()
        for name in HOSTS:
            self.net.forget_name(name)


async def weather(seed: int) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.network.split = 0.2
    async with Cluster(brokers=3):
        client = NetworkClient(
            AdminConfig.of(None, {"bootstrap": "broker-1:9092,gone:9092"}),
            clock=SystemClock(),
            supervisor=Unsupervised(),
            hooks=Hooks(),
            counters=Counters(),
            rng=random.Random(seed),
            dialer=loop.network,
        )
        await client.start()
        client.update_nodes(TRUTH)
        storm = Storm(loop.network, client, random.Random(seed))
        await storm.run()
        await asyncio.sleep(SETTLED)
        assert all(future.done for future in storm.futures)
        assert not storm.refused
        later = loop.time() + 1e6  # when no back-off is left: only a probe could be in the way
        assert all(client.states.can_dial(f"{host}:9092", later) for host in HOSTS)
        for node in TRUTH:
            for lane in Lane:
                begun = loop.time()
                try:
                    await client.send(node.node_id, MetadataRequest(), lane=lane)
                except KafkaError:  # of a connection in which bytes vanished
                    await client.send(node.node_id, MetadataRequest(), lane=lane)
                assert loop.time() - begun < AT_ONCE
        await client.close(1.0)


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_after_a_storm_no_request_waits_in_vain(first: int) -> None:
    for seed in range(first, first + 10):
        run_virtually(weather(seed), seed=seed)
