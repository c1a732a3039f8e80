"""No record is skipped and none is returned twice, whatever happens between fetch and poll."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kclient.consumer.completed_fetch import CompletedFetch
from kclient.consumer.partition_state import PartitionState
from kclient.record import Batch, Compression, record_batch
from kclient.types import OffsetSpec
from tests.unit.consumer.buffer_rig import BufferRig
from tests.unit.consumer.log_bytes import batch, control, gapped

PARTITIONS = 3
HALF_READ_BYTES = (8, 60)
"""One batch that is inflated and read in part is too much already; some may stay."""


def make_log(number: int) -> tuple[bytes, list[int], list[int]]:
    """A log with gaps, markers, an aborted transaction and codecs: bytes, batch ends, offsets."""
    data, ends, visible, offset = [], [0], [], number
    for index in range(12):
        count = 1 + (index * 7 + number) % 5
        kind = (index + number) % 4
        if kind == 0:
            data.append(control(offset, 1, index % 2))
            offset += 1
        elif kind == 1:
            data.append(gapped(batch(offset, count), count + 2))
            visible += range(offset, offset + count)
            offset += count + 3
        elif kind == 2:
            data.append(batch(offset, count, producer_id=9, transactional=True))
            offset += count  # producer 9 aborts all it does
        else:
            data.append(batch(offset, count, codec=Compression(index % 2)))
            visible += range(offset, offset + count)
            offset += count
        ends.append(sum(map(len, data)))
    return b"".join(data), ends, visible


class Reading(RuleBasedStateMachine):
    """Fetches, takes, give-backs, seeks, pauses and re-assignments in any order."""

    index = st.integers(0, PARTITIONS - 1)
    half_read_bytes = HALF_READ_BYTES[0]

    def __init__(self) -> None:
        super().__init__()
        self.rig = BufferRig(PARTITIONS, half_read_bytes=self.half_read_bytes)
        self.logs = [make_log(number) for number in range(PARTITIONS)]
        self.expected = [0] * PARTITIONS  # where the application expects to be
        self.taken: list[object] = []
        self.threads: dict[CompletedFetch, Batch] = {}  # that inflate a piece's batch

    def next_visible(self, index: int, offset: int) -> int | None:
        return next((o for o in self.logs[index][2] if o >= offset), None)

    @rule(index=index, batches=st.integers(1, 5), stale=st.booleans())
    def fetch(self, index: int, batches: int, stale: bool) -> None:
        """The response of a broker: whole batches, the first one around the requested offset."""
        state = self.rig.state(index)
        if state.fetch_offset is None:
            return
        data, ends, _ = self.logs[index]
        from kclient.record import read_batches

        found = list(read_batches(data))
        first = next((n for n, b in enumerate(found) if b.last_offset >= state.fetch_offset), None)
        if first is None:
            return
        piece = data[ends[first] : ends[min(first + batches, len(found))]]
        at = state.fetch_offset - 1 if stale else state.fetch_offset
        self.rig.add(index, piece, at=at, aborted=[(9, 0)])

    @rule(limit=st.integers(1, 9), keep=st.integers(0, 9))
    def take(self, limit: int, keep: int) -> None:
        """Return some records; those not delivered are given back (async for, errors)."""
        records = self.rig.buffer.take(limit)
        assert len(records) <= limit
        for record in records[:keep]:
            index = record.partition
            assert not self.rig.state(index).paused
            assert record.offset == self.next_visible(index, self.expected[index])
            self.expected[index] = record.offset + 1
        if records[keep:]:
            self.rig.buffer.give_back(records[keep:])

    @rule(count=st.integers(0, 9))
    def take_columns(self, count: int) -> None:
        """A batch is read as columns are, in part or whole, or doesn't fit."""

        def read(state: PartitionState, one: Batch, start: int) -> int | None:
            if count == 0:
                one.inflate()
                return None
            index = state.topic_partition.partition
            found = one.records("t", index, start_offset=start, limit=count)
            for record in found:
                assert record.offset == self.next_visible(index, self.expected[index])
                self.expected[index] = record.offset + 1
            return one.next_offset if one.exhausted else found[-1].offset + 1

        self.rig.buffer.take_batch(read)

    @rule(index=index, offset=st.integers(0, 50))
    def seek(self, index: int, offset: int) -> None:
        self.rig.subscription.seek(self.rig.state(index), offset)
        self.expected[index] = offset

    @rule(index=index)
    def seek_to_where_it_is(self, index: int) -> None:
        """To the position itself, where pieces may begin; the application is not beyond it."""
        position = self.rig.position(index)
        assert position is not None
        self.rig.subscription.seek(self.rig.state(index), position)

    @rule(index=index)
    def reset(self, index: int) -> None:
        state = self.rig.state(index)
        self.rig.subscription.ask_reset(state, OffsetSpec.EARLIEST)
        self.rig.subscription.finish_resets([(state, state.position_version, 0, -1)])
        self.expected[index] = 0

    @rule(index=index)
    def pause(self, index: int) -> None:
        self.rig.subscription.pause(self.rig.state(index))

    @rule(index=index)
    def resume(self, index: int) -> None:
        self.rig.subscription.resume(self.rig.state(index))

    @rule()
    def need_memory(self) -> None:
        self.rig.buffer.drop_paused()

    @rule(index=index)
    def assign_anew(self, index: int) -> None:
        partition = self.rig.partition(index)
        everything = [state.topic_partition for state in self.rig.subscription]
        others = [other for other in everything if other != partition]
        self.rig.subscription.assign(others)
        self.rig.subscription.assign([*others, partition])
        self.rig.subscription.seek(self.rig.state(index), 0)
        self.expected[index] = 0

    @invariant()
    def the_position_is_where_the_user_is(self) -> None:
        for index in range(PARTITIONS):
            position = self.rig.position(index)
            assert position is not None
            # Hidden records are passed silently; no visible record lies between.
            assert self.next_visible(index, self.expected[index]) == self.next_visible(
                index, position
            )

    @invariant()
    def bytes_add_up(self) -> None:
        for index in range(PARTITIONS):
            state = self.rig.state(index)
            assert state.buffered_bytes >= 0
            if not self.rig.buffer.holds(state):
                assert state.buffered_bytes == 0
                assert state.fetch_offset == state.position

    @invariant()
    def who_holds_bytes_can_be_served(self) -> None:
        buffer = self.rig.buffer
        blocked = {data.state for data in buffer.blocked}
        unheard = {data.state for data in self.threads}
        for index in range(PARTITIONS):
            state = self.rig.state(index)
            held = sum(data.held_bytes for data in buffer._queues.get(state, ()))
            counted = buffer._held.get(state, 0)
            if counted:
                assert state in buffer._turns
                assert state not in blocked
            aside = buffer._aside.get(state, 0)
            if aside:
                assert state.paused and state not in buffer._turns
            if state not in blocked and state not in unheard:
                assert counted + aside == held
        assert buffer.held_bytes == sum(buffer._held.values())
        assert buffer.aside_bytes == sum(buffer._aside.values())
        assert buffer.aside_bytes <= buffer._held_limit or len(buffer._aside) == 1

    def teardown(self) -> None:
        self.rig.buffer.clear()
        assert self.rig.frames_held == 0
        assert self.rig.buffer.frame_bytes == 0


class ReadingWithThreads(Reading):
    """The same, where all that is compressed is inflated in threads."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = record_batch._INLINE_SECONDS
        record_batch._INLINE_SECONDS = 0.0

    @rule(number=st.integers(0, PARTITIONS - 1))
    def start_a_thread(self, number: int) -> None:
        """For one that is blocked now, whatever happens to it meanwhile."""
        blocked = list(self.rig.buffer.blocked)
        if number < len(blocked) and blocked[number] not in self.threads:
            batch = blocked[number].blocked
            assert batch is not None
            self.threads[blocked[number]] = batch

    @rule()
    def a_thread_is_done(self) -> None:
        """The loop hasn't been notified yet."""
        for one in self.threads.values():
            one.inflate(2**30)

    @rule()
    def the_loop_hears_of_threads(self) -> None:
        self.a_thread_is_done()
        for data in self.threads:
            self.rig.buffer.unblock(data)
        self.threads.clear()

    def teardown(self) -> None:
        record_batch._INLINE_SECONDS = self.seconds
        super().teardown()


class ReadingWithSpace(Reading):
    """The same, where more than one batch may be read in part."""

    half_read_bytes = HALF_READ_BYTES[1]


class ReadingWithThreadsAndSpace(ReadingWithThreads):
    """The same with threads."""

    half_read_bytes = HALF_READ_BYTES[1]


TestReadingWithSpace = ReadingWithSpace.TestCase
TestReadingWithSpace.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestReadingWithThreadsAndSpace = ReadingWithThreadsAndSpace.TestCase
TestReadingWithThreadsAndSpace.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None
)
TestReadingWithThreads = ReadingWithThreads.TestCase
TestReadingWithThreads.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
