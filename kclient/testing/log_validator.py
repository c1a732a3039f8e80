"""What Kafka checks of a produced batch before it is appended, as its ``LogValidator`` does.

Header, CRC, size, then each record. Used by ``handlers/produce.py``; ``ApiError`` carries the code,
and the records concerned where there are some (KIP-467).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.errors import CodecUnavailable, CorruptRecord, DecompressionFailed
from kclient.protocol.primitives import Buffer
from kclient.record.compression import Compression
from kclient.record.layout import BATCH_HEADER_BYTES, MAGIC_POSITION
from kclient.record.record_batch import Batch
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch, split_batches
from kclient.testing.topic_configs import TopicConfig

if TYPE_CHECKING:
    from kclient.record import Record

_FIRST_WITH_ZSTD = 7
_CHECK_CAP_BYTES = 256 << 20
"""A batch that inflates to more is rejected. Kafka accepts it, but kclient could not read it."""
_CHUNK = 2000
_LENGTH_BYTES = 5
_TEXTS = {
    ErrorCode.INVALID_RECORD: "A record of a compacted topic has no key.",
    ErrorCode.INVALID_TIMESTAMP: "A record's time is out of bounds, or of another type.",
}


class RecordValidationError(ApiError):
    """Some records of a batch are invalid, so the whole batch is rejected.

    Attributes:
        records: Their indexes in the batch.
    """

    def __init__(self, code: ErrorCode, records: list[int]) -> None:
        super().__init__(code, _TEXTS[code])
        self.records = records


def open_batch(data: Buffer | None, version: int) -> StoredBatch:
    """The one batch of a partition in a Produce request, its header and CRC checked.

    Args:
        data: The record bytes.
        version: Of the request.

    Raises:
        ApiError: With Kafka's code.
    """
    found = split_batches(b"" if data is None else data)
    if len(found) != 1 or found[0][MAGIC_POSITION] != 2:
        raise ApiError(ErrorCode.INVALID_RECORD)
    batch = StoredBatch(found[0])
    if batch.codec == Compression.ZSTD and version < _FIRST_WITH_ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return batch


def check_batch(batch: StoredBatch, config: TopicConfig, now_ms: int) -> None:
    """Check all of a batch but its producer state, which the log checks.

    Raises:
        ApiError: With Kafka's code.
        RecordValidationError: With the records concerned.
    """
    if batch.base_offset != 0:
        raise ApiError(ErrorCode.INVALID_RECORD)
    if batch.size_bytes > config.max_message_bytes:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
    if batch.computed_crc() != batch.crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE)
    if (
        batch.last_offset < 0
        or batch.record_count != batch.last_offset + 1
        or batch.is_control
        or (batch.producer_id >= 0 and batch.base_sequence < 0)
    ):
        raise ApiError(ErrorCode.INVALID_RECORD)
    if batch.codec > Compression.ZSTD:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    _check_records(batch, config, now_ms)


def _check_records(batch: StoredBatch, config: TopicConfig, now_ms: int) -> None:
    """Check each record, and put the greatest of their timestamps into the header."""
    view = memoryview(batch.data)
    try:
        decoded = Batch(view)
        decoded.inflate(_CHECK_CAP_BYTES)
    except CodecUnavailable:
        return  # not the producer's fault: accepted without a check
    except DecompressionFailed as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD) from error
    check = _RecordCheck(config, now_ms, batch.is_log_append_time)
    while not decoded.exhausted:
        try:
            records = decoded.records("", 0, limit=_CHUNK)
        except CorruptRecord as error:
            if batch.codec == Compression.NONE and _has_endless_length(view[BATCH_HEADER_BYTES:]):
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
            raise ApiError(ErrorCode.INVALID_RECORD) from error
        check.take_all(records)
    check.raise_errors()
    batch.set_times(check.greatest, log_append_time=False)


def _has_endless_length(records: memoryview) -> bool:
    """Whether a record's length varint is longer than five bytes, which Kafka doesn't expect.

    For uncompressed batches only: in compressed ones Kafka detects it.
    """
    start = 0
    while start < len(records):
        size = shift = 0
        for byte in records[start : start + _LENGTH_BYTES]:
            start += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            return shift == 7 * _LENGTH_BYTES
        if size & 1:  # negative
            return False
        start += size >> 1
    return False


class _RecordCheck:
    """The checks of single records, over one batch."""

    def __init__(self, config: TopicConfig, now_ms: int, marked: bool) -> None:
        self._earliest = now_ms - config.timestamp_before_max_ms
        self._latest = now_ms + config.timestamp_after_max_ms
        self._compacted = config.compacted
        self._log_append_time = config.log_append_time
        self._marked = marked
        self._errors: list[int] = []
        self._code = ErrorCode.INVALID_RECORD
        self._index = -1
        self.greatest = -1

    def take_all(self, records: list[Record]) -> None:
        """Check the next records; a fast path accepts all at once if their timestamps are valid."""
        if records and not self._compacted and not self._marked:
            times = [record.timestamp for record in records]
            latest = max(times)
            if self._log_append_time or (self._earliest <= min(times) and latest <= self._latest):
                self.greatest = max(self.greatest, latest)
                self._index += len(records)
                return
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        self._index += 1
        at = record.timestamp
        if at > self.greatest:
            self.greatest = at
        if self._compacted and record.key is None:
            self._errors.append(self._index)
            return
        if self._log_append_time or at < 0:
            mistimed = self._marked
        else:
            mistimed = not self._earliest <= at <= self._latest
        if mistimed:
            self._code = ErrorCode.INVALID_TIMESTAMP
            self._errors.append(self._index)

    def raise_errors(self) -> None:
        """Raise RecordValidationError if a record is invalid."""
        if self._errors:
            raise RecordValidationError(self._code, self._errors)
