"""Brokers of the embedded cluster that leave or come up while calls are cancelled or overlap."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from kclient.errors import ClientClosed, InvalidArgument
from kclient.testing import Cluster
from kclient.testing.broker import Broker
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with asyncio.timeout(60), Cluster(brokers=3) as one:
        yield one


async def cut_short(coroutine: Coroutine[Any, Any, object], turns: int) -> None:
    """Cancel ``coroutine`` after ``turns`` loop iterations."""
    task = asyncio.create_task(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("leave", [Cluster.crash, Cluster.stop])
async def test_a_broker_whose_end_was_cancelled_follows_no_leader(
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
        assert cluster.brokers[1].replica_manager.has_uncommitted
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


@pytest.mark.parametrize("turns", range(1, 13))
@pytest.mark.parametrize(
    "come_up",
    [
        lambda cluster: cluster.restart(1),
        lambda cluster: cluster.move(1),
        lambda cluster: cluster.swap_addresses(1, 2),
        lambda cluster: cluster.add_broker(),
        lambda cluster: cluster.start(),
    ],
)
async def test_nothing_listens_once_a_cluster_is_closed(
    come_up: Callable[[Cluster], Coroutine[Any, Any, object]], turns: int
) -> None:
    async with asyncio.timeout(60):
        cluster = Cluster(2)
        await cluster.start()
        await cluster.crash(2)
        task = asyncio.create_task(come_up(cluster))
        for _ in range(turns):
            await asyncio.sleep(0)
        await cluster.close()
        with contextlib.suppress(ClientClosed):
            await task
    for broker in cluster.brokers.values():
        assert not broker.running
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(broker.host, broker.port or 1)


@pytest.mark.parametrize("turns", range(6))
async def test_a_broker_that_is_crashed_while_it_comes_up_is_down(
    cluster: Cluster, turns: int
) -> None:
    await cluster.stop(1)
    task = asyncio.create_task(cluster.restart(1))
    for _ in range(turns):
        await asyncio.sleep(0)
    await cluster.crash(1)
    was_first = turns == 0
    await task
    assert cluster.brokers[1].running is was_first
    await cluster.restart(1)
    assert cluster.brokers[1].running


async def test_a_broker_may_be_brought_back_by_two_at_once(cluster: Cluster) -> None:
    before = cluster.bootstrap
    await asyncio.gather(cluster.restart(1), cluster.restart(1), cluster.restart(2))
    assert cluster.bootstrap == before
    assert all(one.running for one in cluster.brokers.values())


def test_a_cluster_that_was_closed_can_be_started_in_another_loop() -> None:
    cluster = Cluster(2)

    async def use() -> None:
        """Cancellation: safe."""
        async with asyncio.timeout(60), cluster:
            if not cluster.topics:
                cluster.create_topic("t")
            await asyncio.gather(*(cluster.restart(1) for _ in range(3)))
            leader = cluster.leader("t")
            async with RawPeer.to(cluster.brokers[leader].address) as peer:
                await peer.call(produce("t", batch_bytes()), 9)
                await cluster.restart(3 - leader)

    asyncio.run(use())
    asyncio.run(use())
    assert len(cluster.records("t")) == 2


async def test_a_broker_that_goes_for_good_takes_nothing_with_it(cluster: Cluster) -> None:
    cluster.create_topic("t", assignments=[[1, 2]])
    cluster.disconnect(1, 3)
    cluster.isolate(3)
    cluster.disconnect(1, 2)
    await cluster.remove_broker(3)
    assert sorted(cluster.brokers) == [1, 2]
    assert await cluster.add_broker() == 3
    assert cluster.controller_id == 1
    cluster.reconnect(1, 2)
    cluster.create_topic("u", assignments=[[3, 1]])
    cluster.append("u", 0, batch_bytes())
    await cluster.wait_in_sync()


async def test_a_broker_that_got_replicas_meanwhile_stays(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Broker.stop

    async def stop_while_a_topic_is_made(broker: Broker) -> None:
        """Cancellation: as ``Broker.stop``."""
        cluster.create_topic("t", assignments=[[1, 3]])
        await stop(broker)

    with monkeypatch.context() as patch:
        patch.setattr(Broker, "stop", stop_while_a_topic_is_made)
        with pytest.raises(InvalidArgument, match="broker 3 has replicas of t-0"):
            await cluster.remove_broker(3)
    assert not cluster.brokers[3].running
    await cluster.restart(3)
    assert cluster.isr("t") == (1, 3)


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("ahead", [False, True])
async def test_a_broker_can_be_removed_while_it_comes_up(
    cluster: Cluster, turns: int, ahead: bool
) -> None:
    broker = cluster.brokers[3]
    calls = [cluster.move(3), cluster.remove_broker(3)]
    first = asyncio.create_task(calls.pop(0 if ahead else 1))
    for _ in range(turns):
        await asyncio.sleep(0)
    second = asyncio.create_task(calls.pop())
    for task in (first, second):
        with contextlib.suppress(InvalidArgument):
            await task
    assert sorted(cluster.brokers) == [1, 2]
    assert not broker.running


async def test_two_remove_a_broker_at_once(cluster: Cluster) -> None:
    first, second = await asyncio.gather(
        cluster.remove_broker(3), cluster.remove_broker(3), return_exceptions=True
    )
    assert (first, sorted(cluster.brokers)) == (None, [1, 2])
    # Where sockets close at once, the first call has ended when the second one begins.
    assert second is None or isinstance(second, InvalidArgument)


async def test_the_last_broker_cannot_be_removed(cluster: Cluster) -> None:
    await cluster.remove_broker(3)
    await cluster.stop(2)
    with pytest.raises(InvalidArgument, match="broker 1 is the last one that is up"):
        await cluster.remove_broker(1)
    await cluster.remove_broker(2)
    with pytest.raises(InvalidArgument, match="broker 1 is the last one"):
        await cluster.remove_broker(1)
    assert cluster.brokers[1].running


def take_a_port() -> socket.socket:
    """Take a port whose predecessor is free."""
    for _ in range(100):
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken
    raise AssertionError("no two free ports in a row")


async def test_a_broker_whose_port_is_taken_is_not_added() -> None:
    async with asyncio.timeout(60):
        with take_a_port() as taken:
            async with Cluster(1, port=taken.getsockname()[1] - 1) as cluster:
                with pytest.raises(OSError, match="in use"):
                    await cluster.add_broker()
                assert sorted(cluster.brokers) == [1]
                taken.close()
                assert await cluster.add_broker() == 2


@pytest.mark.parametrize("turns", range(8))
async def test_nothing_stays_open_of_a_start_that_is_cancelled(turns: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = Cluster(1, port=port)
    await cut_short(cluster.start(), turns)
    if not cluster.brokers[1].running:
        await asyncio.sleep(0)
        socket.create_server(("127.0.0.1", port)).close()
    await cluster.close()


@pytest.mark.parametrize("turns", range(8))
async def test_a_cluster_that_is_started_while_it_ends_is_up(turns: int) -> None:
    async with asyncio.timeout(60), Cluster(3) as cluster:
        ending = asyncio.create_task(cluster.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting = asyncio.create_task(cluster.start())
        await asyncio.gather(ending, starting)
        assert all(one.running for one in cluster.brokers.values())


async def test_a_cluster_whose_start_failed_has_no_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = Cluster(1, port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await cluster.start()
        with pytest.raises(ClientClosed, match=r"no addresses .*start"):
            _ = cluster.bootstrap
    async with asyncio.timeout(60), cluster:
        assert cluster.bootstrap == f"127.0.0.1:{cluster.brokers[1].port}"


async def test_a_broker_that_never_listened_is_no_address(cluster: Cluster) -> None:
    before = cluster.bootstrap
    await cut_short(cluster.add_broker(), 1)
    assert (sorted(cluster.brokers), cluster.bootstrap) == ([1, 2, 3, 4], before)
    await cluster.restart(4)
    assert cluster.bootstrap == f"{before},{cluster.brokers[4].address}"


async def test_a_broker_is_added_while_others_start() -> None:
    async with asyncio.timeout(60):
        cluster = Cluster(2)
        starting = asyncio.create_task(cluster.start())
        await asyncio.sleep(0)
        assert await cluster.add_broker() == 3
        await starting
        assert all(one.running for one in cluster.brokers.values())
        await cluster.close()
