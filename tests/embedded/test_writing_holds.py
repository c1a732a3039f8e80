"""No way of writing holds the event loop for long, however much is written at once.

See ``tests.support.holds`` for how. The pure build does a tenth of the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow  # noqa: F401 - loaded before a probe looks
import pytest

import kclient
from kclient.producer import send_many
from kclient.testing import Cluster, LoopProbe
from tests.support.holds import held, run_held, scaled
from tests.support.users_work import UsersWork

T = "flights"
MIB = 1024 * 1024
VALUE = b"x" * 100


def records(count: int, *, keyed: bool = True) -> Iterator[tuple[bytes | None, bytes]]:
    for number in range(count):
        yield (b"%d" % number if keyed else None), VALUE


async def by_send(producer: Any, count: int) -> None:
    """``send`` never waits, so the caller yields to the loop."""
    for number, (key, value) in enumerate(records(count)):
        producer.send(T, value, key=key)
        if number % 1000 == 0:
            await asyncio.sleep(0)
    await producer.flush()


async def by_enqueue(producer: Any, count: int) -> None:
    for key, value in records(count):
        await producer.enqueue(T, value, key=key)
    await producer.flush()


async def by_send_many(producer: Any, count: int) -> None:
    assert await producer.send_many(T, records(count)) == count


WRITE: dict[str, Callable[[Any, int], Awaitable[None]]] = {
    "send": by_send,
    "enqueue": by_enqueue,
    "send_many": by_send_many,
}


@pytest.mark.parametrize(("way", "partitions"), [("send", 6), *((way, 1000) for way in WRITE)])
def test_a_burst_of_half_a_million_records(way: str, partitions: int) -> None:
    """Also where records are spread over a thousand partitions, and fill no batch for long."""

    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic(T, partitions=partitions)
            settings: Any = {"buffer_memory": 256 * MIB, "linger": 0.5}
            async with kclient.Producer(cluster.bootstrap, **settings) as producer:
                await producer.partitions_for(T)
                with LoopProbe() as probe:
                    await WRITE[way](producer, scaled(500_000))
            held(probe)

    run_held(main)


@pytest.mark.parametrize("way", ["enqueue", "send_many"])
def test_a_loop_that_writes_lets_others_run_every_few_milliseconds(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = UsersWork()
    monkeypatch.setattr("kclient.producer.send_many.monotonic", work.clock)

    def slow() -> Iterator[bytes]:
        for _ in range(1000):
            work.do()
            yield VALUE

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            cluster.create_topic(T)
            async with kclient.Producer(cluster.bootstrap, batch_size=MIB // 2) as producer:
                await producer.partitions_for(T)
                others = asyncio.create_task(work.watch())
                if way == "enqueue":
                    for value in slow():
                        await producer.enqueue(T, value)
                else:
                    await producer.send_many(T, slow())
                others.cancel()
            assert work.now > 0.25
            assert (
                work.longest() < send_many.YIELD_INTERVAL + 10 * work.RECORD
            )  # send_many checks the clock at each 8th record

    run_held(main)
