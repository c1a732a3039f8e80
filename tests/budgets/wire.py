"""Hot paths of a connection, without a loop: a request out, its response in; per request."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kclient.network.connection import Connection
from kclient.network.requests import PendingRequest
from kclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.budgets.canned import TOPIC_ID, CannedBroker
from tests.budgets.hot_path import HotPath, Step
from tests.budgets.records import BARE, filled
from tests.unit.network.connections import deliver, new_connection

DEADLINE = 30.0
_CORRELATION = struct.Struct(">i")


def connected(broker: CannedBroker) -> Connection:
    """A connection that is READY."""
    connection = new_connection()
    connection.opened(0.0, DEADLINE)
    answer = broker.answer(connection.take_output())
    if answer is None:
        raise RuntimeError("the can is empty")
    deliver(connection, bytes(answer))
    return connection


def asking(broker: CannedBroker, make: Callable[[], PendingRequest], count: int) -> Iterator[Step]:
    """So many requests, one after the other; all get the bytes that the first one got."""
    connection = connected(broker)
    connection.submit(make(), 1.0)
    answer = bytearray(broker.answer(connection.take_output()) or b"")
    deliver(connection, bytes(answer))
    connection.take_outcomes()

    def step() -> None:
        for correlation_id in range(2, count + 2):
            connection.submit(make(), 1.0)
            connection.take_output()
            _CORRELATION.pack_into(answer, 4, correlation_id)
            deliver(connection, bytes(answer))
            connection.take_outcomes()

    yield step


@contextmanager
def producing(count: int) -> Iterator[Step]:
    """A produce request with one batch of 10 records, and its acknowledgement."""
    (batch,) = filled(10, BARE)
    records = batch.encode()

    def make() -> PendingRequest:
        data = PartitionProduceData(0, records)
        message = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=[data])],
        )
        return PendingRequest(ProduceRequest, message, timeout=29.0, deadline=DEADLINE)

    yield from asking(CannedBroker(), make, count)


@contextmanager
def fetching(count: int) -> Iterator[Step]:
    """A fetch request, and a response of one batch of 10 records that is left as it is."""
    (batch,) = filled(10, BARE)

    def make() -> PendingRequest:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        message = FetchRequest(topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[asked])])
        return PendingRequest(FetchRequest, message, timeout=29.0, deadline=DEADLINE, raw=True)

    yield from asking(CannedBroker([(batch.encode(), 10)]), make, count)


PATHS = (
    HotPath("produce_request", "a produce request and its answer", producing, 40),
    HotPath("fetch_request", "a fetch request and its raw answer", fetching, 40),
)
