"""Partitions without a position or a policy: reported once each, and the others are read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import NoPosition
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import P, Q, T, fill, offsets, read, scene, the_loop
from tests.virtual.group_scene import GROUP, SETTINGS

R = TopicPartition(T, 2)


async def reported(consumer: Any, seconds: float) -> list[str]:
    """The errors about positions that poll raised in so many seconds."""
    texts = []
    end = the_loop().time() + seconds
    while the_loop().time() < end:
        try:
            await consumer.poll(timeout=1.0)
        except NoPosition as error:
            texts.append(error.message)
    return texts


def test_one_partition_without_a_position_is_reported_once_and_the_others_are_read() -> None:
    async def main() -> None:
        async with scene(20, 2, auto_offset_reset=None) as (_, consumer):
            consumer.seek(P, 0)
            with pytest.raises(NoPosition, match=f"{Q}.*seek"):
                await consumer.poll()
            assert offsets(await read(consumer, 20)) == {0: list(range(20))}
            health = consumer.health()
            assert not health.ok
            assert health.partitions[Q].phase == "NO_POSITION"

    run_virtually(main())


def test_an_async_for_goes_on_after_it() -> None:
    async def main() -> None:
        async with scene(20, 2, auto_offset_reset=None) as (_, consumer):
            consumer.seek(P, 0)
            records = aiter(consumer)
            with pytest.raises(NoPosition):
                await anext(records)
            assert [(await anext(records)).offset for _ in range(20)] == list(range(20))

    run_virtually(main())


def test_where_there_is_nothing_else_to_read_each_poll_raises() -> None:
    async def main() -> None:
        async with scene(20, 2, auto_offset_reset="none") as (_, consumer):
            for _ in range(3):
                with pytest.raises(NoPosition, match=f"{P}, {Q}"):
                    await consumer.poll(timeout=None)
            consumer.seek(P, 0)
            consumer.pause(P)
            for _ in range(3):
                with pytest.raises(NoPosition, match=str(Q)):
                    await consumer.poll(timeout=None)

    run_virtually(main())


def test_it_is_reported_again_after_long_and_when_the_user_did_something_about_it() -> None:
    async def main() -> None:
        async with scene(0, 2, auto_offset_reset=None, api_timeout=60.0) as (_, consumer):
            consumer.seek(P, 0)
            assert len(await reported(consumer, 50.0)) == 1
            assert len(await reported(consumer, 50.0)) == 1
            consumer.pause(Q)
            assert await reported(consumer, 10.0) == []
            consumer.resume(Q)
            assert len(await reported(consumer, 10.0)) == 1
            consumer.assign([P])
            assert await reported(consumer, 10.0) == []
            consumer.assign([P, Q])
            assert len(await reported(consumer, 10.0)) == 1
            consumer.seek(Q, 0)
            assert await reported(consumer, 100.0) == []

    run_virtually(main())


def test_one_more_is_reported_by_its_own_name_at_once() -> None:
    async def main() -> None:
        async with scene(0, 3, auto_offset_reset=None) as (_, consumer):
            consumer.assign([P, Q])
            consumer.seek(P, 0)
            (first,) = await reported(consumer, 5.0)
            assert str(Q) in first
            consumer.assign([P, Q, R])
            (second,) = await reported(consumer, 5.0)
            assert str(R) in second
            assert str(Q) not in second

    run_virtually(main())


def test_in_a_group_without_a_policy_a_partition_without_a_commit_is_reported_once() -> None:
    async def main() -> None:
        async with scene(20, 2) as (cluster, _):
            settings = {**SETTINGS, "auto_offset_reset": "none"}
            async with kclient.Consumer(cluster.bootstrap, group=GROUP, **settings) as consumer:
                consumer.assign([P])
                await consumer.commit({P: 5})
                consumer.assign([])
                consumer.subscribe(T)
                with pytest.raises(NoPosition, match=str(Q)):
                    await consumer.poll(timeout=30.0)
                records = await read(consumer, 15)
                assert offsets(records) == {0: list(range(5, 20))}

    run_virtually(main())


def test_a_position_that_is_lost_again_is_reported_again() -> None:
    async def main() -> None:
        settings = {"auto_offset_reset": None, "api_timeout": 1000.0, "metadata_max_age": 5.0}
        async with scene(20, 2, brokers=1, **settings) as (cluster, consumer):
            for _ in range(3):
                consumer.seek(P, 0)
                consumer.seek(Q, 0)
                await read(consumer, 40)
                await made_anew(cluster)
                await lost(consumer)
            # Both were named: recovery of one is no news about the other.
            consumer.seek(P, 0)
            assert await reported(consumer, 100.0) == []

    run_virtually(main())


@pytest.mark.parametrize("code", ["OFFSET_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_a_lookup_that_fails_holds_up_no_other_partition_of_its_broker(code: str) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            for name in (T, "u"):
                cluster.create_topic(name)
                cluster.append(name, 0, batch(0, 20))
            error = ErrorCode[code]
            failing = cluster.faults.error("ListOffsets", error, topic="u", times=None)
            async with kclient.Consumer(
                cluster.bootstrap, T, "u", auto_offset_reset="earliest"
            ) as consumer:
                began = the_loop().time()
                assert {record.topic for record in await consumer.poll(timeout=5.0)} == {T}
                assert the_loop().time() - began < 0.5
                failing.remove()
                assert {record.topic for record in await consumer.poll(timeout=10.0)} == {"u"}

    run_virtually(main())


async def made_anew(cluster: Cluster) -> None:
    cluster.delete_topic(T)
    await asyncio.sleep(1.0)
    fill(cluster, 20, 2)


async def lost(consumer: Any) -> None:
    """Poll until it raises that no partition has a position."""
    async with asyncio.timeout(60.0):
        while True:
            try:
                await consumer.poll(timeout=1.0)
            except NoPosition as error:
                if str(P) in error.message and str(Q) in error.message:
                    return
            except kclient.broker_errors.BrokerError:
                pass
