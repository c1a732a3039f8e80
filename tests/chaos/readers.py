"""Consumers that read along while things break, and what they were given: one trail per partition.

``run`` makes two: one that polls, and one that also stops waiting, pauses and seeks. In the end
each reads on until nothing is left, and ``judge`` walks their trails. What a poll may raise while
brokers are away is listed; anything else ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import kclient
from kclient.errors import (
    BrokerError,
    BrokerUnreachable,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
)
from tests.chaos.plan import KILL_TAKES
from tests.chaos.records import Recipe
from tests.chaos.rows import Rows
from tests.history import Written

if TYPE_CHECKING:
    from kclient import ConsumerRecord, TopicPartition

BEARABLE = (BrokerError, BrokerUnreachable, ConnectionLost, RequestTimedOut)
FINISH_TIMEOUT = 60.0
REQUEST_TIMEOUT = KILL_TAKES
"""Decides when a poll raises ConsumerStalled: not while a killed leader is being replaced. Until
the controller has missed it and a partition has a leader again, 3 s pass on an idle machine."""
_FURTHEST_BACK = 2_000
"""Records that a seek goes back at most."""


class Act(enum.IntEnum):
    """What happened to a consumer in a partition."""

    GIVEN = 0
    SEEK = 1
    PAUSE = 2
    RESUME = 3
    POSITION = 4


class Trail:
    """What one consumer did in one partition, and was given."""

    def __init__(self, recipe: Recipe) -> None:
        self.given = Rows(recipe)
        self._acts = bytearray()
        self._offsets = array("q")

    def take(self, record: ConsumerRecord[bytes, bytes]) -> None:
        """It was given a record."""
        self.given.add(record)
        self._acts.append(Act.GIVEN)

    def take_written(self, written: Written) -> None:
        """The same, as a value."""
        self.given.put(written)
        self._acts.append(Act.GIVEN)

    def act(self, act: Act, offset: int = -1) -> None:
        """Something else happened, at an offset or at none."""
        self._acts.append(act)
        self._offsets.append(offset)

    def steps(self) -> Iterator[tuple[Act, int]]:
        """All of it, in order: with GIVEN comes the place in ``given``, else the offset."""
        given = others = 0
        for act in self._acts:
            if act == Act.GIVEN:
                yield Act.GIVEN, given
                given += 1
            else:
                yield Act(act), self._offsets[others]
                others += 1


class Reader:
    """One consumer of the whole topic.

    Tasks: one, from ``start`` to ``finish``.

    Args:
        name: In the report.
        restless: It seeks, pauses and cancels polls now and then.

    Attributes:
        trails: By partition.
        errors: What polls raised, in order.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        recipe: Recipe,
        *,
        seed: int,
        restless: bool,
    ) -> None:
        self.name = name
        self.trails = {partition: Trail(recipe) for partition in range(partitions)}
        self.errors: list[str] = []
        self._restless = restless
        self._rng = random.Random(f"reader {seed} {name}")
        self._over = False
        self._task: asyncio.Task[None] | None = None
        self._consumer: kclient.Consumer[Any, Any] = kclient.Consumer(
            bootstrap,
            topic,
            auto_offset_reset="earliest",
            client_id=name,
            request_timeout=REQUEST_TIMEOUT,
        )

    async def start(self) -> None:
        """Begin to read."""
        await self._consumer.start()
        self._task = asyncio.create_task(self._read(), name=self.name)

    async def watch(self) -> None:
        """Return when ``finish`` was called; raise what ended its task before."""
        assert self._task is not None
        await asyncio.wait([self._task])
        self._task.result()

    def stop(self) -> None:
        """Let it come to an end."""
        self._over = True

    async def finish(self, ends: Mapping[int, int]) -> None:
        """Read on until nothing is left before ``ends``, then close; too long is a violation."""
        self.stop()
        await self.watch()
        for partition in list(self._consumer.paused):
            self._consumer.resume(partition)
            self._trail(partition).act(Act.RESUME)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_TIMEOUT):
                while self._behind(ends):
                    await self._poll(500, 1.0)
        self._note_positions()
        await self._consumer.close()

    async def abandon(self) -> None:
        """End at once: the run has failed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(KafkaError):
            await self._consumer.close(0.0)

    def _behind(self, ends: Mapping[int, int]) -> bool:
        positions = self._consumer.positions().items()
        return any(at is None or at < ends[where.partition] for where, at in positions)

    async def _read(self) -> None:
        while not self._over:
            dice = self._rng.random()
            if not self._restless or dice < 0.8:
                await self._poll(self._rng.choice((50, 500, 5000)), 0.3)
            elif dice < 0.9:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._rng.choice((0.001, 0.01, 0.05))):
                        await self._poll(500, None)
            else:
                self._move()
            await asyncio.sleep(0.01)

    async def _poll(self, most: int, timeout: float | None) -> None:
        try:
            records: Sequence[Any] = await self._consumer.poll(most, timeout=timeout)
        except BEARABLE as error:
            self.errors.append(type(error).__name__)
            return
        for record in records:
            self.trails[record.partition].take(record)

    def _move(self) -> None:
        """Pause or resume, seek back a little, or note the positions."""
        partition = self._rng.choice(sorted(self._consumer.assignment))
        position = self._consumer.positions()[partition]
        trail = self._trail(partition)
        if partition in self._consumer.paused:
            self._consumer.resume(partition)
            trail.act(Act.RESUME)
        elif self._rng.random() < 0.4:
            self._consumer.pause(partition)
            trail.act(Act.PAUSE)
        elif self._rng.random() < 0.5 and position is not None:
            offset = max(0, position - self._rng.randrange(_FURTHEST_BACK))
            self._consumer.seek(partition, offset)
            trail.act(Act.SEEK, offset)
        else:
            self._note_positions()

    def _note_positions(self) -> None:
        for partition, offset in self._consumer.positions().items():
            if offset is not None:
                self._trail(partition).act(Act.POSITION, offset)

    def _trail(self, partition: TopicPartition) -> Trail:
        return self.trails[partition.partition]
