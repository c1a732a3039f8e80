"""A record batch as stored in a log: the producer's bytes, with the fields that a broker sets.

A broker sets the base offset, leader epoch and, on topics with LogAppendTime, the timestamps of a
batch; the rest stays as it came, compressed or not. Used by ``log.py`` and the handlers. No record
is decoded here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kclient.error_codes import ErrorCode
from kclient.record.layout import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEAD,
    LOG_APPEND_BIT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    REST,
    TRANSACTIONAL_BIT,
    crc32c,
)
from kclient.testing.responses import ApiError

_BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

_LENGTH_POSITION = 8
_LEADER_EPOCH_POSITION = 12
_CRC_POSITION = 17
_MAX_TIMESTAMP_POSITION = 35
_SMALLEST_LENGTH = 14
"""Smallest valid length field, in any magic: Java's ``LegacyRecord.RECORD_OVERHEAD_V0``."""

_NEWEST_MAGIC = 2
_SEQUENCES = 1 << 31


@dataclass(slots=True, init=False, eq=False, repr=False)
class StoredBatch:
    """One v2 batch, with the fields of its header, which are decoded once.

    Attributes:
        data: All bytes of the batch; base offset, epoch and times are patched in place.
        base_offset: Offset of its first record.
        last_offset: Offset of its last record, which compaction may have removed.
        leader_epoch: Epoch of the leader that appended it.
    """

    data: bytearray
    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    crc: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    producer_epoch: int
    producer_id: int
    record_count: int

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        """Copy ``data``, exactly one batch of at least a header's size."""
        self.data = bytearray(data)
        self.base_offset, _, self.leader_epoch, _, self.crc = HEAD.unpack_from(self.data)
        (
            self.attributes,
            last_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = REST.unpack_from(self.data, CRC_START)
        self.last_offset = self.base_offset + last_delta

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return len(self.data)

    @property
    def next_offset(self) -> int:
        """The offset that follows its last one."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; they wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCES

    @property
    def codec(self) -> int:
        """Number of the compression codec."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker rather than records of applications."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker set its timestamps."""
        return bool(self.attributes & LOG_APPEND_BIT)

    def computed_crc(self) -> int:
        """The CRC that the batch should have."""
        return crc32c(memoryview(self.data)[CRC_START:])

    def place(self, base_offset: int, leader_epoch: int) -> None:
        """Set the batch's offset and leader epoch; the CRC covers neither."""
        self.last_offset += base_offset - self.base_offset
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        _BASE_OFFSET.pack_into(self.data, 0, base_offset)
        _LEADER_EPOCH.pack_into(self.data, _LEADER_EPOCH_POSITION, leader_epoch)

    def set_times(self, max_timestamp: int, *, log_append_time: bool) -> None:
        """Set type and maximum of the timestamps; updates the CRC only if that changes anything."""
        attributes = self.attributes & ~LOG_APPEND_BIT
        if log_append_time:
            attributes |= LOG_APPEND_BIT
        if attributes == self.attributes and max_timestamp == self.max_timestamp:
            return
        self.attributes = attributes
        self.max_timestamp = max_timestamp
        _ATTRIBUTES.pack_into(self.data, CRC_START, attributes)
        _MAX_TIMESTAMP.pack_into(self.data, _MAX_TIMESTAMP_POSITION, max_timestamp)
        self.crc = self.computed_crc()
        _CRC.pack_into(self.data, _CRC_POSITION, self.crc)


def split_batches(data: bytes | bytearray | memoryview) -> list[memoryview]:
    """The complete batches in ``data``, of any magic; a truncated last one is left out, as in Java.

    Raises:
        ApiError: CORRUPT_MESSAGE, for an invalid length or magic.
    """
    view = memoryview(data)
    found: list[memoryview] = []
    pos = 0
    while len(view) - pos > MAGIC_POSITION:
        (length,) = _LENGTH.unpack_from(view, pos + _LENGTH_POSITION)
        magic = view[pos + MAGIC_POSITION]
        if length < _SMALLEST_LENGTH:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"A batch has no length of {length}.")
        if magic > _NEWEST_MAGIC:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"There is no format {magic}.")
        end = pos + LOG_OVERHEAD + length
        if end > len(view):
            break
        if magic == _NEWEST_MAGIC and end - pos < BATCH_HEADER_BYTES:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE)
        found.append(view[pos:end])
        pos = end
    return found
