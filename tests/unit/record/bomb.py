"""Inflates one hostile payload in a process of its own and prints its cost; see test_bombs.

Run as ``python -m tests.unit.record.bomb CODEC KIND``. The last line has the error's name, the
seconds it took, and by how many bytes the process grew at its largest.
"""

from __future__ import annotations

import resource
import struct
import sys
import time
import zlib

from kclient.errors import CorruptRecord
from kclient.record import DEFAULT_CAP, BatchBuilder, Compression, read_batches

MIB = 1 << 20
BOMB_BYTES = 2 * DEFAULT_CAP
ZSTD_RLE_BLOCK = 128 * 1024


def gzip_zeros(size: int) -> bytes:
    """One gzip member of zeros."""
    stream = zlib.compressobj(9, wbits=31)
    parts = [stream.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join([*parts, stream.flush()])


def lz4_zeros(size: int, *, content_size: int | None = None) -> bytes:
    """One lz4 frame of zeros in blocks of 4 MiB."""
    import lz4.block
    import lz4.frame

    block = lz4.block.compress(bytes(4 * MIB), store_size=False)
    head = lz4.frame.compress_begin(
        lz4.frame.create_compression_context(),
        source_size=content_size or 0,
        block_size=lz4.frame.BLOCKSIZE_MAX4MB,
        block_linked=False,
    )
    blocks = (struct.pack("<I", len(block)) + block) * (size // (4 * MIB))
    return head + blocks + bytes(4)


def zstd_zeros(size: int, *, window_log: int = 17, content_size: int | None = None) -> bytes:
    """One zstd frame of zeros in RLE blocks: four bytes for 128 KiB."""
    if content_size is None:
        head = struct.pack("<IBB", 0xFD2FB528, 0, (window_log - 10) << 3)
    else:
        head = struct.pack("<IBBQ", 0xFD2FB528, 0xC0, (window_log - 10) << 3, content_size)
    count = size // ZSTD_RLE_BLOCK
    block = (ZSTD_RLE_BLOCK << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (ZSTD_RLE_BLOCK << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return head + block * (count - 1) + last


def snappy_zeros(size: int) -> bytes:
    """Zeros in snappy-java's framing, 8 MiB a block."""
    import snappy

    block = bytes(snappy.compress(bytes(8 * MIB)))
    framed = struct.pack(">i", len(block)) + block
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed * (size // (8 * MIB))


PAYLOADS = {
    ("GZIP", "honest"): lambda: gzip_zeros(BOMB_BYTES),
    ("GZIP", "lying"): lambda: gzip_zeros(BOMB_BYTES)[:-4] + bytes(4),
    ("GZIP", "concatenated"): lambda: gzip_zeros(64 * MIB) * 8,
    ("LZ4", "honest"): lambda: lz4_zeros(BOMB_BYTES, content_size=BOMB_BYTES),
    ("LZ4", "lying"): lambda: lz4_zeros(BOMB_BYTES, content_size=100),
    ("LZ4", "unsized"): lambda: lz4_zeros(BOMB_BYTES),
    ("LZ4", "concatenated"): lambda: lz4_zeros(64 * MIB) * 8,
    ("ZSTD", "honest"): lambda: zstd_zeros(BOMB_BYTES, content_size=BOMB_BYTES),
    ("ZSTD", "lying"): lambda: zstd_zeros(BOMB_BYTES, content_size=200 * MIB),
    ("ZSTD", "unsized"): lambda: zstd_zeros(BOMB_BYTES),
    ("ZSTD", "wide"): lambda: zstd_zeros(BOMB_BYTES, window_log=27),
    ("ZSTD", "concatenated"): lambda: zstd_zeros(64 * MIB) * 8,
    ("SNAPPY", "honest"): lambda: snappy_zeros(BOMB_BYTES),
    ("SNAPPY", "bare"): lambda: b"\x80\x80\x80\x80\x02" + b"\xfe\0\0" * (2 * MIB),
}


def main(codec: str, kind: str) -> None:
    """Put the payload into a batch and inflate it."""
    builder = BatchBuilder()
    builder.append(0, None, b"", None)
    data = bytearray(builder.encode()[:61]) + PAYLOADS[codec, kind]()
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, Compression[codec])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    outcome = "nothing"
    (batch,) = read_batches(memoryview(data))
    try:
        batch.inflate(DEFAULT_CAP)
    except CorruptRecord as error:
        outcome = type(error).__name__
    seconds = time.process_time() - begun
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    sys.stdout.write(f"{outcome} {seconds:.3f} {grown}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
