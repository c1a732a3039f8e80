"""Commits at random while brokers fail at random: what the coordinator wrote down never goes back.

The judge is the log of ``__consumer_offsets``: it has every commit that took effect, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from kclient.error_codes import ErrorCode
from kclient.errors import CommitFailed, KafkaError, RequestTimedOut
from kclient.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue
from kclient.testing import Cluster, run_virtually
from kclient.testing.groups.records import decode
from kclient.testing.internal_topic import partition_of
from kclient.types import TopicPartition
from tests.virtual.commit_scene import COMMIT, P0, P1, P2, Scene, at, scene

OFFSETS_TOPIC = "__consumer_offsets"
PARTITIONS = (P0, P1, P2)
STEPS = 300
LOOK_EVERY = 20
"""One of so many outcomes is looked up in the log."""
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def written(cluster: Cluster) -> dict[TopicPartition, list[int]]:
    """All commits of the group that took effect."""
    number = partition_of("g", cluster.partition_count(OFFSETS_TOPIC))
    history: dict[TopicPartition, list[int]] = {}
    for record in cluster.records(OFFSETS_TOPIC, number):
        assert record.key is not None
        found = decode(record.key, record.value)
        if found is None or not isinstance(found.key, OffsetCommitKey):
            continue
        assert isinstance(found.value, OffsetCommitValue)
        place = TopicPartition(found.key.topic, found.key.partition)
        history.setdefault(place, []).append(found.value.offset)
    return history


class Storm:
    """One run."""

    def __init__(self, here: Scene, seed: int) -> None:
        self.here = here
        self.rng = random.Random(seed)
        self.next = 0
        self.outcomes: list[asyncio.Future[None]] = []
        self.done = 0
        self.broken: list[str] = []

    async def commit(self) -> None:
        """As a consumer does: forward, but for records that are committed late."""
        rng, commits = self.rng, self.here.commits
        for _ in range(STEPS):
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.05, 0.5)))
            timeout = rng.choice((0.5, 3.0, 60.0))
            if rng.random() < 0.3:
                offset = max(0, self.next - rng.randrange(5))
                wanted = {rng.choice(PARTITIONS): offset}
                outcome = commits.submit(
                    {key: at(one) for key, one in wanted.items()}, timeout=timeout, at_least=True
                )
            else:
                self.next += 1
                wanted = dict.fromkeys(rng.sample(PARTITIONS, rng.randint(1, 3)), self.next)
                outcome = commits.submit(
                    {key: at(one) for key, one in wanted.items()}, timeout=timeout
                )
            outcome.add_done_callback(partial(self.judge, wanted))
            self.outcomes.append(outcome)
            if rng.random() < 0.1:
                rng.choice(self.outcomes).cancel()

    def judge(self, wanted: dict[TopicPartition, int], outcome: asyncio.Future[None]) -> None:
        """Once a commit is acknowledged, its caller can read it."""
        if outcome.cancelled() or outcome.exception() is not None:
            return
        self.done += 1
        if self.done % LOOK_EVERY or self.here.cluster.coordinator("g") < 0:
            return  # a look-up takes time, and at the moment the log may have no leader
        history = written(self.here.cluster)
        for key, offset in wanted.items():
            if history[key][-1] < offset:
                self.broken.append(f"{key}: {offset} was promised, {history[key][-1]} is there")

    async def break_things(self) -> None:
        ways: list[Callable[[], Awaitable[None]]] = [
            self.err,
            self.err,
            self.lose,
            self.lose,
            self.delay,
            self.move,
            self.crash,
        ]
        while True:
            await asyncio.sleep(self.rng.expovariate(1.0))
            await self.rng.choice(ways)()

    async def err(self) -> None:
        code, index = self.rng.choice(PASSING), self.rng.choice((0, 1, 2))
        if self.rng.random() < 0.5:
            self.here.cluster.faults.error(COMMIT, code, times=2)
        else:
            self.here.cluster.faults.error(COMMIT, code, topic="flights", partition=index)

    async def lose(self) -> None:
        faults = self.here.cluster.faults
        self.rng.choice((faults.lose_answers, faults.lose_requests))(COMMIT)

    async def delay(self) -> None:
        self.here.cluster.faults.delay(COMMIT, self.rng.choice((0.1, 1.0, 5.0)))

    async def move(self) -> None:
        cluster = self.here.cluster
        others = [one for one in cluster.brokers if one != cluster.coordinator("g")]
        try:
            cluster.move_coordinator("g", self.rng.choice(others))
        except KafkaError:
            pass  # it isn't in sync at the moment

    async def crash(self) -> None:
        cluster = self.here.cluster
        victim = self.rng.choice([1, 2, 3])
        await cluster.crash(victim)
        await asyncio.sleep(self.rng.random() * 3)
        await cluster.restart(victim)


@pytest.mark.parametrize("seed", range(15))
def test_nothing_moves_back_and_every_call_has_one_outcome(seed: int) -> None:
    async def main() -> None:
        async with scene(request_timeout=10.0) as here:
            storm = Storm(here, seed)
            nemesis = asyncio.create_task(storm.break_things())
            await storm.commit()
            nemesis.cancel()
            await asyncio.wait([nemesis])
            here.cluster.faults.clear()
            for node_id, broker in here.cluster.brokers.items():
                if not broker.running:
                    await here.cluster.restart(node_id)
            assert await here.commits.flush(here.now(120.0))
            assert storm.broken == []
            assert all(outcome.done() for outcome in storm.outcomes)
            for outcome in storm.outcomes:
                error = None if outcome.cancelled() else outcome.exception()
                assert error is None or isinstance(error, RequestTimedOut | CommitFailed)
            last = {key: at(storm.next) for key in PARTITIONS}
            await here.commit(last)
            assert await here.offsets.fetch(PARTITIONS) == last
            assert here.commits.queue.changes(last) == {}
            history = written(here.cluster)
            for key in PARTITIONS:
                assert history[key] == sorted(history[key])

    run_virtually(main(), seed=seed, limit=3600)
