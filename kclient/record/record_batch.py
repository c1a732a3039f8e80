"""``Batch``: one batch of a fetch response, whose records are taken in portions.

``message_set`` creates one for each batch; the consumer checks its CRC and inflates it if needed.
Nothing is copied before that: a ``Batch`` is a view of the given bytes. ``message_set`` has a
subclass with the same interface for message sets. It must not do I/O or know about positions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kclient.errors import CodecUnavailable, CorruptRecord, DecompressionFailed
from kclient.record.compression import CHUNK, DEFAULT_CAP, Compression, decompress, predicted_cost
from kclient.record.implementation import codec
from kclient.record.layout import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEAD,
    LOG_APPEND_BIT,
    PREFIX,
    REST,
    TRANSACTIONAL_BIT,
    crc32c,
)
from kclient.record.record import SMALLEST_RECORD_BYTES
from kclient.types import TimestampType

if TYPE_CHECKING:
    from kclient.record.columns import ColumnStore
    from kclient.record.record import Record
    from kclient.types import TopicPartition

_CODECS = tuple(Compression)
"""Codecs by number: calling the enum costs ten times as much."""
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
MOST_MARKERS = 100
"""Most markers of one control batch that are read."""
_CONTROL_KEY = struct.Struct(">hh")
_INLINE_SECONDS = 0.001
"""A thread switch costs 31 to 48 us: worth it if the loop would be blocked longer than this."""


def corrupt_batch(
    topic_partition: TopicPartition | None, base_offset: int, what: str
) -> CorruptRecord:
    """Return the error that names a batch's place and what is wrong with it."""
    return CorruptRecord(
        f"{_where(topic_partition)} the batch at offset {base_offset} {what}",
        offset=base_offset,
        topic_partition=topic_partition,
    )


def _where(topic_partition: TopicPartition | None) -> str:
    return f"in {topic_partition}" if topic_partition else "in the given bytes"


class Batch:
    """One v2 batch as received from the wire.

    Attributes:
        base_offset: Offset that the deltas count from.
        last_offset: Last offset of the batch; the record itself may be missing in compacted logs.
        partition_leader_epoch: Epoch of the leader that appended it, -1 if unknown.
        magic: 2 here; 0 and 1 in message sets.
        codec: Compression codec.
        timestamp_type: Whether the producer or the broker set the timestamps.
        is_transactional: Part of a transaction.
        is_control: Contains a transaction marker and no user data.
        producer_id: -1 without idempotence, as the next two.
        producer_epoch: Epoch of the producer id.
        base_sequence: Sequence of the first record under the producer id.
        record_count: Number of records in the header.
        base_timestamp: Int milliseconds.
        max_timestamp: Int milliseconds; that of all records if the broker set the timestamps.
        size_bytes: Size on the wire, header included.
        crc: The CRC in the header.
    """

    __slots__ = (
        "_last_delta",
        "_left",
        "_payload",
        "_pos",
        "_topic_partition",
        "_view",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "codec",
        "crc",
        "is_control",
        "is_transactional",
        "last_offset",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
        "timestamp_type",
    )

    def __init__(self, view: memoryview, topic_partition: TopicPartition | None = None) -> None:
        self._view = view
        self._topic_partition = topic_partition
        self.size_bytes = len(view)
        if self.size_bytes < BATCH_HEADER_BYTES:
            self.base_offset = PREFIX.unpack_from(view, 0)[0]
            raise self.corrupt(f"has only {self.size_bytes} bytes")
        self.base_offset, _, self.partition_leader_epoch, self.magic, self.crc = HEAD.unpack_from(
            view, 0
        )
        (
            attributes,
            self._last_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = REST.unpack_from(view, CRC_START)
        codec_id = attributes & CODEC_MASK
        if codec_id >= len(_CODECS):
            raise self.corrupt(f"has the unknown codec {codec_id}")
        self.codec = _CODECS[codec_id]
        self.timestamp_type = (
            TimestampType.LOG_APPEND_TIME
            if attributes & LOG_APPEND_BIT
            else TimestampType.CREATE_TIME
        )
        self.is_transactional = bool(attributes & TRANSACTIONAL_BIT)
        self.is_control = bool(attributes & CONTROL_BIT)
        if self.base_offset < 0 or self._last_delta < 0 or self.record_count < 0:
            raise self.corrupt(
                f"has {self.record_count} records and a last offset delta of {self._last_delta}"
            )
        if self.base_offset >= _INT64_MAX - self._last_delta:
            raise self.corrupt("ends past the last offset that there can be")
        self.last_offset: int = self.base_offset + self._last_delta
        self._left: int = self.record_count
        self._pos = 0
        self._payload: bytes | memoryview | None = None

    @property
    def next_offset(self) -> int:
        """The offset after this batch, to continue from."""
        return self.last_offset + 1

    @property
    def held_bytes(self) -> int:
        """Size of the inflated payload, until the last record is taken.

        The pure build's copy of an uncompressed payload is not counted, so that both builds serve
        partitions in the same order.
        """
        return len(self._payload) if self._payload and self.codec != Compression.NONE else 0

    @property
    def exhausted(self) -> bool:
        """True if ``records`` has no more records to return."""
        return self._left == 0

    def corrupt(self, what: str) -> CorruptRecord:
        """Return the error that names this batch's place and what is wrong with it."""
        return corrupt_batch(self._topic_partition, self.base_offset, what)

    def _located(self, error: CorruptRecord) -> CorruptRecord:
        return type(error)(
            f"{_where(self._topic_partition)} the batch at offset {self.base_offset}: "
            f"{error.message}",
            offset=self.base_offset,
            topic_partition=self._topic_partition,
            hint=error.hint,
        )

    def check_crc(self) -> None:
        """Verify the CRC.

        Raises:
            CorruptRecord: It differs from the one in the header.
        """
        computed = crc32c(self._view[CRC_START:])
        if computed != self.crc:
            raise self.corrupt(f"has CRC {computed:08x} where {self.crc:08x} is announced")

    def needs_thread(self, cap: int = DEFAULT_CAP) -> bool:
        """Return whether ``inflate`` would block the loop for long; else inflate at once.

        True also if it can't be inflated, or not within ``cap``: ``inflate`` then raises the error.

        The inflated size is not known before, and a declared size may be wrong; so a small payload
        is tried with a small cap, and goes to a thread if it turns out to be larger.
        """
        if self._payload is not None or self.codec == Compression.NONE:
            return False
        size = self.size_bytes - BATCH_HEADER_BYTES
        if predicted_cost(self.codec, None, size, False) > _INLINE_SECONDS:
            return True
        try:
            self.inflate(min(CHUNK, cap))
        except (DecompressionFailed, CodecUnavailable):
            return True
        return False

    def inflate(self, cap: int = DEFAULT_CAP) -> None:
        """Decompress the payload, unless that is already done. May run in a thread.

        Args:
            cap: Bytes that it may inflate to.

        Raises:
            DecompressionFailed: It can't be inflated, or not within the cap.
            CodecUnavailable: The codec's package is not installed, or can't be loaded.
            CorruptRecord: The inflated payload is too small for the declared record count.
        """
        if self._payload is not None:
            return
        if self.record_count == 0 and self.size_bytes == BATCH_HEADER_BYTES:
            # An empty batch left by compaction; its codec bits may still be set.
            self._payload = b""
            return
        payload: bytes | memoryview
        try:
            if self.codec == Compression.NONE:
                payload = self._view[BATCH_HEADER_BYTES:]
                if codec.name != "cython":
                    payload = bytes(payload)  # in Python, slices of a view would be views
            else:
                payload = decompress(self.codec, self._view[BATCH_HEADER_BYTES:], cap)
        except DecompressionFailed as error:
            raise self._located(error) from error
        if self.record_count > len(payload) // SMALLEST_RECORD_BYTES:
            raise self.corrupt(f"announces {self.record_count} records in {len(payload)} bytes")
        if self.record_count == 0 and payload:
            raise self.corrupt(f"announces no records in {len(payload)} bytes")
        self._payload = payload

    def records(
        self, topic: str, partition: int, *, start_offset: int = 0, limit: int | None = None
    ) -> list[Record]:
        """Return the next records of the batch; successive calls continue after the last one.

        Args:
            topic: Topic name, for the records.
            partition: Partition index, likewise.
            start_offset: Records before it are skipped.
            limit: How many to return at most; None for all that are left.

        Returns:
            The records; empty when there are no more.

        Raises:
            CorruptRecord: The payload is malformed.
            DecompressionFailed: The payload had to be inflated and could not be.
        """
        if self._payload is None:
            self.inflate()
        epoch = self.partition_leader_epoch
        origin = codec.Origin(topic, partition, self.timestamp_type, epoch if epoch >= 0 else None)
        try:
            records, self._pos, self._left = codec.decode_records(
                self._payload or b"",
                self._pos,
                self._left,
                self.base_offset,
                self._last_delta,
                self.base_timestamp,
                self._append_timestamp(),
                origin,
                start_offset,
                self._left if limit is None else limit,
            )
        except CorruptRecord as error:
            raise self._located(error) from error
        self._drop_when_done()
        return records

    def fill(
        self,
        store: ColumnStore,
        *,
        start_offset: int = 0,
        limit: int | None = None,
        stop_offset: int | None = None,
    ) -> None:
        """Like ``records``, but put the next records into columns.

        Args:
            store: Receives the records, or none if they might exceed its offsets.
            start_offset: Records before it are skipped.
            limit: How many at most; None for all that are left.
            stop_offset: It stops in front of the first record there or behind.

        Raises:
            CorruptRecord: The payload is malformed; the store is unchanged.
            DecompressionFailed: The payload had to be inflated and could not be.
        """
        if self._payload is None:
            self.inflate()
        try:
            self._pos, self._left = store.fill(
                self._payload or b"",
                self._pos,
                self._left,
                self.base_offset,
                self._last_delta,
                self.base_timestamp,
                self._append_timestamp(),
                start_offset,
                self._left if limit is None else limit,
                _INT64_MAX if stop_offset is None else stop_offset,
            )
        except CorruptRecord as error:
            raise self._located(error) from error
        self._drop_when_done()

    def _append_timestamp(self) -> int | None:
        """Return the timestamp of all records if the broker set it: the greatest; else None."""
        appended = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        return self.max_timestamp if appended else None

    def _drop_when_done(self) -> None:
        if self._left == 0:
            self._payload = b""
            self._pos = 0

    def control_types(self, limit: int = MOST_MARKERS) -> list[int]:
        """Return the types of all markers in a control batch: 0 abort, 1 commit, others of KRaft.

        Empty for other batches. Kafka writes one marker per batch, other servers may write several.

        Raises:
            CorruptRecord: A marker is malformed.
        """
        if not self.is_control or self.record_count == 0:
            return []
        kinds = []
        for marker in Batch(self._view, self._topic_partition).records("", 0, limit=limit):
            key = marker.key
            if key is None or len(key) < _CONTROL_KEY.size:
                raise self.corrupt("is a control batch without a type")
            kinds.append(int(_CONTROL_KEY.unpack_from(key)[1]))
        return kinds
