"""Loop iterations that a consumer takes to process one large response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kclient.consumer import fetcher
from kclient.consumer.fetch_response import FetchResponseReader
from tests.unit.consumer.log_bytes import batch
from tests.virtual.consumer_scene import T, offsets, read, scene, until

PARTITIONS = 200


async def test_others_run_while_a_response_without_records_is_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    steps = 0
    take_in = FetchResponseReader.read

    def step() -> None:
        nonlocal steps
        steps += 1
        if len(taken) < PARTITIONS:
            asyncio.get_running_loop().call_soon(step)

    def noted(reader: FetchResponseReader, *reported: Any) -> None:
        if not taken:
            step()
        taken.append(steps)
        take_in(reader, *reported)

    monkeypatch.setattr(FetchResponseReader, "read", noted)
    # Time stands still in a step of a virtual loop: each look at the clock finds it to be late.
    monkeypatch.setattr(fetcher, "TURN", -1.0)
    async with scene(0, PARTITIONS, brokers=1) as (cluster, consumer):
        await until(lambda: len(taken) >= PARTITIONS)
        first = taken[:PARTITIONS]  # the full response: a part for each partition, all empty
        assert max(map(first.count, set(first))) <= fetcher.PARTS_PER_LOOK
        cluster.append(T, 7, batch(0, 3))
        assert offsets(await read(consumer, 3)) == {7: [0, 1, 2]}
