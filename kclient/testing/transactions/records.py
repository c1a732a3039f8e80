"""Records of ``__transaction_state``: one per change of a transactional id, in Kafka's schema.

The key is the id, the value what the log has of it; no value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kclient.errors import ProtocolError
from kclient.protocol.messages.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from kclient.record.builder import BatchBuilder
from kclient.record.message_set import read_batches
from kclient.testing.internal_topic import PREFIX_BYTES, keyed_records, prefix_of, prefixed
from kclient.testing.transactions.metadata import TransactionMetadata, TransactionState, by_topic

_KEY = 0
_MOST_BYTES = (1 << 31) - 1
_STATES = frozenset(TransactionState) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}
"""That a record may have; the other two are only ever pending."""


def encode_batch(
    changes: Iterable[tuple[str, TransactionMetadata | None]], wall_ms: int, value_version: int
) -> bytes:
    """A v2 batch of one record per id; None deletes it."""
    builder = BatchBuilder(_MOST_BYTES)
    for transactional_id, metadata in changes:
        key = prefixed(_KEY, TransactionLogKey(transactional_id), 0)
        value = None
        if metadata is not None:
            value = prefixed(value_version, _value(metadata, value_version), value_version)
        builder.append(wall_ms, key, value, None)
    return builder.encode()


def _value(metadata: TransactionMetadata, version: int) -> TransactionLogValue:
    partitions = [PartitionsSchema(*one) for one in by_topic(metadata.partitions).items()]
    empty = metadata.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None if empty else partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
    )
    if version > 0:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_version
    return value


def decode_batches(
    data: Iterable[bytes | bytearray],
) -> Iterator[tuple[str, TransactionMetadata | None]]:
    """The changes in batches, without records of unknown types and of no coordinator."""
    for one in data:
        for batch in read_batches(memoryview(one)):
            if batch.is_control:
                continue
            for key, value in keyed_records(batch):
                try:
                    found = _decode(key, value)
                except ProtocolError:
                    continue  # appended by a test
                if found is not None:
                    yield found


def _decode(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None] | None:
    if prefix_of(key) != _KEY:
        return None
    transactional_id = TransactionLogKey.decode(key, 0, PREFIX_BYTES).transactional_id
    if value is None:
        return transactional_id, None
    read = TransactionLogValue.decode(value, prefix_of(value), PREFIX_BYTES)
    if read.transaction_status not in _STATES:
        raise ProtocolError(f"a value of __transaction_state has state {read.transaction_status}")
    metadata = TransactionMetadata(
        transactional_id,
        read.producer_id,
        read.transaction_timeout_ms,
        read.transaction_last_update_timestamp_ms,
        read.previous_producer_id,
        read.next_producer_id,
        read.producer_epoch,
        state=TransactionState(read.transaction_status),
        partitions=frozenset(
            (one.topic, index)
            for one in read.transaction_partitions or ()
            for index in one.partition_ids
        ),
        started_ms=read.transaction_start_timestamp_ms,
        client_version=read.client_transaction_version,
    )
    return transactional_id, metadata
