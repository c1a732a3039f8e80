"""The buffer: order, rotation, limits, memory, and the one step that returns records."""

from __future__ import annotations

from kclient.consumer.fetch_buffer import BATCHES_PER_TAKE, PIECES_PER_PARTITION
from kclient.consumer.partition_state import PartitionState
from kclient.errors import CorruptRecord, DecompressionFailed
from kclient.record import Batch, Compression
from tests.unit.consumer.buffer_rig import BufferRig
from tests.unit.consumer.log_bytes import batch, corrupted


def test_taking_moves_the_position_in_the_same_step() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 5))
    assert rig.take(3) == [(0, 0), (0, 1), (0, 2)]
    assert rig.position(0) == 3
    assert rig.take(3) == [(0, 3), (0, 4)]
    assert rig.position(0) == 5
    assert rig.take(3) == []


def test_pieces_of_one_partition_follow_each_other() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 2))
    rig.add(0, batch(2, 2))
    assert rig.take(10) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_a_piece_that_does_not_follow_is_not_taken() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 2))
    assert not rig.add(0, batch(5, 2), at=5)
    assert rig.take(10) == [(0, 0), (0, 1)]
    assert rig.frames_held == 0


def test_partitions_are_served_in_rotation() -> None:
    rig = BufferRig(3)
    for index in range(3):
        rig.add(index, batch(0, 4))
    served = [rig.take(2)[0][0] for _ in range(6)]
    assert served == [0, 1, 2, 0, 1, 2]


def test_what_one_partition_lacks_the_next_one_gives() -> None:
    rig = BufferRig(2)
    rig.add(0, batch(0, 2))
    rig.add(1, batch(0, 9))
    assert rig.take(5) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]


def test_a_seek_drops_what_is_buffered() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 5))
    rig.take(1)
    rig.subscription.seek(rig.state(0), 3)
    assert rig.take(10) == []
    assert rig.frames_held == 0
    assert rig.state(0).buffered_bytes == 0


def test_a_seek_there_and_back_delivers_nothing_twice() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 5))
    rig.subscription.seek(rig.state(0), 3)
    rig.subscription.seek(rig.state(0), 0)
    rig.add(0, batch(0, 5))
    assert rig.take(10) == [(0, n) for n in range(5)]


def test_a_seek_to_the_position_itself_starts_over() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 5))
    rig.add(0, batch(5, 5))
    rig.take(3)
    rig.subscription.seek(rig.state(0), 3)
    assert rig.frames_held == 0
    assert rig.state(0).fetch_offset == 3
    rig.add(0, batch(0, 5))
    assert rig.take(10) == [(0, 3), (0, 4)]


def test_unassigning_drops_what_is_buffered() -> None:
    rig = BufferRig(2)
    rig.add(0, batch(0, 5))
    rig.add(1, batch(0, 1))
    rig.subscription.assign([rig.partition(1)])
    assert rig.take(10) == [(1, 0)]
    assert rig.frames_held == 0


def test_paused_partitions_are_not_returned_and_keep_their_data() -> None:
    rig = BufferRig(2)
    rig.add(0, batch(0, 2))
    rig.add(1, batch(0, 2))
    rig.subscription.pause(rig.state(0))
    assert rig.take(10) == [(1, 0), (1, 1)]
    assert not rig.buffer.has_turns
    rig.subscription.resume(rig.state(0))
    assert rig.take(10) == [(0, 0), (0, 1)]


def test_nothing_is_added_to_a_paused_partition() -> None:
    rig = BufferRig(1)
    rig.subscription.pause(rig.state(0))
    assert not rig.add(0, batch(0, 2))


def test_paused_data_frees_memory_and_is_fetched_again() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 4))
    rig.take(1)
    rig.subscription.pause(rig.state(0))
    rig.buffer.drop_paused()
    assert rig.frames_held == 0
    assert rig.state(0).fetch_offset == 1
    rig.subscription.resume(rig.state(0))
    rig.add(0, batch(0, 4), at=1)
    assert rig.take(10) == [(0, 1), (0, 2), (0, 3)]


def test_records_given_back_come_again_in_order() -> None:
    rig = BufferRig(2)
    rig.add(0, batch(0, 3) + batch(3, 3))
    rig.add(1, batch(0, 2))
    taken = rig.buffer.take(8)
    assert len(taken) == 8
    rig.buffer.give_back(taken[2:])
    assert (rig.position(0), rig.position(1)) == (2, 0)
    assert sorted(rig.take(100)) == [(0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (1, 1)]
    assert (rig.position(0), rig.position(1)) == (6, 2)


def test_records_given_back_after_a_seek_are_dropped() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 3))
    taken = rig.buffer.take(3)
    rig.subscription.seek(rig.state(0), 0)
    rig.buffer.give_back(taken[1:])
    assert rig.take(10) == []
    assert rig.position(0) == 0


def test_records_given_back_to_a_paused_partition_wait() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 3))
    taken = rig.buffer.take(3)
    rig.subscription.pause(rig.state(0))
    rig.buffer.give_back(taken[1:])
    assert rig.take(10) == []
    rig.subscription.resume(rig.state(0))
    assert rig.take(10) == [(0, 1), (0, 2)]


def test_a_corrupt_batch_is_reported_once_and_the_offset_stays() -> None:
    rig = BufferRig(2)
    rig.add(0, batch(0, 2) + corrupted(batch(2, 2)))
    rig.add(1, batch(0, 1))
    assert rig.take(10) == [(0, 0), (0, 1), (1, 0)]
    assert rig.position(0) == 2
    [(partition, error)] = rig.corrupt
    assert partition == rig.partition(0)
    assert isinstance(error, CorruptRecord)
    assert error.offset == 2
    assert rig.state(0).fetch_offset == 2  # dropped, and fetched again
    assert rig.frames_held == 0


def test_a_batch_that_fails_to_inflate_again_and_again_is_failure_after_failure() -> None:
    """Or the back-off would never grow, and the same bomb be fetched without a pause."""
    rig = BufferRig(1)
    state = rig.state(0)
    for failures in range(3):
        state.failures = failures
        rig.add(0, batch(0, 10, codec=Compression.GZIP, value_bytes=200_000), at=0)
        assert rig.take(1) == []
        (data,) = rig.buffer.blocked
        assert data.blocked is not None
        data.refuse(data.blocked, DecompressionFailed("a bomb"))
        rig.buffer.unblock(data)
        assert rig.take(1) == []
        assert state.failures == failures
    assert len(rig.corrupt) == 3


def test_a_partition_is_full_by_bytes_only_beyond_its_first_piece() -> None:
    rig = BufferRig(1, partition_bytes=100)
    rig.add(0, batch(0, 100))
    assert not rig.buffer.is_full(rig.state(0))
    rig.add(0, batch(100, 1))
    assert rig.buffer.is_full(rig.state(0))
    rig.take(100)
    assert not rig.buffer.is_full(rig.state(0))


def test_a_partition_is_full_by_the_number_of_small_pieces() -> None:
    rig = BufferRig(1)
    for offset in range(PIECES_PER_PARTITION):
        assert not rig.buffer.is_full(rig.state(0))
        rig.add(0, batch(offset, 1))
    assert rig.buffer.is_full(rig.state(0))


def test_memory_is_counted_by_frames_until_the_last_piece_of_it_is_used_up() -> None:
    rig = BufferRig(2, frame_budget=1000)
    rig.add_frame({0: batch(0, 1), 1: batch(0, 1)}, size_bytes=1000)
    assert not rig.buffer.has_space
    rig.take(1)
    assert rig.buffer.frame_bytes == 1000
    rig.take(1)
    assert rig.buffer.frame_bytes == 0
    assert rig.buffer.has_space


def test_on_space_is_called_when_a_full_partition_is_full_no_more() -> None:
    rig = BufferRig(1)
    for offset in range(PIECES_PER_PARTITION):
        rig.add(0, batch(offset, 1))
    assert rig.space == []
    rig.take(1)
    assert rig.space == [rig.partition(0)]
    rig.take(PIECES_PER_PARTITION)
    assert rig.space == [rig.partition(0)]  # it is requested again: no further call is needed


def test_on_space_is_called_when_all_is_dropped() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 2))
    rig.buffer.drop(rig.state(0))
    assert rig.space == [rig.partition(0)]


def test_on_released_is_called_when_the_last_holder_drops_a_frame() -> None:
    rig = BufferRig(1)
    mine = rig.buffer.lease(50, lambda: None)
    mine.hold()  # as a thread does that reads it
    rig.add_frame({0: batch(0, 2)}, size_bytes=100)
    rig.buffer.drop(rig.state(0))
    assert rig.releases == [50]
    mine.drop()
    assert rig.releases == [50]
    mine.drop()
    assert rig.releases == [50, 0]


def test_a_large_compressed_batch_blocks_its_partition_only() -> None:
    rig = BufferRig(2)
    rig.add(0, batch(0, 300, codec=Compression.GZIP, value_bytes=10_000))
    rig.add(1, batch(0, 1))
    assert rig.take(10) == [(1, 0)]
    [data] = rig.buffer.blocked
    assert data.blocked is not None
    assert not rig.buffer.has_turns
    data.blocked.inflate(2**30)
    rig.buffer.unblock(data)
    assert rig.take(10) == [(0, n) for n in range(10)]


def test_a_blocked_partition_that_is_sought_is_not_blocked_any_more() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 300, codec=Compression.GZIP, value_bytes=10_000))
    rig.take(10)
    [data] = rig.buffer.blocked
    rig.subscription.seek(rig.state(0), 5)
    assert not rig.buffer.blocked
    rig.add(0, batch(5, 1), at=5)
    rig.buffer.unblock(data)  # its thread ends late
    assert rig.take(10) == [(0, 5)]


def test_one_take_looks_at_a_bounded_number_of_batches() -> None:
    rig = BufferRig(1)
    log = b"".join(
        batch(offset, 1, producer_id=1, transactional=True)
        for offset in range(BATCHES_PER_TAKE + 10)
    )
    rig.add(0, log, aborted=[(1, 0)])
    assert rig.take(1) == []
    assert rig.buffer.has_turns
    assert rig.position(0) == BATCHES_PER_TAKE
    assert rig.take(1) == []
    assert rig.position(0) == BATCHES_PER_TAKE + 10
    assert not rig.buffer.has_turns


def test_whole_batches_can_be_read_and_the_position_follows() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 3) + batch(3, 2))
    rig.take(1)
    seen = []

    def read(_: PartitionState, one: Batch, start: int) -> int:
        seen.append((one.base_offset, start))
        return one.next_offset

    while rig.buffer.take_batch(read):
        pass
    assert seen == [(0, 1), (3, 3)]
    assert rig.position(0) == 5


def test_a_batch_reader_that_refuses_leaves_the_position() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 3))

    def refuse(*_: object) -> int:
        raise CorruptRecord("bad payload")

    assert rig.buffer.take_batch(refuse)
    assert rig.position(0) == 0
    assert "bad payload" in str(rig.corrupt[0][1])


def test_a_batch_that_does_not_fit_stays() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 3))
    assert not rig.buffer.take_batch(lambda *_: None)
    assert rig.take(10) == [(0, 0), (0, 1), (0, 2)]


def test_records_given_back_are_fetched_again_for_whole_batches() -> None:
    rig = BufferRig(1)
    rig.add(0, batch(0, 3))
    rig.buffer.give_back(rig.buffer.take(3)[1:])
    assert rig.buffer.take_batch(lambda *_: 0)
    assert rig.state(0).fetch_offset == 1
    assert not rig.buffer.holds(rig.state(0))


def test_clearing_releases_everything() -> None:
    rig = BufferRig(3)
    rig.add_frame({0: batch(0, 1), 1: batch(0, 1), 2: batch(0, 1)})
    rig.buffer.clear()
    assert rig.frames_held == 0
    assert rig.take(1) == []


def test_batches_whose_offsets_go_back_cost_a_fetch_and_no_records() -> None:
    """Base offsets are outside of the CRC: the end of a piece may lie before what it holds."""
    rig = BufferRig(1)
    rig.add(0, batch(0, 4) + batch(4, 3) + batch(3, 2))
    assert rig.take(99) == [(0, n) for n in range(7)]
    rig.add(0, batch(4, 3) + batch(7, 2), at=rig.state(0).fetch_offset)
    assert rig.take(99) == []
    assert rig.state(0).fetch_offset == 7
    rig.add(0, batch(7, 2))
    assert rig.take(99) == [(0, 7), (0, 8)]
