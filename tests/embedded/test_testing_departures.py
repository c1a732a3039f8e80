"""Brokers of the embedded cluster that leave or come up while somebody gives up on it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from kclient.testing import Cluster
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        yield one


async def cut_short(coroutine: Coroutine[Any, Any, None], turns: int) -> None:
    """Cancel it after so many turns of the loop."""
    task = asyncio.create_task(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("leave", [Cluster.crash, Cluster.stop])
async def test_a_broker_whose_end_was_cancelled_follows_nobody(
    cluster: Cluster, leave: Callable[[Cluster, int], Coroutine[Any, Any, None]], turns: int
) -> None:
    cluster.create_topic("t", assignments=[[1, 2]])
    cluster.append("t", 0, batch_bytes())
    await cluster.wait_in_sync()
    await cut_short(leave(cluster, 2), turns)
    assert not cluster.brokers[2].running
    fetched = cluster.requests.count("Fetch", replicas=True)
    for _ in range(5):
        cluster.append("t", 0, batch_bytes())
        await asyncio.sleep(0.01)
    assert cluster.requests.count("Fetch", replicas=True) == fetched
    assert cluster.log("t", 0, broker=2).end_offset == 1
    await cluster.restart(2)
    assert cluster.log("t", 0, broker=2).end_offset == 6


async def test_a_stop_that_is_cancelled_while_it_waits_for_followers_has_stopped(
    cluster: Cluster,
) -> None:
    cluster.create_topic("t", assignments=[[1, 2]])
    cluster.slow_follower(2, 30.0)
    async with RawPeer.to(cluster.brokers[1].address) as peer:
        await peer.call(produce("t", batch_bytes(), acks=1), 9)
        assert cluster.brokers[1].hosted.is_owing
        await cut_short(cluster.stop(1), 3)
    assert not cluster.brokers[1].running
    assert cluster.leader("t") == 2


async def test_a_broker_that_gets_no_address_comes_back_at_its_old_one(cluster: Cluster) -> None:
    before = cluster.bootstrap
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError, match="in use"):
            await cluster.move(1, port=taken.getsockname()[1])
        with pytest.raises(OSError, match=r"203\.0\.113\.1"):
            await cluster.move(2, host="203.0.113.1")
    assert not cluster.brokers[1].running
    assert cluster.bootstrap == before
    await cluster.restart(1)
    await cluster.restart(2)
    assert cluster.bootstrap == before
    assert cluster.brokers[1].running
    assert cluster.brokers[2].running


async def test_a_broker_comes_back_though_its_inner_port_was_taken(cluster: Cluster) -> None:
    inner = cluster.brokers[1].inner_address(1)
    await cluster.stop(1)
    with socket.create_server((inner.host, inner.port)):
        await cluster.restart(1)
        assert cluster.brokers[1].inner_address(1) != inner
