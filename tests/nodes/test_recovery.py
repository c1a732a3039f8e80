"""How soon clients go on after the leader of a partition was killed.

A second after another node leads, by what the nodes themselves say, is the limit for nineteen of
twenty; how long brokers take until then is their own affair. Leaders are killed in turn, each as
soon as the one before is back and everything is in sync, under a producer and a consumer that never
pause.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from kclient import Consumer, Producer
from tests.nodes.diary import Diary
from tests.nodes.election_watch import Election, ElectionWatch, watching
from tests.nodes.steady_load import SteadyLoad, first_since, p95, under_load
from tests.support.nodes import Nodes

KILLS = 20
LIMIT = 1.0
"""Seconds from the election of a leader to the first ack and to the first record from it."""
RATE = 50.0
PARTITIONS = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
"""Where they are: each node leads one at first, and whoever is killed always leads some later."""
_PATIENCE = 30.0
_POLL = 0.005


@dataclass(frozen=True, slots=True)
class Recovery:
    """What followed on the election of one partition's leader, in seconds."""

    election: Election
    outage: float
    """From the kill to the election."""
    ack: float
    read: float

    def __str__(self) -> str:
        return (
            f"partition {self.election.partition} -> node {self.election.leader} "
            f"{self.outage:.2f} s after the kill, then ack {self.ack:.3f} read {self.read:.3f}"
        )


async def kill_and_measure(
    nodes: Nodes, watch: ElectionWatch, load: SteadyLoad, victim: int
) -> list[Recovery]:
    """Kill a node under load and see the partitions that it led go on elsewhere."""
    led = [index for index, election in watch.latest.items() if election.leader == victim]
    assert led, f"node {victim} leads nothing"
    killed = time.monotonic()
    await asyncio.to_thread(nodes.kill, victim)
    found = []
    for index in led:
        election = await elected(watch, index, victim)
        ack = await first_of(load, load.acked[index], election)
        read = await first_of(load, load.read[index], election)
        at = election.at
        found.append(Recovery(election, at - killed, ack - at, read - at))
    return found


async def elected(watch: ElectionWatch, partition: int, former: int) -> Election:
    """Wait until a partition has another leader."""
    async with asyncio.timeout(_PATIENCE):
        while watch.latest[partition].leader == former:  # noqa: ASYNC110 - a thread sees it
            await asyncio.sleep(_POLL)
    return watch.latest[partition]


async def first_of(load: SteadyLoad, times: list[float], election: Election) -> float:
    """Wait for the first ack or record after an election."""
    deadline = time.monotonic() + _PATIENCE
    while (found := first_since(times, election.at)) is None:
        assert time.monotonic() < deadline, f"nothing after {election}: {load.wrong[:5]}"
        await asyncio.sleep(_POLL)
    return found


@pytest.mark.timeout(300)
async def test_clients_go_on_within_a_second_of_an_election(nodes: Nodes, topic: str) -> None:
    await asyncio.to_thread(nodes.create_topic, topic, replicas=list(PARTITIONS.values()))
    diaries = [Diary("producer"), Diary("consumer")]
    kills: list[list[Recovery]] = []
    told: list[str] = []
    with watching(nodes, topic) as watch:
        async with (
            Producer(nodes.bootstrap, observers=[diaries[0]]) as producer,
            Consumer(
                nodes.bootstrap, topic, auto_offset_reset="earliest", observers=[diaries[1]]
            ) as consumer,
            under_load(SteadyLoad(producer, consumer, topic, len(PARTITIONS), RATE)) as load,
        ):
            await load.flowing(_PATIENCE)
            for kill in range(KILLS):
                victim = nodes.ids[kill % len(nodes.ids)]
                began = time.monotonic()
                kills.append(await kill_and_measure(nodes, watch, load, victim))
                told.append(f"kill of node {victim}: " + "; ".join(map(str, kills[-1])))
                if any(max(one.ack, one.read) > LIMIT for one in kills[-1]):
                    zero = kills[-1][0].election.at
                    told += (
                        f"    {line}"
                        for diary in diaries
                        for line in diary.lines(began, time.monotonic(), zero)
                    )
                await asyncio.to_thread(nodes.restart, victim)
                await asyncio.to_thread(nodes.wait_full_isr, topic)
            await load.drain(_PATIENCE)
    assert not load.wrong, load.wrong[:10]
    acks = [max(one.ack for one in kill) for kill in kills]
    reads = [max(one.read for one in kill) for kill in kills]
    figures = "\n".join(
        f"{what}: p95 {p95(values):.3f}, all: {' '.join(f'{value:.3f}' for value in values)}"
        for what, values in (("first ack", acks), ("first record", reads))
    )
    assert max(p95(acks), p95(reads)) <= LIMIT, "\n".join([figures, *told])
