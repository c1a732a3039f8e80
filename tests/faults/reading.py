"""Reading logs from end to end, past the proxy, when all is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import kclient
from kclient import OffsetSpec, TopicPartition

READ_TIMEOUT = 100.0
_AT_ONCE = 10_000


async def ends_of(bootstrap: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end."""
    async with kclient.Admin(bootstrap) as admin:
        found = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    return {place: end.offset for place, end in found.items() if end is not None}


async def all_records(
    bootstrap: str, topics: Iterable[str], partitions: int
) -> AsyncIterator[list[Any]]:
    """All records of all partitions, in portions; fails if that takes very long.

    A late request may still arrive while it reads: it is over when everything up to ends that
    were asked for afterwards was given.
    """
    places = [TopicPartition(name, number) for name in topics for number in range(partitions)]
    async with (
        kclient.Consumer(bootstrap, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(READ_TIMEOUT),
    ):
        consumer.assign(places)
        more = True
        while more:
            more = False
            ends = await ends_of(bootstrap, places)
            while any((consumer.positions().get(place) or 0) < ends[place] for place in places):
                more = True
                yield await consumer.poll(_AT_ONCE, timeout=1.0)
