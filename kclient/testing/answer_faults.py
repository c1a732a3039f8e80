"""Answers that leave a broker spoiled: cut, repeated, in another order, byte by byte.

``connection`` makes one per connection when a fault first wants it, and hands it the frames that
``Fault.spoil`` is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kclient.testing.deferred import Deferred
from kclient.testing.fault import Fault

_STEP_SECONDS = 0.05
"""A trickle sends what is due at most so often."""


class Sender(Protocol):
    """The end of the connection that frames leave by."""

    def write(self, data: bytes | bytearray) -> None:
        """Send bytes behind those sent before."""

    def cut(self, reset: bool) -> None:
        """Send what was written, and end the connection; or reset it."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """A timer; returns what cancels it."""


class AnswerFaults:
    """The answers of one connection that faults keep or spoil."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._kept: dict[Fault, tuple[list[bytearray], Callable[[], None]]] = {}

    def collects(self, fault: Fault) -> bool:
        """Whether it keeps an answer for a fault already."""
        return fault in self._kept

    def lost(self) -> None:
        """The connection is gone, and what is kept with it."""
        for fault, (_, flush) in self._kept.items():
            fault.unhold(flush)
        self._kept.clear()

    def cut(self, frame: bytearray, byte: int, reset: bool) -> None:
        """Send the first ``byte`` bytes, and end the connection."""
        if byte:
            self._sender.write(frame[:byte])
        self._sender.cut(reset)

    def repeat(self, frame: bytearray) -> None:
        """Send it twice."""
        self._sender.write(frame)
        self._sender.write(frame)

    def reorder(self, fault: Fault, frame: bytearray, count: int) -> None:
        """Keep it until ``count`` are there; then send the last one first."""
        if fault not in self._kept:

            def flush() -> None:
                frames, _ = self._kept.pop(fault)
                for one in reversed(frames):
                    self._sender.write(one)

            self._kept[fault] = ([], flush)
            fault.hold(flush)
        frames, flush = self._kept[fault]
        frames.append(frame)
        if len(frames) == count:
            fault.unhold(flush)
            flush()

    def trickle(self, frame: bytearray, bytes_per_second: float) -> Deferred[object]:
        """Send it slowly; the Deferred is complete when the last byte was sent."""
        return _Trickle(self._sender, frame, bytes_per_second).done


class _Trickle:
    """One frame on its slow way."""

    def __init__(self, sender: Sender, frame: bytearray, bytes_per_second: float) -> None:
        self._sender = sender
        self._frame = frame
        self._sent = 0
        self._step = max(1, round(bytes_per_second * _STEP_SECONDS))
        self._seconds = self._step / bytes_per_second
        self._cancel: Callable[[], None] | None = None
        self.done: Deferred[object] = Deferred(self._stop)
        self._next()

    def _next(self) -> None:
        self._cancel = None
        piece = self._frame[self._sent : self._sent + self._step]
        self._sent += len(piece)
        self._sender.write(piece)
        if self._sent < len(self._frame):
            self._cancel = self._sender.call_later(self._seconds, self._next)
        else:
            self.done.complete(None)

    def _stop(self) -> None:
        if self._cancel is not None:
            self._cancel()
