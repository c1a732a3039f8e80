"""Batches that are read in part: how much they may hold, which are served, and what threads add."""

from __future__ import annotations

from collections import Counter

import pytest

from kclient.consumer.partition_state import PartitionState
from kclient.record import Batch, Compression, record_batch
from tests.unit.consumer.buffer_rig import BufferRig
from tests.unit.consumer.log_bytes import batch

AT_ONCE = 8
"""Half-read batches of ``crowd`` that fill the limit."""
_EACH = 4000


def crowd(partitions: int, batches: int = 1, codec: Compression = Compression.GZIP) -> BufferRig:
    """In each partition so many batches of four records that take 4,000 bytes and some."""
    rig = BufferRig(partitions, half_read_bytes=AT_ONCE * _EACH)
    for index in range(partitions):
        each = [batch(4 * n, 4, value_bytes=_EACH // 4, codec=codec) for n in range(batches)]
        rig.add(index, b"".join(each))
    return rig


def most_begun(served: list[int]) -> int:
    """In the midst of how many batches of four records a reader was at once."""
    counts = [Counter(served[:end]) for end in range(len(served))]
    return max(sum(0 < count < 4 for count in one.values()) for one in counts)


def test_only_so_many_partitions_as_memory_allows_are_in_the_midst_of_a_batch() -> None:
    """Each holds what its batch was inflated to, and there may be thousands of them."""
    rig = crowd(3 * AT_ONCE)
    served = [rig.take(1)[0][0] for _ in range(4 * 3 * AT_ONCE)]
    assert served[: 2 * AT_ONCE] == 2 * list(range(AT_ONCE))
    assert most_begun(served) == AT_ONCE
    assert Counter(served) == dict.fromkeys(range(3 * AT_ONCE), 4)
    assert rig.buffer.held_bytes == 0


def test_what_is_not_compressed_counts_for_nothing_and_all_are_served_in_rotation() -> None:
    rig = crowd(3 * AT_ONCE, codec=Compression.NONE)
    served = [rig.take(1)[0][0] for _ in range(3 * AT_ONCE)]
    assert served == list(range(3 * AT_ONCE))


def test_a_partition_that_ends_a_batch_lets_another_one_begin_one() -> None:
    rig = crowd(AT_ONCE + 1, batches=9)
    first = next(turn for turn in range(99) if rig.take(3)[-1][0] == AT_ONCE)
    assert first <= 2 * AT_ONCE


def test_no_more_are_begun_by_columns() -> None:
    rig = crowd(3 * AT_ONCE)
    seen: list[int] = []

    def one_record(state: PartitionState, one: Batch, start: int) -> int:
        seen.append(state.topic_partition.partition)
        (record,) = one.records("t", 0, start_offset=start, limit=1)
        return record.offset + 1

    while rig.buffer.take_batch(one_record):
        pass
    assert most_begun(seen) == AT_ONCE
    assert Counter(seen) == dict.fromkeys(range(3 * AT_ONCE), 4)


def test_a_partition_that_is_paused_in_the_midst_of_a_batch_holds_up_no_other() -> None:
    rig = crowd(AT_ONCE + 2)
    for _ in range(AT_ONCE):
        rig.take(1)
    for index in range(AT_ONCE):
        rig.subscription.pause(rig.state(index))
    assert rig.take(4) == [(AT_ONCE, n) for n in range(4)]
    for index in range(AT_ONCE):
        rig.subscription.resume(rig.state(index))
    assert rig.take(1)[0][0] != AT_ONCE + 1  # they count again, and others wait
    assert sum(len(rig.take(100)) for _ in range(20)) == 3 * AT_ONCE + 4 - 1
    assert rig.frames_held == 0


def test_a_partition_that_is_sought_in_the_midst_of_a_batch_holds_up_no_other() -> None:
    rig = crowd(AT_ONCE + 2)
    for _ in range(AT_ONCE):
        rig.take(1)
    for index in range(AT_ONCE):
        rig.subscription.seek(rig.state(index), 0)
    assert rig.take(4) == [(AT_ONCE, n) for n in range(4)]


def test_what_lies_behind_records_that_were_given_back_counts() -> None:
    rig = crowd(3 * AT_ONCE)
    for _ in range(3 * AT_ONCE):
        records = rig.buffer.take(3)
        rig.buffer.give_back(records[1:])
        rig.take(1)  # of two that were given back, with the batch behind them
    queues = rig.buffer._queues.values()
    assert 0 < sum(any(data.held_bytes for data in queue) for queue in queues) <= AT_ONCE


def test_what_threads_have_inflated_counts_and_is_read_before_others_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_batch, "_INLINE_SECONDS", 0.0)
    rig = crowd(4 * AT_ONCE)
    assert rig.take(1) == []
    assert len(rig.buffer.blocked) == 4 * AT_ONCE
    inflated = 0
    while rig.buffer.may_inflate:
        data = next(iter(rig.buffer.blocked))
        assert data.blocked is not None
        data.blocked.inflate(2**30)
        rig.buffer.unblock(data)
        inflated += 1
    assert inflated == 2 * AT_ONCE
    served = [rig.take(1)[0][0] for _ in range(4 * inflated)]
    assert Counter(served) == dict.fromkeys(range(inflated), 4)
    assert rig.take(1) == []
    assert rig.buffer.may_inflate


@pytest.mark.parametrize("way", ["given back", "paused"])
def test_a_thread_that_ends_before_the_loop_is_notified_blocks_no_partition(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The partition isn't blocked then, as its batch can be read already."""
    monkeypatch.setattr(record_batch, "_INLINE_SECONDS", 0.0)
    rig = BufferRig(2, half_read_bytes=100)
    rig.add(0, batch(0, 4) + batch(4, 4, value_bytes=1000, codec=Compression.GZIP))
    rig.add(1, batch(0, 4))
    records = rig.buffer.take(8)
    (data,) = rig.buffer.blocked
    assert data.blocked is not None
    if way == "given back":
        rig.buffer.give_back(records[3:])
    else:
        rig.buffer.give_back(records[4:])
        rig.subscription.pause(rig.state(0))
        rig.take(1)
        rig.take(1)
        rig.subscription.resume(rig.state(0))
    data.blocked.inflate()
    rest = rig.take(2)
    rig.buffer.unblock(data)
    assert rig.buffer.held_bytes == data.held_bytes > 0
    for _ in range(20):
        rest += rig.take(2)
    assert [where for where in rest if where[0] == 0][-4:] == [(0, n) for n in range(4, 8)]
    assert rig.frames_held == 0


def test_a_thread_that_ends_while_its_batch_is_looked_at_blocks_no_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found to want a thread, and holds what that has inflated already."""
    rig = BufferRig(2, half_read_bytes=100)
    rig.add(0, batch(0, 4, value_bytes=1000, codec=Compression.GZIP))
    rig.add(1, batch(0, 4))
    needs_thread = Batch.needs_thread

    def raced(one: Batch, cap: int) -> bool:
        if not one.codec:
            return needs_thread(one, cap)
        one.inflate(cap)
        return True

    monkeypatch.setattr(Batch, "needs_thread", raced)
    assert rig.take(2) == [(1, 0), (1, 1)]
    assert rig.state(0) not in rig.buffer._held
    assert [rig.take(2) for _ in range(2)] == [[(1, 2), (1, 3)], []]
    monkeypatch.setattr(Batch, "needs_thread", needs_thread)
    (data,) = rig.buffer.blocked
    rig.buffer.unblock(data)
    assert rig.take(9) == [(0, n) for n in range(4)]


def test_paused_partitions_keep_only_so_much_of_what_was_inflated() -> None:
    """Else pausing each partition that has data would fill the memory."""
    rig = crowd(6 * AT_ONCE)
    for _ in range(6 * AT_ONCE):
        for index, _ in rig.take(1):
            rig.subscription.pause(rig.state(index))
    assert rig.take(9) == []
    holding = [index for index in range(6 * AT_ONCE) if rig.buffer.holds(rig.state(index))]
    assert len(holding) == AT_ONCE - 1  # each has a few bytes more than 4,000
    for index in range(6 * AT_ONCE):
        rig.subscription.resume(rig.state(index))
        if index not in holding:
            assert rig.state(index).fetch_offset == rig.position(index) == 1
            rig.add(index, batch(0, 4, value_bytes=_EACH // 4, codec=Compression.GZIP))
    rest = Counter(rig.take(1)[0] for _ in range(3 * 6 * AT_ONCE))
    assert rest == {(index, n): 1 for index in range(6 * AT_ONCE) for n in range(1, 4)}
    assert rig.buffer.held_bytes == rig.buffer.aside_bytes == 0


def test_one_paused_partition_keeps_its_batch_however_large() -> None:
    """Else pausing and resuming it would fetch and inflate it again for every few records."""
    rig = BufferRig(1, half_read_bytes=1000)
    rig.add(0, batch(0, 6, value_bytes=1000, codec=Compression.GZIP))
    for number in range(6):
        assert rig.take(1) == [(0, number)]
        rig.subscription.pause(rig.state(0))
        assert rig.take(1) == []
        rig.subscription.resume(rig.state(0))
    assert rig.frames_held == 0
    assert rig.buffer.held_bytes == rig.buffer.aside_bytes == 0


def test_what_was_taken_before_memory_fails_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = BufferRig(2)
    rig.add(0, batch(0, 2))
    rig.add(1, batch(0, 2))
    records = Batch.records

    def fail_for_1(one: Batch, topic: str, partition: int, **how: int) -> object:
        if partition == 1:
            raise MemoryError
        return records(one, topic, partition, **how)

    monkeypatch.setattr(Batch, "records", fail_for_1)
    assert rig.take(9) == [(0, 0), (0, 1)]
    with pytest.raises(MemoryError):
        rig.take(9)
    monkeypatch.undo()
    assert rig.take(9) == [(1, 0), (1, 1)]


def test_what_a_thread_inflated_for_a_partition_that_was_paused_counts_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_batch, "_INLINE_SECONDS", 0.0)
    rig = BufferRig(3, half_read_bytes=3000)
    for index in range(2):
        rig.add(index, batch(0, 2, value_bytes=1000, codec=Compression.GZIP))
    assert rig.take(9) == []
    blocked = list(rig.buffer.blocked)
    for data in blocked:
        rig.subscription.pause(data.state)
    rig.add(2, batch(0, 1))
    assert rig.take(9) == [(2, 0)]  # and before that it noticed that the others are paused
    assert not rig.buffer.blocked
    for data in blocked:
        assert data.blocked is not None
        data.blocked.inflate()
        rig.buffer.unblock(data)
    assert [rig.buffer.holds(rig.state(index)) for index in range(2)] == [True, False]
    assert rig.buffer.aside_bytes == blocked[0].held_bytes > 2000
    rig.subscription.resume(rig.state(0))
    assert rig.take(9) == [(0, 0), (0, 1)]
    assert rig.buffer.aside_bytes == rig.buffer.held_bytes == 0


@pytest.mark.parametrize("way", ["records", "columns"])
def test_what_is_inflated_when_memory_fails_counts(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    rig = crowd(1)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    def read(_: PartitionState, one: Batch, __: int) -> None:
        one.inflate()
        fail()

    if way == "records":
        rig.take(1)
        rig.buffer._forget(rig.state(0))
        monkeypatch.setattr(Batch, "records", fail)
    with pytest.raises(MemoryError):
        rig.buffer.take_batch(read) if way == "columns" else rig.take(1)
    assert rig.buffer.held_bytes >= _EACH


def test_what_does_not_fit_into_columns_counts() -> None:
    rig = crowd(2)

    def no_space(_: PartitionState, one: Batch, __: int) -> None:
        one.inflate()

    assert not rig.buffer.take_batch(no_space)
    assert rig.buffer.held_bytes >= _EACH
