"""Transactional producers for scenarios: the requests they send, and their state.

`Producer` keeps id and epoch from the responses, and counts sequences: a scenario names only what
matters to it. `V1` and `V2` are the two versions of the transaction protocol, which clients choose
by the versions of their requests (KIP-890).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kclient.protocol.messages.end_txn import EndTxnRequest
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.protocol.messages.produce import ProduceRequest
from tests.conformance.run import Peer, Run, until
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.transaction_calls import (
    NO_IDENTITY,
    Identity,
    add_partitions,
    commit_offset,
)

TRANSACTION = 1
"""The key type of a transaction's coordinator."""
TIMEOUT_MS = 60_000
_STARTED_MS = int(time.time() * 1000)
"""The time of all records: Kafka begins a segment for a marker that is much later than they."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The newest versions of the APIs in one version of the transaction protocol."""

    name: str
    init: int
    produce: int
    commit_offsets: int
    end: int
    adds: bool
    """The producer adds its partitions and groups to the transaction itself."""

    def __str__(self) -> str:
        return self.name


V1 = Protocol("protocol 1", 4, 11, 4, 4, True)
V2 = Protocol("protocol 2", 5, 12, 5, 5, False)
ADD_PARTITIONS, ADD_OFFSETS = 3, 4
"""The newest versions that clients speak."""


def init(
    transactional_id: str | None, *, timeout_ms: int = TIMEOUT_MS, known: Identity = NO_IDENTITY
) -> InitProducerIdRequest:
    """An InitProducerId request; `known` is the identity that the producer has (KIP-360)."""
    return InitProducerIdRequest(transactional_id, timeout_ms, *known)


class Producer:
    """One transactional producer.

    Attributes:
        name: The transactional id.
        protocol: The version of the protocol that it speaks.
        node: The coordinator.
        identity: Producer id and epoch.
    """

    def __init__(self, run: Run, name: str, protocol: Protocol, node: int = 1) -> None:
        self._run = run
        self.name = name
        self.protocol = protocol
        self.node = node
        self.identity: Identity = NO_IDENTITY
        self._sequences: dict[tuple[str, int], int] = {}

    @property
    def old(self) -> Identity:
        """The identity with the epoch before."""
        return self.identity[0], self.identity[1] - 1

    async def init(self, note: str = "", *, known: Identity = NO_IDENTITY) -> Any:
        """Begin, which fences the producer before; record the response."""
        asked = init(self.name, known=known)
        coordinator = self._run.at(self.node)
        return self.note(await coordinator.ask_patiently(asked, self.protocol.init, note))

    def note(self, found: Any) -> Any:
        """Keep the identity of a response."""
        if not found.error_code:
            self._adopt((found.producer_id, found.producer_epoch))
        return found

    def _adopt(self, identity: Identity) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity

    # Writes

    def batch(
        self, topic: str, count: int = 1, *, partition: int = 0, **more: Any
    ) -> ProduceRequest:
        """The next batch for a partition; `more` may name `identity`, `sequence`, `topic_id`,
        `transactional` or `name` (the transactional id)."""
        identity = more.get("identity", self.identity)
        sequence = more.get("sequence", self._sequences.get((topic, partition), 0))
        if identity == self.identity and "sequence" not in more:
            self._sequences[topic, partition] = sequence + count
        records = batch_bytes(
            count,
            timestamp=_STARTED_MS,
            producer=(*identity, sequence),
            transactional=more.get("transactional", True),
        )
        asked = produce(more.get("topic_id", topic), records, partition=partition)
        asked.transactional_id = more.get("name", self.name)
        return asked

    async def write(
        self, topic: str, count: int = 1, note: str = "", *, version: int = 0, **more: Any
    ) -> Any:
        """Produce a batch, and record the response."""
        asked = self.batch(topic, count, **more)
        return await self._run.ask(asked, version or self.protocol.produce, note)

    async def begin(
        self, topic: str, count: int = 1, *, partition: int = 0, leader: int = 1
    ) -> None:
        """Write the first batch of a transaction to a partition, unrecorded."""
        if self.protocol.adds:
            asked = add_partitions(self.name, self.identity, (topic, partition))
            await _succeed(self._run.at(self.node), asked, ADD_PARTITIONS)
        batch = self.batch(topic, count, partition=partition)
        found = await self._run.quietly(batch, self.protocol.produce, node=leader)
        code = found.responses[0].partition_responses[0].error_code
        assert not code, found

    async def begin_commit(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset in the transaction, unrecorded."""
        if self.protocol.adds:
            await _succeed(self._run.at(self.node), self.add_offsets(group), ADD_OFFSETS)
        asked = commit_offset(self.name, self.identity, group, offset, topic=topic)
        found = await self._run.quietly(asked, self.protocol.commit_offsets)
        assert not found.topics[0].partitions[0].error_code, found

    def add_offsets(
        self, group: str, *, name: str | None = None, identity: Identity | None = None
    ) -> AddOffsetsToTxnRequest:
        """The request that adds a group to the transaction."""
        who = self.identity if identity is None else identity
        return AddOffsetsToTxnRequest(self.name if name is None else name, *who, group)

    # The end

    def end_request(
        self, committed: bool, *, name: str | None = None, identity: Identity | None = None
    ) -> EndTxnRequest:
        """The request that ends the transaction."""
        who = self.identity if identity is None else identity
        return EndTxnRequest(self.name if name is None else name, *who, committed)

    async def end(
        self,
        committed: bool = True,
        note: str = "",
        *,
        identity: Identity | None = None,
    ) -> Any:
        """End the transaction, record the response, and wait until its markers are written."""
        asked = self.end_request(committed, identity=identity)
        found = await self._run.at(self.node).ask_patiently(asked, self.protocol.end, note)
        self._take(found)
        await self.settle()
        return found

    async def end_quietly(self, committed: bool = True) -> None:
        """End the transaction and wait for its markers, unrecorded."""
        coordinator = self._run.at(self.node)
        found = await _succeed(coordinator, self.end_request(committed), self.protocol.end)
        self._take(found)
        await self.settle()

    def _take(self, found: Any) -> None:
        if not found.error_code and not self.protocol.adds:
            self._adopt((found.producer_id, found.producer_epoch))

    async def settle(self) -> None:
        """Wait until no marker is missing."""

        async def is_settled() -> bool:
            asked = DescribeTransactionsRequest([self.name])
            found = await self._run.quietly(asked, 0, node=self.node)
            return not found.transaction_states[0].transaction_state.startswith("Prepare")

        await until(is_settled)


async def _succeed(peer: Peer, request: Any, version: int) -> Any:
    """Send a request until it succeeds, unrecorded."""
    found: Any = None

    async def done() -> bool:
        nonlocal found
        found = await peer.quietly(request, version)
        return not _code(found)

    await until(done)
    return found


def _code(found: Any) -> int:
    if hasattr(found, "error_code") and found.error_code:
        return int(found.error_code)
    for topic in getattr(found, "results_by_topic_v3_and_below", ()):
        for part in topic.results_by_partition:
            if part.partition_error_code:
                return int(part.partition_error_code)
    return ErrorCode.NONE


async def new_id(run: Run, stem: str = "producer") -> str:
    """A transactional id that was never used, once it has a coordinator."""
    name = run.name(stem)
    await _coordinator(run, name)
    return name


async def _coordinator(run: Run, name: str) -> int:
    """The node that coordinates a new transactional id.

    The first request for a coordinator creates the internal topic; it serves a moment later. The
    first producer id of a cluster is not used, as responses have 0 where there is none.
    """
    await _succeed(run.at(1), init(None), V2.init)
    wanted = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[name])
    node = -1

    async def found() -> bool:
        nonlocal node
        who = (await run.quietly(wanted, 4)).coordinators[0]
        if who.error_code:
            return False
        node = who.node_id
        asked = DescribeTransactionsRequest([name])
        state = (await run.quietly(asked, 0, node=node)).transaction_states[0]
        return bool(state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    await until(found)
    return node


async def new_producer(run: Run, protocol: Protocol = V2, stem: str = "producer") -> Producer:
    """A producer with a new transactional id and its first identity."""
    name = run.name(stem)
    producer = Producer(run, name, protocol, await _coordinator(run, name))
    producer.note(await _succeed(run.at(producer.node), init(name), protocol.init))
    return producer
