"""Compression of batches: which go to a thread, and how their results are reported."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kclient.errors import ClientError, InvalidArgument, KafkaError
from kclient.producer._compiled import BatchOutcome, PartitionQueue, ProducerBatch
from kclient.producer.batch_compression import BatchCompressor
from kclient.record import BatchBuilder, Compression


class Reported:
    """Records which batches are ready."""

    def __init__(self) -> None:
        self.batches: list[tuple[ProducerBatch, KafkaError | None]] = []
        self.event = asyncio.Event()
        self.thread = 0

    def __call__(self, batch: ProducerBatch, error: KafkaError | None) -> None:
        self.thread = threading.get_ident()
        self.batches.append((batch, error))
        self.event.set()


def make_batch(size: int, kind: type[ProducerBatch] = ProducerBatch) -> ProducerBatch:
    queue = PartitionQueue("t", 0, [None], idempotent=False, max_in_flight=5, batch_limit=2**20)
    builder = BatchBuilder(2**20)
    builder.append(0, None, b"abcd" * (size // 4), None)
    return kind(queue, builder, BatchOutcome(None, "t", 0), 0.0, 9.0)  # type: ignore[arg-type]


async def test_without_a_codec_every_batch_is_ready() -> None:
    compressor = BatchCompressor(Compression.NONE, None, Reported())
    batch = make_batch(100_000)
    assert compressor.ready(batch) and batch.builder is not None
    assert batch.builder.codec is Compression.NONE


async def test_small_batches_are_compressed_at_once() -> None:
    notified = Reported()
    compressor = BatchCompressor(Compression.LZ4, None, notified)
    batch = make_batch(10_000)
    assert compressor.ready(batch) and not notified.batches
    assert batch.builder is not None and batch.builder.encoded_bytes < 1000


async def test_costly_batches_go_to_a_thread_and_are_reported_on_the_loop() -> None:
    notified = Reported()
    compressor = BatchCompressor(Compression.GZIP, 9, notified)
    batch = make_batch(500_000)
    assert not compressor.ready(batch) and batch.compressing
    assert not compressor.ready(batch)  # a second call starts nothing
    async with asyncio.timeout(10):
        await notified.event.wait()
    assert notified.batches == [(batch, None)] and notified.thread == threading.get_ident()
    assert compressor.ready(batch)
    await compressor.close()


class Broken:
    """A builder whose compression fails."""

    size_bytes = 10_000_000

    def __init__(self, error: Exception) -> None:
        self._error = error

    def compress(self, codec: Compression, level: int | None) -> None:
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("odd"), ClientError("known")])
async def test_a_failure_in_the_thread_is_reported_as_a_typed_error(error: Exception) -> None:
    class BrokenBatch(ProducerBatch):
        def records(self) -> Any:
            return Broken(error)

    notified = Reported()
    compressor = BatchCompressor(Compression.GZIP, None, notified)
    assert not compressor.ready(make_batch(0, BrokenBatch))
    async with asyncio.timeout(10):
        await notified.event.wait()
    ((_, failure),) = notified.batches
    assert isinstance(failure, ClientError) and str(error) in str(failure)
    await compressor.close()


async def test_closing_waits_for_the_threads() -> None:
    notified = Reported()
    compressor = BatchCompressor(Compression.GZIP, 9, notified)
    compressor.ready(make_batch(500_000))
    await compressor.close()
    await asyncio.sleep(0)
    assert len(notified.batches) == 1


def test_a_level_that_the_codec_does_not_have_is_refused_early() -> None:
    with pytest.raises(InvalidArgument, match="level"):
        BatchCompressor(Compression.GZIP, 99, lambda batch, error: None).check()
