"""Records that a poll passed over without returning them are finished when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kclient
from kclient.errors import ClientClosed
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import QUICK, P, T, the_loop

GROUP = "board"
QUIET = {**QUICK, "fetch_max_wait": 5.0}  # no response ends a poll's waiting


def number(topic: str, data: bytes | None) -> int:
    return int(data or b"")


async def by_poll(consumer: Any, timeout: float) -> int:
    return len(await consumer.poll(timeout=timeout))


async def by_poll_arrow(consumer: Any, timeout: float) -> int:
    rows: int = (await consumer.poll_arrow(timeout=timeout)).num_rows
    return rows


async def by_poll_arrow_to_the_end(consumer: Any, timeout: float) -> int:
    rows: int = (await consumer.poll_arrow(timeout=timeout, until={P: 2})).num_rows
    return rows


async def committed_after(
    cluster: Cluster, take: Callable[[Any, float], Awaitable[int]], again: float, **settings: Any
) -> int:
    """What the group has committed after a record, an empty poll, and the end of the consumer."""
    consumer: Any = kclient.Consumer(cluster.bootstrap, T, group=GROUP, **{**QUIET, **settings})
    await consumer.start()
    assert len(await consumer.poll(1, timeout=10.0)) == 1
    assert await take(consumer, again) == 0
    await consumer.close()
    return await committed(cluster)


async def committed(cluster: Cluster) -> int:
    async with kclient.Consumer(cluster.bootstrap, group=GROUP) as other:
        found = (await other.committed([P]))[P]
        return 0 if found is None else int(found.offset)


async def one_good_one_bad(cluster: Cluster) -> None:
    cluster.create_topic(T, partitions=1)
    async with kclient.Producer(cluster.bootstrap) as producer:
        await producer.send(T, b"1")
        await producer.send(T, b"bad")


@pytest.mark.parametrize("again", [0.0, 0.5])
def test_skipped_records_are_committed_by_a_close_after_an_empty_poll(again: float) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            await one_good_one_bad(cluster)
            settings: dict[str, Any] = {"value_deserializer": number, "bad_records": "skip"}
            assert await committed_after(cluster, by_poll, again, **settings) == 2

    run_virtually(main())


def test_a_dead_letter_is_not_sent_again_after_a_restart() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic("dead", partitions=1)
            await one_good_one_bad(cluster)
            async with kclient.Producer(cluster.bootstrap) as producer:
                settings: dict[str, Any] = {
                    "value_deserializer": number,
                    "bad_records": kclient.DeadLetters("dead", producer),
                }
                assert await committed_after(cluster, by_poll, 0.5, **settings) == 2
                async with kclient.Consumer(
                    cluster.bootstrap, T, group=GROUP, **QUIET, **settings
                ) as again:
                    assert not await again.poll(timeout=1.0)
            assert cluster.end_offset("dead") == 1

    run_virtually(main())


@pytest.mark.parametrize("again", [0.0, 0.5])
@pytest.mark.parametrize("take", [by_poll, by_poll_arrow, by_poll_arrow_to_the_end])
def test_a_transactions_marker_is_committed_by_a_close_after_an_empty_poll(
    take: Callable[[Any, float], Awaitable[int]], again: float
) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic(T, partitions=1)
            async with kclient.Producer(cluster.bootstrap, transactional_id="t") as producer:
                async with producer.transaction():
                    await producer.send(T, b"1")
            settings = {"isolation_level": "read_committed"}
            assert await committed_after(cluster, take, again, **settings) == 2

    run_virtually(main())


def test_an_empty_poll_finishes_no_records_that_another_task_got_meanwhile() -> None:
    async def main() -> None:
        async with Cluster() as cluster, kclient.Producer(cluster.bootstrap) as producer:
            cluster.create_topic(T, partitions=1)
            consumer: Any = kclient.Consumer(cluster.bootstrap, T, group=GROUP, **QUIET)
            await consumer.start()
            polls = [asyncio.create_task(consumer.poll(timeout=20.0)) for _ in range(2)]
            await asyncio.sleep(5.0)
            await producer.send(T, b"1")
            assert sorted(map(len, await asyncio.gather(*polls))) == [0, 1]
            await consumer.close()
            assert await committed(cluster) == 0

    run_virtually(main())


@pytest.mark.parametrize("take", [by_poll, by_poll_arrow])
def test_a_close_at_the_deadline_of_a_poll_ends_it(
    take: Callable[[Any, float], Awaitable[int]],
) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            cluster.create_topic(T, partitions=1)
            consumer: Any = kclient.Consumer(cluster.bootstrap, **QUIET)
            await consumer.start()
            consumer.assign([P])
            polling = asyncio.create_task(take(consumer, 0.2))
            await asyncio.sleep(0.1)
            closing = asyncio.create_task(consumer.close())
            while not consumer._engine.core.closed:  # noqa: ASYNC110 - it has no event for it
                await asyncio.sleep(0)
            the_loop()._now += 0.2  # as under time.sleep
            with pytest.raises(ClientClosed):
                await polling
            await closing

    run_virtually(main())
