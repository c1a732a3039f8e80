"""One member of the group in a run of ``handler_run.py``: ``Consumer.run``, its handlers by chance.

Its handlers fail, take long and hang. What they are called for, and in which order, is checked
here; ``HandlerWatch`` knows what is finished in the group as a whole. ``handler_run`` makes both.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import kclient
from kclient.errors import HandlerFailed
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.virtual.group_member import Member, Plan
from tests.virtual.group_watch import GroupWatch

DEAD = "dead"
ORDERINGS = ("partition", "key", "none")


class Trouble(Exception):
    """A handler fails."""


@dataclass(frozen=True, slots=True)
class HandlerPlan(Plan):
    """What all members of a run have in common.

    Attributes:
        options: Of ``Consumer.run``.
        sends_on: What fails for good is a dead letter; else it ends ``run``, which begins again.
    """

    options: dict[str, Any] = field(default_factory=dict)
    sends_on: bool = False


class HandlerWatch(GroupWatch):
    """What is finished when records are finished in any order."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._done: dict[TopicPartition, set[int]] = {}

    def finish(self, partition: TopicPartition, offset: int) -> None:
        """Record that nothing more is to be done for this record."""
        done = self._done.setdefault(partition, set())
        done.add(offset)
        end = self.finished.get(partition, 0)
        while end in done:
            end += 1
        self.done(partition, end)

    def called(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Record that a handler was called."""
        if self.values.setdefault((partition, offset), value) != value:
            self.fail(f"{partition}@{offset} is {value!r}, and was something else before")
        if offset in self._done.get(partition, ()):
            self.again += 1

    def missing(self) -> list[str]:
        """Partitions of which not all is finished and committed."""
        return [
            f"{topic}-{index}: finished {done}, committed {committed} of {end}"
            for topic in self.topics
            for index in range(self._cluster.partition_count(topic))
            for partition in [TopicPartition(topic, index)]
            for done in [self.finished.get(partition, 0)]
            for committed in [self.committed.get(partition, 0)]
            if min(done, committed) < (end := self._cluster.end_offset(topic, index))
        ]


class Spell:
    """A partition while one ``run`` of one member has it.

    Attributes:
        start: Where it had to begin.
        next: In order of partitions, the offset that has to come next.
        done: Offsets that are finished.
        open: By line, the offset that was begun and isn't finished.
        tried: By line, the highest offset begun.
        running: Handlers at work.
    """

    def __init__(self, start: int) -> None:
        self.start = self.next = start
        self.done: set[int] = set()
        self.open: dict[object, int] = {}
        self.tried: dict[object, int] = {}
        self.running = 0

    @property
    def end(self) -> int:
        """Up to where all is finished."""
        end = self.start
        while end in self.done:
            end += 1
        return end


class Relay:
    """The producer of dead letters of one member."""

    def __init__(self, player: HandlerPlayer, producer: Any) -> None:
        self._player = player
        self._producer = producer

    async def partitions_for(self, topic: str) -> Any:
        return await self._producer.partitions_for(topic)

    async def send(self, topic: str, value: bytes | None, **given: Any) -> None:
        reported = {name: text.decode() for name, text in given["headers"] if text is not None}
        partition = TopicPartition(reported["kclient.topic"], int(reported["kclient.partition"]))
        spell = self._player.owned.get(partition)
        await self._producer.send(topic, value, **given)
        self._player.finish(partition, int(reported["kclient.offset"]), spell)


class HandlerPlayer(Member):
    """One member. ``start`` it; ``leave`` or ``crash`` ends it.

    When it is ``quick``, its handlers fail only for what fails always.
    """

    owned: dict[TopicPartition, Spell]
    _plan: HandlerPlan
    _watch: HandlerWatch

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        plan: HandlerPlan,
        watch: HandlerWatch,
        producer: Any,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name, None, cluster, plan, watch, rng, say)
        self._ordering = plan.options["ordering"]
        self._relay = Relay(self, producer) if plan.sends_on else None
        self._run: asyncio.Task[None] | None = None

    @property
    def good_at(self) -> float:
        """The time when it was last seen to be well: now, as long as it runs."""
        alive = self._run is not None and not self._run.done()
        return asyncio.get_running_loop().time() if alive else -1.0

    # Life

    async def leave(self) -> None:
        """Close the consumer well."""
        self._leaving = True
        await self.consumer.close(30.0)
        assert self._task is not None
        await self._task
        self._all_reported()

    async def _live(self) -> None:
        while not self._leaving:
            try:
                await self.consumer.start()
                break
            except kclient.KafkaError:
                await self.consumer.close()
                self._make()  # as no broker was there
                await asyncio.sleep(0.1)
        while not self._leaving:
            for partition, spell in self.owned.items():  # what wasn't finished comes again
                self.owned[partition] = Spell(spell.end)
            run = self.consumer.run(self._handle, producer=self._relay, **self._plan.options)
            self._run = asyncio.create_task(run, name=f"run {self.name}")
            try:
                await self._run
            except HandlerFailed as error:
                self._say(f"  {self.name}: {error.message}")
                if self._plan.sends_on:
                    self._watch.fail(f"{self.name} had a topic for it: {error!r}")
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    self._run.cancel()
                    await asyncio.wait([self._run])
                    raise
                self._say(f"  {self.name} was interrupted")
            except kclient.KafkaError as error:
                if not self._leaving:
                    self._watch.fail(f"{self.name} can't go on: {error!r}")
                return
            busy = [str(one) for one, spell in self.owned.items() if spell.running]
            if busy and not self.dead:
                self._watch.fail(f"{self.name}: handlers of {busy} outlive their run")

    def interrupt(self) -> None:
        """Cancel the run, which begins again."""
        if self._run is not None:
            self._run.cancel()

    # Callbacks

    def _begin_at(self, offset: int) -> Spell:
        return Spell(offset)

    def _works_on(self, partition: TopicPartition) -> bool:
        return self.owned[partition].running > 0

    async def _dawdle(self) -> None:
        await asyncio.sleep(self._rng.choice((0, 0, 0.1)))

    # Handling

    async def _handle(self, record: Any) -> None:
        partition, offset = record.topic_partition, record.offset
        spell = self.owned.get(partition)
        if spell is None:
            if not self.dead:
                self._watch.fail(f"{self.name} handles {partition}@{offset}, and hasn't got it")
            return
        self._begin(partition, spell, record)
        spell.running += 1
        try:
            await self._work(record)
        finally:
            spell.running -= 1
        self.finish(partition, offset, spell)

    def finish(self, partition: TopicPartition, offset: int, spell: Spell | None) -> None:
        """Record that the record is finished, before any other member can know."""
        if self.dead:
            return
        self._watch.finish(partition, offset)
        if spell is not None:
            spell.done.add(offset)
            for line in [line for line, begun in spell.open.items() if begun == offset]:
                del spell.open[line]

    def _line(self, record: Any) -> object:
        """The records that it must not overtake."""
        if self._ordering == "none":
            return record.offset
        return record.key if self._ordering == "key" else "all"

    def _begin(self, partition: TopicPartition, spell: Spell, record: Any) -> None:
        watch, offset, line = self._watch, record.offset, self._line(record)
        where = f"{self.name}: {partition}@{offset}"
        watch.called(partition, offset, record.value)
        if offset < spell.start:
            watch.fail(f"{where} is handled, and all below {spell.start} was finished")
        if offset in spell.done:
            watch.fail(f"{where} is handled again, and was finished")
        begun = spell.open.get(line)
        if begun is not None and begun != offset:
            watch.fail(f"{where} is handled, and {begun} before it isn't finished")
        if begun is None and offset <= spell.tried.get(line, -1):
            watch.fail(f"{where} is handled after {spell.tried[line]}")
        if self._ordering == "partition" and begun is None:
            if offset != spell.next:
                watch.fail(f"{where} is handled in place of {spell.next}")
            spell.next = offset + 1
        spell.open[line] = offset
        spell.tried[line] = max(offset, spell.tried.get(line, -1))

    async def _work(self, record: Any) -> None:
        chance = self._rng
        if int(record.value) % 41 == 0 and self._plan.sends_on:
            raise Trouble("always")
        if self.quick:
            return
        if self.oversleep:
            seconds, self.oversleep = self.oversleep, 0.0
            self._say(f"  {self.name} hangs for {seconds:.1f} s at {record.topic_partition}")
            await asyncio.sleep(seconds)
        draw = chance.random()
        if draw < 0.6:
            await asyncio.sleep(chance.random() * self._plan.slowness)
        if draw < 0.08 or 0.6 < draw < 0.63:
            raise Trouble("this time")
