"""One producer's part of the workload: sends of every kind, recorded in the history.

``simulation`` makes one per producer and has it do ``steps`` operations. What is done, and when,
comes from its own random source, so that it doesn't depend on the others'.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any

import kclient
from kclient.errors import BootstrapFailed, FlushFailed, KafkaError
from kclient.producer import Delivery
from kclient.producer.outgoing import Outgoing
from tests.history import History, Place, Send
from tests.virtual.casting import BOOTSTRAP_TIMEOUT, Cast
from tests.virtual.stopwatch import within

KEYS = (None, None, b"k0", b"k1", b"k2", b"k3")


class ProducerWorker:
    """Drives one producer after the other.

    Args:
        name: In the history; each of its producers has a number behind it.
        cast: Makes producers.
        settings: Of all of them.
        topics: Names, with how many partitions each had at the start.
        pause: Mean seconds between two operations.
    """

    def __init__(
        self,
        name: str,
        cast: Cast,
        settings: dict[str, Any],
        topics: Mapping[str, int],
        history: History,
        rng: random.Random,
        pause: float,
    ) -> None:
        self._who = name
        self._cast = cast
        self._settings = settings
        self._topics = topics
        self._history = history
        self._rng = rng
        self._pause = pause
        self._lives = 0
        self._count = 0
        self._open: list[Delivery] = []
        self._name: str
        self._producer: kclient.Producer[Any, Any]

    async def start(self) -> None:
        """Start a producer, however often it takes."""
        while True:
            self._lives += 1
            self._name = f"{self._who}.{self._lives}"
            self._history.producer(self._name, idempotent=self._settings["idempotence"])
            self._producer = self._cast.producer(self._settings)
            try:
                with within(BOOTSTRAP_TIMEOUT + 1.0, f"start of {self._name}"):
                    await self._producer.start()
                return
            except BootstrapFailed:
                self._history.note(f"{self._name} found no cluster")

    async def close(self, timeout: float) -> None:
        """Close it, whatever it could not deliver."""
        self._history.note(f"{self._name} is closed within {timeout} s")
        try:
            with within(timeout + 1.0, f"close of {self._name}"):
                await self._producer.close(timeout)
        except FlushFailed:
            return

    async def run(self, steps: int) -> None:
        """Do ``steps`` operations, whatever they come to."""
        kinds = {
            self._send: 24,
            self._burst: 8,
            self._send_and_wait: 20,
            self._enqueue: 15,
            self._enqueue_some: 5,
            self._send_many: 12,
            self._flush: 8,
            self._cancel: 5,
            self._start_anew: 4,
        }
        for step in self._rng.choices(list(kinds), list(kinds.values()), k=steps):
            if self._rng.random() < 0.7:
                await asyncio.sleep(self._rng.expovariate(1 / self._pause))
            await step()

    # Operations.

    async def _send(self) -> None:
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            self._start(self._record())

    async def _burst(self) -> None:
        """Many records for one partition at once: several batches in flight, and full memory."""
        topic = self._rng.choice(list(self._topics))
        partition = self._rng.randrange(self._topics[topic])
        for n in range(self._rng.randrange(8, 20)):
            _, record = self._record()
            self._start((topic, record._replace(partition=partition)))
            if n % 4 == 3:
                await asyncio.sleep(self._rng.choice((0.0, 0.002)))

    async def _send_and_wait(self) -> None:
        delivery = self._start(self._record())
        if delivery is None:
            return
        try:
            async with asyncio.timeout(self._rng.choice((0.001, 0.05, 0.5, 3.0))):
                await delivery
        except (TimeoutError, KafkaError):
            return

    async def _enqueue(self) -> None:
        try:
            async with asyncio.timeout(self._rng.choice((0.0, 0.01, 1.0, 5.0))):
                await self._enqueue_one(self._record())
        except TimeoutError:
            return

    async def _enqueue_some(self) -> None:
        records = [self._record() for _ in range(self._rng.randrange(2, 5))]
        await asyncio.gather(*(self._enqueue_one(one) for one in records))

    async def _enqueue_one(self, record: tuple[str, Outgoing]) -> None:
        send = self._invoke(*record)
        try:
            delivery = await self._producer.enqueue(record[0], **_arguments(record[1]))
        except asyncio.CancelledError:
            self._history.info(send, "cancelled")
            raise
        except KafkaError as error:
            self._failed(send, error)
        else:
            self._taken(send, delivery)

    async def _send_many(self) -> None:
        topic = self._rng.choice(list(self._topics))
        sends: list[Send] = []
        records = self._pulled(topic, sends, self._rng.randrange(1, 12))
        source: Any = _slowly(records) if self._rng.random() < 0.3 else records
        try:
            async with asyncio.timeout(self._rng.choice((0.05, 2.0, 10.0))):
                await self._producer.send_many(topic, source)
        except (TimeoutError, KafkaError) as error:
            for send in sends:
                self._history.info(send, type(error).__name__)
        else:
            for send in sends:
                self._history.ok(send)

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(self._rng.choice((0.01, 0.5, 3.0))):
                await self._producer.flush()
        except (TimeoutError, FlushFailed):
            return

    async def _cancel(self) -> None:
        self._open = [delivery for delivery in self._open if not delivery.done()]
        if self._open:
            self._rng.choice(self._open).cancel()
        else:
            await self._send()

    async def _start_anew(self) -> None:
        await self.close(self._rng.choice((0.0, 0.2, 2.0)))
        await self.start()
        await self._burst()

    # Records.

    def _record(self) -> tuple[str, Outgoing]:
        rng = self._rng
        topic = rng.choice(list(self._topics))
        self._count += 1
        value = b"%s-%d " % (self._who.encode(), self._count)
        return topic, Outgoing(
            value=value + b"." * rng.choice((0, 10, 100, 600)),
            key=rng.choice(KEYS),
            partition=rng.randrange(self._topics[topic]) if rng.random() < 0.3 else None,
            headers=(("n", b"%d" % self._count),) if rng.random() < 0.2 else (),
        )

    def _pulled(self, topic: str, sends: list[Send], count: int) -> Iterator[Outgoing]:
        """Records for ``send_many``, each noted as sent when it is taken from here."""
        for _ in range(count):
            _, record = self._record()
            if record.partition is not None and record.partition >= self._topics[topic]:
                record = Outgoing(record.value, record.key, record.headers)
            send = self._invoke(topic, record)
            self._history.taken(send)
            sends.append(send)
            yield record

    def _start(self, record: tuple[str, Outgoing]) -> Delivery | None:
        send = self._invoke(*record)
        put = self._producer.send if self._rng.random() < 0.9 else self._producer.enqueue_nowait
        try:
            delivery = put(record[0], **_arguments(record[1]))
        except KafkaError as error:
            self._failed(send, error)
            return None
        self._taken(send, delivery)
        return delivery

    def _invoke(self, topic: str, record: Outgoing) -> Send:
        return self._history.send(
            self._name,
            topic,
            record.value,
            partition=record.partition,
            key=record.key,
            headers=tuple(record.headers),
        )

    # Outcomes.

    def _taken(self, send: Send, delivery: Delivery) -> None:
        self._history.taken(send)
        self._open.append(delivery)
        delivery.add_done_callback(partial(self._resolved, send))

    def _resolved(self, send: Send, delivery: Delivery) -> None:
        if delivery.cancelled():
            self._history.info(send, "given up")
            return
        error = delivery.exception()
        if error is not None:
            self._failed(send, error)
            return
        meta = delivery.result()
        self._history.ok(send, Place(meta.topic, meta.partition), meta.offset)

    def _failed(self, send: Send, error: KafkaError) -> None:
        why = f"{type(error).__name__} {error.maybe_written}"
        if error.maybe_written is False:
            self._history.fail(send, why)
        else:
            self._history.info(send, why)


def _arguments(record: Outgoing) -> dict[str, Any]:
    return {
        "value": record.value,
        "key": record.key,
        "headers": record.headers,
        "partition": record.partition,
    }


async def _slowly(records: Iterator[Outgoing]) -> AsyncIterator[Outgoing]:
    for record in records:
        await asyncio.sleep(0)
        yield record
