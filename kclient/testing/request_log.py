"""The log of a cluster's requests and responses: for tests of requests rather than effects.

``dispatch`` adds each request once it is decoded, ``connection`` its response. Bytes of records are
not kept, nor are more than ``limit_bytes`` of the rest. Requests of followers are kept apart and
returned only with ``replicas=True``, as tests are about clients.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.protocol.api_versions import API_NAMES
from kclient.protocol.message import Response, Struct
from kclient.protocol.messages.fetch import FetchResponse
from kclient.testing.api_versions import ApiName, served_key_of
from kclient.testing.arguments import whole
from kclient.testing.fault_arguments import counted
from kclient.testing.request_info import CLIENT, named_entries, replica_of
from kclient.testing.timers import check_timeout, offer, waited

DEFAULT_LIMIT = 4096
DEFAULT_LIMIT_BYTES = 8 << 20
"""Encoded size of requests and responses, without records; decoded they take several times that."""

_PRODUCE = 0
_FORGOTTEN = -1
_SHOWN = 5
"""Number of entries that a failing test prints."""
_ERROR_CODES = ("error_code", "partition_error_code")
"""Names of fields with an error code."""
_CODES = frozenset(ErrorCode)
_NAMED = 3
"""Number of names, or errors, that a failing test prints."""


@dataclass(slots=True, eq=False, repr=False)
class ServedRequest:
    """One request that reached a broker, and its response; read-only.

    Attributes:
        at: Monotonic seconds.
        broker: Node id.
        api_key: Kafka's number of the API.
        api: Kafka's name of it.
        version: Of the API.
        correlation_id: As sent.
        client_id: As sent.
        connection: The number of the connection, counted over the cluster's life.
        size_bytes: Size of the frame, without its size field.
        request: The decoded message; the record bytes of a Produce are removed once served.
        response: The response, without the record bytes of a Fetch; bytes if a fault returned
            those; None while there is none, and for good if it was lost or the client expects none.
        answered_at: Monotonic seconds when the response was passed to the network, or to the fault
            that keeps or spoils it from there on; None without a response.
        replica_id: Node id of the follower that sent it, -1 for a client.
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
    response: Any = None
    answered_at: float | None = None
    replica_id: int = CLIENT
    _number: int = 0
    _kept_bytes: int = 0

    def __repr__(self) -> str:
        whose = repr(self.client_id) if self.replica_id == CLIENT else f"follower {self.replica_id}"
        asked = f"{self.api} v{self.version} of {whose} to broker {self.broker}"
        return f"<{', '.join((asked, *self._about(), self._outcome()))}>"

    def _about(self) -> list[str]:
        entries = named_entries(self.request, lambda name, _: name)
        names = [
            topic if partition is None else f"{topic}-{partition}"
            for topic, partition in entries
            if topic
        ]
        if len(names) > _NAMED:
            names[_NAMED - 1 :] = [f"{names[_NAMED - 1]} and {len(names) - _NAMED} more"]
        return names

    def _outcome(self) -> str:
        if self.response is None:
            return "no answer"
        if isinstance(self.response, bytes):
            return f"answered {len(self.response)} bytes"
        errors = [one.name if isinstance(one, ErrorCode) else str(one) for one in self.errors]
        return " ".join(errors[:_NAMED]) or "answered"

    @property
    def errors(self) -> list[int]:
        """The error codes anywhere in the response, each once, in order; empty if there is none.

        Each is an ``ErrorCode``, unless a fault made up an unknown one.
        """
        found: dict[int, None] = {}
        _collect_errors(self.response, found)
        return [ErrorCode(code) if code in _CODES else code for code in found]


def _collect_errors(value: object, found: dict[int, None]) -> None:
    if isinstance(value, list):
        for one in value:
            _collect_errors(one, found)
    elif isinstance(value, Struct):
        for name in value.__slots__:
            part = getattr(value, name)
            if name in _ERROR_CODES:
                if part:
                    found[part] = None
            elif isinstance(part, (list, Struct)):
                _collect_errors(part, found)


def _produced_bytes(request: Any) -> int:
    size_bytes = 0
    for topic in request.topic_data:
        for part in topic.partition_data:
            if part.records is not None:
                size_bytes += len(part.records)
    return size_bytes


def forget_produced(request: Any) -> None:
    """Remove the records of a Produce: they are views of the read buffer, which is reused."""
    for topic in request.topic_data:
        for part in topic.partition_data:
            part.records = None


def _copy_of(response: FetchResponse) -> FetchResponse:
    """A copy that is deep down to the partitions."""
    made = copy(response)
    made.responses = [copy(topic) for topic in response.responses]
    for topic in made.responses:
        topic.partitions = [copy(part) for part in topic.partitions]
    return made


def _forget_fetched(response: FetchResponse) -> int:
    """Remove the records, which the partition may have deleted since; return their size."""
    gone = 0
    for topic in response.responses:
        for part in topic.partitions:
            if part.records is not None:
                gone += len(part.records)
                part.records = None
    return gone


Condition: TypeAlias = Callable[[ServedRequest], bool]


def _of_api(api: ApiName) -> Condition:
    key = served_key_of(api)
    return lambda entry: entry.api_key == key


def _check_broker(broker: int | None) -> None:
    if broker is not None:
        whole("broker", broker, 1)


def _described(what: ApiName | Condition, broker: int | None, answered: bool) -> str:
    if callable(what) and not isinstance(what, type):
        kind = f"request for which {getattr(what, '__qualname__', repr(what))} holds"
    else:
        kind = API_NAMES[served_key_of(what)]
    to = "" if broker is None else f" to broker {broker}"
    return f"no {kind}{to}{' with its answer' if answered else ''}"


@dataclass(slots=True, eq=False)
class _Waiter:
    condition: Condition
    answered: bool
    future: asyncio.Future[ServedRequest] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def look(self, entry: ServedRequest) -> None:
        if self.future.done() or (self.answered and entry.answered_at is None):
            return
        offer(self.future, entry, self.condition)


class _Kept:
    """The last entries, of clients or of followers."""

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self.limit = limit
        self.limit_bytes = limit_bytes
        self.clear()

    def clear(self) -> None:
        self.entries: deque[ServedRequest] = deque()
        self.counts: Counter[int] = Counter()
        self.size_bytes = 0

    def add(self, entry: ServedRequest) -> None:
        self.entries.append(entry)
        self.counts[entry.api_key] += 1
        size_bytes = entry.size_bytes
        if entry.api_key == _PRODUCE:
            size_bytes -= _produced_bytes(entry.request)
        entry._kept_bytes = size_bytes
        self.size_bytes += size_bytes
        if len(self.entries) > self.limit or self.size_bytes > self.limit_bytes:
            self._forget()

    def resize(self, entry: ServedRequest, more: int) -> None:
        if entry._kept_bytes != _FORGOTTEN:
            entry._kept_bytes += more
            self.size_bytes += more
            if self.size_bytes > self.limit_bytes:
                self._forget()

    def _forget(self) -> None:
        """Remove the oldest entries over the limits; the newest stays whatever its size."""
        entries = self.entries
        while len(entries) > 1 and (
            len(entries) > self.limit or self.size_bytes > self.limit_bytes
        ):
            gone = entries.popleft()
            self.size_bytes -= gone._kept_bytes
            gone._kept_bytes = _FORGOTTEN


class RequestLog:
    """The last requests of all brokers, oldest first, with their responses.

    Iteration yields those of clients; the methods return those of followers, too, with
    ``replicas=True``.

    Args:
        limit: Number of requests that are kept, and as many of followers.
        limit_bytes: Bytes of requests and responses that are kept, as sent and without records.

    Example::

        async with kclient.Producer(cluster.bootstrap) as producer:
            cluster.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await producer.send("flights", b"UA 1545")
        first, second = cluster.requests.of("Produce")
        assert first.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert second.errors == []
    """

    def __init__(self, limit: int = DEFAULT_LIMIT, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._clients = _Kept(limit, limit_bytes)
        self._followers = _Kept(limit, limit_bytes)
        self._number = 0
        self._waiters: list[_Waiter] = []

    def __len__(self) -> int:
        return len(self._clients.entries)

    def __iter__(self) -> Iterator[ServedRequest]:
        return iter(tuple(self._clients.entries))

    def __repr__(self) -> str:
        others = len(self._followers.entries)
        of_others = f", and {others} of followers" if others else ""
        if not self:
            return f"<RequestLog: no requests{of_others}>"
        last = "".join(f"\n  {one!r}" for one in [*self][-_SHOWN:])
        count = counted(len(self), "request")
        return f"<RequestLog: {count}{of_others}; the last ones:{last}>"

    def all(self, *, replicas: bool = False) -> list[ServedRequest]:
        """All requests that are kept; those of followers only with ``replicas``."""
        entries = self._clients.entries
        if not replicas:
            return list(entries)
        both = (entries, self._followers.entries)
        return list(heapq.merge(*both, key=lambda one: one._number))

    def of(
        self, api: ApiName, *, broker: int | None = None, replicas: bool = False
    ) -> list[ServedRequest]:
        """The kept requests of one API, and to one broker if one is given, in order."""
        key = served_key_of(api)
        _check_broker(broker)
        return [
            one
            for one in self.all(replicas=replicas)
            if one.api_key == key and (broker is None or one.broker == broker)
        ]

    def count(self, api: ApiName, *, replicas: bool = False) -> int:
        """How many requests of one API were served since the start or the last ``clear``."""
        return self._count(served_key_of(api), replicas)

    def _count(self, key: int, replicas: bool) -> int:
        return self._clients.counts[key] + (self._followers.counts[key] if replicas else 0)

    def clear(self) -> None:
        """Forget all entries and counts."""
        for kept in (self._clients, self._followers):
            for entry in kept.entries:
                entry._kept_bytes = _FORGOTTEN
            kept.clear()

    async def wait_count(
        self, api: ApiName, count: int, *, replicas: bool = False, timeout: float | None = None
    ) -> None:
        """Wait until ``count`` requests of an API were served, as ``count()`` counts them.

        Args:
            api: The API of the requests.
            count: Number of requests.
            replicas: Those of followers count, too.
            timeout: Seconds; None for ever. With a ``ThreadedCluster`` 30 s, if not given.

        Raises:
            InvalidArgument: There is no such API, or it isn't served.
            RequestTimedOut: There were fewer; the text names the last requests.

        Cancellation: safe; nothing is left behind.
        """
        key = served_key_of(api)
        whole("count", count, 0)
        check_timeout(timeout)
        if self._count(key, replicas) >= count:
            return

        def found() -> str:
            return f"{self._count(key, replicas)} of {count} {API_NAMES[key]} requests"

        waiter = _Waiter(lambda _: self._count(key, replicas) >= count, False)
        await self._wait(waiter, timeout, replicas, found)

    async def wait_for(
        self,
        what: ApiName | Condition,
        *,
        broker: int | None = None,
        answered: bool = False,
        replicas: bool = False,
        timeout: float | None = None,
    ) -> ServedRequest:
        """Return the first request of a kind; wait for one if there is none yet.

        The kept requests are searched first: call ``clear()`` before, to wait for a new one.

        Args:
            what: An API, or a function that gets a ``ServedRequest`` and returns whether it
                matches.
            broker: Only requests to this broker.
            answered: Wait until it has its response.
            replicas: Those of followers count, too.
            timeout: Seconds; None for ever. With a ``ThreadedCluster`` 30 s, if not given.

        Raises:
            InvalidArgument: There is no such API, or it isn't served.
            RequestTimedOut: None came in time; the text names the last requests.
            Exception: Whatever ``what`` raises.

        Cancellation: safe; nothing is left behind.

        Example::

            joined = await cluster.requests.wait_for("JoinGroup", answered=True)
            big = await cluster.requests.wait_for(lambda one: one.size_bytes > 1 << 20)
        """
        _check_broker(broker)
        check_timeout(timeout)
        of_kind = what if callable(what) and not isinstance(what, type) else _of_api(what)

        def condition(entry: ServedRequest) -> bool:
            return (
                (broker is None or entry.broker == broker)
                and (replicas or entry.replica_id == CLIENT)
                and of_kind(entry)
            )

        for entry in self.all(replicas=replicas):
            if (entry.answered_at is not None or not answered) and condition(entry):
                return entry
        waiter = _Waiter(condition, answered)
        found = functools.partial(_described, what, broker, answered)
        return await self._wait(waiter, timeout, replicas, found)

    async def _wait(
        self, waiter: _Waiter, timeout: float | None, replicas: bool, found: Callable[[], str]
    ) -> ServedRequest:
        def text() -> str:
            last = "".join(f"\n  {one!r}" for one in self.all(replicas=replicas)[-_SHOWN:])
            return f"{found()} within {timeout:.3g} s; the last requests:{last or ' none'}"

        self._waiters.append(waiter)
        try:
            return await waited(waiter.future, timeout, text)
        finally:
            self._waiters.remove(waiter)

    # Called by brokers

    def add(self, entry: ServedRequest) -> None:
        """Add a new request."""
        self._number += 1
        entry._number = self._number
        entry.replica_id = replica_of(entry.api_key, entry.request)
        self._of(entry).add(entry)
        for waiter in self._waiters:
            waiter.look(entry)

    def answered(
        self,
        entry: ServedRequest,
        response: Response | bytes,
        now: float,
        size_bytes: int,
        ours: bool,
    ) -> None:
        """Add its response, of ``size_bytes`` encoded; not ``ours`` if a fault may refer to it."""
        entry.answered_at = now
        if isinstance(response, FetchResponse):
            if not ours:
                response = _copy_of(response)
            size_bytes -= _forget_fetched(response)
        entry.response = response
        self._of(entry).resize(entry, size_bytes)
        for waiter in self._waiters:
            waiter.look(entry)

    def over(self, entry: ServedRequest) -> None:
        """The broker has finished serving the request."""
        if entry.api_key == _PRODUCE:
            forget_produced(entry.request)

    def _of(self, entry: ServedRequest) -> _Kept:
        return self._clients if entry.replica_id == CLIENT else self._followers
