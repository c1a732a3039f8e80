"""One member of the group in a run of ``group_run.py``: a consumer and its user, by chance.

``Player`` reads in one of three ways, takes its time over what it is handed, commits in one of five
ways, and reports everything to the ``GroupWatch``. What a consumer promises its user is checked
here; what the members promise each other, there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any

import kclient
from kclient.broker_errors import FencedInstanceId
from kclient.errors import (
    BackgroundTaskDied,
    ClientClosed,
    CommitFailed,
    ConsumerStalled,
    NoPosition,
)
from kclient.types import TopicPartition
from tests.virtual.group_member import Member

READING = ("poll", "poll", "poll", "async for", "poll_arrow")
COMMITTING = ("auto", "auto", "each poll", "records", "nowait", "overlapping")


@dataclass(slots=True)
class Stint:
    """A partition while a member has it.

    Attributes:
        next: The offset that must be handed over next.
        end: Where the records end that were handed over and are not finished; None: all are.
        by_hand: What was committed last by a record: at the end, no more than that is.
    """

    next: int
    end: int | None = None
    by_hand: int | None = None


class Player(Member):
    """One member. ``start`` it; ``leave`` or ``crash`` ends it.

    Attributes:
        good_at: When a call of it last ended without an error.
        stalls: How often a stall was reported to it.
        errors: How often a call of it failed.
    """

    owned: dict[TopicPartition, Stint]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reading = self._rng.choice(READING)
        self.good_at = -1.0
        self.stalls = 0
        self.errors = 0
        self._careless = False
        self._fenced = False
        self._handed_at = 0.0
        self._busy: dict[TopicPartition, Stint] = {}

    # Life

    async def leave(self) -> None:
        """Finish the work at hand, and close the consumer well."""
        self._leaving = True
        assert self._task is not None
        await self._task
        await asyncio.gather(*self._commits)

    async def _live(self) -> None:
        while not self._leaving:
            if not await self._begin():
                await asyncio.sleep(0.1)
                continue
            self._fenced = self._careless = False
            while not self._leaving and not self._fenced:
                await self._turn()
            self._careless = True
            self._all_finished()
            await self.consumer.__aexit__(None, None, None)
            self._all_reported()
            if self._fenced:
                self._make()

    async def _turn(self) -> None:
        try:
            await (self._iterate() if self.reading == "async for" else self._call())
        except NoPosition as error:
            if not self._careless:  # nothing is subscribed to then
                self._complain(error)
            await asyncio.sleep(0.1)
        except FencedInstanceId:
            # A coordinator that crashed doesn't know its latest id: the test has to start it again.
            self._say(f"  {self.name} is fenced")
            self._fenced = True
        except kclient.KafkaError as error:
            self._complain(error)
            await asyncio.sleep(0.02)

    async def _begin(self) -> bool:
        try:
            await self.consumer.start()
        except kclient.KafkaError as error:
            if not error.retriable and not isinstance(error, kclient.errors.BootstrapFailed):
                self._complain(error)
            await self.consumer.close()
            self._make()  # as no broker was there
            return False
        return True

    def _complain(self, error: kclient.KafkaError) -> None:
        self._say(f"  {self.name}: {type(error).__name__}: {str(error)[:150]}")
        self.errors += 1
        if isinstance(error, ConsumerStalled):
            self.stalls += 1
        if isinstance(error, BackgroundTaskDied | ClientClosed) or not error.retriable:
            self._watch.fail(f"{self.name} can't go on: {error!r} caused by {error.__cause__!r}")
            self._leaving = True

    # Callbacks

    def _begin_at(self, offset: int) -> Stint:
        return Stint(offset)

    def _works_on(self, partition: TopicPartition) -> bool:
        """A partition is released once no work on it is left, unless that takes too long."""
        now = asyncio.get_running_loop().time()
        if self._careless or now - self._handed_at >= self._plan.patience * 0.99:
            return False
        return partition in self._busy

    async def _dawdle(self) -> None:
        if self._rng.random() < 0.3:
            await asyncio.sleep(self._rng.random() * 0.2)

    async def _before_release(self) -> None:
        await super()._before_release()
        if not self._busy and self._plan.committing != "auto" and self._rng.random() < 0.7:
            await self._commit(None)

    # Reading

    async def _call(self) -> None:
        """Poll once and do the work."""
        chance, consumer = self._rng, self.consumer
        timeout = 0.2 + chance.random() * 0.6
        self._all_finished()
        if self.reading == "poll":
            records = await consumer.poll(chance.choice((1, 3, 20, 500)), timeout=timeout)
            found = [(one.topic_partition, one.offset, one.value, one) for one in records]
        else:
            columns = await consumer.poll_arrow(timeout=timeout)
            found = [
                (TopicPartition(row["topic"], row["partition"]), row["offset"], row["value"], None)
                for row in columns.to_pylist()
            ]
        self.good_at = asyncio.get_running_loop().time()
        if found:
            self._take(found)
            await self._work([record for *_, record in found if record is not None])

    async def _iterate(self) -> None:
        self._all_finished()
        records = aiter(self.consumer)
        while not self._leaving:
            try:
                async with asyncio.timeout(0.5):
                    record = await anext(records)
            except TimeoutError as nothing:
                if isinstance(nothing, kclient.KafkaError):
                    raise
                record = None
            self.good_at = asyncio.get_running_loop().time()
            if record is None:
                continue
            self._take([(record.topic_partition, record.offset, record.value, record)])
            await self._work([record])
            self._all_finished()

    def _take(self, found: Iterable[tuple[TopicPartition, int, bytes, Any]]) -> None:
        """Check that these were handed over, in this order."""
        self._handed_at = asyncio.get_running_loop().time()
        for partition, offset, value, _ in found:
            stint = self.owned.get(partition)
            if stint is None:
                self._watch.fail(f"{self.name} is handed {partition}@{offset}, and hasn't got it")
                continue
            if offset != stint.next:
                self._watch.fail(
                    f"{self.name} is handed {partition}@{offset} in place of {stint.next}"
                )
            stint.next = stint.end = offset + 1
            self._busy[partition] = stint
            self._watch.took(self.name, partition, offset, value)

    def _all_finished(self) -> None:
        """Record all that was handed over as finished."""
        for partition, stint in self._busy.items():
            if stint.end is not None:
                self._watch.done(partition, stint.end)
                stint.end = None
        self._busy.clear()

    # Working and committing

    async def _work(self, records: list[Any]) -> None:
        """What a user does between two calls."""
        chance = self._rng
        seconds = chance.random() * self._plan.slowness if chance.random() < 0.5 else 0.0
        if self.quick:
            seconds = 0.0
        elif self.oversleep:
            seconds, self.oversleep = self.oversleep, 0.0
            self._say(f"  {self.name} works for {seconds:.1f} s")
        if seconds:
            await asyncio.sleep(seconds)
        match self._plan.committing:
            case "each poll":
                self._all_finished()
                await self._commit(None)
            case "nowait":
                self._all_finished()
                self.commit_nowait(None)
            case "records" if records:
                record = chance.choice(records)
                self._finish(record)
                await self._commit(record)
            case "overlapping" if records:
                self.overlap(records)

    def overlap(self, records: list[Any]) -> None:
        """Commits one after the other, in any order, without waiting for any."""
        self._all_finished()
        for record in self._rng.sample(records, min(3, len(records))):
            self.commit_nowait(record)
        self.commit_nowait(None)

    def _finish(self, record: Any) -> None:
        """Record that the work on this one, and those before it, is done."""
        self._watch.done(record.topic_partition, record.offset + 1)

    async def _commit(self, what: Any) -> None:
        timeout = self._rng.choice((0.5, 2.0, 5.0))
        await self._reported(self.consumer.commit(what, timeout=timeout), self._wanted(what))

    def commit_nowait(self, what: Any) -> None:
        """A commit whose outcome is looked at later."""
        if what is not None and self._is_over(what):
            return
        try:
            outcome = self.consumer.commit_nowait(what, timeout=self._rng.choice((0.5, 2.0, 5.0)))
        except kclient.KafkaError as error:
            self._refused(error)
            return
        task = asyncio.create_task(self._reported(outcome, self._wanted(what)))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    def _is_over(self, record: Any) -> bool:
        """Whether it was handed over in an earlier stint: committing it now would go back."""
        stint = self.owned.get(record.topic_partition)
        return stint is None or stint.next <= record.offset

    async def _reported(self, outcome: Awaitable[None], wanted: dict[TopicPartition, int]) -> None:
        """Wait for the outcome of a commit, and check whether it is true."""
        try:
            await outcome
        except kclient.KafkaError as error:
            self._refused(error)
            return
        if not self.dead:
            self._watch.acknowledged(self.name, wanted)

    def _wanted(self, what: Any) -> dict[TopicPartition, int]:
        if what is not None:
            offset = what.offset + 1
            if what.topic_partition in self.owned:
                self.owned[what.topic_partition].by_hand = offset
            return {what.topic_partition: offset}
        return {
            partition: stint.next if stint.by_hand is None or not self._careless else stint.by_hand
            for partition, stint in self.owned.items()
        }

    def _refused(self, error: kclient.KafkaError) -> None:
        if isinstance(error, ClientClosed) and (self.dead or self._leaving):
            return
        if not (error.retriable or isinstance(error, CommitFailed)):
            self._watch.fail(f"{self.name}: a commit failed with {error!r}")

    # What may be done to it

    def may_commit(self) -> bool:
        """Whether it commits by hand, and is in the group."""
        return self._plan.committing != "auto" and not self.dead and not self._leaving

    def commit_often(self) -> None:
        """Commit on top of its own commits."""
        if self.may_commit() and self.owned and not self._busy:
            for _ in range(self._rng.randint(2, 5)):
                self.commit_nowait(None)

    async def rest(self, seconds: float) -> None:
        """Read nothing for a while: leave the group, and come back."""
        self._careless = True
        with contextlib.suppress(kclient.KafkaError):
            self._all_finished()  # the unsubscribe is recorded
            await self.consumer.unsubscribe()
            await asyncio.sleep(seconds)
            self.consumer.subscribe(*self._plan.topics)
            self._careless = self._leaving
