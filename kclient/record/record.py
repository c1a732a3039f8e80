"""``Record``, and the codec for the contents of a v2 batch: one source, two builds.

This file runs as it is (the pure build), and is compiled a second time by Cython under the name
``kclient.record._record_c`` with the C types of ``_record_c.pxd``. ``implementation.py`` selects
one. ``record_batch.py`` uses it to decode batches, ``builder.py`` to encode headers. Reads are
bounds-checked here, in the shared source: for any bytes the result is records or CorruptRecord, and
the same in both builds. It must not do I/O, check CRCs or decompress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient.errors import CorruptRecord, InvalidArgument, SerializationFailed
from kclient.types import TimestampType, TopicPartition, datetime_of

if TYPE_CHECKING:
    import datetime

    import cython  # type: ignore[import-untyped]

    from kclient.types import Headers
else:
    from kclient.record import _cython as cython

SMALLEST_RECORD_BYTES = 7
"""Length, attributes, two deltas, two lengths and a header count of one byte each."""

_SHOWN_BYTES = 40
_INT64_MAX = 0x7FFFFFFFFFFFFFFF


@cython.final
@cython.no_gc
@cython.cclass
class Origin:
    """The origin that all records of one batch share. Created only by the readers."""

    __slots__ = ("leader_epoch", "partition", "timestamp_type", "topic")

    def __init__(
        self, topic: str, partition: int, timestamp_type: TimestampType, leader_epoch: int | None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch


@cython.final
@cython.no_gc
@cython.freelist(512)
@cython.cclass
class Record:
    """One record as stored by a broker: bytes, an offset and a timestamp. It is immutable.

    Args:
        topic: Topic name.
        partition: Partition index.
        offset: Offset in the partition.
        timestamp: Int milliseconds since the epoch; -1 where the record has none.
        key: The key, or None.
        value: The value; None is a tombstone.
        headers: (name, value) pairs in order.
        timestamp_type: Whether the producer or the broker set the timestamp.
        leader_epoch: Epoch of the leader that appended it, None where unknown.

    Raises:
        InvalidArgument: The key or the value is neither bytes nor None.
    """

    __slots__ = ("_headers", "_key", "_offset", "_origin", "_timestamp", "_value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        leader_epoch: int | None = None,
    ) -> None:
        if not (key is None or type(key) is bytes):
            raise InvalidArgument(f"key must be bytes or None, not {type(key).__name__}")
        if not (value is None or type(value) is bytes):
            raise InvalidArgument(f"value must be bytes or None, not {type(value).__name__}")
        self._origin = Origin(topic, partition, timestamp_type, leader_epoch)
        self._offset = offset
        self._timestamp = timestamp
        self._key = key
        self._value = value
        self._headers = encode_headers(tuple(headers)) if headers else None

    @property
    def topic(self) -> str:
        """Topic name."""
        return self._origin.topic

    @property
    def partition(self) -> int:
        """Partition index."""
        return self._origin.partition

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        return self._offset

    @property
    def timestamp(self) -> int:
        """Int milliseconds since the epoch, as on the wire; -1 where the record has none."""
        return self._timestamp

    @property
    def key(self) -> bytes | None:
        """The key, or None."""
        return self._key

    @property
    def value(self) -> bytes | None:
        """The value; None is a tombstone."""
        return self._value

    @property
    def headers(self) -> Headers:
        """(name, value) pairs in order; parsed at each access."""
        return () if self._headers is None else decode_headers(self._headers)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker set the timestamp."""
        return self._origin.timestamp_type

    @property
    def leader_epoch(self) -> int | None:
        """Epoch of the leader that appended the batch, None where unknown."""
        return self._origin.leader_epoch

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self._origin.topic, self._origin.partition)

    @property
    def datetime(self) -> datetime.datetime:
        """``timestamp`` as an aware datetime in UTC."""
        return datetime_of(self._timestamp)

    @property
    def size_bytes(self) -> int:
        """Bytes of key and value together."""
        key_bytes = 0 if self._key is None else len(self._key)
        return key_bytes + (0 if self._value is None else len(self._value))

    def _fields(self) -> tuple[Any, ...]:
        return (
            self._origin.topic,
            self._origin.partition,
            self._offset,
            self._timestamp,
            self._key,
            self._value,
            self.headers,
            self._origin.timestamp_type,
            self._origin.leader_epoch,
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._fields() == other._fields())

    def __hash__(self) -> int:
        return hash((self._origin.topic, self._origin.partition, self._offset))

    def __reduce__(self) -> tuple[Any, ...]:
        # By the package's name, so that each build can unpickle the other's records.
        from kclient.record.implementation import make_record

        return make_record, self._fields()

    def __repr__(self) -> str:
        return (
            f"Record(topic={self._origin.topic!r}, partition={self._origin.partition}, "
            f"offset={self._offset}, timestamp={self._timestamp}, key={_shown(self._key)}, "
            f"value={_shown(self._value)}, headers={len(self.headers)})"
        )


if cython.compiled:
    # In the .pxd. Makes reading key or value, the most frequent access, a field access, not a call.
    expose_members()  # type: ignore[name-defined]  # noqa: F821


def _shown(data: bytes | None) -> str:
    if data is None or len(data) <= _SHOWN_BYTES:
        return repr(data)
    return f"{data[:_SHOWN_BYTES]!r}... ({len(data)} bytes)"


def corrupt(position: int, what: str) -> CorruptRecord:
    """Return the error of all readers here; ``position`` is that in the uncompressed payload."""
    return CorruptRecord(f"at byte {position} of the payload {what}")


def long_varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a zigzag varint of up to 32 bits at ``pos``, before ``end``: value and next position.

    The callers read the common one-byte varints themselves.
    """
    shift = 0
    value = 0
    start = pos
    while pos < end:
        byte = data[pos]
        pos += 1
        if shift == 28 and byte > 15:
            raise corrupt(start, "is a varint of more than 32 bits")
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
    raise corrupt(start, "a varint runs past the end")


def long_varlong(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Like ``long_varint``, for up to 64 bits."""
    shift = 0
    value = 0
    start = pos
    while pos < end:
        byte = data[pos]
        pos += 1
        if shift == 63 and byte > 1:
            raise corrupt(start, "is a varint of more than 64 bits")
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
    raise corrupt(start, "a varint runs past the end")


def check_headers(data: bytes, pos: int, end: int) -> None:
    """Raise CorruptRecord unless the bytes from ``pos`` to ``end`` are a record's headers."""
    count, pos = long_varint(data, pos, end)
    if count < 0 or count > (end - pos) // 2:
        raise corrupt(pos, f"{count} headers can't be in {end - pos} bytes")
    while count > 0:
        size, pos = long_varint(data, pos, end)
        if size < 0 or size > end - pos:
            raise corrupt(pos, f"a header name of {size} bytes runs past the record's end")
        size, pos = long_varint(data, pos + size, end)
        if size > end - pos:
            raise corrupt(pos, f"a header value of {size} bytes runs past the record's end")
        if size > 0:
            pos += size
        count -= 1
    if pos != end:
        raise corrupt(pos, f"the record has {end - pos} bytes too many")


def parse_record(data: bytes, pos: int, end: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Find the parts of the record at ``pos``: only this function knows the layout of v2 records.

    The limit passed for each varint leaves the one-byte minimum of all following fields, so that
    the first byte of the next field may be read without another check. Varints of one and two
    bytes, which nearly all are, are read inline: a call costs as much as the rest.

    Returns:
        Timestamp delta, offset delta, key position, key size (negative: null), value position,
        value size (negative: null), position of the headers, position of the next record.
    """
    if pos >= end:
        raise corrupt(pos, "a record is missing")
    byte = data[pos]
    if byte < 128:
        size = (byte >> 1) ^ -(byte & 1)
        pos += 1
    elif end - pos > 1 and data[pos + 1] < 128:
        size = ((byte & 127 | data[pos + 1] << 7) >> 1) ^ -(byte & 1)
        pos += 2
    else:
        size, pos = long_varint(data, pos, end)
    if size < 6 or size > end - pos:
        raise corrupt(pos, f"a record of {size} bytes can't be in {end - pos} bytes")
    stop, byte = pos + size, data[pos + 1]  # the byte before it, the attributes, is unused
    if byte < 128:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        pos += 2
    elif stop - pos > 6 and data[pos + 2] < 128:
        timestamp_delta = ((byte & 127 | data[pos + 2] << 7) >> 1) ^ -(byte & 1)
        pos += 3
    else:
        timestamp_delta, pos = long_varlong(data, pos + 1, stop - 4)
    byte = data[pos]
    if byte < 128:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        pos += 1
    elif stop - pos > 4 and data[pos + 1] < 128:
        offset_delta = ((byte & 127 | data[pos + 1] << 7) >> 1) ^ -(byte & 1)
        pos += 2
    else:
        offset_delta, pos = long_varint(data, pos, stop - 3)
    byte = data[pos]
    if byte < 128:
        key_size = (byte >> 1) ^ -(byte & 1)
        pos += 1
    else:
        key_size, pos = long_varint(data, pos, stop - 2)
    key_pos = pos
    if key_size > 0:
        if key_size > stop - 2 - pos:
            raise corrupt(pos, f"a key of {key_size} bytes runs past the record's end")
        pos += key_size
    byte = data[pos]
    if byte < 128:
        value_size = (byte >> 1) ^ -(byte & 1)
        pos += 1
    elif stop - pos > 2 and data[pos + 1] < 128:
        value_size = ((byte & 127 | data[pos + 1] << 7) >> 1) ^ -(byte & 1)
        pos += 2
    else:
        value_size, pos = long_varint(data, pos, stop - 1)
    value_pos = pos
    if value_size > 0:
        if value_size > stop - 1 - pos:
            raise corrupt(pos, f"a value of {value_size} bytes runs past the record's end")
        pos += value_size
    if data[pos] != 0 or pos + 1 != stop:
        check_headers(data, pos, stop)
    return (timestamp_delta, offset_delta, key_pos, key_size, value_pos, value_size, pos, stop)


def offset_of(base_offset: int, delta: int, last_delta: int, pos: int) -> int:
    """Return the offset of the record at ``pos``; ``last_delta`` bounds the delta of a record."""
    if delta < 0 or delta > last_delta:
        raise corrupt(pos, f"an offset delta of {delta} is not within 0 to {last_delta}")
    return base_offset + delta


def timestamp_of(base_timestamp: int, delta: int, pos: int) -> int:
    """Return the timestamp of the record at ``pos``; CorruptRecord if it exceeds 64 bits."""
    if delta > 0:
        if base_timestamp > _INT64_MAX - delta:
            raise corrupt(pos, "a timestamp delta leaves the 64 bits of a timestamp")
    elif base_timestamp < -_INT64_MAX - delta:
        raise corrupt(pos, "a timestamp delta leaves the 64 bits of a timestamp")
    return base_timestamp + delta


def check_end(pos: int, left: int, end: int) -> None:
    """Raise CorruptRecord if bytes follow the last record of the payload."""
    if left == 0 and pos != end:
        raise corrupt(pos, f"{end - pos} bytes follow the last record")


if not cython.compiled:  # else the .pxd has it

    def start_of(data: Any) -> Any:
        """Return the object that bytes are read from: a copy of a view, in C a pointer instead."""
        return data if type(data) is bytes else bytes(data)


def decode_records(
    data: bytes | memoryview,
    pos: int,
    left: int,
    base_offset: int,
    last_delta: int,
    base_timestamp: int,
    append_timestamp: int | None,
    origin: Origin,
    start_offset: int,
    limit: int,
) -> tuple[list[Record], int, int]:
    """Decode up to ``limit`` records of a v2 payload.

    Args:
        data: The uncompressed payload; the compiled build also reads a view without a copy.
        pos: Position of the next record.
        left: How many records are left from there on.
        base_offset: Base offset of the batch.
        last_delta: The batch's last offset delta, which those of the records must not exceed.
        base_timestamp: Base timestamp of the batch.
        append_timestamp: For LogAppendTime: the timestamp of all records; else None.
        origin: The origin that the records share.
        start_offset: Records before it are skipped.
        limit: How many to return at most.

    Returns:
        The records, the new ``pos`` and the new ``left``.

    Raises:
        CorruptRecord: The payload is malformed.
    """
    data_view: Any = data
    data_cstr: Any = start_of(data_view)
    end = len(data)
    records: list[Record] = []
    taken = 0
    fixed_time = append_timestamp is not None
    fixed_timestamp = append_timestamp if append_timestamp is not None else 0
    most_delta = _INT64_MAX - base_timestamp if base_timestamp > 0 else 0
    while left > 0 and taken < limit:
        (time_delta, delta, key_pos, key_size, value_pos, value_size, headers_pos, stop) = (
            parse_record(data_cstr, pos, end)
        )
        # The usual cases are inlined: in the pure build a call is expensive.
        if 0 <= delta <= last_delta:
            offset = base_offset + delta
        else:
            offset = offset_of(base_offset, delta, last_delta, pos)
        if 0 <= time_delta <= most_delta:
            timestamp = base_timestamp + time_delta
        else:
            timestamp = timestamp_of(base_timestamp, time_delta, pos)
        if offset >= start_offset:
            record = Record.__new__(Record)
            record._origin = origin
            record._offset = offset
            record._timestamp = fixed_timestamp if fixed_time else timestamp
            record._key = None if key_size < 0 else data_cstr[key_pos : key_pos + key_size]
            record._value = (
                None if value_size < 0 else data_cstr[value_pos : value_pos + value_size]
            )
            record._headers = None if headers_pos + 1 == stop else data_cstr[headers_pos:stop]
            records.append(record)
            taken += 1
        pos = stop
        left -= 1
    check_end(pos, left, end)
    return records, pos, left


def decode_headers(data: bytes) -> Headers:
    """Decode the headers of a record, from their count on, into (name, value) pairs.

    Names that are not UTF-8 get replacement characters, as in Java.
    """
    data_cstr = data
    end = len(data)
    pos = 0
    check_headers(data_cstr, pos, end)
    count, pos = long_varint(data_cstr, pos, end)
    pairs: list[tuple[str, bytes | None]] = []
    while count > 0:
        size, pos = long_varint(data_cstr, pos, end)
        raw_name: bytes = data_cstr[pos : pos + size]
        name = raw_name.decode("utf-8", "replace")
        size, pos = long_varint(data_cstr, pos + size, end)
        if size < 0:
            pairs.append((name, None))
        else:
            pairs.append((name, data_cstr[pos : pos + size]))
            pos += size
        count -= 1
    return tuple(pairs)


def encode_headers(headers: Headers) -> bytes:
    """Encode (name, value) pairs into the bytes of a record from the header count on.

    Raises:
        SerializationFailed: A name is not a str, or a value neither bytes nor None.
    """
    parts = [_length(len(headers))]
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2:
            raise SerializationFailed(f"a header must be a (name, value) tuple, not {pair!r}")
        name, value = pair
        if not isinstance(name, str):
            raise SerializationFailed(f"a header's name must be a str, not {type(name).__name__}")
        if not (value is None or isinstance(value, bytes)):
            raise SerializationFailed(
                f"the value of header {name!r} must be bytes or None, not {type(value).__name__}"
            )
        raw_name = _utf8(name)
        parts.append(_length(len(raw_name)))
        parts.append(raw_name)
        if value is None:
            parts.append(b"\x01")
        else:
            parts.append(_length(len(value)))
            parts.append(value)
    return b"".join(parts)


def _utf8(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise SerializationFailed(f"the header name {name!r} can't be UTF-8: {error}") from error


def _length(size: int) -> bytes:
    return _LENGTHS[size] if size < _TABLE_SIZE else _varint(size)


def _varint(size: int) -> bytes:
    value = size << 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_TABLE_SIZE = 128
_LENGTHS = [_varint(size) for size in range(_TABLE_SIZE)]
