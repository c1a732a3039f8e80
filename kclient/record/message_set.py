"""``read_batches``: the batches of one partition in a fetch response, in any message format.

Batches are views of the given bytes (``record_batch``). So are the messages of message sets v0 and
v1 (before Kafka 0.11, read only): one ``LegacyBatch``, with the interface of ``Batch``, per outer
message, which is a single message if it is not compressed, else a wrapper around an inner message
set. In v0 there are no timestamps, and inner offsets are absolute; in v1 they are relative, and the
timestamp of a wrapper with LogAppendTime applies to all its messages. It must not do I/O or know
about positions.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from kclient.errors import CorruptRecord
from kclient.record.compression import DEFAULT_CAP, Compression, codec_package, decompress
from kclient.record.implementation import codec
from kclient.record.layout import CODEC_MASK, LOG_APPEND_BIT, LOG_OVERHEAD, MAGIC_POSITION, PREFIX
from kclient.record.record_batch import Batch, corrupt_batch
from kclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kclient.record.compression import Bytes
    from kclient.record.record import Record
    from kclient.types import TopicPartition

_V0 = struct.Struct(">Ibb")
_V1 = struct.Struct(">Ibbq")
_SIZE = struct.Struct(">i")
_SMALLEST_BYTES = _V0.size + 2 * _SIZE.size
"""Size of an empty v0 message: CRC, magic, attributes, and two lengths."""
_CRC_BYTES = 4
_NO_TIMESTAMP = -1
_LZ4_HEAD = struct.Struct("<IBBQ")
"""Magic, flags, block size, and the content size that one of the flags declares."""


def read_batches(
    data: bytes | memoryview, *, topic_partition: TopicPartition | None = None
) -> Iterator[Batch]:
    """Yield every complete batch in ``data``, in order.

    A batch that the broker cut off at the end of a fetch is silently skipped: no batch, no error.

    Args:
        data: Record bytes of one partition; the batches keep a view of them, so they must not
            change as long as records are taken.
        topic_partition: Topic and partition of the data, for error texts.

    Raises:
        CorruptRecord: A batch's length, magic or header is invalid.
    """
    view = memoryview(data)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    pos = 0
    size = len(view)
    while size - pos >= LOG_OVERHEAD:
        base_offset, length = PREFIX.unpack_from(view, pos)
        if length < _SMALLEST_BYTES:
            what = f"announces a length of {length} bytes"
            raise corrupt_batch(topic_partition, base_offset, what)
        end = pos + LOG_OVERHEAD + length
        if end > size:
            return
        magic = view[pos + MAGIC_POSITION]
        if magic == 2:
            yield Batch(view[pos:end], topic_partition)
        elif magic < 2:
            yield LegacyBatch(view[pos:end], topic_partition)
        else:
            what = f"has magic {magic}; this client reads 0, 1 and 2"
            raise corrupt_batch(topic_partition, base_offset, what)
        pos = end


class Message(NamedTuple):
    """One message of a set; key and value are views of its bytes."""

    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None


def parse_message(view: memoryview) -> Message:
    """Parse the message in ``view``, which begins with the message's offset.

    Raises:
        CorruptRecord: The bytes are no message.
    """
    offset, length = PREFIX.unpack_from(view, 0)
    pos = LOG_OVERHEAD
    magic = view[pos + _CRC_BYTES]
    fixed = _V0 if magic == 0 else _V1
    if magic > 1 or length < fixed.size + 2 * _SIZE.size:
        raise CorruptRecord(f"a message with magic {magic} in {length} bytes")
    crc, _, attributes = _V0.unpack_from(view, pos)
    timestamp = _V1.unpack_from(view, pos)[3] if magic == 1 else _NO_TIMESTAMP
    key, pos = _sized(view, pos + fixed.size)
    value, pos = _sized(view, pos)
    if pos != len(view):
        raise CorruptRecord(f"the message at offset {offset} has {len(view) - pos} bytes too many")
    return Message(offset, crc, magic, attributes, timestamp, key, value)


def _sized(view: memoryview, pos: int) -> tuple[memoryview | None, int]:
    if len(view) - pos < _SIZE.size:
        raise CorruptRecord("a message ends in the middle")
    (size,) = _SIZE.unpack_from(view, pos)
    pos += _SIZE.size
    if size < 0:
        return None, pos
    if size > len(view) - pos:
        raise CorruptRecord(f"{size} bytes are announced in a message that has {len(view) - pos}")
    return view[pos : pos + size], pos + size


def message_end(view: memoryview, pos: int) -> tuple[int, int]:
    """Return the offset of the message at ``pos`` of an inner message set, and its end position.

    Raises:
        CorruptRecord: There is no complete message.
    """
    if len(view) - pos < LOG_OVERHEAD:
        raise CorruptRecord("a compressed message set ends in the middle")
    offset, length = PREFIX.unpack_from(view, pos)
    end = pos + LOG_OVERHEAD + length
    if length < _SMALLEST_BYTES or end > len(view):
        raise CorruptRecord(f"a message of {length} bytes in a compressed set of {len(view)}")
    return offset, end


def repaired_lz4_frame(data: Bytes) -> bytes:
    """Return ``data`` with the header checksum that the lz4 frame format requires.

    For v0 messages, Kafka computed it over the magic number as well (KAFKA-3160). Java ignores it
    in v0; here the header is rewritten.
    """
    if len(data) <= _LZ4_HEAD.size:
        return bytes(data)
    _, flags, blocks, content_size = _LZ4_HEAD.unpack_from(data)
    if 0x40 <= blocks < 0x80:
        frame = codec_package("lz4")
        head: bytes = frame.compress_begin(
            frame.create_compression_context(),
            source_size=content_size if flags & 0x08 else 0,
            block_size=blocks >> 4,
            block_linked=not flags & 0x20,
            block_checksum=bool(flags & 0x10),
            content_checksum=bool(flags & 0x04),
        )
        if data[: len(head) - 1] == head[:-1]:
            return head + data[len(head) :]
    return bytes(data)


class LegacyBatch(Batch):
    """An outer message of a message set, with the interface of ``Batch``.

    Attributes that depend on the inner messages are set when it is inflated: until then
    ``base_offset`` is the wrapper's, that of the last inner message, and ``record_count`` is -1.
    """

    __slots__ = ("_message", "_shift")

    def __init__(self, view: memoryview, topic_partition: TopicPartition | None = None) -> None:
        self._view = view
        self._topic_partition = topic_partition
        self.size_bytes = len(view)
        self.base_offset = PREFIX.unpack_from(view, 0)[0]
        try:
            self._message = message = parse_message(view)
        except CorruptRecord as error:
            raise self._located(error) from error
        codec_id = message.attributes & CODEC_MASK
        if codec_id > Compression.LZ4:
            raise self.corrupt(f"has the unknown codec {codec_id}")
        if message.offset < 0:
            raise self.corrupt("has a negative offset")
        self.magic = message.magic
        self.crc = message.crc
        self.codec = Compression(codec_id)
        self.last_offset = message.offset
        self.timestamp_type = (
            TimestampType.LOG_APPEND_TIME
            if message.magic == 1 and message.attributes & LOG_APPEND_BIT
            else TimestampType.CREATE_TIME
        )
        self.base_timestamp = self.max_timestamp = message.timestamp
        self.partition_leader_epoch = self.producer_id = -1
        self.producer_epoch = self.base_sequence = -1
        self.is_transactional = self.is_control = False
        self.record_count = -1 if self.codec else 1
        self._payload = None if self.codec else b""
        self._shift = 0
        self._last_delta = 0
        self._left = 1
        self._pos = 0

    def check_crc(self) -> None:
        """Verify the outer message's CRC, which covers the inner ones as well.

        Raises:
            CorruptRecord: It differs from the one in the message.
        """
        computed = zlib.crc32(self._view[LOG_OVERHEAD + _CRC_BYTES :])
        if computed != self.crc:
            raise self.corrupt(f"has CRC {computed:08x} where {self.crc:08x} is announced")

    def inflate(self, cap: int = DEFAULT_CAP) -> None:
        """As ``Batch.inflate``."""
        if self._payload is not None:
            return
        value = self._message.value
        if value is None:
            raise self.corrupt("is compressed and has no value")
        data: bytes | memoryview = value
        if self.codec == Compression.LZ4 and self.magic == 0:
            data = repaired_lz4_frame(value)
        try:
            payload = decompress(self.codec, data, cap)
            self._place(memoryview(payload))
        except CorruptRecord as error:
            raise self._located(error) from error
        self._payload = payload

    def _place(self, inner: memoryview) -> None:
        """Count the inner messages and determine their first offset."""
        pos = count = 0
        first = last = -1
        while pos < len(inner):
            last, pos = message_end(inner, pos)
            first = last if count == 0 else first
            count += 1
        if count == 0:
            raise CorruptRecord("its compressed set holds no message")
        self._shift = self.last_offset - last if self.magic == 1 else 0
        self.base_offset = first + self._shift
        self.record_count = self._left = count

    def _next(self) -> Message:
        """Return the next message, with its absolute offset and effective timestamp."""
        if not self.codec:
            return self._message
        inner = memoryview(self._payload or b"")
        _, end = message_end(inner, self._pos)
        message = parse_message(inner[self._pos : end])
        if message.attributes & CODEC_MASK:
            raise CorruptRecord("it holds a message that is compressed once more")
        if message.magic != self.magic:
            raise CorruptRecord(f"it holds a message with magic {message.magic}")
        offset = message.offset + self._shift
        if not 0 <= offset <= self.last_offset:
            raise CorruptRecord(f"it holds a message at offset {offset}")
        self._pos = end
        appended = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        timestamp = self._message.timestamp if appended else message.timestamp
        return message._replace(offset=offset, timestamp=timestamp)

    def records(
        self, topic: str, partition: int, *, start_offset: int = 0, limit: int | None = None
    ) -> list[Record]:
        """As ``Batch.records``."""
        if self._payload is None:
            self.inflate()
        out: list[Record] = []
        pos, left = self._pos, self._left
        try:
            while self._left and (limit is None or len(out) < limit):
                message = self._next()
                self._left -= 1
                if message.offset >= start_offset:
                    out.append(self._record(topic, partition, message))
        except (CorruptRecord, MemoryError) as error:
            self._pos, self._left = pos, left
            if isinstance(error, MemoryError):
                raise
            raise self._located(error) from error
        self._drop_when_done()
        return out

    def _record(self, topic: str, partition: int, message: Message) -> Record:
        return codec.Record(
            topic,
            partition,
            message.offset,
            message.timestamp,
            None if message.key is None else bytes(message.key),
            None if message.value is None else bytes(message.value),
            (),
            self.timestamp_type,
        )
