"""Faults come and go at random while our clients write and read: all ends, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster, Fault, RequestInfo, run_virtually

COUNT = 100
APIS = ("Produce", "Fetch", "Metadata", "ApiVersions", None)
CODES = {
    "Produce": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "Fetch": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "Metadata": ErrorCode.LEADER_NOT_AVAILABLE,
}
QUICK: Any = {"request_timeout": 2.0, "retry_backoff": 0.02, "retry_backoff_max": 0.2}


class Mischief:
    """Adds and removes faults."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._faults = cluster.faults
        self._rng = rng
        self.made: list[Fault] = []
        self.kinds: list[Callable[[], Fault]] = [
            lambda: self._faults.error(
                api := rng.choice(list(CODES)), CODES[api], topic="t", times=rng.randint(1, 3)
            ),
            lambda: self._faults.delay(
                rng.choice(APIS), rng.uniform(0, 5), after=rng.random() < 0.5, **self._where()
            ),
            lambda: self._faults.hold(
                rng.choice(APIS), after=rng.random() < 0.5, times=rng.randint(1, 4), **self._where()
            ),
            lambda: self._faults.lose_requests(rng.choice(APIS), rng.randint(1, 2)),
            lambda: self._faults.lose_answers(rng.choice(APIS), rng.randint(1, 2)),
            lambda: self._faults.drop(rng.choice(APIS), after=rng.random() < 0.5, **self._where()),
            lambda: self._faults.reorder(rng.choice(APIS), count=rng.randint(2, 4)),
            lambda: self._faults.repeat(rng.choice(APIS)),
            lambda: self._faults.cut_answer(
                rng.choice(APIS), byte=rng.randrange(80), reset=rng.random() < 0.3
            ),
            lambda: self._faults.cut_request(rng.choice(APIS), byte=rng.randrange(80)),
            lambda: self._faults.trickle(rng.choice(APIS), rng.uniform(5, 500), **self._where()),
            lambda: self._faults.throttle("Produce", rng.uniform(0, 1)),
            lambda: self._faults.on(rng.choice(APIS), self._look, at=self._at(), times=3),
            lambda: self._faults.hang(broker=rng.randint(1, 3)),
        ]

    def _where(self) -> Any:
        pick = self._rng.random()
        if pick < 0.3:
            return {"replica": "any"}
        return {"broker": self._rng.randint(1, 3)} if pick < 0.6 else {}

    def _at(self) -> Any:
        return self._rng.choice(("before", "after_append", "after_reply"))

    async def _look(self, info: RequestInfo) -> None:
        await asyncio.sleep(self._rng.uniform(0, 3))

    async def run(self) -> None:
        """Add and remove faults until cancelled."""
        while True:
            await asyncio.sleep(self._rng.expovariate(4.0))
            if self.made and self._rng.random() < 0.45:
                self._rng.choice(self.made).remove()
            elif self._rng.random() < 0.2:
                self._faults.clear()
            else:
                self.made.append(self._rng.choice(self.kinds)())


async def write(cluster: Cluster, rng: random.Random) -> None:
    async with kclient.Producer(cluster.bootstrap, **QUICK) as producer:
        for number in range(COUNT):
            await producer.send("t", b"%d" % number, partition=0)
            await asyncio.sleep(rng.uniform(0.0, 1.0))


async def read(cluster: Cluster) -> None:
    seen: list[bytes | None] = []
    async with kclient.Consumer(
        cluster.bootstrap, "t", auto_offset_reset="earliest", **QUICK
    ) as consumer:
        while len(seen) < COUNT:
            try:
                seen += [one.value for one in await consumer.poll(timeout=5.0)]
            except kclient.KafkaError as error:  # no broker was of use for very long
                assert error.retriable
    assert seen == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_left_of_faults_that_came_and_went(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("t")
            mischief = Mischief(cluster, rng)
            async with asyncio.timeout(3000), asyncio.TaskGroup() as clients:
                breaking = asyncio.ensure_future(mischief.run())
                clients.create_task(write(cluster, rng))
                clients.create_task(read(cluster))
                await asyncio.sleep(100.0)
                breaking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await breaking
                cluster.faults.clear()
                assert not cluster.faults
                assert [one for one in mischief.made if one.held] == []
            await cluster.faults.ended()
            assert sum(one.hits for one in mischief.made) >= 50
            cluster.faults.check()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [one for one in mischief.made if one.held] == []

    run_virtually(main(), seed=seed)
