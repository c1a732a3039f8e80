"""A producer that sends single transactional requests, for tests of the transaction coordinator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.protocol.message import Request
from kclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kclient.protocol.messages.end_txn import EndTxnRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.testing import Cluster
from kclient.testing.broker import Broker
from kclient.testing.events import TransactionChanged
from tests.unit.testing import transaction_calls as calls
from tests.unit.testing.batches import batch_bytes
from tests.unit.testing.calls import produce
from tests.unit.testing.raw_peer import RawPeer

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INIT, ADD, ADD_OFFSETS = 5, 3, 4
PRODUCE = {1: 11, 2: 12}
END = {1: 4, 2: 5}
COMMIT_OFFSETS = {1: 4, 2: 5}
_NOT_NOW = (
    CONCURRENT,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Speaker:
    """A producer with the transactional id "x"; each request goes over a connection of its own.

    Attributes:
        identity: Producer id and epoch, as of the last response.
        sequences: The next one of each partition.
    """

    def __init__(self, cluster: Cluster, protocol: int = 2, name: str = "x") -> None:
        self.cluster = cluster
        self.protocol = protocol
        self.name = name
        self.identity = calls.NO_IDENTITY
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def coordinator(self) -> Broker:
        """The broker that coordinates its id."""
        return self.cluster.brokers[self.cluster.transaction_coordinator(self.name)]

    async def ask(self, request: Request, version: int, broker: int | None = None) -> Any:
        """Send one request, to the coordinator by default."""
        node_id = self.coordinator.node_id if broker is None else broker
        async with RawPeer.to(self.cluster.brokers[node_id].address) as peer:
            return await peer.call(request, version)

    async def init(self, timeout_ms: int = 60_000, *, goes_on: bool = False) -> ErrorCode:
        """InitProducerId, with its identity if it goes on."""
        known = self.identity if goes_on else calls.NO_IDENTITY
        request = InitProducerIdRequest(self.name, timeout_ms, *known)
        answer = await self.ask(request, INIT)
        if answer.error_code == NONE:
            self.identity = (answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    async def begin(self, timeout_ms: int = 60_000) -> Speaker:
        """InitProducerId, again until it succeeds."""
        some = next(iter(self.cluster.brokers.values()))
        some.transactions.find(self.name)
        while (code := await self.init(timeout_ms)) is not NONE:
            assert code in _NOT_NOW
            await asyncio.sleep(0.01)
        return self

    async def add(self, topic: str = "t", index: int = 0) -> ErrorCode:
        """AddPartitionsToTxn, of version 1."""
        request = calls.add_partitions(self.name, self.identity, (topic, index), version=ADD)
        answer = await self.ask(request, ADD)
        (row,) = answer.results_by_topic_v3_and_below
        (part,) = row.results_by_partition
        return ErrorCode(part.partition_error_code)

    async def write(self, topic: str = "t", index: int = 0) -> ErrorCode:
        """Produce one record, to the leader."""
        sequence = self.sequences.get((topic, index), 0)
        batch = batch_bytes(producer=(*self.identity, sequence), transactional=True)
        request = produce(topic, batch, partition=index)
        request.transactional_id = self.name
        leader = self.cluster.leader(topic, index)
        answer = await self.ask(request, PRODUCE[self.protocol], leader)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is NONE:
            self.sequences[topic, index] = sequence + 1
        return code

    async def send(self, topic: str = "t", index: int = 0) -> None:
        """Add the partition if that is necessary, and produce a record."""
        if self.protocol == 1:
            assert await self.add(topic, index) is NONE
        assert await self.write(topic, index) is NONE

    async def add_offsets(self, group: str = "g") -> ErrorCode:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(self.name, *self.identity, group)
        return ErrorCode((await self.ask(request, ADD_OFFSETS)).error_code)

    async def commit_offset(
        self, offset: int, group: str = "g", *, member: tuple[str, int] = ("", -1)
    ) -> ErrorCode:
        """TxnOffsetCommit of partition 0 of t."""
        request = calls.commit_offset(self.name, self.identity, group, offset, member=member)
        version = COMMIT_OFFSETS[self.protocol]
        answer = await self.ask(request, version, self.cluster.coordinator(group))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def end(self, committed: bool = True) -> ErrorCode:
        """EndTxn; in version 2 it gets its next identity."""
        request = EndTxnRequest(self.name, *self.identity, committed)
        answer = await self.ask(request, END[self.protocol])
        code = ErrorCode(answer.error_code)
        if code is NONE and self.protocol == 2:
            self.identity = (answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return code

    async def described(self) -> Any:
        """What DescribeTransactions returns for it."""
        answer = await self.ask(DescribeTransactionsRequest([self.name]), 0)
        return answer.transaction_states[0]

    async def becomes(self, state: str) -> None:
        """Wait for the event of that state."""
        await self.cluster.events.wait_for(
            TransactionChanged,
            lambda one: one.transactional_id == self.name and one.state == state,
        )

    def states(self) -> list[str]:
        """All states that the log of its coordinator got."""
        events = self.cluster.events.of(TransactionChanged)
        return [one.state for one in events if one.transactional_id == self.name]


def controls(cluster: Cluster, topic: str = "t", index: int = 0) -> int:
    """How many markers the log of a partition has."""
    return sum(one.is_control for one in cluster.log(topic, index).batches)


def is_stable(cluster: Cluster, topic: str = "t", index: int = 0) -> bool:
    """Whether no transaction is open in a partition."""
    log = cluster.log(topic, index)
    return log.last_stable_offset == log.high_watermark == log.end_offset


@contextlib.asynccontextmanager
async def transaction_scene(
    protocol: int = 2, brokers: int = 3, *, partitions: int = 2, **configs: object
) -> AsyncIterator[tuple[Cluster, Speaker]]:
    """A cluster with a topic t, and a producer that has an identity."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    async with asyncio.timeout(60), Cluster(brokers, broker_configs=given) as cluster:
        cluster.create_topic("t", partitions=partitions, replication_factor=min(brokers, 3))
        yield cluster, await Speaker(cluster, protocol).begin()
