"""Produce with batches that are corrupt, too large, or not what the topic takes."""

from __future__ import annotations

import gzip
import struct

from kclient.error_codes import ErrorCode
from kclient.record.compression import Compression
from tests.conformance.run import Run
from tests.conformance.scenario import scenario
from tests.support.v2_batch import encode_batch
from tests.unit.testing.batches import NOW, batch_bytes, marker, patched
from tests.unit.testing.calls import fetch, produce

_VERSIONS = (3, 7, 8, 9, 12)
_CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)


def made_of(records: bytes, count: int, codec: Compression) -> bytes:
    """A batch of bytes that needn't be records."""
    packed = gzip.compress(records, mtime=0) if codec is Compression.GZIP else records
    return encode_batch(packed, codec, count, NOW, NOW)


@scenario("Produce", ErrorCode.CORRUPT_MESSAGE)
async def a_wrong_crc(run: Run) -> None:
    topic = await run.topic()
    records = bytearray(batch_bytes(2))
    records[-1] ^= 1
    await run.ask_each(produce(topic, bytes(records)), *_VERSIONS)


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def no_batch_at_all(run: Run) -> None:
    topic = await run.topic()  # null isn't sent: Kafka sends no response to it
    await run.ask_each(produce(topic, b""), *_VERSIONS)


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def two_batches(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(produce(topic, batch_bytes() + batch_bytes()), *_VERSIONS)


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def batches_that_are_cut(run: Run) -> None:
    topic = await run.topic()
    records = batch_bytes(2)
    for size in (len(records) - 1, 61, 60, 20, 17, 16, 12, 11, 1):
        await run.ask(produce(topic, records[:size]), 9, f"{size} bytes")
    await run.ask(produce(topic, records + b"\0"), 9, "a byte more")


@scenario("Produce", ErrorCode.CORRUPT_MESSAGE)
async def lengths_that_can_not_be(run: Run) -> None:
    topic = await run.topic()
    for length in (0, -1, 13, 14, 48, 49, 1 << 30):
        records = bytearray(batch_bytes(1))
        struct.pack_into(">i", records, 8, length)
        await run.ask(produce(topic, bytes(records)), 9, f"length {length}")


@scenario("Produce")
async def other_formats(run: Run) -> None:
    topic = await run.topic()
    for magic in (0, 1, 3, -1):
        records = bytearray(batch_bytes(1))
        struct.pack_into(">b", records, 16, magic)
        await run.ask_each(produce(topic, bytes(records)), 3, 9, note=f"magic {magic}")


@scenario("Produce", ErrorCode.MESSAGE_TOO_LARGE)
async def a_batch_that_is_too_large(run: Run) -> None:
    topic = await run.topic(max_message_bytes=200)
    await run.ask_each(produce(topic, batch_bytes(1, value=b"x" * 300)), *_VERSIONS)
    fits = batch_bytes(1, value=b"x" * 100)
    await run.ask(produce(topic, fits), 9, "one that fits")
    exact = await run.topic("exact", max_message_bytes=len(fits))
    await run.ask(produce(exact, fits), 9, "that just fits")
    less = await run.topic("less", max_message_bytes=len(fits) - 1)
    await run.ask(produce(less, fits), 9, "a byte too large")


@scenario("Produce", ErrorCode.RECORD_LIST_TOO_LARGE)
async def a_batch_that_is_larger_than_a_segment(run: Run) -> None:
    segment = 1 << 20
    topic = await run.topic(segment_bytes=segment, max_message_bytes=2 * segment)
    large = produce(topic, batch_bytes(1, value=b"x" * segment))
    await run.ask_each(large, *_VERSIONS)


@scenario("Produce")
async def codecs(run: Run) -> None:
    topic = await run.topic()
    for codec in _CODECS:
        records = batch_bytes(3, value=b"x" * 100, codec=codec)
        await run.ask(produce(topic, records), 9, codec.name)
    await run.ask(fetch(topic, 0), 12)


@scenario("Produce", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
async def zstd_before_its_version(run: Run) -> None:
    topic = await run.topic()
    records = batch_bytes(3, value=b"x" * 100, codec=Compression.ZSTD)
    await run.ask_each(produce(topic, records), 3, 6, 7)


@scenario("Produce", ErrorCode.UNKNOWN_SERVER_ERROR)
async def a_codec_that_nobody_knows(run: Run) -> None:
    topic = await run.topic()
    for codec in (5, 7):
        records = patched(batch_bytes(1), ">h", 21, codec)
        await run.ask_each(produce(topic, records), 3, 9, note=f"codec {codec}")


@scenario("Produce", ErrorCode.UNKNOWN_SERVER_ERROR)
async def a_body_that_does_not_inflate(run: Run) -> None:
    topic = await run.topic()
    for codec in _CODECS:
        records = encode_batch(b"this is not compressed", codec, 1, NOW, NOW)
        await run.ask(produce(topic, records), 9, codec.name)


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def a_base_offset_that_is_not_0(run: Run) -> None:
    topic = await run.topic()
    records = bytearray(batch_bytes(1))
    struct.pack_into(">q", records, 0, 5)
    await run.ask_each(produce(topic, bytes(records)), 3, 8, 9)


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def counts_that_do_not_agree(run: Run) -> None:
    topic = await run.topic()
    for position, layout, value in ((57, ">i", 5), (57, ">i", 0), (23, ">i", 7), (23, ">i", -2)):
        records = patched(batch_bytes(2), layout, position, value)
        await run.ask_each(produce(topic, records), 7, 9, note=f"{value} at {position}")


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def control_batches(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(produce(topic, patched(marker(1, 7), ">h", 21, 0x20)), 3, 8, 9)


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def a_producer_without_a_sequence(run: Run) -> None:
    topic = await run.topic()
    await run.ask_each(produce(topic, batch_bytes(1, producer=(9, 0, -1))), 3, 8, 9)
    await run.ask(produce(topic, batch_bytes(1, producer=(9, -1, 0))), 9, "without an epoch")
    await run.ask(produce(topic, batch_bytes(1, producer=(-1, 0, 0))), 9, "without an id")


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def records_without_a_key_in_a_compacted_topic(run: Run) -> None:
    topic = await run.topic(cleanup_policy="compact")
    await run.ask_each(produce(topic, batch_bytes(5, key=None)), *_VERSIONS)
    await run.ask(produce(topic, batch_bytes(2, value=None)), 9, "tombstones")
    await run.ask(produce(topic, batch_bytes(2, key=b"")), 9, "an empty key")


@scenario("Produce")
async def the_broker_times_the_batch_anew(run: Run) -> None:
    topic = await run.topic()
    records = patched(batch_bytes(2), ">q", 35, NOW + 5_000_000)
    await run.ask(produce(topic, records), 9, "a greatest time that is none of the records'")
    await run.ask(produce(topic, patched(batch_bytes(2), ">h", 21, 8)), 9, "LogAppendTime")
    await run.ask(fetch(topic, 0), 12)


@scenario("Produce")
async def a_leader_epoch_is_overwritten(run: Run) -> None:
    topic = await run.topic()
    records = bytearray(batch_bytes(1))
    struct.pack_into(">i", records, 12, 77)
    await run.ask(produce(topic, bytes(records)), 9)
    await run.ask(fetch(topic, 0), 12)


@scenario("Produce", ErrorCode.INVALID_RECORD)
async def records_that_do_not_fill_the_batch(run: Run) -> None:
    topic = await run.topic()
    good = bytes.fromhex("10000000026b0276 00".replace(" ", ""))
    for note, body in (
        ("a record that is too long", b"\x7e" + good[1:]),
        ("half a record", good[:4]),
        ("bytes behind it", good + b"\0\0"),
        ("nothing", b""),
        ("headers that aren't there", good[:-1] + b"\x02"),
        ("a negative number of headers", good[:-1] + b"\x01"),
    ):
        await run.ask(produce(topic, encode_batch(body, 0, 1, NOW, NOW)), 9, note)


@scenario("Produce", ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD)
async def numbers_of_too_many_bits(run: Run) -> None:
    topic = await run.topic()
    body = bytes((0, 0, 0, 1, 2)) + b"v" + bytes(1)
    whole = bytes([2 * len(body)]) + body
    long, endless = b"\xff" * 4 + b"\x1f", b"\xff" * 5 + b"\x0f"
    padded = bytes([0x80 | 2 * len(body), 0x80, 0x80, 0x80, 0x80, 0])
    for codec in (Compression.NONE, Compression.GZIP):
        for note, records, count in (
            ("a length of five bytes", padded[:4] + b"\0" + body, 1),
            ("a length of six bytes", endless + body, 1),
            ("a small one of six bytes", padded + body, 1),
            ("the second one", whole + endless + body, 2),
            ("the size of a key", bytes([22]) + bytes(3) + endless + bytes(2), 1),
        ):
            batch = made_of(records, count, codec)
            await run.ask(produce(topic, batch), 9, f"{note}, {codec.name}")
    await run.ask(produce(topic, made_of(long + body, 1, Compression.NONE)), 9, "33 bits")
