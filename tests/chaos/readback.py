"""What the nodes have in the end: all records of the topic, and where its partitions end.

``run`` asks when all is well again, past the proxy. The ends come from ListOffsets on a connection
of its own, so that a reader that stops early can't go unnoticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import kclient
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.chaos.records import Recipe
from tests.chaos.rows import Rows
from tests.support.raw_connection import ask_once

EARLIEST, LATEST = -2, -1
READ_TIMEOUT = 300.0
_VERSION = 5
_CONSUMER_ID = -1


class ReadbackFailed(RuntimeError):
    """The logs can't be read in the end; the message has the last positions."""


def offsets_of(
    addresses: Mapping[int, tuple[str, int]], topic: str, leaders: Mapping[int, int], which: int
) -> dict[int, int]:
    """Partition -> its first offset or its end, from its leader; blocks."""
    found: dict[int, int] = {}
    for partition, node in leaders.items():
        asked = ListOffsetsPartition(partition, -1, which)
        answer = ask_once(
            addresses[node],
            ListOffsetsRequest(_CONSUMER_ID, 0, [ListOffsetsTopic(topic, [asked])]),
            _VERSION,
            ListOffsetsResponse,
            10.0,
        )
        ((reported,),) = [one.partitions for one in answer.topics]
        if reported.error_code:
            raise ReadbackFailed(f"{topic}-{partition} on node {node}: error {reported.error_code}")
        found[partition] = reported.offset
    return found


async def read_all(
    bootstrap: str, topic: str, ends: Mapping[int, int], recipe: Recipe
) -> dict[int, Rows]:
    """Partition -> all its records, read with one consumer."""
    logs = {partition: Rows(recipe) for partition in ends}
    consumer: kclient.Consumer[Any, Any] = kclient.Consumer(
        bootstrap, topic, auto_offset_reset="earliest", client_id="readback"
    )
    async with consumer:
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                while _behind(consumer, ends):
                    for record in await consumer.poll(5000, timeout=1.0):
                        logs[record.partition].add(record)
        except TimeoutError:
            said = {where.partition: at for where, at in consumer.positions().items()}
            raise ReadbackFailed(f"read up to {said}, but the logs end at {dict(ends)}") from None
    return logs


def _behind(consumer: kclient.Consumer[Any, Any], ends: Mapping[int, int]) -> bool:
    return any(
        (at is None or at < ends[where.partition]) for where, at in consumer.positions().items()
    )
