"""One consumer's part of the workload: reads of every kind, recorded in the history.

``simulation`` makes one per consumer, has it do ``steps`` operations while things break, and at the
end ``catch_up``. What a consumer may raise meanwhile is listed; anything else ends the run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import kclient
from kclient.errors import (
    BootstrapFailed,
    BrokerError,
    BrokerUnreachable,
    ConnectionLost,
    ConsumerStalled,
    CorruptRecord,
    MetadataTimedOut,
    RequestTimedOut,
)
from tests.history import History, Place, Written
from tests.virtual.casting import API_TIMEOUT, BOOTSTRAP_TIMEOUT, Cast
from tests.virtual.stopwatch import within

CLOSE_TIMEOUT = 5.0
BEARABLE = (
    BrokerError,
    BrokerUnreachable,
    ConnectionLost,
    ConsumerStalled,
    CorruptRecord,
    RequestTimedOut,
)
"""What a poll may raise while brokers fail, or failed within the last minute."""


class ConsumerWorker:
    """Drives one consumer after the other.

    Args:
        name: In the history; each of its consumers has a number behind it.
        cast: Makes consumers.
        settings: Of all of them.
        topics: Names of what is read as a whole; empty where single partitions are assigned.
        places: The partitions to assign.
        ends: Returns the end of a partition's log.
        pause: Mean seconds between two operations.

    Attributes:
        name: Of the present one.
    """

    def __init__(
        self,
        name: str,
        cast: Cast,
        settings: dict[str, Any],
        topics: Sequence[str],
        places: Sequence[Place],
        history: History,
        ends: Callable[[Place], int],
        rng: random.Random,
        pause: float,
    ) -> None:
        self._who = name
        self._cast = cast
        self._settings = settings
        self._topics = topics
        self._wanted = places
        self._history = history
        self._ends = ends
        self._rng = rng
        self._pause = pause
        self._lives = 0
        self.name: str
        self._consumer: kclient.Consumer[Any, Any]

    async def start(self, positions: Mapping[Place, int | None] | None = None) -> None:
        """Start a consumer, however often it takes; it goes on at ``positions``."""
        while True:
            self._lives += 1
            self.name = f"{self._who}.{self._lives}"
            self._consumer = self._cast.consumer(self._topics, self._settings)
            try:
                with within(BOOTSTRAP_TIMEOUT + API_TIMEOUT + 1.0, f"start of {self.name}"):
                    await self._consumer.start()
                break
            except (BootstrapFailed, MetadataTimedOut):
                self._history.note(f"{self.name} found no cluster")
        if not self._topics:
            self._consumer.assign(kclient.TopicPartition(*place) for place in self._wanted)
        for place, offset in (positions or {}).items():
            if offset is not None and place in self._places():
                self._consumer.seek(kclient.TopicPartition(*place), offset)
                self._history.seek(self.name, place, offset)

    async def close(self) -> None:
        """Close it."""
        with within(CLOSE_TIMEOUT + 1.0, f"close of {self.name}"):
            await self._consumer.close()

    async def run(self, steps: int) -> None:
        """Do ``steps`` operations, whatever they come to."""
        kinds = {
            self._poll: 35,
            self._poll_cancelled: 15,
            self._iterate: 12,
            self._poll_arrow: 4,
            self._seek: 10,
            self._seek_to_beginning: 2,
            self._seek_to_end: 2,
            self._pause_or_resume: 8,
            self._positions: 10,
            self._start_anew: 1,
        }
        for step in self._rng.choices(list(kinds), list(kinds.values()), k=steps):
            if self._rng.random() < 0.5:
                await asyncio.sleep(self._rng.expovariate(1 / self._pause))
            try:
                await step()
            except BEARABLE as error:
                self._history.note(f"{self.name} was told {type(error).__name__}")

    async def catch_up(self, *, again: bool) -> list[Place]:
        """Read on, or from the beginning again, until nothing is left; return the partitions."""
        self._resume(self._places())
        if again:
            self._consumer.seek_to_beginning()
            for place in self._places():
                self._history.seek(self.name, place, 0)
        while self._behind():
            try:
                self._take(await self._consumer.poll(timeout=5.0))
            except BEARABLE as error:
                self._history.note(f"{self.name} was told {type(error).__name__}")
        self._note_positions()
        return self._places()

    def _behind(self) -> bool:
        positions = self._consumer.positions()
        return any(
            offset is None or offset < self._ends(Place(*partition))
            for partition, offset in positions.items()
        )

    # Reading.

    async def _poll(self) -> None:
        limit = self._rng.choice((1, 3, 20, 500))
        timeout = self._rng.choice((0.0, 0.05, 0.3, 1.0))
        with within(timeout, f"poll of {self.name}"):
            self._take(await self._consumer.poll(limit, timeout=timeout))

    async def _poll_cancelled(self) -> None:
        """Cut a poll short, which then takes nothing."""
        try:
            async with asyncio.timeout(self._rng.choice((0.0, 0.001, 0.02, 0.3))):
                self._take(await self._consumer.poll(timeout=None))
        except TimeoutError:
            return

    async def _iterate(self) -> None:
        left = self._rng.randrange(1, 12)
        try:
            async with asyncio.timeout(self._rng.choice((0.01, 0.3, 1.0))):
                async for record in self._consumer:
                    self._take([record])
                    left -= 1
                    if not left:
                        return
        except TimeoutError:
            return

    async def _poll_arrow(self) -> None:
        batch = await self._consumer.poll_arrow(timeout=self._rng.choice((0.0, 0.5)))
        self._history.delivered(
            self.name,
            [
                (
                    Place(row["topic"], row["partition"]),
                    Written(row["offset"], row["key"], row["value"], _headers(row["headers"])),
                )
                for row in batch.to_pylist()
            ],
        )

    def _take(self, records: Iterable[Any]) -> None:
        self._history.delivered(
            self.name,
            [
                (
                    Place(record.topic, record.partition),
                    Written(record.offset, record.key, record.value, tuple(record.headers)),
                )
                for record in records
            ],
        )

    # Moving about.

    async def _seek(self) -> None:
        place = self._rng.choice(self._places())
        offset = self._rng.randrange(self._ends(place) + 1)
        self._consumer.seek(kclient.TopicPartition(*place), offset)
        self._history.seek(self.name, place, offset)

    async def _seek_to_beginning(self) -> None:
        place = self._rng.choice(self._places())
        self._consumer.seek_to_beginning(kclient.TopicPartition(*place))
        self._history.seek(self.name, place, 0)

    async def _seek_to_end(self) -> None:
        place = self._rng.choice(self._places())
        self._consumer.seek_to_end(kclient.TopicPartition(*place))
        self._history.seek_to_end(self.name, place)

    async def _pause_or_resume(self) -> None:
        places = self._places()
        paused = sorted(Place(*one) for one in self._consumer.paused)
        if paused and self._rng.random() < 0.7:
            self._resume(self._rng.sample(paused, self._rng.randrange(1, len(paused) + 1)))
            return
        for place in self._rng.sample(places, self._rng.randrange(1, len(places) + 1)):
            self._consumer.pause(kclient.TopicPartition(*place))
            self._history.pause(self.name, place)

    def _resume(self, places: Iterable[Place]) -> None:
        for place in places:
            self._consumer.resume(kclient.TopicPartition(*place))
            self._history.resume(self.name, place)

    async def _positions(self) -> None:
        self._note_positions()

    async def _start_anew(self) -> None:
        positions = {Place(*one): at for one, at in sorted(self._consumer.positions().items())}
        await self.close()
        await self.start(positions)

    def _note_positions(self) -> None:
        for partition, offset in sorted(self._consumer.positions().items()):
            if offset is not None:
                self._history.position(self.name, Place(*partition), offset)

    def _places(self) -> list[Place]:
        return sorted(Place(*one) for one in self._consumer.assignment)


def _headers(column: Iterable[Mapping[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((one["name"], one["value"]) for one in column or ())
