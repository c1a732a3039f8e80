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

    def trickle(self, fault: Fault, frame: bytearray, bytes_per_second: float) -> Deferred[object]:
        """Send it slowly, or at once when the fault lets go; complete when all was sent."""
        trickle = _Trickle(self._sender, frame, bytes_per_second, fault)
        fault.hold(trickle.hurry)
        trickle.begin()
        return trickle.done


class _Trickle:
    """One frame on its slow way."""

    def __init__(
        self, sender: Sender, frame: bytearray, bytes_per_second: float, fault: Fault
    ) -> None:
        self._sender = sender
        self._frame = frame
        self._fault = fault
        self._sent = 0
        self._step = max(1, round(bytes_per_second * _STEP_SECONDS))
        self._seconds = self._step / bytes_per_second
        self._cancel: Callable[[], None] | None = None
        self.done: Deferred[object] = Deferred(self._stop)

    def begin(self) -> None:
        """Send the first piece."""
        self._send(self._step)

    def hurry(self) -> None:
        """Send the rest."""
        if not self.done.done:
            self._send(len(self._frame))

    def _send(self, count: int) -> None:
        self._stop_timer()
        piece = self._frame[self._sent : self._sent + count]
        self._sent += len(piece)
        self._sender.write(piece)
        if self._sent < len(self._frame):
            self._cancel = self._sender.call_later(self._seconds, self.begin)
        else:
            self.done.complete(None)

    def _stop_timer(self) -> None:
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()

    def _stop(self) -> None:
        self._stop_timer()
        self._fault.unhold(self.hurry)
