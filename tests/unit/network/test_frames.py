"""FrameReader and FramePool: any cut of the bytes, sizes checked first, unshared buffers."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.errors import InvalidFrame
from kclient.network.frames import (
    CHUNK_BYTES,
    GROWTH,
    Frame,
    FramePool,
    FrameReader,
    not_kafka,
)

LIMIT = 100 * 1024 * 1024


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def feed(reader: FrameReader, data: bytes, step: int | None = None) -> list[bytes]:
    """Feed ``data`` as a transport would, ``step`` bytes at most; return copies of the frames."""
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        with reader.buffer() as buffer:
            count = min(len(buffer), len(data) - position, step or len(data))
            buffer[:count] = data[position : position + count]
        position += count
        reader.received(count)
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
            frame.release()
    return frames


def new_reader(limit: int = LIMIT) -> FrameReader:
    return FrameReader(FramePool(), limit)


def test_frames_cut_at_every_byte_come_out_whole() -> None:
    payloads = [b"abcd", b"x" * 300, b"12345678", b"y" * 5]
    data = framed(*payloads)
    for cut in range(1, len(data)):
        reader = new_reader()
        assert feed(reader, data[:cut]) + feed(reader, data[cut:]) == payloads
        assert reader.received_of_frame == 0


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000, CHUNK_BYTES, CHUNK_BYTES + 1, None])
def test_frames_of_all_sizes_survive_small_and_large_reads(step: int | None) -> None:
    rng = random.Random(step or 0)
    sizes = [4, 5, 100, CHUNK_BYTES - 5, CHUNK_BYTES - 4, CHUNK_BYTES - 3, CHUNK_BYTES, 70_000]
    payloads = [rng.randbytes(size) for size in [*sizes, *reversed(sizes)]]
    assert feed(new_reader(), framed(*payloads), step) == payloads


@given(st.lists(st.binary(min_size=4, max_size=40_000), max_size=12), st.integers(1, 50_000))
def test_any_frames_in_any_steps(payloads: list[bytes], step: int) -> None:
    payloads = [b"\x00\x00\x00\x07" + payload for payload in payloads]
    assert feed(new_reader(), framed(*payloads), step) == payloads


@given(
    st.lists(st.integers(4, 60_000), min_size=1, max_size=8),
    st.integers(1, 70_000),
    st.randoms(use_true_random=False),
)
def test_kept_frames_are_never_overwritten(sizes: list[int], step: int, rng: random.Random) -> None:
    """Some frames are kept, some kept and released while a slice is still held, some dropped."""
    reader = new_reader()
    payloads = [rng.randbytes(size) for size in sizes]
    data = b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
    reader.frames = 1  # random first bytes may look like another protocol
    held: list[tuple[memoryview, bytes]] = []
    kept: list[Frame] = []
    position = arrived = 0
    while position < len(data):
        with reader.buffer() as buffer:
            count = min(len(buffer), len(data) - position, step)
            buffer[:count] = data[position : position + count]
        position += count
        reader.received(count)
        while (view := reader.next_frame()) is not None:
            payload = payloads[arrived]
            arrived += 1
            choice = rng.randrange(4)
            if choice == 0:
                frame = reader.keep()
                kept.append(frame)
                held.append((frame.view, payload))
            elif choice == 1:
                frame = reader.keep()
                held.append((frame.view[1:], payload[1:]))
                frame.release()
            elif choice == 2:
                held.append((view[2:], payload[2:]))
            view.release()
    assert arrived == len(payloads)
    for seen, expected in held:
        assert bytes(seen) == expected


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, LIMIT + 1, 2**31 - 1])
def test_an_impossible_size_is_refused_before_anything_is_allocated(size: int) -> None:
    reader = new_reader()
    feed(reader, framed(b"first"))
    with reader.buffer() as buffer:
        buffer[:4] = struct.pack(">i", size)
    reader.received(4)
    said = ""
    tracemalloc.start()
    try:
        reader.next_frame()
    except InvalidFrame as error:
        said = str(error)
    finally:
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert str(size) in said
    assert taken < 20_000


def test_the_limit_is_inclusive() -> None:
    assert feed(new_reader(limit=10), framed(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(InvalidFrame, match="allowed are 4 to 10"):
        feed(new_reader(limit=10), framed(b"x" * 11))


def test_memory_grows_with_what_arrived_and_not_with_what_was_announced() -> None:
    reader = new_reader()
    announced = 90 * 1024 * 1024
    data = struct.pack(">i", announced) + bytes(1024 * 1024)
    tracemalloc.start()
    try:
        position = 0
        while position < len(data):
            with reader.buffer() as buffer:
                count = min(len(buffer), len(data) - position, 50_000)
                buffer[:count] = data[position : position + count]
            position += count
            reader.received(count)
            assert reader.next_frame() is None
            arrived = max(position, CHUNK_BYTES)
            assert tracemalloc.get_traced_memory()[0] < 4 * GROWTH * arrived
    finally:
        tracemalloc.stop()


def test_a_frame_that_drips_in_is_not_copied_again_and_again() -> None:
    reader = new_reader()
    feed(reader, struct.pack(">i", 10_000_000) + bytes(1_000_000))
    buffers = set()
    for _ in range(10_000):
        with reader.buffer() as buffer:
            buffers.add(id(buffer.obj))
        reader.received(1)
    assert len(buffers) <= 2


def test_a_large_frame_is_read_into_the_buffer_that_is_kept() -> None:
    """Once a connection has had large frames, the next one is received without any copy."""
    pool = FramePool()
    reader = FrameReader(pool, LIMIT)
    payload = bytes(300_000)
    feed(reader, framed(payload))
    buffer = reader.buffer()
    assert len(buffer) >= len(payload) + 4
    data = framed(payload)
    buffer[: len(data)] = data
    reader.received(len(data))
    view = reader.next_frame()
    assert view is not None
    frame = reader.keep()
    assert frame.view.obj is buffer.obj
    assert frame.view.nbytes == len(payload)


def test_a_small_kept_frame_does_not_hold_a_large_buffer() -> None:
    reader = new_reader()
    feed(reader, framed(bytes(1_000_000)))
    with reader.buffer() as buffer:
        buffer[:14] = framed(b"0123456789")
    reader.received(14)
    assert reader.next_frame() is not None
    frame = reader.keep()
    assert len(frame.view.obj) == 10
    assert frame.view == b"0123456789"


def test_bytes_behind_a_kept_frame_belong_to_the_next_one() -> None:
    reader = new_reader()
    feed(reader, framed(bytes(100_000)))
    data = framed(b"a" * 50_000, b"b" * 30_000)
    with reader.buffer() as buffer:
        buffer[: len(data) - 10] = data[:-10]
    reader.received(len(data) - 10)
    assert reader.next_frame() is not None
    frame = reader.keep()
    assert feed(reader, data[-10:]) == [b"b" * 30_000]
    assert frame.view == b"a" * 50_000


def test_nothing_is_held_between_frames() -> None:
    pool = FramePool()
    reader = FrameReader(pool, LIMIT)
    feed(reader, framed(b"some", b"more"))
    assert pool.retained_bytes == CHUNK_BYTES


def test_keep_without_a_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="no frame"):
        new_reader().keep()


def test_close_gives_the_buffer_back() -> None:
    pool = FramePool()
    reader = FrameReader(pool, LIMIT)
    feed(reader, framed(b"whole") + b"\x00\x00")
    assert reader.received_of_frame == 2
    assert pool.retained_bytes == 0
    reader.close()
    assert pool.retained_bytes == CHUNK_BYTES
    assert reader.received_of_frame == 0


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"\x15\x03\x03\x00", "TLS"),
        (b"\x15\x03\x01\x00", "TLS"),
        (b"\x16\x03\x03\x00", "TLS"),
        (b"HTTP", "HTTP"),
        (b"SSH-", "SSH-"),
    ],
)
def test_the_first_bytes_of_another_protocol_are_recognised(head: bytes, says: str) -> None:
    hint = not_kafka(head)
    assert hint is not None
    assert says in hint
    with pytest.raises(InvalidFrame, match=says) as raised:
        feed(FrameReader(FramePool(), 2**31 - 1), head + b"anything")
    assert raised.value.hint == hint


def test_only_the_first_bytes_are_taken_for_another_protocol() -> None:
    reader = FrameReader(FramePool(), 2**31 - 1)
    feed(reader, framed(b"a kafka frame"))
    assert feed(reader, b"HTTP") == []


@pytest.mark.parametrize("size", [4, 26, 500, 10_000_000])
def test_sizes_of_kafka_are_not_taken_for_another_protocol(size: int) -> None:
    assert not_kafka(struct.pack(">i", size)) is None


class TestPool:
    def test_reuses_what_was_given_back(self) -> None:
        pool = FramePool()
        buffer = pool.take(100_000, 100_000)
        pool.give(buffer)
        assert pool.take(90_000, 90_000) is buffer

    def test_never_reuses_what_a_view_still_exports(self) -> None:
        pool = FramePool()
        buffer = pool.take(100_000, 100_000)
        view = memoryview(buffer)[10:20]
        pool.give(buffer)
        other = pool.take(100_000, 100_000)
        assert other is not buffer
        assert pool.retained_bytes == 0
        view.release()

    def test_a_buffer_keeps_its_length_through_reuse(self) -> None:
        pool = FramePool()
        buffer = pool.take(CHUNK_BYTES, CHUNK_BYTES)
        for _ in range(100):
            pool.give(buffer)
            buffer = pool.take(CHUNK_BYTES, CHUNK_BYTES)
            assert len(buffer) == CHUNK_BYTES

    def test_fresh_memory_is_bounded_by_what_is_allowed(self) -> None:
        pool = FramePool()
        assert len(pool.take(50_000_000, 100_000)) == 114_688

    def test_a_fresh_buffer_is_a_quarter_larger_than_needed_at_most(self) -> None:
        pool = FramePool()
        for wanted in (16_385, 99_999, 4 * 1024**2, 4 * 1024**2 + 195, 9_000_000):
            assert wanted <= len(pool.take(wanted, wanted)) < 1.25 * wanted

    def test_a_larger_buffer_is_reused_if_the_frame_will_take_it_along(self) -> None:
        pool = FramePool()
        for wanted in (16_384, 17_000, 100_000, 4 * 1024**2 + 195):
            large = pool.take(4 * wanted, 4 * wanted)
            pool.give(large)
            assert pool.take(wanted, wanted) is not large
            assert pool.take(3 * wanted, 3 * wanted) is large
        for wanted in (16_384, 17_000, 100_000, 4 * 1024**2 + 195):
            for tenths in range(10, 50):
                pool = FramePool()
                pool.give(pool.take(wanted * tenths // 10, wanted * tenths // 10))
                assert wanted <= len(pool.take(wanted, wanted)) < 4 * wanted

    @pytest.mark.parametrize("size", [8_300, 12_000, 16_380, 17_000, 60_000, 300_000])
    @pytest.mark.parametrize("times", [1, 1.3, 2, 2.9])
    def test_whatever_buffer_a_frame_gets_it_takes_along(self, size: int, times: float) -> None:
        pool = FramePool()
        before = int(max(size + 4, CHUNK_BYTES) * times)
        pool.give(pool.take(before, before))
        reader = FrameReader(pool, 1 << 20)
        frame = (size).to_bytes(4, "big") + bytes(size)
        # The head first, as the size is not known before.
        for piece in (frame[:4], frame[4:]):
            while piece:
                space = reader.buffer()
                count = min(len(space), len(piece))
                space[:count] = piece[:count]
                space.release()
                reader.received(count)
                got = reader.next_frame()
                piece = piece[count:]
        assert got is not None
        got.release()
        kept = reader.keep()
        assert kept._buffer is not None, "it was copied"
        assert kept.view == frame[4:]

    def test_memory_that_is_there_already_may_exceed_what_is_allowed(self) -> None:
        pool = FramePool()
        large = pool.take(500_000, 500_000)
        pool.give(large)
        assert pool.take(500_000, 20_000) is large

    def test_keeps_no_more_than_its_limit(self) -> None:
        pool = FramePool(retained_limit=3 * CHUNK_BYTES)
        for buffer in [pool.take(1, 1) for _ in range(5)]:
            pool.give(buffer)
        assert pool.retained_bytes == 3 * CHUNK_BYTES

    def test_trim_drops_what_was_not_used_since_the_last_one(self) -> None:
        pool = FramePool()
        for buffer in [pool.take(1, 1) for _ in range(5)]:
            pool.give(buffer)
        pool.trim()
        assert pool.retained_bytes == 5 * CHUNK_BYTES
        two = [pool.take(1, 1), pool.take(1, 1)]
        for buffer in two:
            pool.give(buffer)
        pool.trim()
        assert pool.retained_bytes == 2 * CHUNK_BYTES
        pool.trim()
        assert pool.retained_bytes == 0

    def test_release_twice_gives_back_once(self) -> None:
        pool = FramePool()
        buffer = pool.take(50_000, 50_000)
        frame = Frame(memoryview(buffer)[:10], buffer, pool)
        frame.release()
        frame.release()
        assert pool.retained_bytes == len(buffer)

    def test_a_detached_frame_is_never_pooled(self) -> None:
        pool = FramePool()
        buffer = pool.take(50_000, 50_000)
        frame = Frame(memoryview(buffer)[:10], buffer, pool)
        view = frame.detach()
        assert view.nbytes == 10
        assert pool.retained_bytes == 0
