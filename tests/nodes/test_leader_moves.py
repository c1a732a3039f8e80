"""A partition gets another leader, and clients follow the hint in the error response (KIP-951).

The former leader names the next one in its error response, so no client has to refresh metadata.
What was refused is written to the next leader within 50 ms. It is read within as long after its
acknowledgement, whose time is the brokers' own: followers take a while to follow the next leader.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from kclient import Consumer, Producer
from kclient.hooks import BatchRetried
from tests.nodes.diary import Diary
from tests.nodes.election_watch import ElectionWatch, watching
from tests.nodes.steady_load import SteadyLoad, first_since, under_load
from tests.support.nodes import Nodes

MOVES = 20
SEEN_AT_LEAST = 15
"""Moves that met a request of the producer; the others happened between two of them."""
RATE = 200.0
LIMIT = 0.05
"""Seconds that clients may take, beside the round trip."""
SLOW = 2
"""Moves that may take longer: three nodes and their clients share the machine with others."""
_SETTLED = 0.3
"""Seconds until the next move."""
_PATIENCE = 30.0
_POLL = 0.005


@dataclass(frozen=True, slots=True)
class Move:
    """What followed on the error response of a former leader, in seconds."""

    turn: float
    """From the error response until a request to the next leader had been written."""
    ack: float
    """From there to an acknowledgement: the brokers' own time, until they replicate."""
    read: float
    """From there until the consumer gave the record."""


async def move(nodes: Nodes, watch: ElectionWatch, topic: str, leader: int) -> float:
    """Have another node lead the partition; returns when it began."""
    began = time.monotonic()
    await asyncio.to_thread(nodes.lead, topic, 0, leader)
    async with asyncio.timeout(_PATIENCE):
        while watch.latest[0].leader != leader:  # noqa: ASYNC110 - a thread sees it
            await asyncio.sleep(_POLL)
    await asyncio.sleep(_SETTLED)
    return began


def followed(load: SteadyLoad, diary: Diary, began: float, leader: int) -> Move | None:
    """How the producer and the consumer followed; None if no request met the move."""
    refusals = diary.times(BatchRetried, began)
    if not refusals:
        return None
    requests = diary.requests("Produce", refusals[0])
    there = [at - answer.seconds for at, answer in requests if answer.node_id == leader]
    assert there, f"nothing went to {leader} behind its refusal: {load.wrong[:5]}"
    written = min(there)
    acked = first_since(load.acked[0], refusals[0])
    read = None if acked is None else first_since(load.read[0], acked)
    assert acked is not None and read is not None, f"it goes on behind a move: {load.wrong[:5]}"
    return Move(written - refusals[0], acked - written, read - acked)


@pytest.mark.timeout(120)
async def test_clients_follow_a_leader_by_its_hint_alone(nodes: Nodes, topic: str) -> None:
    await asyncio.to_thread(nodes.create_topic, topic, replicas=[(1, 2, 3)])
    producing, consuming = Diary("producer"), Diary("consumer")
    begun: list[tuple[float, int]] = []
    with watching(nodes, topic) as watch:
        async with (
            Producer(nodes.bootstrap, observers=[producing]) as producer,
            Consumer(
                nodes.bootstrap, topic, auto_offset_reset="earliest", observers=[consuming]
            ) as consumer,
            under_load(SteadyLoad(producer, consumer, topic, 1, RATE)) as load,
        ):
            await load.flowing(_PATIENCE)
            for leader in (2, 3, 1):  # so that connections are open, as they are in a long life
                await move(nodes, watch, topic, leader)
            start = time.monotonic()
            for number in range(MOVES):
                leader = nodes.ids[(number + 1) % len(nodes.ids)]
                begun.append((await move(nodes, watch, topic, leader), leader))
            end = time.monotonic()
            await load.drain(_PATIENCE)
    assert not load.wrong, load.wrong[:10]
    reported = "\n".join(
        line for diary in (producing, consuming) for line in diary.lines(start, end, start)
    )
    asked = [len(diary.requests("Metadata", start, end)) for diary in (producing, consuming)]
    seen = [followed(load, producing, began, leader) for began, leader in begun]
    moves = [one for one in seen if one is not None]
    figures = "\n".join(
        [
            f"Metadata requests of producer and consumer: {asked}; in seconds per move:",
            *(f"turn {one.turn:.4f} ack {one.ack:.4f} read {one.read:.4f}" for one in moves),
            reported,
        ]
    )
    assert len(moves) >= SEEN_AT_LEAST, figures
    assert asked == [0, 0], figures
    turns, reads = sorted(one.turn for one in moves), sorted(one.read for one in moves)
    assert turns[-1 - SLOW] <= LIMIT, figures
    assert reads[-1 - SLOW] <= LIMIT, figures
