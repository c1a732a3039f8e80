"""One direction of a session: a queue of received frames, in order, until they may be sent.

``session.py`` has two, and adds each frame with the effects that rules set. Held or slow items
delay all behind them, as TCP would; above a bound the source isn't read any more. Timers only,
no tasks: ``discard`` ends all of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tests.faults.passage import Asked, Ending, Passage

if TYPE_CHECKING:
    from tests.faults.rules import Hold

HIGH_WATER = 1024 * 1024
"""Bytes that may wait in a pipe before its source isn't read any more."""


@dataclass(slots=True)
class Until:
    """Waits for a time of the loop."""

    when: float

    def due(self, pipe: Pipe) -> float:
        """Seconds until then."""
        return self.when - pipe.loop.time()

    def forget(self) -> None:
        """Nothing to forget."""


@dataclass(slots=True, eq=False)
class Gate:
    """Waits for the release of a ``Hold``."""

    rule: Hold
    pipe: Pipe | None = None
    open: bool = False

    def due(self, pipe: Pipe) -> float | None:
        """0.0 when it is open; else None, and the pipe is run when it is."""
        self.pipe = pipe
        return 0.0 if self.open else None

    def forget(self) -> None:
        """The frame has passed, or was discarded."""
        self.rule.forget(self)

    def release(self) -> None:
        """Let it pass."""
        self.open = True
        if self.pipe is not None:
            self.pipe.run()


@dataclass(slots=True)
class Part:
    """Bytes on their way out; with the last of a frame its request counts as passed."""

    data: bytes
    asked: Asked | None
    pace: tuple[int, float] | None = None


Wait: TypeAlias = Until | Gate
Item: TypeAlias = Wait | Part | Ending | Callable[[], None]


class Pipe:
    """One direction.

    Attributes:
        arrived: Bytes that came so far, as they are to go out.
        units: Frames, or records of TLS, that came so far.
        muted: Nothing passes any more.
        ending: The last item to pass is queued; whatever comes later is dropped.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        passed: Callable[[Asked | None], None],
        end: Callable[[bool], None],
    ) -> None:
        self.loop = loop
        self.arrived = 0
        self.units = 0
        self.muted = False
        self.ending = False
        self.out: asyncio.Transport | None = None
        self.source: asyncio.Transport | None = None
        self._passed = passed
        self._end = end
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._choked = False
        self._timer: asyncio.TimerHandle | None = None
        self._running = False

    def __bool__(self) -> bool:
        """Whether something waits in it."""
        return bool(self._items)

    # None of the two is called once it is ``ending``.

    def put(self, asked: Asked | None, data: bytes) -> None:
        """Let a frame pass behind whatever waits."""
        self.arrived += len(data)
        self.units += 1
        if self._items or self.out is None:
            self._add(Part(data, asked))
        else:
            self.out.write(data)
            self._passed(asked)

    def put_passage(self, passage: Passage) -> None:
        """Let a frame pass as its rules want."""
        self.arrived += len(passage.data)
        self.units += 1
        for wait in passage.waits:
            self._add(wait)
        data = passage.data if passage.limit is None else passage.data[: passage.limit]
        whole = len(data) == len(passage.data)
        for _ in range(passage.copies if data else 0):
            self._add(Part(data, passage.asked if whole else None, passage.pace))
        if passage.ending is not None:
            self.ending = True
            self._add(passage.ending)
        self.run()

    def put_call(self, call: Callable[[], None]) -> None:
        """Call something when all before it has passed."""
        if not self.muted:
            self._add(call)
            self.run()

    def choke(self, choked: bool) -> None:
        """The other end can't take more, or can again."""
        self._choked = choked
        self._regulate()

    def run(self) -> None:
        """Pass on all that may pass now."""
        if self._running:  # a call below led here: the loop below goes on
            return
        self._running = True
        try:
            while self._items and self.out is not None and self._step(self._items[0]):
                if self._items:
                    self._items.popleft()
        finally:
            self._running = False
        self._regulate()

    def discard(self) -> None:
        """Nothing passes from here on, and nothing is kept."""
        self.muted = self.ending = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        items, self._items, self._bytes = self._items, deque(), 0
        for item in items:
            if isinstance(item, (Gate, Until)):
                item.forget()
        self._regulate()

    def _add(self, item: Item) -> None:
        self._items.append(item)
        if isinstance(item, Part):
            self._bytes += len(item.data)
            self._regulate()

    def _step(self, item: Item) -> bool:
        """Process the first item; return whether the next one may follow."""
        if isinstance(item, Part):
            return self._write(item)
        if item == "silent":
            self.discard()
            return False
        if item == "cut" or item == "reset":
            self._end(item == "reset")
            return False
        if isinstance(item, (Gate, Until)):
            left = item.due(self)
            if left is not None and left <= 0.0:
                item.forget()
                return True
            if left is not None:
                self._again(left)
            return False
        assert callable(item)
        item()
        return True

    def _write(self, part: Part) -> bool:
        assert self.out is not None
        if part.pace is None:
            piece, part.data = part.data, b""
        else:
            if self._timer is not None and self._timer.when() > self.loop.time():
                return False  # run from elsewhere while it waits for its next piece
            at_once = part.pace[0]
            piece, part.data = part.data[:at_once], part.data[at_once:]
        self.out.write(piece)
        self._bytes -= len(piece)
        if not part.data:
            self._passed(part.asked)
        if part.pace is not None:
            # Behind the last piece, too: frames one after the other keep the pace.
            self._again(part.pace[1])
        return not part.data

    def _again(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.run)

    def _regulate(self) -> None:
        """Pause or resume reading of the source, by the space that is left."""
        source = self.source
        if source is None or source.is_closing():
            return
        if self._choked or self._bytes > HIGH_WATER:
            source.pause_reading()
        elif not source.is_reading():
            source.resume_reading()
