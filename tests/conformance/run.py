"""One run of a scenario: connections to the brokers, and the record of all responses.

`ask` sends a request and records its response; `begin` only sends, for requests that wait at the
broker; `ask_patiently` repeats a request that a coordinator can't serve yet. What only prepares
(`topic`, `delete_topic`, `quietly`) is not recorded.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Request
from kclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.places import Place
from tests.conformance.plain import code_name, plain
from tests.unit.testing.raw_peer import RawPeer

PATIENCE = 20.0
"""Seconds for any one response."""
CLIENT_ID = "conformance"
CLOSED = "the connection is closed"
_POLL = 0.01
_NOT_YET = [
    code_name(one)
    for one in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
]
"""Codes of a transaction's coordinator while markers are written, or producer ids fetched."""
_EARLIEST = -2


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    """Poll until ``done`` returns true."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if await done():
                return
            await asyncio.sleep(_POLL)


@dataclass(slots=True)
class Exchange:
    """A request and its response.

    Attributes:
        asked: API, version and the scenario's note.
        api: Kafka's name of the API.
        listing: Whether the request was for all that there is in the cluster.
        answer: The decoded response, or `CLOSED`, or the frame in hex.
    """

    asked: str
    api: str
    answer: dict[str, Any] | str
    listing: bool = False


@dataclass(slots=True)
class Transcript:
    """All responses, in the order in which the scenario awaited them."""

    token: str
    exchanges: list[Exchange] = field(default_factory=list)


class Peer:
    """One connection; it is opened again where the broker closed it."""

    def __init__(self, run: Run, node: int, client_id: str | None) -> None:
        self._run = run
        self._node = node
        self._client_id = client_id
        self._raw: RawPeer | None = None

    async def _open(self) -> RawPeer:
        if self._raw is None:
            raw = RawPeer(*self._run.place.address(self._node), self._client_id)
            self._raw = await self._run.connections.enter_async_context(raw)
        return self._raw

    async def begin(
        self, request: Request, version: int, note: str = "", *, listing: bool = False
    ) -> Pending:
        """Send a request; its response is recorded when the scenario awaits it.

        `listing` marks a request for all that there is in the cluster.
        """
        raw = await self._open()
        return Pending(self, raw, request, version, note, listing, raw.write(request, version))

    async def ask(
        self, request: Request, version: int, note: str = "", *, listing: bool = False
    ) -> Any:
        """Send a request, record its response and return it; None if there was none."""
        return await (await self.begin(request, version, note, listing=listing)).answer()

    async def quietly(self, request: Request, version: int) -> Any:
        """Send a request and return its response, without a record of it."""
        raw = await self._open()
        async with asyncio.timeout(PATIENCE):
            return await raw.call(request, version)

    async def ask_patiently(self, request: Request, version: int, note: str = "") -> Any:
        """Repeat a request while the coordinator is busy; record the last response."""
        found: Any = None
        answer: dict[str, Any] = {}

        async def is_ready() -> bool:
            nonlocal found, answer
            found = await self.quietly(request, version)
            answer = plain(found, version)
            return not any(code in str(answer) for code in _NOT_YET)

        await until(is_ready)
        self.record(_asked(request, version, note), request.NAME, answer)
        return found

    async def ask_raw(self, api: str, frame: bytes, note: str) -> None:
        """Send the bytes of a frame without its size, and record what comes, undecoded."""
        raw = await self._open()
        raw.write_bytes(struct.pack(">i", len(frame)) + frame)
        try:
            async with asyncio.timeout(PATIENCE):
                answer = (await raw.read_frame()).hex()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.lost()
            answer = CLOSED
        self.record(f"{api} {note}", api, answer)

    def record(
        self, asked: str, api: str, answer: dict[str, Any] | str, *, listing: bool = False
    ) -> None:
        """Note a response in the run's transcript."""
        self._run.transcript.exchanges.append(Exchange(asked, api, answer, listing))

    def lost(self) -> None:
        """Open another connection next time."""
        self._raw = None

    async def reconnect(self) -> None:
        """Close the connection, as a client that quits; the next request opens another one."""
        if self._raw is not None:
            await self._raw.__aexit__()
            self.lost()


def _asked(request: Request, version: int, note: str) -> str:
    return f"{request.NAME} v{version}" + (f", {note}" if note else "")


@dataclass(slots=True)
class Pending:
    """A request that was sent; responses are awaited in the order of the requests."""

    peer: Peer
    raw: RawPeer
    request: Request
    version: int
    note: str
    listing: bool
    correlation: int

    async def answer(self) -> Any:
        """Wait for the response and record it."""
        kind = type(self.request)
        asked = _asked(self.request, self.version, self.note)
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self.raw.read(kind, self.version, self.correlation)
        except TimeoutError:
            raise TimeoutError(f"{asked} wasn't answered in {PATIENCE:g} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            self.peer.lost()
            self.peer.record(asked, kind.NAME, CLOSED)
            return None
        answer = plain(found, self.version)
        self.peer.record(asked, kind.NAME, answer, listing=self.listing)
        return found


class Run:
    """The operations of a scenario.

    Args:
        place: Where it runs.
        token: Makes names unique; both sides of a comparison get the same one, as results depend
            on the order of names and on their hashes.
    """

    def __init__(self, place: Place, token: str) -> None:
        self.place = place
        self.transcript = Transcript(token)
        self.connections = AsyncExitStack()
        self._token = token
        self._peers: dict[int, Peer] = {}
        self.down: set[int] = set()
        self.silent: set[int] = set()
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Run:
        await self.connections.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connections.aclose()

    def name(self, stem: str) -> str:
        """A name of this run's own, for a topic or a group."""
        return f"{stem}-{self._token}"

    def next_number(self) -> int:
        """1, 2, and so on."""
        return next(self._numbers)

    def at(self, node: int) -> Peer:
        """The connection to a broker that `ask` uses."""
        if node not in self._peers:
            self._peers[node] = self.peer(node=node)
        return self._peers[node]

    def peer(self, client_id: str | None = CLIENT_ID, *, node: int = 1) -> Peer:
        """A further connection."""
        return Peer(self, node, client_id)

    async def ask(
        self,
        request: Request,
        version: int,
        note: str = "",
        *,
        node: int = 1,
        listing: bool = False,
    ) -> Any:
        """Send a request, record its response and return it; None if there was none."""
        return await self.at(node).ask(request, version, note, listing=listing)

    async def ask_patiently(
        self, request: Request, version: int, note: str = "", *, node: int = 1
    ) -> Any:
        """Repeat a request while a transaction's coordinator is busy; record the last response."""
        return await self.at(node).ask_patiently(request, version, note)

    async def ask_each(
        self, request: Request, *versions: int, note: str = "", listing: bool = False
    ) -> None:
        """Send the same request in several versions, and record the responses."""
        for version in versions:
            await self.ask(request, version, note, listing=listing)

    async def quietly(self, request: Request, version: int, *, node: int = 1) -> Any:
        """Send a request and return its response, without a record of it."""
        return await self.at(node).quietly(request, version)

    # Topics

    async def topic(
        self,
        stem: str = "flights",
        partitions: int = 1,
        *,
        replicas: list[list[int]] | None = None,
        **configs: object,
    ) -> str:
        """A new topic that is ready for use; a config's name has underscores for dots."""
        name = self.name(stem)
        spec = CreatableTopic(
            name,
            -1 if replicas else partitions,
            -1,
            [CreatableReplicaAssignment(at, list(who)) for at, who in enumerate(replicas or ())],
            [
                CreatableTopicConfig(key.replace("_", "."), str(value))
                for key, value in configs.items()
            ],
        )
        made = await self.quietly(CreateTopicsRequest([spec], 30_000), 7)
        if made.topics[0].error_code:
            raise RuntimeError(f"{self.place.kind} made no topic: {made.topics[0]}")
        for node in self.place.ids:
            await self.wait_led(name, partitions=len(replicas or ()) or partitions, node=node)
        return name

    async def published(self, times: int = 1) -> None:
        """Wait until broker 1 shows all that was altered before, and with 2 until it acts on it.

        Metadata come in order: who knows a later topic knows them, and with the next one it has
        finished with the first.
        """
        for _ in range(times):
            await self.topic(f"later-{self.next_number()}")

    async def topic_id(self, name: str) -> bytes:
        """The id of a topic."""
        return bytes((await self._look(name)).topic_id)

    async def wait_led(self, name: str, *, partitions: int = 1, node: int = 1) -> None:
        """Wait until a broker knows a topic with that many partitions that have a leader."""
        seen: Any = None

        async def known() -> bool:
            nonlocal seen
            seen = await self._look(name, node)
            led = sum(1 for one in seen.partitions if not one.error_code)
            return not seen.error_code and led >= partitions

        await until(known)
        for one in seen.partitions:
            await self._wait_ready(name, one.partition_index, one.leader_id)

    async def _wait_ready(self, name: str, partition: int, leader: int) -> None:
        """Wait until a leader serves its partition: the metadata may name it sooner."""
        wanted = ListOffsetsTopic(name, [ListOffsetsPartition(partition, -1, _EARLIEST)])

        async def ready() -> bool:
            found = await self.quietly(ListOffsetsRequest(-1, 0, [wanted]), 4, node=leader)
            return not found.topics[0].partitions[0].error_code

        await until(ready)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until that has taken effect."""
        await self.quietly(DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=30_000), 6)
        await self.wait_gone(name)

    async def wait_gone(self, name: str) -> None:
        """Wait until the broker doesn't know a topic any more."""

        async def gone() -> bool:
            seen = await self._look(name)
            return bool(seen.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        await until(gone)

    # Brokers

    @property
    def up(self) -> list[int]:
        """The brokers that weren't stopped."""
        return [node for node in self.place.ids if node not in self.down]

    async def stop(self, node: int) -> None:
        """Shut a broker down, and wait until all others know."""
        self.down.add(node)
        await self.place.stop(node)
        self._peers.pop(node, None)
        for other in self.up:
            await self._wait_brokers(other)

    async def crash(self, node: int) -> None:
        """Crash a broker; the others get no notice of it."""
        self.down.add(node)
        await self.place.crash(node)
        self._peers.pop(node, None)

    async def restart(self, node: int, *topics: str) -> None:
        """Restart a broker, and wait until all others see it, and see it in sync."""
        await self.place.restart(node)
        self.down.discard(node)
        for other in self.up:
            await self._wait_brokers(other)
            for topic in topics:
                await self.wait_in_sync(topic, node=other)

    async def pause(self, node: int) -> None:
        """Silence a broker towards the others, for less than its session timeout."""
        self.silent.add(node)
        await self.place.pause(node)
        self._peers.pop(node, None)

    async def resume(self, node: int) -> None:
        """End a pause."""
        await self.place.resume(node)
        self.silent.discard(node)

    async def _wait_brokers(self, node: int) -> None:
        async def knows() -> bool:
            seen = await self.quietly(MetadataRequest([]), 12, node=node)
            return sorted(one.node_id for one in seen.brokers) == self.up

        await until(knows)

    async def wait_in_sync(self, topic: str, *, node: int = 1) -> None:
        """Wait until a broker sees all replicas of a topic in sync."""

        async def in_sync() -> bool:
            seen = await self._look(topic, node)
            return all(len(one.isr_nodes) == len(one.replica_nodes) for one in seen.partitions)

        await until(in_sync)

    async def wait_leader(self, topic: str, leader: int, *, partition: int = 0) -> None:
        """Wait until all brokers that are up and not silent name the partition's leader."""
        for node in sorted({*self.up} - self.silent):

            async def says(node: int = node) -> bool:
                seen = await self._look(topic, node)
                return leader in [one.leader_id for one in seen.partitions[partition:][:1]]

            await until(says)
        if leader >= 0:
            await self._wait_ready(topic, partition, leader)

    async def _look(self, name: str, node: int = 1) -> Any:
        wanted = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return (await self.quietly(wanted, 12, node=node)).topics[0]
