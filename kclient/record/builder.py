"""``BatchBuilder``: records in, one v2 batch out. One source, two builds.

Compiled a second time as ``kclient.record._builder_c`` with the C types of ``_builder_c.pxd``. The
producer's accumulator appends to it, its sender closes and encodes it, again for each retry.
Appending happens on the loop; ``compress`` may run in a thread, since it accesses only the builder
itself. It must not know about partitions, sequence numbering or time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidArgument, RecordTooLarge, SerializationFailed
from kclient.record.compression import Compression, compress, decompress
from kclient.record.layout import (
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    LOG_APPEND_BIT,
    NO_HEADERS,
    TRANSACTIONAL_BIT,
    batch_head,
)
from kclient.types import TimestampType

if TYPE_CHECKING:
    import cython  # type: ignore[import-untyped]
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-untyped]
        PyByteArray_Resize,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore[import-untyped]

    from kclient.record.record import Origin, decode_records, encode_headers
    from kclient.types import Headers
else:
    from kclient.record import _cython as cython

    if cython.compiled:
        from kclient.record._record_c import Origin, decode_records, encode_headers
    else:
        from kclient.record.record import Origin, decode_records, encode_headers

DEFAULT_LIMIT = 65_536
_INT32_MAX = 0x7FFFFFFF
_LAST_TIMESTAMP = 0x7FFFFFFFFFFFFFFE
"""One less than the largest int64, so that the difference to -1 fits as well."""
_MOST_OVERHEAD_BYTES = 64
"""Upper bound for the bytes of all lengths and deltas of one record."""
_FIRST_BYTES = 1024 if cython.compiled else 0
_NOTHING = bytearray()
_NO_HEADERS = NO_HEADERS  # a name of C in the compiled build
_NULL = b"\x01"
_TABLE_SIZE = 8192


def zigzag(number: int) -> int:
    """Return the zigzag encoding, which is small and not negative for numbers near 0."""
    return (number << 1) ^ (number >> 63)


def varint(number: int) -> bytes:
    """Return ``number`` as a zigzag varint; for the pure build, but not on its fast path."""
    value = zigzag(number)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# The pure build looks up common varints: joining them is three times as fast as storing bytes.
_VARINTS: list[bytes] = [] if cython.compiled else [varint(n) for n in range(_TABLE_SIZE)]


def varint_size(value: int) -> int:
    """Return the number of bytes that ``put_varint`` writes for ``value``."""
    if value < 128:
        return 1
    size = 2
    value >>= 14
    while value > 0:
        value >>= 7
        size += 1
    return size


def put_varint(out: Any, pos: int, value: int) -> int:
    """Write ``value`` (not negative) at ``pos``, return the position after it."""
    while value > 127:
        out[pos] = value & 127 | 128
        value >>= 7
        pos += 1
    out[pos] = value
    return pos + 1


@cython.final
@cython.cclass
class BatchBuilder:
    """Collects records up to a size, then becomes a batch.

    Args:
        limit: Bytes of the uncompressed batch, its 61-byte header included. The first record is
            accepted whatever its size.
        expected: Bytes that it will probably take, for which memory is allocated at once.
        memory: Memory that another builder returned and nothing else uses.
        log_append_time: Write a batch whose timestamps the broker set (for brokers).
        transactional: The batch is part of a transaction.
        control: Its records are transaction markers and not data (for brokers).

    Attributes:
        record_count: Records in it so far.
        base_timestamp: Timestamp of the first record, -1 before it.
        max_timestamp: Greatest timestamp so far, -1 before the first record.
        closed: It accepts no more records, since it was compressed or encoded.
    """

    __slots__ = (
        "_attributes",
        "_buffer",
        "_codec",
        "_expected",
        "_payload",
        "_space",
        "_used",
        "base_timestamp",
        "closed",
        "max_timestamp",
        "record_count",
    )

    def __init__(
        self,
        limit: int = DEFAULT_LIMIT,
        *,
        expected: int = 0,
        memory: bytearray | None = None,
        log_append_time: bool = False,
        transactional: bool = False,
        control: bool = False,
    ) -> None:
        if not 0 < limit <= _INT32_MAX:
            raise InvalidArgument(f"limit must be 1 to {_INT32_MAX} bytes, not {limit}")
        self._space = limit - BATCH_HEADER_BYTES
        self._expected = expected
        self._attributes = (
            (LOG_APPEND_BIT if log_append_time else 0)
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
        )
        self._take(bytearray(_FIRST_BYTES) if memory is None else memory)
        self._payload: bytes | None = None
        self._codec = 0
        self._used = 0
        self.record_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.closed = False

    def _take(self, buffer: bytearray) -> None:
        """Put records into ``buffer`` from now on; keep its address, as reading it costs time."""
        self._buffer = buffer
        if cython.compiled:
            self._memory: Any = buffer  # type: ignore[misc]
            self._size = len(buffer)  # type: ignore[misc]

    @property
    def size_bytes(self) -> int:
        """Size of the batch, header included, uncompressed."""
        return BATCH_HEADER_BYTES + self._used

    @property
    def encoded_bytes(self) -> int:
        """Size of what ``encode`` returns; smaller than ``size_bytes`` once compressed."""
        return BATCH_HEADER_BYTES + (self._used if self._payload is None else len(self._payload))

    @property
    def codec(self) -> Compression:
        """The compression codec; NONE until ``compress``."""
        return Compression(self._codec)

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers | None
    ) -> int:
        """Add one record.

        Args:
            timestamp_ms: Milliseconds since the epoch; -1 for none.
            key: The key, or None.
            value: The value, or None.
            headers: (name, value) pairs, or None.

        Returns:
            Its index in the batch, or -1 if it doesn't fit or the batch is closed.

        Raises:
            SerializationFailed: Key, value or a header has the wrong type.
            InvalidArgument: The timestamp is not an int within -1 to 2**63 - 2.
            RecordTooLarge: No batch can hold it (2 GiB).
        """
        if self.closed:
            return -1
        timestamp = checked_timestamp(timestamp_ms)
        if key is not None and not isinstance(key, bytes):
            raise wrong_type("key", key)
        if value is not None and not isinstance(value, bytes):
            raise wrong_type("value", value)
        return self.put(timestamp, key, value, encode_headers(headers) if headers else _NO_HEADERS)

    def put(self, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes) -> int:
        """Like ``append``, for arguments that are already checked; ``headers`` are encoded.

        Returns:
            Its index in the batch, or -1 if it doesn't fit or the batch is closed.

        Raises:
            RecordTooLarge: No batch can hold it (2 GiB).
        """
        if self.closed:
            return -1
        delta = timestamp - self.base_timestamp if self.record_count else 0
        if cython.compiled:
            return self._note(timestamp, self._store(delta, key, value, headers))
        return self._join(timestamp, delta, key, value, headers)

    def _put_memory(
        self,
        timestamp: int,
        key_cstr: Any,
        key_size: int,
        value_cstr: Any,
        value_size: int,
        headers_cstr: Any,
        headers_size: int,
    ) -> int:
        """Like ``put``, in the compiled build, for pointers to memory; a negative size is None."""
        if self.closed:
            return -1
        delta = timestamp - self.base_timestamp if self.record_count else 0
        written = self._write(
            delta, key_cstr, key_size, value_cstr, value_size, headers_cstr, headers_size
        )
        return self._note(timestamp, written)

    def put_values(self, timestamp: int, values: list[Any], count: int) -> tuple[int, int]:
        """``put`` the first ``count`` of ``values``, without keys and headers.

        It stops before a value that needs more work: the first record of a batch, one that doesn't
        fit, one that is not bytes, and in the compiled build one that needs more memory allocated.

        Returns:
            How many were put, and the bytes of those values.
        """
        if self.closed or self.record_count == 0:
            return 0, 0
        if not cython.compiled:
            return self._join_values(timestamp, values[: max(count, 0)])
        out_cstr: Any = self._memory
        end = min(self._space, self._size)
        pos = self._used
        index = zigzag(self.record_count)
        time = zigzag(timestamp - self.base_timestamp)
        # Attributes, no key and no headers are a byte each.
        fixed_size = 3 + varint_size(time)
        put = 0
        value_bytes = 0
        count = min(count, len(values))
        while put < count:
            value_size = item_size(values, put)  # type: ignore[name-defined] # noqa: F821
            if value_size < 0:
                break
            length = value_size << 1  # zigzag of what is not negative
            size = fixed_size + varint_size(index) + varint_size(length) + value_size
            if pos + varint_size(size << 1) + size > end:
                break
            pos = put_varint(out_cstr, pos, size << 1)
            out_cstr[pos] = 0
            pos = put_varint(out_cstr, pos + 1, time)
            pos = put_varint(out_cstr, pos, index)
            out_cstr[pos] = 1
            pos = put_varint(out_cstr, pos + 1, length)
            memcpy(out_cstr + pos, item_cstr(values, put), value_size)  # type: ignore[name-defined] # noqa: F821
            pos += value_size
            out_cstr[pos] = 0
            pos += 1
            index += 2
            put += 1
            value_bytes += value_size
        if put > 0:
            self._used = pos
            self.record_count += put
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
        return put, value_bytes

    def _note(self, timestamp: int, written: int) -> int:
        """Count a record of ``written`` bytes and return its index, or -1 if that is 0."""
        if written == 0:
            return -1
        count = self.record_count
        self._used += written
        self.record_count = count + 1
        if count == 0:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return count

    def _join(
        self, timestamp: int, delta: int, key: bytes | None, value: bytes | None, headers: bytes
    ) -> int:
        """The rest of ``put`` in the pure build."""
        count = self.record_count
        if key is None:
            key_size = _NULL
            key = b""
        else:
            size = len(key)
            key_size = _VARINTS[size] if size < _TABLE_SIZE else varint(size)
        if value is None:
            value_size = _NULL
            value = b""
        else:
            size = len(value)
            value_size = _VARINTS[size] if size < _TABLE_SIZE else varint(size)
        time = _VARINTS[delta] if 0 <= delta < _TABLE_SIZE else varint(delta)
        index = _VARINTS[count] if count < _TABLE_SIZE else varint(count)
        record = b"".join((b"\0", time, index, key_size, key, value_size, value, headers))
        size = len(record)
        prefix = _VARINTS[size] if size < _TABLE_SIZE else varint(size)
        total = len(prefix) + size
        if self._used + total > self._space:
            check_size(size)
            if count:
                return -1
        self._buffer += prefix
        self._buffer += record
        self._used += total
        self.record_count = count + 1
        if count == 0:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return count

    def _join_values(self, timestamp: int, values: list[Any]) -> tuple[int, int]:
        """The rest of ``put_values`` in the pure build."""
        delta = timestamp - self.base_timestamp
        put = value_bytes = 0
        for value in values:
            if type(value) is not bytes:
                break
            size = len(value)
            # ``put`` raises for a record larger than any batch.
            if self._used + size > self._space:
                break
            if self._join(timestamp, delta, None, value, _NO_HEADERS) < 0:
                break
            put += 1
            value_bytes += size
        return put, value_bytes

    def _store(self, delta: int, key: Any, value: Any, headers: bytes) -> int:
        """Append the record's bytes in the compiled build; see ``_write``."""
        headers_cstr: Any = headers
        key_cstr: Any = headers_cstr
        value_cstr: Any = headers_cstr
        key_size = -1
        value_size = -1
        if key is not None:
            key_cstr = key
            key_size = len(key)
        if value is not None:
            value_cstr = value
            value_size = len(value)
        return self._write(
            delta, key_cstr, key_size, value_cstr, value_size, headers_cstr, len(headers)
        )

    def _write(
        self,
        delta: int,
        key_cstr: Any,
        key_size: int,
        value_cstr: Any,
        value_size: int,
        headers_cstr: Any,
        headers_size: int,
    ) -> int:
        """Append the record's bytes; return the bytes written, 0 if they don't fit."""
        time = zigzag(delta)
        index = zigzag(self.record_count)
        key_length = zigzag(key_size)
        value_length = zigzag(value_size)
        size = 1 + varint_size(time) + varint_size(index) + varint_size(key_length)
        size += varint_size(value_length) + headers_size
        if key_size > 0:
            size += key_size
        if value_size > 0:
            size += value_size
        total = size + varint_size(zigzag(size))
        if self._used + total > self._space:
            check_size(size)
            if self.record_count > 0:
                return 0
        if self._used + total > self._size:
            self._grow(self._used + total)
        out_cstr: Any = self._memory
        pos = put_varint(out_cstr, self._used, zigzag(size))
        out_cstr[pos] = 0
        pos = put_varint(out_cstr, pos + 1, time)
        pos = put_varint(out_cstr, pos, index)
        pos = put_varint(out_cstr, pos, key_length)
        if key_size > 0:
            memcpy(out_cstr + pos, key_cstr, key_size)
            pos += key_size
        pos = put_varint(out_cstr, pos, value_length)
        if value_size > 0:
            memcpy(out_cstr + pos, value_cstr, value_size)
            pos += value_size
        if headers_size == 1:
            out_cstr[pos] = headers_cstr[0]
        else:
            memcpy(out_cstr + pos, headers_cstr, headers_size)
        return total

    def _grow(self, wanted: int) -> None:
        """Enlarge the buffer in the compiled build, where it is larger than the used part."""
        size = max(wanted, 2 * self._size, self._expected)
        # All full batches take the same size: freed memory that is slightly too small for the next
        # one would be left as a hole.
        if size > self._space - (self._space >> 2):
            size = max(wanted, self._space)
        # The new bytes need no defined content: they are not cleared.
        PyByteArray_Resize(self._buffer, size)
        self._take(self._buffer)

    def trim(self) -> None:
        """Free memory that was allocated for further records. Call it after the last record."""
        if cython.compiled:
            size = self._size
            if size > _FIRST_BYTES and size - self._used > size >> 3:
                # A copy, as a bytearray keeps its memory until half of it is free.
                try:
                    self._take(self._buffer[: self._used])
                except MemoryError:
                    pass  # then it is kept: sealing a batch must always succeed

    def give_back(self) -> bytearray | None:
        """Return the memory of a settled batch; None if a view exists, or in the pure build."""
        buffer = self._buffer
        if not cython.compiled or is_exported(buffer):  # type: ignore[name-defined] # noqa: F821
            return None
        self.closed = True
        self.record_count = self._used = 0
        self._take(_NOTHING)
        return buffer

    def _body(self) -> bytes | memoryview:
        """Return the bytes behind the header, compressed once ``compress`` was called."""
        return memoryview(self._buffer)[: self._used] if self._payload is None else self._payload

    def compress(self, codec: Compression, level: int | None = None) -> None:
        """Compress the records, and close the builder to appends. May run in a thread.

        Args:
            codec: The codec; ``Compression.NONE`` only closes the builder.
            level: Level on the codec's own scale; None is its default.

        Raises:
            CodecUnavailable: The codec's package is not installed, or can't be loaded.
            InvalidArgument: It is compressed already.
        """
        if self._payload is not None:
            raise InvalidArgument(f"the batch is already compressed with {self.codec.name}")
        self.closed = True
        if codec != 0:
            self._payload = compress(codec, self._body(), level)
            self._codec = int(codec)
            self._take(bytearray())

    def encode(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        leader_epoch: int = -1,
        transactional: bool = False,
    ) -> bytes:
        """Return the encoded v2 batch, base offset 0, with its CRC; close it to appends.

        May be called again with other ids, for a retry or after an epoch bump.

        Raises:
            InvalidArgument: It has no records.
        """
        ids = (producer_id, producer_epoch, base_sequence)
        return b"".join(self.parts(*ids, leader_epoch=leader_epoch, transactional=transactional))

    def parts(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        *,
        leader_epoch: int = -1,
        transactional: bool = False,
    ) -> tuple[bytes, bytes | memoryview]:
        """Return the result of ``encode`` as header and body; the body is not a copy.

        The builder is closed, so the body never changes. Raises: see ``encode``.
        """
        if self.record_count == 0:
            raise InvalidArgument("a batch without records can't be encoded")
        self.closed = True
        body = self._body()
        head = batch_head(
            body,
            self._attributes | self._codec | (TRANSACTIONAL_BIT if transactional else 0),
            self.record_count,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            0,
            leader_epoch,
        )
        return head, body

    def split(self, limit: int) -> list[BatchBuilder]:
        """Return the records, in order, in new builders of ``limit`` bytes; for MESSAGE_TOO_LARGE.

        A record over the limit is alone in its builder. This builder is unchanged, but closed.
        """
        self.closed = True
        body = bytes(self._body())
        if self._codec:
            body = decompress(Compression(self._codec), body, max(self._used, 1))
        log_append_time = bool(self._attributes & LOG_APPEND_BIT)
        transactional = bool(self._attributes & TRANSACTIONAL_BIT)
        origin, count = Origin("", 0, TimestampType.CREATE_TIME, None), self.record_count
        records, _, _ = decode_records(
            body, 0, count, 0, count - 1, self.base_timestamp, None, origin, 0, count
        )  # fmt: skip
        parts: list[BatchBuilder] = []
        part: BatchBuilder | None = None
        for record in records:
            fields = (record.timestamp, record.key, record.value, record.headers)
            if part is None or part.append(*fields) < 0:
                part = BatchBuilder(
                    limit, log_append_time=log_append_time, transactional=transactional
                )
                part.append(*fields)
                parts.append(part)
        return parts


def checked_timestamp(timestamp_ms: int) -> int:
    """Return ``timestamp_ms`` if it is an int that a batch can hold, else InvalidArgument."""
    if type(timestamp_ms) is int:
        try:
            timestamp = timestamp_ms
            if -1 <= timestamp <= _LAST_TIMESTAMP:
                return timestamp
        except OverflowError:  # in the compiled build, from the conversion to 64 bits
            pass
    raise InvalidArgument(
        f"timestamp_ms must be an int of milliseconds within -1 to 2**63 - 2, not {timestamp_ms!r}"
    )


def wrong_type(what: str, given: object) -> SerializationFailed:
    """Return the error for a key or value that is not bytes."""
    return SerializationFailed(
        f"the {what} of a record must be bytes or None when it is appended, "
        f"not {type(given).__name__}"
    )


def check_size(size: int) -> None:
    """Raise RecordTooLarge for a record that no batch can hold, as its length is 32 bits."""
    if size > _INT32_MAX - BATCH_HEADER_BYTES - _MOST_OVERHEAD_BYTES:
        raise RecordTooLarge(f"a record of {size} bytes is more than any batch can hold (2 GiB)")
