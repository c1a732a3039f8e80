"""A consumer that is closed from the wrong place: refused at once, and unharmed."""

from __future__ import annotations

import asyncio

import pytest

import kclient
from kclient.errors import WrongContext
from kclient.testing import Cluster


async def test_closing_from_another_thread_is_refused_and_harms_nothing() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        async with kclient.Producer(cluster.bootstrap) as producer:
            await producer.send("t", b"x")
        consumer = kclient.Consumer(cluster.bootstrap, "t", auto_offset_reset="earliest")
        await consumer.start()
        with pytest.raises(WrongContext):
            await asyncio.to_thread(lambda: asyncio.run(consumer.close()))
        assert len(await consumer.poll(timeout=10.0)) == 1
        await consumer.close()
