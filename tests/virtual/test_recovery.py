"""How soon a client goes on after an election, whenever that comes (R21), on virtual time.

The leader's process dies at once, or hangs and its connections are lost; some seconds later, by no
rhythm of the client's, another broker leads. From there on the first acknowledgement and the first
record must come soon. The same with real brokers is in tests/nodes.
"""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest

import kclient
from kclient.testing import Cluster
from tests.virtual.relay import READ, network, now

LIMIT = 0.6
"""Seconds, less than the 1.0 that R21 allows.

A real cluster takes its part: for the moment of an election some brokers know of it and others
don't.
"""
ELECTIONS = 12


class Elections:
    """A topic whose leader dies or hangs, again and again."""

    def __init__(self, cluster: Cluster, seed: int, *, hang: bool) -> None:
        self._cluster = cluster
        self._hang = hang
        self._rng = random.Random(seed)
        self.count = 0

    async def next(self) -> float:
        """Lose the leader, have another elected after a while; return when that was."""
        cluster = self._cluster
        old = cluster.leader("t")
        # Not `crash`: an embedded cluster would have another leader at once.
        address = cluster.brokers[old].address
        network().cut(address)
        if self._hang:
            network().freeze(
                address, "to_client"
            )  # it takes connections and bytes, as a kernel does
        else:
            network().refuse(address)
        await asyncio.sleep(self._rng.uniform(0.5, 12.0))
        new = self._rng.choice([node for node in cluster.brokers if node != old])
        cluster.move_leader("t", 0, new)
        self.count += 1
        elected = now()
        return elected

    async def heal(self) -> None:
        """Start it again, and let things settle."""
        network().heal()
        await asyncio.sleep(self._rng.uniform(3.0, 5.0))


async def steadily(producer: kclient.Producer[Any, Any], reported: list[float]) -> None:
    """Send a record every 50 ms; note when acknowledgements come."""

    def note(delivery: kclient.Delivery) -> None:
        delivery.result()
        reported.append(now())

    number = 0
    while True:
        producer.send("t", b"%d" % number).add_done_callback(note)
        number += 1
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("hang", [False, True], ids=["dead", "hung"])
async def test_the_first_acknowledgement_and_record_come_soon_behind_an_election(
    hang: bool,
) -> None:
    acks: list[float] = []
    reads: list[float] = []
    late: list[str] = []
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t")
        elections = Elections(cluster, 1, hang=hang)
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(cluster.bootstrap, "t", **READ) as consumer,
        ):
            sending = asyncio.create_task(steadily(producer, acks))

            async def read() -> None:
                while True:
                    if await consumer.poll(timeout=1.0):
                        reads.append(now())

            reading = asyncio.create_task(read())
            await asyncio.sleep(1.0)
            for _ in range(ELECTIONS):
                elected = await elections.next()
                await asyncio.sleep(LIMIT + 1.0)
                ack = min((at for at in acks if at > elected), default=math.inf) - elected
                record = min((at for at in reads if at > elected), default=math.inf) - elected
                if max(ack, record) > LIMIT:
                    late.append(f"election {elections.count}: ack {ack:.3f}, record {record:.3f}")
                await elections.heal()
            for task in (sending, reading):
                task.cancel()
            await asyncio.gather(sending, reading, return_exceptions=True)
    assert elections.count == ELECTIONS and not late, late


async def test_a_connection_that_is_lost_in_idle_times_costs_no_metadata() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap) as producer:
            await producer.send("t", b"first")
            await asyncio.sleep(5.0)
            asked = cluster.requests.count("Metadata")
            for number in range(10):
                network().cut()
                await asyncio.sleep(2.0)
                await producer.send("t", b"%d" % number)
                await asyncio.sleep(2.0)
            assert cluster.requests.count("Metadata") == asked


async def test_a_broker_that_hangs_with_a_metadata_request_holds_up_no_failover() -> None:
    """No other request goes to that broker, so that its silence shows in the refresh only."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap) as producer:
            await producer.send("t", b"0")
            held = cluster.faults.hold("Metadata", times=1)
            leader = cluster.leader("t")
            network().cut(cluster.brokers[leader].address)
            network().refuse(cluster.brokers[leader].address)
            cluster.move_leader("t", 0, next(node for node in cluster.brokers if node != leader))
            async with asyncio.timeout(2.0):
                await producer.send("t", b"1")
            assert held.hits == 1
