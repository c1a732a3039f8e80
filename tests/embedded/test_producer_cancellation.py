"""Every await of the producer may be cancelled, at any point: nothing is lost or left behind."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.error_codes import ErrorCode
from kclient.errors import ClientClosed, FlushFailed, WrongContext
from kclient.testing import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1) as running:
        running.create_topic("t", partitions=2)
        yield running


def all_values(cluster: Cluster) -> list[bytes]:
    return [r.value for p in range(2) for r in cluster.records("t", p)]


class Stepper:
    """Runs a coroutine up to its n-th suspension and cancels it there."""

    def __init__(self) -> None:
        self.suspensions = 0

    async def run(self, coroutine: Coroutine[Any, Any, Any], cancel_at: int) -> str:
        """ "cancelled", or "finished" where it ended before."""
        self.suspensions = 0
        task = asyncio.current_task()
        assert task is not None
        outer = asyncio.create_task(self._drive(coroutine, cancel_at))
        try:
            await outer
        except asyncio.CancelledError:
            return "cancelled"
        return "finished"

    async def _drive(self, coroutine: Coroutine[Any, Any, Any], cancel_at: int) -> Any:
        return await _Counted(coroutine, self, cancel_at)


class _Counted:
    """Awaits a coroutine and asks for its own cancellation at one of its suspensions."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], stepper: Stepper, at: int) -> None:
        self._coroutine = coroutine
        self._stepper = stepper
        self._at = at

    def __await__(self) -> Any:
        inner = self._coroutine.__await__()
        value, error = None, None
        while True:
            try:
                waits_for = inner.throw(error) if error is not None else inner.send(value)
            except StopIteration as stopped:
                return stopped.value
            self._stepper.suspensions += 1
            if self._stepper.suspensions == self._at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            value = error = None
            try:
                value = yield waits_for
            except BaseException as thrown:
                error = thrown


CALLS: dict[str, Callable[[kclient.Producer[Any, Any]], Coroutine[Any, Any, Any]]] = {
    "enqueue": lambda p: _enqueue_some(p),
    "send_many": lambda p: p.send_many("t", [b"x" * 100] * 400),
    "send_many async": lambda p: p.send_many("t", _source()),
    "flush": lambda p: _flush(p),
    "send": lambda p: _send(p),
    "partitions_for": lambda p: p.partitions_for("t"),
}


async def _enqueue_some(producer: kclient.Producer[Any, Any]) -> None:
    for _ in range(200):
        await producer.enqueue("t", b"x" * 100)


async def _source() -> AsyncIterator[bytes]:
    for _ in range(50):
        await asyncio.sleep(0)
        yield b"x" * 100


async def _flush(producer: kclient.Producer[Any, Any]) -> None:
    for _ in range(5):
        producer.send("t", b"x")
    await producer.flush()


async def _send(producer: kclient.Producer[Any, Any]) -> None:
    await producer.send("t", b"x")


@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_at_every_suspension_the_producer_stays_usable(
    cluster: Cluster, name: str
) -> None:
    stepper = Stepper()
    settings = {"buffer_memory": 5000, "batch_size": 1000, "linger": 0.001}
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        at = 1
        while await stepper.run(CALLS[name](out), at) == "cancelled":
            assert (await out.send("t", b"still here")).offset >= 0
            at += 1 if at < 40 else 23
        await out.flush()
        assert out.health().buffered_bytes == 0 and out.health().parked_records == 0
        assert not out._accumulator.busy


@pytest.mark.parametrize("at", range(1, 12))
async def test_start_and_close_may_be_cancelled_at_any_point(cluster: Cluster, at: int) -> None:
    out = kclient.Producer(cluster.bootstrap)
    if await Stepper().run(out.start(), at) == "cancelled":
        with pytest.raises(ClientClosed):
            out.send("t", b"v")
        await out.close()
        return
    out.send("t", b"v")
    await Stepper().run(_quietly(out.close()), at)
    with pytest.raises(ClientClosed):
        out.send("t", b"v")
    await _quietly(out.close())  # waits for the end of the cancelled one


async def _quietly(closing: Awaitable[None]) -> None:
    try:
        await closing
    except FlushFailed:
        pass


async def test_cancelled_enqueues_are_not_written_and_those_that_returned_are(
    cluster: Cluster,
) -> None:
    rng = random.Random(5)
    settings = {"buffer_memory": 5000, "batch_size": 1000, "linger": 0.001}
    returned: set[bytes] = set()
    cancelled: set[bytes] = set()

    async def one(value: bytes) -> None:
        try:
            await asyncio.wait_for(
                out.enqueue("t", value + b"." * 95), rng.choice([0.0005, 0.002, 5])
            )
            returned.add(value)
        except TimeoutError:
            cancelled.add(value)

    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.partitions_for("t")
        await asyncio.gather(*(one(b"%05d" % i) for i in range(1500)))
        await out.flush()
    written = [value[:5] for value in all_values(cluster)]
    assert len(set(written)) == len(written)
    assert returned <= set(written)
    assert cancelled and not cancelled & set(written)


async def test_timeouts_around_deliveries_lose_nothing(cluster: Cluster) -> None:
    rng = random.Random(6)
    async with kclient.Producer(cluster.bootstrap, linger=0.001) as out:

        async def one(i: int) -> None:
            try:
                async with asyncio.timeout(rng.random() * 0.005):
                    await out.send("t", b"%05d" % i)
            except TimeoutError:
                pass

        await asyncio.gather(*(one(i) for i in range(3000)))
        await out.flush()
    assert sorted(all_values(cluster)) == [b"%05d" % i for i in range(3000)]


async def test_what_failed_before_a_bulk_was_cancelled_is_told_by_the_next_flush(
    cluster: Cluster,
) -> None:
    going_on = asyncio.Event()

    async def records() -> AsyncIterator[bytes]:
        yield b"refused"
        await going_on.wait()

    async with kclient.Producer(cluster.bootstrap, linger=0.0) as producer:
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD)
        bulk = asyncio.create_task(producer.send_many("t", records()))
        while "producer.batches_failed" not in producer.metrics():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        bulk.cancel()
        await asyncio.wait([bulk])
        with pytest.raises(FlushFailed) as failed:
            await producer.flush()
        assert failed.value.count == 1
        await producer.flush()  # told once


async def test_what_a_bulk_raised_itself_is_not_told_again_by_the_next_flush(
    cluster: Cluster,
) -> None:
    async with kclient.Producer(cluster.bootstrap, max_block=0.1) as producer:
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send_many("nowhere", [b"v"])
        await producer.flush()


async def test_a_cancelled_block_closes_the_producer(cluster: Cluster) -> None:
    async def work() -> None:
        async with kclient.Producer(cluster.bootstrap, linger=4.0) as out:
            out.send("t", b"v")
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all_values(cluster) == [b"v"]


async def test_close_is_bounded_while_brokers_are_silent(cluster: Cluster) -> None:
    out = kclient.Producer(cluster.bootstrap)
    await out.start()
    await out.send("t", b"v")
    cluster.faults.hold("Produce", times=None)
    delivery = out.send("t", b"w")
    await asyncio.sleep(0.02)
    async with asyncio.timeout(2.5):
        with pytest.raises(FlushFailed):
            await out.close(timeout=0.2)
    error = delivery.exception()
    assert isinstance(error, ClientClosed) and error.maybe_written is True


async def test_close_lets_waiting_enqueues_go(cluster: Cluster) -> None:
    out = kclient.Producer(cluster.bootstrap, buffer_memory=2000, batch_size=1000, max_block=None)
    await out.start()
    await out.send("t", b"v")
    held = cluster.faults.hold("Produce", times=None)
    waiting = [asyncio.create_task(out.enqueue("t", b"x" * 300)) for _ in range(20)]
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(_quietly(out.close(timeout=5)))
    await asyncio.sleep(0)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, ClientClosed)]
    assert len(refused) > 10
    held.release()
    await closing
    assert len(all_values(cluster)) == 1 + 20 - len(refused)


async def test_concurrent_closes_end_together(cluster: Cluster) -> None:
    out = kclient.Producer(cluster.bootstrap, linger=4.0)
    await out.start()
    out.send("t", b"v")
    await asyncio.gather(*(out.close() for _ in range(5)))
    assert all_values(cluster) == [b"v"]


async def test_a_hundred_thousand_buffered_records_are_delivered_by_close(
    cluster: Cluster,
) -> None:
    out = kclient.Producer(cluster.bootstrap)
    await out.start()
    await out.partitions_for("t")
    for _ in range(100_000):
        out.enqueue_nowait("t", b"x" * 50)
    await out.close()
    assert sum(cluster.end_offset("t", p) for p in range(2)) == 100_000


async def test_another_thread_is_refused_with_words(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap) as out:
        caught: list[BaseException] = []

        def elsewhere() -> None:
            try:
                out.send("t", b"v")
            except BaseException as error:
                caught.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert isinstance(caught[0], WrongContext) and "thread" in str(caught[0])


async def test_another_loop_is_refused_with_words(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap) as out:

        def elsewhere() -> str:
            async def use() -> None:
                await out.flush()

            with pytest.raises(WrongContext) as caught:
                asyncio.run(use())
            return str(caught.value)

        assert "thread" in await asyncio.to_thread(elsewhere)
