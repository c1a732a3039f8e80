"""A consumer without brokers, for runs of handlers: logs in memory, a group that gives and takes.

``PlainHost`` is in place of the ``EngineHost``. It hands records out as a consumer does and keeps
what is committed; it fails where anything unfinished is committed, or a commit goes back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

from kclient.clock import SystemClock
from kclient.cluster.wakeups import Broadcast
from kclient.consumer.deserialization_errors import DeserializationErrorHandler
from kclient.consumer.handlers.retries import Retries, RetryTopic
from kclient.consumer.handlers.run import Runner
from kclient.consumer.handlers.run_options import RunOptions, planned
from kclient.consumer.processed_offsets import ProcessedOffsets
from kclient.consumer.records import Convert
from kclient.errors import ClientClosed, KafkaError
from kclient.hooks import Counters
from kclient.record import Record
from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("tests.running")


def record(
    partition: int,
    offset: int,
    key: bytes | None = None,
    *,
    topic: str = "t",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> Record:
    """A record whose value names its partition and offset."""
    return Record(topic, partition, offset, 0, key, b"%d-%d" % (partition, offset), headers)


def plan(
    concurrency: int = 4,
    ordering: str = "partition",
    retries: Retries | None = None,
    retry_topics: Sequence[RetryTopic] = (),
    dead_letter_topic: str | None = None,
    max_in_flight: int | None = None,
    drain_timeout: float = 30.0,
) -> RunOptions:
    """A plan with few handlers."""
    return planned(
        *(concurrency, ordering, retries, retry_topics, dead_letter_topic),
        *(max_in_flight, drain_timeout),
    )


class PlainCore:
    """The client's inside, as far as runs need it."""

    def __init__(self, seed: int) -> None:
        self.clock = SystemClock()
        self.clock.use_environment()
        self.rng = random.Random(seed)
        self.counters = Counters()
        self.ended: KafkaError | None = None
        self.tasks: set[asyncio.Task[Any]] = set()

    @property
    def closed(self) -> bool:
        return isinstance(self.ended, ClientClosed)

    def check_usable(self) -> None:
        if self.ended is not None:
            raise self.ended

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def stop(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class PlainHost:
    """The consumer. All partitions that have records are assigned at first."""

    def __init__(self, records: Iterable[Record] = (), *, seed: int = 0) -> None:
        self.core: Any = PlainCore(seed)
        self.clock = self.core.clock
        self.rng = self.core.rng
        self.log: Any = logging.LoggerAdapter(logger, {})
        self.convert: Convert | None = None
        self.bad_records = DeserializationErrorHandler("raise", (), None)
        self.max_poll_interval = 300.0
        self.logs: dict[TopicPartition, list[Record]] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.finished: dict[TopicPartition, set[int]] = {}
        self.paused: set[TopicPartition] = set()
        self.held: set[TopicPartition] = set()
        self.processed: ProcessedOffsets | None = None
        self.errors: list[Exception] = []
        self.auto_commit = True
        self.last_poll = 0.0
        self.longest_gap = 0.0
        self.news = Broadcast()
        self._noted = Broadcast()
        for one in records:
            self.append(one)
        self.positions = dict.fromkeys(self.logs, 0)

    # For tests

    def append(self, one: Record) -> None:
        """Write a record, which a run may get from now on."""
        self.logs.setdefault(one.topic_partition, []).append(one)
        self.positions.setdefault(one.topic_partition, 0)
        self.news.notify()

    def note(self, one: Record) -> None:
        """Record that a handler has finished this one."""
        self.finished.setdefault(one.topic_partition, set()).add(one.offset)
        self._noted.notify()

    async def caught_up(self) -> None:
        """Wait until handlers have finished all there is."""
        while self.unfinished():
            await self._noted.wait(3600)

    def close(self) -> None:
        """Close the consumer."""
        self.core.ended = ClientClosed("closed")
        self.news.notify()

    def unfinished(self) -> int:
        """Records that no handler has finished."""
        return sum(
            one.offset not in self.finished.get(partition, ())
            for partition, log in self.logs.items()
            for one in log
        )

    async def revoke(self, partition: TopicPartition, patience: float = 60.0) -> None:
        """The group takes a partition, in order."""
        self.held.add(partition)
        if self.processed is not None:
            await self.processed.drain([partition], self.clock.now() + patience)
        self.commit_nowait()
        self.lose(partition)

    def lose(self, partition: TopicPartition) -> None:
        """The group takes a partition without calling anything."""
        if self.processed is not None:
            self.processed.dropped([partition])
        self.positions.pop(partition, None)
        self.paused.discard(partition)
        self.held.discard(partition)

    def give(self, partition: TopicPartition) -> None:
        """The group assigns it, to be read from what is committed."""
        self.positions[partition] = self.committed.get(partition, 0)
        self.news.notify()

    # As an EngineHost

    @property
    def partition_count(self) -> int:
        return len(self.positions)

    def assigned(self) -> Collection[TopicPartition]:
        return list(self.positions)

    def reads(self, topic: str) -> bool:
        return any(partition.topic == topic for partition in self.positions)

    def passed(
        self, partition: TopicPartition, first: OffsetAndMetadata | None = None
    ) -> OffsetAndMetadata | None:
        return OffsetAndMetadata(self.positions[partition]) if first is None else None

    def on_explicit_commit(self, partition: TopicPartition) -> None:
        pass

    async def poll(self, limit: int, timeout: float) -> Sequence[Record]:
        deadline = self.clock.now() + timeout
        self.touch()
        while True:
            self.core.check_usable()
            if self.errors:
                raise self.errors.pop(0)
            taken = self._take(limit)
            left = deadline - self.clock.now()
            if taken or left <= 0:
                self.last_poll = self.clock.now()
                return taken
            await self.news.wait(left)

    def _take(self, limit: int) -> list[Record]:
        taken: list[Record] = []
        for partition in self.rng.sample(sorted(self.positions), len(self.positions)):
            if partition in self.paused or partition in self.held:
                continue
            position = self.positions[partition]
            ahead = [one for one in self.logs.get(partition, ()) if one.offset >= position]
            some = ahead[: min(limit - len(taken), self.rng.randrange(1, 20))]
            if some:
                self.positions[partition] = some[-1].offset + 1
                taken += some
            if len(taken) >= limit:
                break
        return taken

    def may_start(self) -> bool:
        return True

    def touch(self) -> None:
        now = self.clock.now()
        if self.last_poll:
            self.longest_gap = max(self.longest_gap, now - self.last_poll)
        self.last_poll = now

    def pause(self, partition: TopicPartition) -> None:
        assert partition in self.positions
        self.paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self.paused.discard(partition)
        self.news.notify()

    def rewind(self, partition: TopicPartition, to: OffsetAndMetadata) -> None:
        if partition in self.positions:
            self.positions[partition] = to.offset
            self.news.notify()

    def use_processed(self, processed: ProcessedOffsets | None) -> None:
        self.processed = processed

    def commit_nowait(self) -> None:
        if self.processed is None or not self.auto_commit:
            return
        for partition, offset in self.processed.finished().items():
            done = self.finished.get(partition, set())
            early = [
                one.offset
                for one in self.logs.get(partition, ())
                if one.offset < offset.offset and one.offset not in done
            ]
            assert not early, f"{partition}: {offset.offset} is committed, unfinished are {early}"
            assert offset.offset >= self.committed.get(partition, 0), "a commit went back"
            self.committed[partition] = offset.offset

    async def commit(self) -> None:
        await asyncio.sleep(0.01)
        self.commit_nowait()


class Sent:
    """A producer that keeps what it is given.

    Attributes:
        records: (topic, value, key, headers) in order, of those that were acknowledged.
        errors: Raised by the next sends, one each.
        seconds: Until an acknowledgement.
    """

    def __init__(self, *errors: Exception, seconds: float = 0.01) -> None:
        self.records: list[tuple[str, bytes | None, bytes | None, dict[str, str]]] = []
        self.errors = list(errors)
        self.seconds = seconds

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Any:
        """Take one record."""

        async def acknowledged() -> None:
            await asyncio.sleep(self.seconds)
            if self.errors:
                raise self.errors.pop(0)
            reported = {name: (text or b"").decode() for name, text in headers}
            self.records.append((topic, value, key, reported))

        return acknowledged()


class Run:
    """A run in a task of its own, as ``async with``."""

    def __init__(
        self,
        host: PlainHost,
        handler: Callable[[Any], Any],
        wanted: RunOptions | None = None,
        producer: Sent | None = None,
    ) -> None:
        self.runner = Runner(host, handler, wanted or plan(), producer)
        self.host = host
        self.task: asyncio.Task[None] | None = None
        self._reported = False

    async def __aenter__(self) -> Run:
        self.task = asyncio.get_running_loop().create_task(self.runner.run(), name="run")
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self.task is not None
        if not self.task.done():
            self.host.close()
        if exc[0] is None:
            if not self._reported:
                await self.task
        else:
            self.task.cancel()

    async def result(self) -> BaseException | None:
        """How it ended."""
        assert self.task is not None
        self._reported = True
        await asyncio.wait([self.task])
        if self.task.cancelled():
            return asyncio.CancelledError()
        return self.task.exception()


def leftovers() -> list[str]:
    """Names of the tasks that are there beside the caller's."""
    current = asyncio.current_task()
    return sorted(task.get_name() for task in asyncio.all_tasks() if task is not current)
