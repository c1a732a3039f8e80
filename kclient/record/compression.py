"""The codecs of Kafka's batches: their names, their cost, and one function for each direction.

``builder.py`` compresses, ``record_batch.py`` and ``message_set.py`` decompress with this module;
their callers use ``predicted_cost`` to decide whether that belongs in a thread. Framing is Java's.
The codecs' packages are imported on first use, so that a client which never uses a codec neither
needs nor loads it.

Decompression trusts nothing: whatever size a payload declares, the cap limits what is allocated.
Each codec is a generator of chunks of at most ``CHUNK`` bytes, so that exceeding the cap is noticed
before memory is exhausted. Concatenated frames are read as Java reads them, one after the other.
"""

from __future__ import annotations

import enum
import struct
import threading
import zlib
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.errors import CodecUnavailable, DecompressionFailed, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Bytes: TypeAlias = bytes | bytearray | memoryview

XERIAL_MAGIC = b"\x82SNAPPY\x00"
"""The start of snappy-java's framing; two int32 versions follow."""
_XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_INT32 = struct.Struct(">i")
_GZIP_FRAMING = 31
"""zlib's ``wbits`` for gzip instead of zlib framing, with the largest window."""
_SAMPLE_BYTES = 128 * 1024
_SLOWEST_FACTOR = 40
_PACKAGES = {
    "snappy": ("snappy", "python-snappy"),
    "lz4": ("lz4.frame", "lz4"),
    "zstd": ("zstandard", "zstandard"),
}
_USUAL_RATIO = 4
"""The usual ratio of inflated to compressed size for payloads of records."""
_zstd_compressors = threading.local()
DEFAULT_CAP = 256 * 1024 * 1024
"""Default for the bytes that one batch may inflate to."""
CHUNK = 1024 * 1024
_SMALLEST_CHUNK = 64 * 1024
_INPUT_SLICE = 64 * 1024
_XERIAL_HEADER = 16
_LARGEST_XERIAL_BLOCK = 16 * 1024 * 1024
_SNAPPY_RATIO = 22
"""Snappy's best ratio: three bytes copy sixty-four."""
_FREE_WINDOW = 24 * 1024 * 1024
"""Bytes of a zstd window that may exceed the cap; the rest of a larger one counts against it."""
_ZSTD_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RLE_BLOCK = 1
_zstd_decompressors = threading.local()


class Compression(enum.IntEnum):
    """A batch's codec; the values are those on the wire."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> Compression:
        """Return the codec by its name in configurations: "none", "gzip", "snappy", "lz4", "zstd".

        Raises:
            InvalidArgument: There is no such codec.
        """
        for codec in cls:
            if codec.name.lower() == name:
                return codec
        names = ", ".join(codec.name.lower() for codec in cls)
        raise InvalidArgument(f"compression {name!r} does not exist, there are {names}")


_COST = {
    # Seconds per 128 KiB at the default level: compressing, inflating (of inflated bytes).
    Compression.NONE: (0.0, 0.0),
    Compression.GZIP: (2802e-6, 201e-6),
    Compression.SNAPPY: (143e-6, 61e-6),
    Compression.LZ4: (125e-6, 36e-6),
    Compression.ZSTD: (302e-6, 73e-6),
}
_LEVEL_COST = {
    # (from this level on, factor on the cost of the default level), steepest first.
    Compression.GZIP: ((9, 2.0), (6, 1.0), (-1, 1.0), (0, 0.5)),
    Compression.LZ4: ((10, _SLOWEST_FACTOR), (3, 12.0), (-1 << 31, 1.0)),
    Compression.ZSTD: ((16, 80.0), (10, 20.0), (6, 4.0), (4, 2.0), (-1 << 31, 1.0)),
}


def predicted_cost(
    codec: Compression, level: int | None, size_bytes: int, compressing: bool
) -> float:
    """Return the approximate CPU seconds, to decide whether the work belongs in a thread.

    Args:
        codec: The codec.
        level: Level on the codec's own scale, None for its default; only used for compressing.
        size_bytes: Size of the input: uncompressed when compressing, else compressed.
        compressing: True to compress, False to inflate.
    """
    compress_cost, inflate_cost = _COST[codec]
    if not compressing:
        return inflate_cost * _USUAL_RATIO * size_bytes / _SAMPLE_BYTES
    factor = 1.0
    if level is not None:
        for lowest, times in _LEVEL_COST.get(codec, ()):
            if level >= lowest:
                factor = times
                break
    return compress_cost * factor * size_bytes / _SAMPLE_BYTES


def codec_package(codec: str) -> Any:
    """Import the module that implements ``codec``.

    Raises:
        CodecUnavailable: It is not installed, or can't be loaded.
    """
    name, package = _PACKAGES[codec]
    try:
        return import_module(name)
    except (ImportError, OSError) as cause:  # also a shared library that doesn't load
        if isinstance(cause, ModuleNotFoundError) and cause.name in (name, name.split(".")[0]):
            raise CodecUnavailable(
                f"{codec} needs the package {package}, which is not installed",
                hint=f"pip install 'kclient[compression]', or {package} alone",
            ) from cause
        raise CodecUnavailable(
            f"{codec} needs the package {package}, which fails to load: {cause}",
            hint=f"pip install --force-reinstall {package}",
        ) from cause


def compress(codec: Compression, data: Bytes, level: int | None = None) -> bytes:
    """Return ``data`` compressed as Java's producer would send it.

    Args:
        codec: The codec; NONE only copies.
        data: The records of a batch.
        level: gzip 0 to 9 (default 6), lz4 0 to 16 (default 0; from 3 on its slow mode),
            zstd up to 22, also negative (default 3); snappy has none.

    Raises:
        CodecUnavailable: The codec's package is not installed, or can't be loaded.
        InvalidArgument: The codec does not have that level.
    """
    try:
        return _COMPRESSORS[codec](data, level)
    except CodecUnavailable:  # also a ValueError
        raise
    except (ValueError, OverflowError, zlib.error) as error:
        raise InvalidArgument(f"{codec.name.lower()} has no level {level!r}: {error}") from error


def _compress_none(data: Bytes, level: int | None) -> bytes:
    return bytes(data)


def _compress_gzip(data: Bytes, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_FRAMING)
    return compressor.compress(data) + compressor.flush()


def _compress_snappy(data: Bytes, level: int | None) -> bytes:
    """Blocks of 32 KiB in snappy-java's framing, which Java can read as a stream."""
    snappy = codec_package("snappy")
    parts = [XERIAL_MAGIC, _XERIAL_VERSIONS]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress(bytes(view[start : start + _XERIAL_BLOCK])))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    """Independent blocks of 64 KiB: Java refuses linked ones."""
    frame = codec_package("lz4")
    compressed: bytes = frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _compress_zstd(data: Bytes, level: int | None) -> bytes:
    """One frame with its size; contexts are kept, as creating one costs more than using it."""
    wanted = 3 if level is None else level
    kept: tuple[int, Any] | None = _zstd_compressors.__dict__.get("kept")
    if kept is None or kept[0] != wanted:
        package = codec_package("zstd")
        kept = _zstd_compressors.kept = (wanted, package.ZstdCompressor(level=wanted))
    compressed: bytes = kept[1].compress(data)
    return compressed


_COMPRESSORS: dict[Compression, Callable[[Bytes, int | None], bytes]] = {
    Compression.NONE: _compress_none,
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}


def decompress(codec: Compression, data: Bytes, cap: int = DEFAULT_CAP) -> bytes:
    """Return ``data`` inflated, if that is at most ``cap`` bytes. May run in a thread.

    The cap does not apply to uncompressed data, which the limits of the fetch have bounded.

    Raises:
        DecompressionFailed: The data is invalid for the codec, or it is over the cap.
        CodecUnavailable: The codec's package is not installed, or can't be loaded.
    """
    if codec == Compression.NONE:
        return bytes(data)
    chunks = _INFLATERS[codec](data, cap)
    first = next(chunks, b"")
    total = len(first)
    if total > cap:
        raise _over_cap(codec, cap)
    second = next(chunks, None)
    if second is None:
        return first
    # BytesIO grows in place and returns its bytes without another copy.
    sink = BytesIO()
    sink.write(first)
    del first
    while second is not None:
        total += len(second)
        if total > cap:
            raise _over_cap(codec, cap)
        sink.write(second)
        second = next(chunks, None)
    return sink.getvalue()


def _over_cap(codec: Compression, cap: int) -> DecompressionFailed:
    return DecompressionFailed(
        f"the {codec.name.lower()} payload inflates to more than the {cap} bytes allowed",
        hint="if the batch is to be trusted raise decompression_cap, else seek past it",
    )


def _bad(codec: str, what: object) -> DecompressionFailed:
    return DecompressionFailed(f"the payload is not {codec}: {what}")


def _chunk_for(size: int) -> int:
    """Return the size of a first chunk that the usual payload fits into, but not much larger.

    Later chunks double: a thread waits for the GIL after each, for 5 ms if the loop is busy.
    """
    return min(CHUNK, max(_SMALLEST_CHUNK, 8 * size))


def _inflate_gzip(data: Bytes, cap: int) -> Iterator[bytes]:
    view = memoryview(data)
    chunk = _chunk_for(len(view))
    stream = zlib.decompressobj(wbits=_GZIP_FRAMING)
    pos = 0
    pending: Bytes = b""
    try:
        while pending or pos < len(view):
            if not pending:
                pending = view[pos : pos + _INPUT_SLICE]
                pos += len(pending)
            out = stream.decompress(pending, chunk)
            pending = stream.unconsumed_tail
            if stream.eof:
                pending = stream.unused_data
                if pending or pos < len(view):
                    stream = zlib.decompressobj(wbits=_GZIP_FRAMING)
            if out:
                chunk = min(CHUNK, 2 * chunk)
                yield out
        while not stream.eof:
            out = stream.decompress(b"", chunk)
            if not out:
                raise _bad("gzip", "it ends in the middle")
            chunk = min(CHUNK, 2 * chunk)
            yield out
    except zlib.error as error:
        raise _bad("gzip", error) from error


def _inflate_lz4(data: Bytes, cap: int) -> Iterator[bytes]:
    frame = codec_package("lz4")
    view = memoryview(data)
    chunk = _chunk_for(len(view))
    stream = frame.LZ4FrameDecompressor()
    pos = 0
    pending = b""
    try:
        while True:
            if not pending and stream.needs_input:
                pending = bytes(view[pos : pos + _INPUT_SLICE])
                pos += len(pending)
            out = stream.decompress(pending, max_length=chunk)
            if stream.eof:
                pending = stream.unused_data or b""
                if out:
                    yield out
                if not pending and pos >= len(view):
                    return
                stream = frame.LZ4FrameDecompressor()
                continue
            if out:
                chunk = min(CHUNK, 2 * chunk)
                yield out
            elif not pending and pos >= len(view):
                raise _bad("lz4", "it ends in the middle")
            pending = b""
    except RuntimeError as error:
        raise _bad("lz4", error) from error


def _inflate_snappy(data: Bytes, cap: int) -> Iterator[bytes]:
    """Inflate both blocks in snappy-java's framing, as Java writes them, and one bare block."""
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(view, cap // 2)
        return
    pos = _XERIAL_HEADER
    if len(view) < pos:
        raise _bad("snappy", "its framing ends in the middle")
    while pos < len(view):
        if len(view) - pos < _INT32.size:
            raise _bad("snappy", "a block's length ends in the middle")
        (size,) = _INT32.unpack_from(view, pos)
        pos += _INT32.size
        if size < 0 or size > len(view) - pos:
            raise _bad("snappy", f"a block of {size} bytes does not fit")
        yield _snappy_block(view[pos : pos + size], min(cap, _LARGEST_XERIAL_BLOCK))
        pos += size


def _snappy_block(block: memoryview, most: int) -> bytes:
    """Inflate one bare block. The package allocates what the block declares: check that first."""
    declared = 0
    shift = 0
    for byte in block[:5]:
        declared |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if declared > most:
        raise DecompressionFailed(
            f"a snappy block inflates to {declared} bytes, more than the {most} allowed here",
            hint="if the batch is to be trusted raise decompression_cap, else seek past it",
        )
    if declared > _SNAPPY_RATIO * len(block) + _SNAPPY_RATIO:
        raise _bad("snappy", f"{len(block)} bytes can't inflate to {declared}")
    snappy = codec_package("snappy")
    try:
        return bytes(snappy.uncompress(bytes(block)))
    except snappy.UncompressError as error:
        raise _bad("snappy", error) from error


def _most_with_window(cap: int, window: int) -> int:
    """Return the most bytes that a zstd frame may inflate to, as its window takes memory, too."""
    total = cap + _FREE_WINDOW
    return min(cap, max(total - window, min(window, total // 2)))


def _inflate_zstd(data: Bytes, cap: int) -> Iterator[bytes]:
    package = codec_package("zstd")
    raw = bytes(data)
    held = 0
    try:
        for start, end in _zstd_frames(raw):
            frame = raw if end - start == len(raw) else raw[start:end]
            parameters = package.get_frame_parameters(frame)
            declared = parameters.content_size
            if 0 < declared <= min(CHUNK, cap):
                out = _zstd_decompressor(package).decompress(frame)
                held += len(out)
                yield out
                continue
            most = _most_with_window(cap, parameters.window_size)
            if declared != package.CONTENTSIZE_UNKNOWN and declared > most:
                raise _over_cap(Compression.ZSTD, cap)
            with package.ZstdDecompressor().stream_reader(frame) as stream:
                while out := stream.read(CHUNK):
                    held += len(out)
                    if held > most:
                        raise _over_cap(Compression.ZSTD, cap)
                    yield out
    except package.ZstdError as error:
        raise _bad("zstd", error) from error


def _zstd_frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each data frame (RFC 8878); skippable frames are skipped.

    The package doesn't report a broken stream: block headers are walked first, so that a payload
    which ends in the middle, or has bytes behind its last frame, raises instead of being cut short.

    Raises:
        DecompressionFailed: The bytes are not whole frames.
    """
    pos = 0
    while pos < len(data):
        magic = _little(data, pos, 4)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            pos += 8 + _little(data, pos + 4, 4)
            if pos > len(data):
                raise _bad("zstd", "a skippable frame ends in the middle")
            continue
        if magic != _ZSTD_MAGIC:
            raise _bad("zstd", f"no frame begins at byte {pos}")
        end = _frame_end(data, pos)
        yield pos, end
        pos = end


def _frame_end(data: bytes, start: int) -> int:
    descriptor = _little(data, start + 4, 1)
    single_segment = descriptor & 0x20
    content_size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6]
    if single_segment:
        content_size_bytes = content_size_bytes or 1
    pos = start + 5 + (0 if single_segment else 1)
    pos += _DICTIONARY_ID_BYTES[descriptor & 3] + content_size_bytes
    last = 0
    while not last:
        block = _little(data, pos, 3)
        last = block & 1
        pos += 3 + (1 if block >> 1 & 3 == _RLE_BLOCK else block >> 3)
    if descriptor & 4:
        pos += 4
    if pos > len(data):
        raise _bad("zstd", "a frame ends in the middle")
    return pos


def _little(data: bytes, pos: int, size: int) -> int:
    if pos + size > len(data):
        raise _bad("zstd", "a frame ends in the middle")
    return int.from_bytes(data[pos : pos + size], "little")


def _zstd_decompressor(package: Any) -> Any:
    """Return a cached context for frames of known, small size: creating one costs twice its use."""
    kept = _zstd_decompressors.__dict__.get("kept")
    if kept is None:
        kept = _zstd_decompressors.kept = package.ZstdDecompressor()
    return kept


_INFLATERS: dict[Compression, Callable[[Bytes, int], Iterator[bytes]]] = {
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
