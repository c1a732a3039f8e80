"""The codecs of Kafka's batches: their names, their cost, and one function each way.

``builder.py`` compresses and ``record_batch.py`` inflates through here; both ask ``predicted_cost``
whether that belongs in a thread. Framing is Java's. The codecs' packages are imported on first
use, so that a client which never meets a codec neither needs nor loads it.
"""

from __future__ import annotations

import enum
import struct
import threading
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from kclient.errors import CodecUnavailable, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

Bytes: TypeAlias = bytes | bytearray | memoryview

XERIAL_MAGIC = b"\x82SNAPPY\x00"
"""What snappy-java's framing begins with; two int32 versions follow."""
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


class Compression(enum.IntEnum):
    """A batch's codec; the values are those of the wire."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> Compression:
        """The codec named as in configurations: "none", "gzip", "snappy", "lz4" or "zstd".

        Raises:
            InvalidArgument: There is no such codec.
        """
        for codec in cls:
            if codec.name.lower() == name:
                return codec
        names = ", ".join(codec.name.lower() for codec in cls)
        raise InvalidArgument(f"compression {name!r} does not exist, there are {names}")


_COST = {
    # Seconds per 128 KiB at the default level: compressing, inflating (per byte that comes out).
    Compression.NONE: (0.0, 0.0),
    Compression.GZIP: (2802e-6, 201e-6),
    Compression.SNAPPY: (143e-6, 61e-6),
    Compression.LZ4: (125e-6, 36e-6),
    Compression.ZSTD: (302e-6, 73e-6),
}
_USUAL_RATIO = 4
"""How much larger payloads of records usually are when inflated."""
_LEVEL_COST = {
    # (from this level on, times the cost of the default level), steepest first.
    Compression.GZIP: ((9, 2.0), (6, 1.0), (-1, 1.0), (0, 0.5)),
    Compression.LZ4: ((10, _SLOWEST_FACTOR), (3, 12.0), (-1 << 31, 1.0)),
    Compression.ZSTD: ((16, 80.0), (10, 20.0), (6, 4.0), (4, 2.0), (-1 << 31, 1.0)),
}


def predicted_cost(
    codec: Compression, level: int | None, size_bytes: int, compressing: bool
) -> float:
    """Roughly how many seconds of CPU it takes; to decide whether it belongs in a thread.

    Args:
        codec: Which.
        level: The codec's own scale, None for its default; only matters for compressing.
        size_bytes: Of the input: uncompressed when compressing, compressed when not.
        compressing: The direction.
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
    """Import the module that does ``codec``.

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
    """``data`` as Java's producer would send it.

    Args:
        codec: How; NONE only copies.
        data: The records of a batch.
        level: gzip 0 to 9 (default 6), lz4 0 to 16 (default 0; from 3 on its slow mode),
            zstd up to 22, also negative (default 3); snappy has none.

    Raises:
        CodecUnavailable: The codec's package is not installed, or can't be loaded.
        InvalidArgument: The codec does not have that level.
    """
    try:
        return _COMPRESSORS[codec](data, level)
    except CodecUnavailable:  # a ValueError, too
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


_zstd_compressors = threading.local()


def _compress_zstd(data: Bytes, level: int | None) -> bytes:
    """One frame that has its size; contexts are kept, as making one costs more than using it."""
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
