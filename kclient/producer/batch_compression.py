"""Compression of batches, on the loop if that is fast and in a thread if it isn't.

With a codec, the sender calls ``ready`` before it puts a batch into a request. Codecs release the
GIL, so a thread keeps the loop free; small batches of fast codecs cost less than the thread switch.
No rules about order: a batch that is being compressed is simply not ready.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kclient.errors import ClientError, KafkaError
from kclient.record import Compression, compress, predicted_cost

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from kclient.producer._compiled import ProducerBatch
    from kclient.record import BatchBuilder

INLINE_SECONDS = 0.001
"""Predicted cost above which a batch is compressed in a thread."""
_THREADS = 2


class BatchCompressor:
    """Compresses the batches of one producer. Has a small thread pool, created on first use.

    Args:
        codec: The codec of all batches.
        level: Its level, None for the codec's default.
        on_ready: Called on the loop when a thread has finished a batch, with its error if any.
    """

    def __init__(
        self,
        codec: Compression,
        level: int | None,
        on_ready: Callable[[ProducerBatch, KafkaError | None], None],
    ) -> None:
        self.codec = codec
        self._level = level
        self._on_ready = on_ready
        self._pool: ThreadPoolExecutor | None = None
        self._jobs: set[asyncio.Future[None]] = set()

    def check(self) -> None:
        """Raise InvalidConfig or InvalidArgument if the codec or its level can't be used here."""
        if self.codec is not Compression.NONE:
            compress(self.codec, b"", self._level)

    def ready(self, batch: ProducerBatch) -> bool:
        """Return True if ``batch`` is compressed, False while a thread, started if needed, does it.

        Must not be called with codec NONE: then there is nothing to compress.

        Raises:
            KafkaError: The batch can't be compressed.
        """
        if batch.compressed:
            return True
        if batch.compressing:
            return False
        builder = batch.records()
        cost = predicted_cost(self.codec, self._level, builder.size_bytes, True)
        if cost <= INLINE_SECONDS:
            builder.compress(self.codec, self._level)
            batch.compressed = True
            return True
        self._start(batch, builder)
        return False

    def _start(self, batch: ProducerBatch, builder: BatchBuilder) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # many producers need no threads

            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="kclient-compress")
        batch.compressing = True
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._pool, builder.compress, self.codec, self._level)
        self._jobs.add(job)

        def finished(job: asyncio.Future[None]) -> None:
            self._jobs.discard(job)
            batch.compressing = False
            if job.cancelled():
                return
            error = job.exception()
            if error is None:
                batch.compressed = True
                self._on_ready(batch, None)
            elif isinstance(error, KafkaError):
                self._on_ready(batch, error)
            else:
                failure = ClientError(f"{self.codec.name.lower()} failed to compress: {error!r}")
                failure.__cause__ = error
                self._on_ready(batch, failure)

        job.add_done_callback(finished)

    async def close(self) -> None:
        """Wait for the threads, which takes milliseconds, and stop them."""
        if self._jobs:
            await asyncio.wait(self._jobs)
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
