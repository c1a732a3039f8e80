"""Common steps of the consumer's behaviours: write records, read a number of them, sort them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

READ_TIMEOUT = 20.0


async def write(out: Any, topic: str, values: Iterable[bytes | None], partitions: int = 1) -> None:
    """Write ``values``, the n-th of them to partition n modulo ``partitions``, and await them."""
    for number, value in enumerate(values):
        await out.enqueue(topic, value, partition=number % partitions)
    await out.flush()


async def read(consumer: Any, count: int) -> list[Any]:
    """Poll until ``count`` records came; fail on more or fewer."""
    records: list[Any] = []
    async with asyncio.timeout(READ_TIMEOUT):
        while len(records) < count:
            records += await consumer.poll(max_records=count - len(records), timeout=1.0)
    return records


def offsets(records: Sequence[Any]) -> dict[int, list[int]]:
    """The offsets by partition, in order of arrival."""
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record.offset)
    return found
