"""The steps of ``async for``: one record each. One source, two builds.

Compiled a second time as ``_record_iterator_c``; ``poller`` makes the iterator of the build that
runs. A step with a buffered record must cost next to nothing: in the compiled build it is no
coroutine, but an object with a coroutine's methods, which returns its record without an exception.
All others are ``RecordIterator.following``, a coroutine. No clock and no rules of consuming here:
those are in ``poller``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from kclient.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    import cython  # type: ignore[import-untyped]

    from kclient.consumer.poller import Poller
else:
    from kclient.record import _cython as cython

if not cython.compiled:
    # The compiled build has it as a C function, by its .pxd.
    from time import monotonic


@cython.final
@cython.cclass
class IteratorBuffer:
    """Records that an ``async for`` has taken and not returned yet. One per consumer.

    Attributes:
        left: An iterator over them.
        turn_at: When to yield to the loop next. Shared by all iterators: a new one for each record
            must not put it off.
    """

    __slots__ = ("left", "turn_at")

    def __init__(self) -> None:
        self.left: Iterator[Any] = iter(())
        self.turn_at = inf


@cython.final
@cython.cclass
class RecordIterator:
    """The records of one consumer, for ever; it ends when the consumer is closed.

    A step that is cancelled has taken nothing, and the next one goes on.
    """

    __slots__ = ("_clock", "_converts", "_iterator_buffer", "_poller", "_real", "_turn")

    def __init__(
        self,
        poller: Poller,
        *,
        converts: bool,
        clock: Callable[[], float],
        real: bool,
        turn: float,
    ) -> None:
        """
        Args:
            poller: Takes records and holds the iterator_buffer.
            converts: The consumer has deserializers.
            clock: Returns seconds of work.
            real: ``clock`` is ``time.monotonic``, which the compiled build reads by itself.
            turn: Seconds after which it yields to the loop.
        """
        self._poller = poller
        self._iterator_buffer: IteratorBuffer = poller.iterator_buffer
        self._converts = converts
        self._clock = clock
        self._real = real and cython.compiled
        self._turn = turn
        self._iterator_buffer.turn_at = min(self._iterator_buffer.turn_at, clock() + turn)

    def __aiter__(self) -> RecordIterator:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        if cython.compiled:
            return step_of(self)  # type: ignore[name-defined, no-any-return]  # noqa: F821
        return self.following(None)

    def _is_due(self) -> bool:
        """Whether it must yield to the loop first."""
        now = monotonic() if self._real else self._clock()
        return now >= self._iterator_buffer.turn_at

    def at_hand(self) -> Any:
        """The next record as the user gets it; None where there is none, or a bad one."""
        # A loop of one round at most: the cheapest way to ask an iterator for its next.
        for record in self._iterator_buffer.left:
            return self._poller.converted(record) if self._converts else record
        return None

    async def following(self, due: bool | None) -> Any:
        """Return the next record as the application gets it, and wait for it where needed.

        ``due`` is whether it must yield to the loop first, if that was checked: it is checked once
        per step, since each read of a work clock counts as work, in both builds alike.
        """
        if self._is_due() if due is None else due:
            try:
                await self._poller.others()
            finally:
                # A cancelled yield counts as well: else a short timeout would meet one that is
                # due each time, and never get a record.
                self._iterator_buffer.turn_at = self._clock() + self._turn
        for record in self._iterator_buffer.left:
            found = self._poller.converted(record) if self._converts else record
            if found is not None:
                return found
        try:
            return await self._poller.next_record()
        except ClientClosed:
            if not self._poller.closed:
                raise  # another client's, such as that of a dead-letter topic
            raise StopAsyncIteration from None


@cython.final
@cython.freelist(8)
@cython.cclass
class NextRecord:
    """One step: to tasks and to ``await`` it is what the coroutine ``following`` would be."""

    __slots__ = ("_iterator", "_slow")

    def __init__(self, iterator: RecordIterator) -> None:
        self._iterator: RecordIterator | None = iterator
        self._slow: Any = None

    def __await__(self) -> NextRecord:
        return self

    def __iter__(self) -> NextRecord:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def begin(self) -> Any:
        """Return the record if one is buffered; None where ``_slow`` has to find it."""
        iterator = self._iterator
        if iterator is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self._iterator = None
        due = iterator._is_due()
        record = None if due else iterator.at_hand()
        if record is None:
            self._slow = iterator.following(due)
        return record

    def send(self, value: Any) -> Any:
        """Continue, as ``coroutine.send`` does."""
        if self._slow is None:
            record = self.begin()
            if record is not None:
                raise StopIteration(record)
        return self._slow.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise ``error`` where it waits, as ``coroutine.throw`` does."""
        if self._slow is None and self._iterator is not None:
            self._slow = self._iterator.following(None)
            self._iterator = None
        if self._slow is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        return self._slow.throw(*error)

    def close(self) -> None:
        """Abandon the step, as ``coroutine.close`` does."""
        self._iterator = None
        if self._slow is not None:
            self._slow.close()


if cython.compiled:
    # Of the .pxd: ``await`` gets the record as a result, where ``send`` has to raise it.
    send_directly()  # type: ignore[name-defined]  # noqa: F821
