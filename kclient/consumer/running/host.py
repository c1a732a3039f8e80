"""What ``Runner`` asks of the consumer that it works for, and of the producer that it is given.

Interfaces only. ``engine_host`` implements ``RunHost``; any ``kclient.Producer`` without
serializers is a ``Sender``, so that this room needn't know the producer's. What else a sender may
have is asked of its class, since mocks have everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    import logging
    import random
    from collections.abc import Awaitable, Collection, Coroutine, Sequence

    from kclient.clock import Clock
    from kclient.consumer.bad_records import DeadLetters
    from kclient.consumer.handed_over import Progress
    from kclient.consumer.records import Convert
    from kclient.errors import DeserializationFailed
    from kclient.record import Record
    from kclient.types import OffsetAndMetadata, TopicPartition


class Sender(Protocol):
    """What sends records to retry topics and to the dead-letter topic."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Awaitable[object]:
        """Send one record; whoever awaits the answer knows that it is in the log."""
        ...


def unfit(sender: Any, *, running: bool) -> str | None:
    """Why records can't be sent on by ``sender``, in words; None if nothing is known.

    Args:
        sender: A ``Sender``; those that don't tell are believed.
        running: Whether it must have been started.
    """
    asked = getattr(type(sender), "_unfit_to_relay", None)
    why: str | None = None if asked is None else asked(sender, running=running)
    return why


class RunHost(Protocol):
    """The consumer."""

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def rng(self) -> random.Random:
        """Chance."""
        ...

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Where to say what happens."""
        ...

    @property
    def convert(self) -> Convert | None:
        """Makes of a record what the handler gets; None where that is the record."""
        ...

    @property
    def max_poll_interval(self) -> float:
        """Seconds after which a handler counts as slow."""
        ...

    @property
    def partition_count(self) -> int:
        """How many partitions are assigned."""
        ...

    @property
    def closed(self) -> bool:
        """The client is closed, or about to be."""
        ...

    def check(self) -> None:
        """Raise what ended the client, if anything has."""
        ...

    def assigned(self) -> Collection[TopicPartition]:
        """The partitions that are assigned."""
        ...

    def reads(self, topic: str) -> bool:
        """Whether records of ``topic`` are, or will be, among those to handle."""
        ...

    @property
    def letters(self) -> DeadLetters | None:
        """Where the consumer has records sent that can't be deserialized."""
        ...

    def skips(self, record: Record, error: DeserializationFailed) -> bool:
        """Whether the consumer passes over such a record."""
        ...

    def passed(
        self, partition: TopicPartition, first: OffsetAndMetadata | None = None
    ) -> OffsetAndMetadata | None:
        """What to commit where all before ``first`` is finished; None for nothing.

        ``first`` is by default where the next record to hand over is, behind what nobody may see.
        What was finished before counts where nothing was taken since a seek, and nothing does
        where nothing was taken since an explicit commit.
        """
        ...

    def stand(self, partition: TopicPartition) -> None:
        """The application committed an offset of it."""
        ...

    async def poll(self, limit: int, timeout: float) -> Sequence[Record]:
        """Records as they are stored, none after ``timeout`` seconds.

        Between the step in which positions move and the caller's next one nothing may happen.

        Cancellation: safe, nothing was taken.
        """
        ...

    def may_start(self) -> bool:
        """Whether handlers may start: False once the membership is over, before that is reported.

        Cheap: it is asked for each record.
        """
        ...

    def touch(self) -> None:
        """Counts as a poll, where there is no room for more records."""
        ...

    def pause(self, partition: TopicPartition) -> None:
        """Hand out no more of it. What the user pauses is kept apart from this."""
        ...

    def resume(self, partition: TopicPartition) -> None:
        """Undo ``pause``. Nothing happens to what isn't assigned."""
        ...

    def rewind(self, partition: TopicPartition, to: OffsetAndMetadata) -> None:
        """Hand out records from there on again. Nothing happens to what isn't assigned."""
        ...

    def use_progress(self, progress: Progress | None) -> None:
        """Who says from now on what is finished; None: whoever polls, from the positions on."""
        ...

    def commit_nowait(self) -> None:
        """Have what is finished committed soon, if commits are automatic."""
        ...

    async def commit(self) -> None:
        """Commit what is finished, if commits are automatic; raises why that failed.

        Cancellation: the commit goes on.
        """
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a task that belongs to the client."""
        ...

    async def stop(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel tasks of ``spawn`` and wait for their end.

        Cancellation: they are cancelled all the same.
        """
        ...

    def count(self, name: str, amount: int) -> None:
        """Add to a counter of the client."""
        ...
