"""Callbacks of rebalances that don't end are reported, and ``close`` doesn't wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import ConsumerStalled
from kclient.testing import Cluster, run_virtually
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import COOPERATIVE, GROUP, SETTINGS, Reader
from tests.virtual.hanging import Hanging, about

LIMIT = 30.0
NAMES = ["on_assigned", "on_revoked", "on_lost"]


def consumer_of(cluster: Cluster, **settings: Any) -> Any:
    given = {**SETTINGS, "max_poll_interval": LIMIT, **settings}
    return kclient.Consumer(cluster.bootstrap, T, group=GROUP, **given)


async def call(name: str, cluster: Cluster, consumer: Any, hanging: Hanging) -> None:
    """Have the callback ``name`` called."""
    if name != "on_assigned":
        while not await consumer.poll(timeout=1.0):
            pass
        if name == "on_lost":
            cluster.faults.error("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            consumer.rejoin()
    while hanging.began is None:
        await consumer.poll(timeout=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_a_callback_that_hangs_is_reported_by_the_log_by_poll_and_by_health(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            hanging = Hanging()
            async with consumer_of(cluster, **{name: hanging}) as consumer:
                await call(name, cluster, consumer, hanging)
                while hanging.age < LIMIT / 2 - 1:
                    assert await consumer.poll(timeout=0.3) == []
                    assert not about(caplog, name)
                    assert not consumer.health().callback.stalled
                while hanging.age < LIMIT - 1:
                    assert await consumer.poll(timeout=0.3) == []
                (line,) = about(caplog, name)
                assert f"{name} has not ended after 15.0 s on {T}-0, {T}-1" in line
                begun = the_loop().time()
                for _ in range(2):
                    with pytest.raises(
                        ConsumerStalled, match=f"{name} has not ended after"
                    ) as reported:
                        while True:
                            assert await consumer.poll(timeout=0.3) == []
                    assert reported.value.retriable
                    assert f"{T}-0, {T}-1" in str(reported.value)
                    health = consumer.health()
                    assert not health.ok
                    assert (health.callback.name, health.callback.stalled) == (name, True)
                    assert health.callback.seconds == pytest.approx(hanging.age)
                assert LIMIT < the_loop().time() - begun < LIMIT + 3
                hanging.go.set()
                await until(lambda: consumer.health().callback is None)
                cluster.faults.clear()
                await until_well(consumer)

    run_virtually(main())


async def until_well(consumer: Any) -> None:
    async with asyncio.timeout(60.0):
        while not consumer.health().ok or not consumer.assignment:
            await consumer.poll(timeout=0.3)


def test_a_poll_without_a_timeout_raises_it_too() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            hanging = Hanging()
            async with consumer_of(cluster, on_assigned=hanging) as consumer:
                with pytest.raises(ConsumerStalled, match="on_assigned"):
                    await consumer.poll(timeout=None)
                assert LIMIT <= hanging.age < LIMIT + 0.1
                with pytest.raises(ConsumerStalled, match="on_assigned"):
                    async for _ in consumer:
                        pass
                assert 2 * LIMIT <= hanging.age < 2 * LIMIT + 0.1
                hanging.go.set()
                assert len(await consumer.poll(timeout=None)) == 20

    run_virtually(main())


def test_an_iteration_with_records_of_others_at_hand_raises_at_the_next_step() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 100, 2)
            hanging, offsets = Hanging(), dict[int, list[int]]()
            settings = {"partition_assignment_strategy": COOPERATIVE, "on_revoked": hanging}
            async with consumer_of(cluster, **settings) as consumer:
                second: Reader | None = None
                with pytest.raises(ConsumerStalled, match=f"on_revoked.* on {T}-"):
                    async for record in consumer:
                        offsets.setdefault(record.partition, []).append(record.offset)
                        second = second or await Reader(cluster, **SETTINGS | settings).start()
                        await asyncio.sleep(1.0)
                assert LIMIT <= hanging.age < LIMIT + 1.1
                assert sum(map(len, offsets.values())) < 100
                hanging.go.set()
                assert second is not None
                await second.stop()
                for taken in offsets.values():
                    assert taken == list(range(len(taken)))

    run_virtually(main())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("timeout", [0.0, 1.0, 5.0])
def test_close_abandons_a_callback_that_ignores_its_cancellation(
    name: str, timeout: float, caplog: pytest.LogCaptureFixture
) -> None:
    complaints: list[Any] = []

    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            the_loop().set_exception_handler(lambda _, context: complaints.append(context))
            hanging = Hanging(stubborn=True)
            consumer = consumer_of(cluster, **{name: hanging})
            await consumer.start()
            await call(name, cluster, consumer, hanging)
            begun = the_loop().time()
            await consumer.close(timeout=timeout)
            assert the_loop().time() - begun <= timeout + 0.3
            assert not hanging.ended
            (line,) = about(caplog, name)
            assert f"{name} doesn't end, though cancelled" in line
            assert f"{T}-0, {T}-1" in line
            hanging.go.set()
            await until(lambda: hanging.ended)

    run_virtually(main())
    assert complaints == []


def test_close_abandons_a_callback_of_close(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            hanging = Hanging(stubborn=True)
            consumer = consumer_of(cluster, on_revoked=hanging)
            await consumer.start()
            assert await consumer.poll(timeout=None)
            begun = the_loop().time()
            await consumer.close(timeout=5.0)
            assert 2.0 <= the_loop().time() - begun <= 5.0
            assert about(caplog, "on_revoked doesn't end")
            # The others needn't wait for the end of the session.
            assert cluster.requests.of("LeaveGroup")
            hanging.go.set()
            await until(lambda: hanging.ended)

    run_virtually(main())


def test_so_does_a_close_after_an_unsubscribe_that_waits_for_it() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            hanging = Hanging(stubborn=True)
            consumer = consumer_of(cluster, on_revoked=hanging)
            await consumer.start()
            assert await consumer.poll(timeout=None)
            leaving = asyncio.create_task(consumer.unsubscribe())
            await until(lambda: hanging.began is not None)
            begun = the_loop().time()
            await consumer.close(timeout=5.0)
            assert the_loop().time() - begun <= 5.3
            with pytest.raises(kclient.errors.ClientClosed):
                await leaving
            hanging.go.set()
            await until(lambda: hanging.ended)

    run_virtually(main())


def test_what_an_abandoned_callback_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            complaints: list[Any] = []
            the_loop().set_exception_handler(lambda _, context: complaints.append(context))
            hanging = Hanging(stubborn=True)

            async def failing(partitions: Any) -> None:
                await hanging(partitions)
                raise ZeroDivisionError

            consumer = consumer_of(cluster, on_assigned=failing)
            await consumer.start()
            await until(lambda: hanging.began is not None)
            await consumer.close(timeout=1.0)
            hanging.go.set()
            await until(lambda: hanging.ended)
            await asyncio.sleep(0.1)
            assert about(caplog, "ZeroDivisionError")
            assert complaints == []

    run_virtually(main())


def test_a_callback_has_a_moment_to_end_once_it_is_cancelled() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 1)
            diary: list[str] = []

            async def tidy(partitions: Any) -> None:
                diary.append("began")
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.05)
                    diary.append("ended")

            consumer = consumer_of(cluster, on_assigned=tidy)
            await consumer.start()
            await until(lambda: diary)
            await consumer.close(timeout=2.0)
            assert diary == ["began", "ended"]

    run_virtually(main())


@asynccontextmanager
async def all_read(**callbacks: Any) -> AsyncIterator[Any]:
    """A consumer that has read all that there is, and leaves and is closed in the end."""
    async with Cluster(brokers=1) as cluster:
        fill(cluster, 20, 1)
        async with consumer_of(cluster, **callbacks) as consumer:
            assert len(await consumer.poll(timeout=None)) == 20
            yield consumer


def test_callbacks_that_end_in_time_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def slow(partitions: Any) -> None:
        await asyncio.sleep(LIMIT / 2 - 1)

    async def quick(partitions: Any) -> None:
        await asyncio.sleep(1.0)

    async def main() -> None:
        async with all_read(on_assigned=slow, on_revoked=quick) as consumer:
            await consumer.poll(timeout=2 * LIMIT)
            assert consumer.health().ok
        assert not about(caplog, "on_")

    run_virtually(main())


def test_a_callback_that_a_close_cuts_off_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def slow(partitions: Any) -> None:
        await asyncio.sleep(LIMIT)

    async def main() -> None:
        async with all_read(on_revoked=slow) as consumer:
            await consumer.close(timeout=2.0)
            [line] = about(caplog, "on_revoked")
            assert "was cancelled after 1" in line
            assert f"on {T}-0" in line

    run_virtually(main())


def test_what_a_callback_raises_at_the_end_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def broken(partitions: Any) -> None:
        raise ValueError("the state is gone")

    async def main() -> None:
        async with all_read(on_revoked=broken):
            pass
        [record] = [one for one in caplog.records if "on_revoked" in one.getMessage()]
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == "the state is gone"

    run_virtually(main())
