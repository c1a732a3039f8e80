"""Fetched data that waits for poll, sans-IO, and the one step that returns it.

Filled by ``fetcher`` from responses, emptied by ``consumer``. ``take`` decodes, returns records and
moves the positions in one synchronous step, so a poll that is cancelled while it waits has taken
nothing. Partitions are served in rotation: one that was served goes to the end of the queue.

Every piece of a partition begins where the previous one ends, and the first one at the position; a
piece that doesn't (after a seek, or when the partition was revoked) is dropped, not delivered.
Memory is counted by response frames: one stays as long as any partition's piece points into it.

The inflated payload of a batch that is read in part stays until its last record is taken, and in a
rotation each partition could hold one. So these bytes are counted too, by partition: from a limit
on only those partitions are served that hold some. What threads inflate meanwhile, and one batch
that was begun below the limit, come on top of it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from kclient.consumer.completed_fetch import CompletedFetch, FrameLease
from kclient.errors import CodecUnavailable, CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.record import Batch, Record
    from kclient.types import TopicPartition

BATCHES_PER_TAKE = 200
"""Batches that one ``take`` reads at most: many aborted or tiny ones must not hold the loop."""
PIECES_PER_PARTITION = 8
"""Pieces that one partition may have waiting: small ones cost more than their bytes."""


class FetchBuffer:
    """The pieces of all partitions, in their order, and the rotation of the partitions.

    Attributes:
        frame_bytes: Bytes of the response frames that are still pointed into.
        frame_budget: Above this no broker is sent a fetch request.
        held_bytes: Inflated bytes of batches read in part, of partitions that can be served.
        aside_bytes: Those of paused partitions, up to the limit unless it is one alone.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        frame_budget: int,
        half_read_bytes: int,
        partition_bytes: int,
        on_space: Callable[[PartitionState], None],
        on_released: Callable[[], None],
        on_corrupt: Callable[[PartitionState, CorruptRecord | CodecUnavailable], None],
    ) -> None:
        """
        Args:
            subscription: The writer of positions.
            frame_budget: Bytes of frames above which ``has_space`` is False.
            half_read_bytes: Inflated bytes of batches read in part, from which on only these are
                read. As many may stay with paused partitions.
            partition_bytes: Bytes of a partition's pieces above which it is ``is_full``.
            on_space: Called with a partition that isn't full any more, or of which all was dropped.
            on_released: Called when nothing points into a frame any more.
            on_corrupt: Called with a partition whose next batch can't be read; its data is dropped.
        """
        self._subscription = subscription
        self._full_bytes = partition_bytes
        self._on_space = on_space
        self._on_released = on_released
        self._on_corrupt = on_corrupt
        self._queues: dict[PartitionState, deque[CompletedFetch]] = {}
        self._turns: OrderedDict[PartitionState, None] = OrderedDict()
        self._blocked: dict[PartitionState, CompletedFetch] = {}
        self._held_limit = max(1, half_read_bytes)
        self._held: dict[PartitionState, int] = {}  # in the order of the rotation
        self._aside: dict[PartitionState, int] = {}
        self.held_bytes = 0
        self.aside_bytes = 0
        self.frame_budget = frame_budget
        self.frame_bytes = 0

    # Filling

    def lease(self, size_bytes: int, release: Callable[[], None]) -> FrameLease:
        """Count a response frame of ``size_bytes``; ``release`` is called when all is used up."""

        def released(lease: FrameLease) -> None:
            self.frame_bytes -= lease.size_bytes
            release()
            self._on_released()

        self.frame_bytes += size_bytes
        return FrameLease(size_bytes, released)

    def add(self, data: CompletedFetch) -> bool:
        """Add the next piece of a partition; False, and it is closed, where it doesn't fit on.

        Where it was added, the caller has more fetched.
        """
        state = data.state
        if not state.assigned or state.paused or data.offset != state.fetch_offset:
            data.close()
            return False
        queue = self._queues.get(state)
        if queue is None:
            queue = self._queues[state] = deque()
            self._turns[state] = None
        queue.append(data)
        state.buffered_bytes += data.size_bytes
        self._subscription.fetched_to(state, data.end_offset)
        return True

    def give_back(self, records: Sequence[Record]) -> None:
        """Take back ``records``, the last ones that were taken, in their order."""
        by_partition: dict[TopicPartition, list[Record]] = {}
        for record in records:
            by_partition.setdefault(record.topic_partition, []).append(record)
        for partition, own in by_partition.items():
            state = self._subscription.get(partition)
            if state is None or state.position is None or own[-1].offset >= state.position:
                continue  # after a seek or a revocation: they belong to an older position
            data = CompletedFetch.given_back(state, own, state.position)
            self._queues.setdefault(state, deque()).appendleft(data)
            self._blocked.pop(state, None)
            self._subscription.advance(state, data.offset, -1)
            if not state.paused:
                self._turns[state] = None
                self._turns.move_to_end(state, last=False)

    # Limits

    @property
    def has_space(self) -> bool:
        """Whether more may be requested from brokers."""
        return self.frame_bytes < self.frame_budget

    def is_full(self, state: PartitionState) -> bool:
        """Whether the partition has enough waiting; a single piece, however large, never is."""
        queue = self._queues.get(state)
        if queue is None or len(queue) < 2:
            return False
        return state.buffered_bytes >= self._full_bytes or len(queue) >= PIECES_PER_PARTITION

    def holds(self, state: PartitionState) -> bool:
        """Whether the partition has data waiting."""
        return state in self._queues

    @property
    def has_turns(self) -> bool:
        """Whether another ``take`` may return records without waiting for anything."""
        return len(self._turns) > len(self._blocked)

    @property
    def blocked(self) -> Collection[CompletedFetch]:
        """The pieces whose next batch must be inflated in a thread."""
        return self._blocked.values()

    def unblock(self, data: CompletedFetch) -> None:
        """The batch that blocked it is inflated, or failed to."""
        data.blocked = None
        state = data.state
        if self._blocked.get(state) is data:
            del self._blocked[state]
        if state in self._blocked or state not in self._queues:
            return
        if state in self._turns:
            self._note(state)
        else:
            self._set_aside(state)

    @property
    def may_inflate(self) -> bool:
        """Whether there is memory for what another thread would inflate.

        Where other partitions hold so much that no batch is begun, there is still some for
        these: else they would wait for ever behind small ones.
        """
        return self.held_bytes < 2 * self._held_limit

    # Emptying

    def take(self, limit: int) -> list[Record]:
        """Take at most ``limit`` records, and move the positions behind them.

        Fewer, or none, do not mean that nothing waits: see ``has_turns`` and ``blocked``. If memory
        runs out, the records taken before are returned; MemoryError is raised if there are none.
        """
        taken: list[Record] = []
        batches = BATCHES_PER_TAKE
        for _ in range(len(self._turns) - len(self._blocked)):
            crowded = self._crowded
            state = self._next_turn()
            if state is None:
                break
            while batches > 0:
                batches -= 1
                try:
                    records = self._take_from(state, limit - len(taken))
                except MemoryError:
                    if not taken:
                        raise
                    return taken  # their positions have moved
                if records is None:
                    break
                if not taken:
                    taken = records
                elif records:
                    taken += records
                if len(taken) >= limit:
                    return taken
                if crowded:
                    break  # its batch is at an end: now another partition may begin one
            if batches <= 0:
                break
        return taken

    def take_batch(self, read: Callable[[PartitionState, Batch, int], int | None]) -> bool:
        """Pass one batch to ``read(state, batch, from_offset)``, and move to the offset it returns.

        ``read`` returns the offset to continue at, or None if it can't take anything in now; then
        nothing moves. Returns whether another call may get on. What ``give_back`` took back is
        not a batch any more: that is fetched again.
        """
        state = self._next_turn()
        if state is None:
            return False
        data = self._queues[state][0]
        if data.has_ready_records:
            self._fetch_again(state)
            return True
        try:
            batch = data.take_batch()
            if batch is not None and state.position is not None:
                reached = read(state, batch, state.position)
                if reached is None:
                    self._note(state)
                    return False
                data.pass_to(reached)
        except (CorruptRecord, CodecUnavailable) as error:
            self._corrupt(state, data.explained(error))
            return True
        except MemoryError:
            self._note(state)  # it may be inflated
            raise
        self._after(state, data, handed=batch is not None)
        return True

    def return_to(self, offsets: Mapping[PartitionState, int]) -> None:
        """Undo the steps of ``take_batch`` from these offsets on: the data is fetched again."""
        for state, offset in offsets.items():
            self._subscription.advance(state, offset, -1)
            self._fetch_again(state)

    def _next_turn(self) -> PartitionState | None:
        """Return the partition to serve next, and move it to the end of the rotation.

        It is the first one of all, or, over the limit, of those that hold inflated bytes.
        """
        turns = self._turns
        while turns:
            state = next(iter(self._held if self._crowded else turns))
            if self._is_stale(state):
                self._fetch_again(state)
            elif state.paused:
                del turns[state]
                self._blocked.pop(state, None)
                self._set_aside(state)
            else:
                turns.move_to_end(state)
                if state not in self._blocked:
                    return state
                if len(self._blocked) == len(turns):
                    return None
        return None

    def _take_from(self, state: PartitionState, limit: int) -> list[Record] | None:
        """Take records of one batch, maybe none; None where the partition has to wait."""
        queue = self._queues.get(state)
        if queue is None or state in self._blocked:
            return None
        data = queue[0]
        try:
            records = data.take(limit)
        except (CorruptRecord, CodecUnavailable) as error:
            self._corrupt(state, error)
            return None
        except MemoryError:
            self._note(state)  # it may be inflated
            raise
        self._after(state, data, handed=bool(records))
        return records

    def _after(self, state: PartitionState, data: CompletedFetch, *, handed: bool) -> None:
        self._subscription.advance(state, data.offset, data.leader_epoch, handed=handed)
        if data.done:
            self._remove_first(state)
        elif data.blocked is not None:
            self._blocked[state] = data
            self._forget(state)  # unblock counts it again
            return
        if self._held or data.held_bytes:
            self._note(state)

    @property
    def _crowded(self) -> bool:
        """Whether only partitions that hold inflated bytes are served, before all others."""
        return self.held_bytes >= self._held_limit

    def _note(self, state: PartitionState) -> None:
        """Count what the partition holds, which was served or can be."""
        self._forget(state)
        held = self._held_by(state)
        if held:
            self._held[state] = held
            self.held_bytes += held

    def _set_aside(self, state: PartitionState) -> None:
        """Count what a paused partition holds, or fetch it again later if such hold too much.

        The first one may keep it: it may be paused and resumed for every few records.
        """
        self._forget(state)
        held = self._held_by(state)
        if self.aside_bytes and self.aside_bytes + held > self._held_limit:
            self._fetch_again(state)
        elif held:
            self._aside[state] = held
            self.aside_bytes += held

    def _forget(self, state: PartitionState) -> None:
        """Stop counting the partition: it holds nothing, or can't be served."""
        self.held_bytes -= self._held.pop(state, 0)
        self.aside_bytes -= self._aside.pop(state, 0)

    def _held_by(self, state: PartitionState) -> int:
        held = 0
        for data in self._queues.get(state, ()):
            held = data.held_bytes
            if not data.has_ready_records:  # else it was given back; a batch may lie behind it
                break
        return held

    def _remove_first(self, state: PartitionState) -> None:
        queue = self._queues[state]
        full = self.is_full(state)
        data = queue.popleft()
        state.buffered_bytes -= data.size_bytes
        data.close()
        if not queue:
            del self._queues[state]
            self._turns.pop(state, None)
        if full:
            self._on_space(state)

    def _corrupt(self, state: PartitionState, error: CorruptRecord | CodecUnavailable) -> None:
        self._fetch_again(state)
        self._on_corrupt(state, error)

    # Dropping

    def follow(self, states: Iterable[PartitionState]) -> None:
        """Follow changed partitions: drop data off their positions, update the rotation."""
        for state in states:
            if state not in self._queues:
                continue
            if self._is_stale(state):
                self._fetch_again(state)
            elif not state.paused and state not in self._turns:
                self._turns[state] = None  # resumed
                self._note(state)

    def drop(self, state: PartitionState) -> None:
        """Release all data that waits for one partition."""
        queue = self._queues.pop(state, None)
        self._turns.pop(state, None)
        self._blocked.pop(state, None)
        self._forget(state)
        if queue is None:
            return
        for data in queue:
            data.close()
        state.buffered_bytes = 0
        self._on_space(state)

    def _fetch_again(self, state: PartitionState) -> None:
        """Release the data of a partition, and have it fetched from the position on."""
        self.drop(state)
        self._subscription.rewind_fetch(state)

    def drop_paused(self) -> None:
        """Free memory: what waits for paused partitions is fetched again when they are resumed."""
        for state in [state for state in self._queues if state.paused]:
            self._fetch_again(state)

    def clear(self) -> None:
        """Release everything."""
        for state in list(self._queues):
            self.drop(state)

    def _is_stale(self, state: PartitionState) -> bool:
        first = self._queues[state][0]
        moved = first.position_version != state.position_version or first.offset != state.position
        return moved or not state.assigned
