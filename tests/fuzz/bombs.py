"""Lets a whole consumer meet one decompression bomb, in a process of its own; see test_bombs.

Run as ``python -m tests.fuzz.bombs CODEC KIND``. The broker sends the bomb in the place of a batch,
with its length and CRC right. Printed is, as JSON, what poll raised, the position before and after,
whether the consumer read on behind the bomb, seconds of CPU, and by how many bytes the process grew
over what it had before at its largest.
"""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crc32c import crc32c

import kclient
from kclient.errors import KafkaError
from kclient.record import DEFAULT_CAP, Compression, compress
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.unit.consumer.log_bytes import batch
from tests.unit.record.bomb import (
    BOMB_BYTES,
    MIB,
    gzip_zeros,
    lz4_zeros,
    snappy_zeros,
    zstd_zeros,
)

T = "flights"
AT = 7
"""The offset of the bomb."""


def snappy_block(declared: int, copies: int) -> bytes:
    """A bare block that declares a size, and copies the byte before it so often."""
    out = bytearray()
    value = declared
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value, 0, 0]) + b"\xfe\x01\x00" * copies


def xerial(*blocks: bytes) -> bytes:
    """Blocks in snappy-java's framing."""
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def twice(codec: Compression, bomb: bytes) -> bytes:
    """A bomb inside of a bomb: what comes out first must not be inflated once more."""
    return compress(codec, bomb)


PAYLOADS: dict[tuple[str, str], Callable[[], bytes]] = {
    ("GZIP", "honest"): lambda: gzip_zeros(BOMB_BYTES),
    ("GZIP", "lying size"): lambda: gzip_zeros(BOMB_BYTES)[:-4] + struct.pack("<I", 100),
    ("GZIP", "no size"): lambda: gzip_zeros(BOMB_BYTES)[:-8],
    ("GZIP", "concatenated"): lambda: gzip_zeros(64 * MIB) * 8,
    ("GZIP", "nested"): lambda: twice(Compression.GZIP, gzip_zeros(BOMB_BYTES)),
    ("SNAPPY", "honest"): lambda: snappy_zeros(BOMB_BYTES),
    ("SNAPPY", "lying size"): lambda: xerial(snappy_block(2**32 - 1, 1000)),
    ("SNAPPY", "no size"): lambda: b"\xff" * 5 + b"\xfe\x01\x00" * (2 * MIB),
    ("SNAPPY", "concatenated"): lambda: snappy_zeros(64 * MIB) * 8,
    ("SNAPPY", "nested"): lambda: twice(Compression.SNAPPY, snappy_zeros(BOMB_BYTES)),
    ("LZ4", "honest"): lambda: lz4_zeros(BOMB_BYTES, content_size=BOMB_BYTES),
    ("LZ4", "lying size"): lambda: lz4_zeros(BOMB_BYTES, content_size=100),
    ("LZ4", "no size"): lambda: lz4_zeros(BOMB_BYTES),
    ("LZ4", "concatenated"): lambda: lz4_zeros(64 * MIB) * 8,
    ("LZ4", "nested"): lambda: twice(Compression.LZ4, lz4_zeros(BOMB_BYTES)),
    ("ZSTD", "honest"): lambda: zstd_zeros(BOMB_BYTES, content_size=BOMB_BYTES),
    ("ZSTD", "lying size"): lambda: zstd_zeros(BOMB_BYTES, content_size=200 * MIB),
    ("ZSTD", "no size"): lambda: zstd_zeros(BOMB_BYTES, window_log=27),
    ("ZSTD", "concatenated"): lambda: zstd_zeros(64 * MIB) * 8,
    ("ZSTD", "nested"): lambda: twice(Compression.ZSTD, zstd_zeros(BOMB_BYTES)),
}
"""Twenty: each codec's, by the size that they declare and how they are put together."""


def as_batch(codec: Compression, payload: bytes, base_offset: int = AT) -> bytes:
    """A batch of one record with that payload; its length and CRC are right."""
    data = bytearray(batch(base_offset, 1)[:61]) + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def resident_bytes() -> int:
    """What the process has in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def meet(bomb: bytes, **settings: Any) -> dict[str, Any]:
    """Read up to the bomb, meet it, and go past it."""
    where = TopicPartition(T, 0)
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T)
        for first in (0, AT, AT + 1):
            cluster.append(T, 0, batch(first, AT if first == 0 else 1))

        def plant(request: Any, response: Any) -> None:
            for topic in response.responses:
                for part in topic.partitions:
                    part.records = bytes(part.records or b"").replace(batch(AT, 1), bomb)

        cluster.faults.rewrite("Fetch", plant, times=None)
        async with kclient.Consumer(cluster.bootstrap, **settings) as consumer:
            consumer.assign([where])
            consumer.seek(where, 0)
            read = 0
            while read < AT:
                read += len(await consumer.poll(timeout=1.0, max_records=1))
            before, begun, had = consumer.positions()[where], time.process_time(), resident_bytes()
            error = await refusal(consumer)
            seconds = time.process_time() - begun
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            after = consumer.positions()[where]
            consumer.seek(where, AT + 1)
            behind = [record.offset for record in await consumer.poll(timeout=5.0)]
    return {
        "error": type(error).__name__,
        "text": str(error),
        "partition": str(error.topic_partition),
        "offset": getattr(error, "offset", None),
        "position": [before, after],
        "behind": behind,
        "seconds": seconds,
        "grown": max(0, peak - had),
    }


async def refusal(consumer: Any) -> KafkaError:
    """What poll raises."""
    async with asyncio.timeout(10.0):
        while True:
            try:
                await consumer.poll(timeout=1.0)
            except KafkaError as error:
                return error


def main(codec: str, kind: str) -> None:
    """Meet one."""
    bomb = as_batch(Compression[codec], PAYLOADS[codec, kind]())
    settings = {"decompression_cap": DEFAULT_CAP, "max_partition_fetch_bytes": 64 * MIB}
    sys.stdout.write(json.dumps(run_virtually(meet(bomb, **settings))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
