"""What Kafka checks of a produced batch before it is appended, as its ``LogValidator`` does.

Header, CRC, size, then each record. Used by ``handlers/produce.py``; ``Refused`` carries the code,
and the records concerned where there are some (KIP-467).
"""

from __future__ import annotations

from kclient.error_codes import ErrorCode
from kclient.errors import CorruptRecord, DecompressionFailed, InvalidConfig
from kclient.protocol.primitives import Buffer
from kclient.record.compression import Compression
from kclient.record.reader import Batch
from kclient.testing.refused import Refused
from kclient.testing.stored_batch import StoredBatch, split_batches
from kclient.testing.topic_configs import TopicConfig

_MAGIC_POSITION = 16
_FIRST_WITH_ZSTD = 7
_CHECK_CAP_BYTES = 64 << 20
"""Batches that inflate to more are taken as they are: the broker must not stall on them."""
_CHUNK = 2000
_SHOWN_ERRORS = 3


class RecordsRefused(Refused):
    """Some records of a batch can't be taken, and so none is.

    Attributes:
        records: Index in the batch and the reason, for each.
    """

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


def open_batch(data: Buffer | None, version: int, where: str) -> StoredBatch:
    """The one batch of a partition in a Produce request, its header and CRC checked.

    Args:
        data: The record bytes.
        version: Of the request.
        where: ``topic-partition``, for texts.

    Raises:
        Refused: With Kafka's code.
    """
    found = split_batches(b"" if data is None else data)
    if len(found) != 1 or found[0][_MAGIC_POSITION] != 2:
        raise Refused(ErrorCode.INVALID_RECORD)
    batch = StoredBatch(found[0])
    if batch.codec == Compression.ZSTD and version < _FIRST_WITH_ZSTD:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return batch


def check_batch(batch: StoredBatch, config: TopicConfig, now_ms: int, where: str) -> None:
    """Check all of a batch but its producer, which is the log's matter.

    Raises:
        Refused: With Kafka's code.
        RecordsRefused: With the records concerned.
    """
    if batch.base_offset != 0:
        raise _invalid(
            f"The baseOffset of the record batch in the append to {where} should be 0, but it is "
            f"{batch.base_offset}"
        )
    if batch.size_bytes > config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {batch.size_bytes} bytes which "
            f"exceeds the maximum configured value of {config.max_message_bytes}.",
        )
    if batch.computed_crc() != batch.crc:
        raise Refused(ErrorCode.CORRUPT_MESSAGE)
    if batch.last_offset < 0 or batch.record_count != batch.last_offset + 1:
        raise _invalid(
            f"Inconsistent batch offset range [0, {batch.last_offset}] and count of records "
            f"{batch.record_count} in topic partition {where}"
        )
    if batch.is_control:
        raise _invalid(
            f"Clients are not allowed to write control records in topic partition {where}"
        )
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise _invalid(
            f"Invalid sequence number {batch.base_sequence} in record batch with producerId "
            f"{batch.producer_id} in topic partition {where}"
        )
    if batch.is_transactional:
        raise Refused(ErrorCode.INVALID_TXN_STATE)
    _check_records(batch, config, now_ms, where)


def _check_records(batch: StoredBatch, config: TopicConfig, now_ms: int, where: str) -> None:
    """Check each record, and put the greatest of their timestamps into the header."""
    view = memoryview(batch.data)
    try:
        decoded = Batch(view)
        decoded.inflate(_CHECK_CAP_BYTES)
    except InvalidConfig:
        return  # the codec's package isn't installed: taken as it is
    except DecompressionFailed:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    except CorruptRecord as error:
        raise _invalid(str(error)) from error
    earliest = now_ms - config.timestamp_before_max_ms
    latest = now_ms + config.timestamp_after_max_ms
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    greatest = -1
    index = 0
    while not decoded.exhausted:
        try:
            records = decoded.records("", 0, limit=_CHUNK)
        except CorruptRecord as error:
            raise _invalid(str(error)) from error
        for record in records:
            at = record.timestamp
            if at > greatest:
                greatest = at
            if config.compacted and record.key is None:
                errors.append(
                    (
                        index,
                        "Compacted topic cannot accept message without key in topic partition "
                        f"{where}",
                    )
                )
            elif batch.is_log_append_time and not config.log_append_time:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, "Producer should not set timestamp type to LogAppendTime."))
            elif not config.log_append_time and at >= 0 and not earliest <= at <= latest:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append(
                    (
                        index,
                        f"Timestamp {at} of message with offset {record.offset} is out of range. "
                        f"The timestamp should be within [{earliest}, {latest}]",
                    )
                )
            index += 1
    if errors:
        raise RecordsRefused(code, _summary(code, errors), errors)
    if not batch.is_log_append_time:
        batch.set_times(greatest, log_append_time=False)


def _summary(code: ErrorCode, errors: list[tuple[int, str]]) -> str:
    if code is ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    shown = ", ".join(
        f"RecordError(batchIndex={index}, message='{text}')"
        for index, text in errors[:_SHOWN_ERRORS]
    )
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and "
        f"only showing the first three errors at most: [{shown}]"
    )


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD, message)
