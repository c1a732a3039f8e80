"""The log of what a cluster was asked: for tests that check requests rather than effects."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kclient.testing.api_names import ApiName, api_key_of

DEFAULT_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request that reached a broker.

    Attributes:
        at: Monotonic seconds.
        broker: Node id.
        api_key: Kafka's number of the API.
        api: Kafka's name of it.
        version: Of the API.
        correlation_id: As sent.
        client_id: As sent.
        connection: A number for the connection, counted over the cluster's life.
        size_bytes: Of the frame, without its size field.
        request: The decoded message; the record bytes of a Produce are taken out once served.
    """

    at: float
    broker: int
    api_key: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    connection: int
    size_bytes: int
    request: Any


class RequestLog:
    """The last requests of all brokers, oldest first.

    Args:
        limit: How many are kept.
    """

    __slots__ = ("_counts", "_entries", "_waiters")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._entries: deque[ServedRequest] = deque(maxlen=limit)
        self._counts: dict[int, int] = {}
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ServedRequest]:
        return iter(tuple(self._entries))

    def of(self, api: ApiName, *, broker: int | None = None) -> list[ServedRequest]:
        """Those of one API, and of one broker if given, that are still kept."""
        key = api_key_of(api)
        return [
            one
            for one in self._entries
            if one.api_key == key and (broker is None or one.broker == broker)
        ]

    def count(self, api: ApiName) -> int:
        """How many of one API were ever served, since the start or the last ``clear``."""
        return self._counts.get(api_key_of(api), 0)

    def clear(self) -> None:
        """Forget all entries and counts."""
        self._entries.clear()
        self._counts.clear()

    async def wait_count(self, api: ApiName, count: int) -> None:
        """Wait until ``count`` requests of an API were served, as ``count()`` has it.

        Put a timeout around it with ``asyncio.timeout``.

        Cancellation: safe; nothing is left behind.
        """
        key = api_key_of(api)
        if self._counts.get(key, 0) >= count:
            return
        waiter = (key, count, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await waiter[2]
        finally:
            self._waiters.remove(waiter)

    def add(self, entry: ServedRequest) -> None:
        """Take one request."""
        self._entries.append(entry)
        total = self._counts[entry.api_key] = self._counts.get(entry.api_key, 0) + 1
        for key, count, future in self._waiters:
            if key == entry.api_key and total >= count and not future.done():
                future.set_result(None)
