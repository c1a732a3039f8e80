"""The buffers of a broker's connection: the one that is read into, and the one of its output."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.testing.connection import ReceiveBuffer, SendBuffer
from kclient.testing.responses import CloseConnection

MOST = 1 << 20


def feed(inlet: ReceiveBuffer, data: bytes, busy: bool = False) -> None:
    while data:
        space = inlet.space(busy)
        count = min(len(space), len(data))
        space[:count] = data[:count]
        inlet.took(count)
        data = data[count:]


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(
    bodies=st.lists(st.binary(max_size=300) | st.builds(bytes, st.just(70_000)), max_size=8),
    pieces=st.lists(st.integers(1, 50_000), min_size=1, max_size=12),
    busy=st.booleans(),
)
def test_frames_come_out_as_they_went_in(
    bodies: list[bytes], pieces: list[int], busy: bool
) -> None:
    inlet, data, views = ReceiveBuffer(), framed(*bodies), []
    at = turn = 0
    while at < len(data):
        piece = pieces[turn % len(pieces)]
        feed(inlet, data[at : at + piece], busy)
        at, turn = at + piece, turn + 1
        while (frame := inlet.next_frame(MOST)) is not None:
            views.append(frame if busy else bytes(frame))
    assert [bytes(view) for view in views] == bodies
    assert inlet.held == 0


def test_a_frame_that_is_in_use_is_not_written_over() -> None:
    inlet = ReceiveBuffer()
    feed(inlet, framed(b"first" * 2000))
    first = inlet.next_frame(MOST)
    feed(inlet, framed(*[b"other" * 4000] * 8), busy=True)
    assert first == b"first" * 2000


def test_the_buffer_grows_with_what_came_and_is_given_back() -> None:
    inlet = ReceiveBuffer()
    feed(inlet, struct.pack(">i", 100 << 20))
    for _ in range(100):
        feed(inlet, bytes(1000))
    assert len(inlet.space(False)) < 512 << 10
    large = ReceiveBuffer()
    feed(large, framed(bytes(9 << 20)))
    assert large.next_frame(16 << 20) is not None
    assert len(large.space(False)) == 64 << 10


@pytest.mark.parametrize("size", [-1, MOST + 1])
def test_a_size_that_cannot_be_ends_the_connection(size: int) -> None:
    inlet = ReceiveBuffer()
    feed(inlet, struct.pack(">i", size))
    assert inlet.partial_frame(MOST) is None
    with pytest.raises(CloseConnection, match=f"a frame of {size} bytes"):
        inlet.next_frame(MOST)


def test_what_is_there_of_a_frame() -> None:
    inlet = ReceiveBuffer()
    assert inlet.partial_frame(MOST) is None
    feed(inlet, framed(b"abcdef", b"xyz")[:7])
    assert inlet.partial_frame(MOST) == (b"abc", 6)
    assert inlet.next_frame(MOST) is None
    feed(inlet, framed(b"abcdef", b"xyz")[7:])
    assert inlet.partial_frame(MOST) == (b"abcdef", 6)


class Transport(asyncio.Transport):
    """Accepts a number of bytes, then pauses its writer."""

    def __init__(self, outlet: SendBuffer, space: int) -> None:
        super().__init__()
        self.outlet = outlet
        self.space = space
        self.sent = bytearray()
        self.ended = ""

    def write(self, data: Any) -> None:
        self.sent += data
        if len(self.sent) > self.space:
            self.outlet.pause()

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def more(self, space: int) -> None:
        self.space += space
        self.outlet.resume()


def opened(space: int) -> tuple[SendBuffer, Transport]:
    outlet = SendBuffer()
    transport = Transport(outlet, space)
    outlet.open(transport)
    return outlet, transport


def test_what_the_transport_does_not_take_waits_in_order() -> None:
    outlet, transport = opened(300 << 10)
    outlet.write(b"a" * (1 << 20))
    assert len(transport.sent) == 512 << 10
    assert outlet.is_full
    outlet.write(b"b" * 10)
    transport.more(10 << 20)
    assert not outlet.is_full
    assert transport.sent == b"a" * (1 << 20) + b"b" * 10


def test_it_is_clogged_by_the_transport_alone_too() -> None:
    outlet, transport = opened(5)
    outlet.write(b"a" * 10)
    assert outlet.is_full
    transport.more(100)
    assert not outlet.is_full


def test_it_closes_when_all_has_left() -> None:
    outlet, transport = opened(0)
    outlet.write(b"a" * 10)
    outlet.write(b"b" * 10)
    outlet.finish()
    outlet.write(b"too late")
    assert transport.ended == ""
    transport.more(100)
    assert (bytes(transport.sent), transport.ended) == (b"a" * 10 + b"b" * 10, "closed")


def test_it_closes_at_once_when_nothing_waits() -> None:
    outlet, transport = opened(100)
    outlet.write(b"a")
    outlet.finish()
    assert transport.ended == "closed"


def test_a_reset_without_a_socket_aborts() -> None:
    outlet, transport = opened(100)
    outlet.reset()
    assert transport.ended == "aborted"


def test_nothing_is_kept_for_a_lost_connection() -> None:
    outlet, transport = opened(0)
    outlet.write(b"a")
    outlet.write(b"b")
    outlet.lost()
    outlet.write(b"c")
    outlet.resume()
    outlet.finish()
    outlet.reset()
    assert (transport.sent, transport.ended) == (b"a", "")
