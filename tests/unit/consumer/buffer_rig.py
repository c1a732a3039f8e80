"""A fetch buffer with a subscription, as the fetcher has them, for tests without brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kclient.consumer.completed_fetch import CompletedFetch
from kclient.consumer.fetch_buffer import FetchBuffer
from kclient.consumer.fetch_response import measure
from kclient.consumer.partition_state import PartitionState
from kclient.errors import CorruptRecord
from kclient.record import read_batches
from kclient.types import TopicPartition
from tests.unit.consumer.subscribing import new_subscription


class BufferRig:
    """Partitions ``t-0 .. t-n`` at offset 0, and a buffer."""

    def __init__(
        self,
        partitions: int,
        *,
        frame_budget: int = 2**30,
        half_read_bytes: int = 2**27,
        partition_bytes: int = 2**20,
    ) -> None:
        self.space: list[TopicPartition] = []
        self.releases: list[int] = []
        self.corrupt: list[tuple[TopicPartition, CorruptRecord]] = []
        self.frames_held = 0
        self.subscription = new_subscription(None, self._changed)
        self.buffer = FetchBuffer(
            self.subscription,
            frame_budget=frame_budget,
            half_read_bytes=half_read_bytes,
            partition_bytes=partition_bytes,
            on_space=lambda state: self.space.append(state.topic_partition),
            on_released=lambda: self.releases.append(self.buffer.frame_bytes),
            on_corrupt=lambda state, error: self.corrupt.append((state.topic_partition, error)),
        )
        self.subscription.assign(map(self.partition, range(partitions)))
        for index in range(partitions):
            self.subscription.seek(self.state(index), 0)

    def _changed(self, states: Sequence[PartitionState]) -> None:
        self.buffer.follow(states)

    @staticmethod
    def partition(index: int) -> TopicPartition:
        return TopicPartition("t", index)

    def state(self, index: int) -> PartitionState:
        return self.subscription.require(self.partition(index))

    def position(self, index: int) -> int | None:
        return self.state(index).position

    def add(
        self,
        index: int,
        log: bytes,
        *,
        at: int | None = None,
        aborted: Iterable[tuple[int, int]] | None = None,
    ) -> bool:
        """Add ``log`` as the response to a fetch at ``at``, by default at the right place."""
        return self.add_frame({index: log}, at=at, aborted=aborted)

    def add_frame(
        self,
        logs: dict[int, bytes],
        *,
        size_bytes: int = 100,
        at: int | None = None,
        aborted: Iterable[tuple[int, int]] | None = None,
    ) -> bool:
        """Add the response about several partitions, in one frame."""
        self.frames_held += 1
        lease = self.buffer.lease(size_bytes, self._released)
        taken = False
        for index, log in logs.items():
            state = self.state(index)
            offset = (at if at is not None else state.fetch_offset) or 0
            span = measure(memoryview(log), offset, state.topic_partition)
            data = CompletedFetch(
                state,
                offset,
                read_batches(log, topic_partition=state.topic_partition),
                span.end_offset,
                clean=span.clean,
                size_bytes=len(log),
                lease=lease,
                aborted=aborted,
            )
            taken = self.buffer.add(data)
        lease.drop()
        return taken

    def _released(self) -> None:
        self.frames_held -= 1

    def take(self, limit: int) -> list[tuple[int, int]]:
        """(partition, offset) of the records that are returned."""
        return [(record.partition, record.offset) for record in self.buffer.take(limit)]
