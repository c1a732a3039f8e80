"""Requests about transactions, by the fields that tests care about."""

from __future__ import annotations

from kclient.protocol.message import Request
from kclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kclient.protocol.messages.end_txn import EndTxnRequest
from kclient.protocol.messages.list_transactions import ListTransactionsRequest
from kclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NEWEST = {24: 5, 25: 4, 26: 5, 27: 2, 28: 5, 61: 0, 65: 0, 66: 2}
"""The newest version of each API, by API key."""
Identity = tuple[int, int]
NO_IDENTITY: Identity = (-1, -1)
_FIRST_OF_BROKERS = 4


def add_partitions(
    transactional_id: str,
    identity: Identity,
    *partitions: tuple[str, int],
    version: int = 3,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    """Add partitions to a transaction; from version 4 on as brokers do."""
    topics = [AddPartitionsToTxnTopic(topic, [index]) for topic, index in partitions]
    if version < _FIRST_OF_BROKERS:
        return AddPartitionsToTxnRequest([], transactional_id, *identity, topics)
    return AddPartitionsToTxnRequest(
        [AddPartitionsToTxnTransaction(transactional_id, *identity, verify_only, topics)]
    )


def commit_offset(
    transactional_id: str,
    identity: Identity,
    group: str,
    offset: int,
    *,
    topic: str = "t",
    member: tuple[str, int] = ("", -1),
) -> TxnOffsetCommitRequest:
    """Commit the offset of partition 0 with a transaction; ``member`` is (id, generation)."""
    part = TxnOffsetCommitRequestPartition(0, offset)
    member_id, generation = member
    return TxnOffsetCommitRequest(
        transactional_id,
        group,
        *identity,
        generation,
        member_id,
        None,
        [TxnOffsetCommitRequestTopic(topic, [part])],
    )


def markers(
    identity: Identity,
    *partitions: tuple[str, int],
    committed: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest:
    """End a producer's transaction in these partitions, as its coordinator does."""
    topics = [WritableTxnMarkerTopic(topic, [index]) for topic, index in partitions]
    marker = WritableTxnMarker(*identity, committed, topics, coordinator_epoch)
    marker.transaction_version = transaction_version
    return WriteTxnMarkersRequest([marker])


def sample(api_key: int, version: int) -> Request:
    """Return a valid request of one of the APIs in that version."""
    requests: dict[int, Request] = {
        24: add_partitions("x", (5, 0), ("t", 0), version=version),
        25: AddOffsetsToTxnRequest("x", 5, 0, "g"),
        26: EndTxnRequest("x", 5, 0, True),
        27: markers((5, 0), ("t", 0)),
        28: commit_offset("x", (5, 0), "g", 3),
        61: DescribeProducersRequest([TopicRequest("t", [0])]),
        65: DescribeTransactionsRequest(["x"]),
        66: ListTransactionsRequest(),
    }
    return requests[api_key]
