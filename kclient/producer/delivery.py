"""``Delivery``, the handle that ``send`` returns at once, and the per-batch state behind it.

One source, two builds: compiled as ``_delivery_c`` with the C types of ``_delivery_c.pxd``. Other
modules import both classes from ``kclient.producer._compiled``.

A delivery is {outcome of the batch, index in the batch}: only this handle is created per record,
and one acknowledgement settles a whole batch. Each await of a pending delivery has a ``Waiter`` of
its own, so cancelling one does not affect the others. The accumulator creates deliveries and
outcomes, the response handler settles outcomes. Sans-IO: the loop is passed in with the
``DeliveryHost``; no other clock, task or socket. Must not know about partition queues, retries or
memory.
"""

from __future__ import annotations

import contextvars
import copy
import weakref
from typing import TYPE_CHECKING, Any

from kclient.types import RecordMetadata

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator
    from typing import Protocol

    import cython  # type: ignore[import-untyped]

    from kclient.errors import KafkaError

    class DeliveryHost(Protocol):
        """The part of the producer that its outcomes use."""

        loop: asyncio.AbstractEventLoop

        @property
        def of_written(self) -> SettledHost:
            """The host of batches that were written."""
            ...

        def unseen_failure(self, outcome: BatchOutcome, count: int, /) -> None:
            """Report ``count`` records of a failed batch whose deliveries were never awaited."""
            ...
else:
    from kclient.record import _cython as cython

_NOTIFIED_AT_ONCE = 5000
"""Deliveries of one batch whose waiters are woken in one iteration of the loop."""
_CALLED_AT_ONCE = 50
"""Callbacks, and steps of tasks, in one callback of the loop: scheduling each costs as much again
as running it."""
_NEW, _WAITS, _FIRED, _DROPPED = 0, 1, 2, 3  # states of a Waiter
_copy_context = contextvars.copy_context
_METADATA = RecordMetadata  # a C variable in the compiled build, which saves a global look-up


def _call_soon(loop: asyncio.AbstractEventLoop, callbacks: list[Any]) -> None:
    """Schedule callbacks: (function, context, delivery or waiter) each."""
    if len(callbacks) == 1:
        fn, context, source = callbacks[0]
        loop.call_soon(fn, source, context=context)
        return
    for first in range(0, len(callbacks), _CALLED_AT_ONCE):
        loop.call_soon(_call, loop, callbacks[first : first + _CALLED_AT_ONCE])


def _call_them(loop: asyncio.AbstractEventLoop, deliveries: list[Delivery], count: int) -> None:
    """Schedule the ``count`` callbacks of these deliveries."""
    if 1 < count < 2 * _CALLED_AT_ONCE:
        loop.call_soon(_call_all, loop, deliveries)
        return
    callbacks: list[Any] = []
    for delivery in deliveries:
        delivery._fire(callbacks)
    _call_soon(loop, callbacks)


def _call_all(loop: asyncio.AbstractEventLoop, deliveries: list[Delivery]) -> None:
    """Call all callbacks of these deliveries."""
    callbacks: list[Any] = []
    for delivery in deliveries:
        delivery._fire(callbacks)
    _call(loop, callbacks)


def _call(loop: asyncio.AbstractEventLoop, callbacks: list[Any]) -> None:
    called = 0
    try:
        for fn, context, source in callbacks:
            called += 1
            try:
                if cython.compiled:
                    run_in(context, fn, source)  # type: ignore[name-defined] # noqa: F821
                else:
                    context.run(fn, source)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                what = f"Exception in callback {fn!r} of {source!r}"
                loop.call_exception_handler({"message": what, "exception": error})
    except BaseException:  # the program ends; the remaining callbacks must still be called
        loop.call_soon(_call, loop, callbacks[called:])
        raise


def callback_iterations(count: int) -> int:
    """Return the loop iterations within which a settled batch of ``count`` calls its callbacks."""
    return 1 + count // _NOTIFIED_AT_ONCE


class SettledHost:
    """The host of batches that were written: only the loop is needed."""

    __slots__ = ("loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    @property
    def of_written(self) -> SettledHost:
        """Itself."""
        return self

    def unseen_failure(self, outcome: BatchOutcome, count: int, /) -> None: ...


@cython.cclass
class BatchOutcome:
    """The outcome of one batch of records, shared by their deliveries.

    Attributes:
        topic: Topic of the batch.
        partition: Its partition, -1 while not chosen (a waiting record).
        count: Number of records in the batch.
        done: Acknowledged or failed.
        base_offset: Offset of the first record once acknowledged; -1 where unknown.
        log_append_time: The broker's int milliseconds, -1 where the topic keeps the record's own.
        error: Why the batch failed, None if it didn't.
        record_errors: Errors of single records by index, where the broker named them (KIP-467).
        reported: The failure was reported in bulk (by ``flush``), so it isn't unseen.
    """

    __slots__ = (
        "_parts",
        "_raised",
        "_waiting",
        "base_offset",
        "count",
        "done",
        "error",
        "host",
        "log_append_time",
        "partition",
        "record_errors",
        "reported",
        "topic",
    )

    def __init__(self, host: DeliveryHost, topic: str, partition: int) -> None:
        self.host = host
        self.topic = topic
        self.partition = partition
        self.count = 0
        self.done = False
        self.base_offset = -1
        self.log_append_time = -1
        self.error: KafkaError | None = None
        self.record_errors: dict[int, KafkaError] | None = None
        self.reported = False
        self._parts: list[tuple[int, BatchOutcome]] | None = None
        self._raised: dict[int, weakref.ref[KafkaError]] | None = None
        self._waiting: list[Delivery] | None = None

    def acknowledge(self, base_offset: int, log_append_time: int = -1) -> None:
        """Complete the batch, which the log has at ``base_offset``, and wake its waiters."""
        # Deliveries may be kept for long, and must not lead to the producer: see Delivery.
        self.host = self.host.of_written
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._settle()

    def fail(self, error: KafkaError, record_errors: dict[int, KafkaError] | None = None) -> None:
        """Fail the batch with ``error``, and the records in ``record_errors`` with their own."""
        # A copy: raising a shared error would add frames to it, which may hold deliveries.
        self.error = copy.copy(error)
        self.error.__cause__ = error.__cause__
        self.record_errors = record_errors
        self._settle()

    def divide(self, parts: list[BatchOutcome]) -> None:
        """Replace the batch by ``parts``, in order; deliveries move to theirs."""
        first = 0
        self._parts = []
        for part in parts:
            self._parts.append((first, part))
            first += part.count
        waiting, self._waiting = self._waiting, None
        for delivery in waiting or ():
            delivery._follow()

    def admit_to(self, outcome: BatchOutcome, index: int, delivery: Delivery) -> None:
        """Move ``delivery``, the only one of this outcome, to ``outcome`` at ``index``."""
        waiting, self._waiting = self._waiting, None
        delivery._outcome = outcome
        delivery._index = index
        if waiting:
            outcome._note_waiting(delivery)

    def withdraw(self) -> bool:
        """Called when the delivery is cancelled; False, as a record in a batch is still sent."""
        return False

    def _settle(self) -> None:
        self.done = True
        waiting, self._waiting = self._waiting, None
        if waiting:
            self._notify(waiting)

    def _notify(self, waiting: list[Delivery]) -> None:
        """Wake the waiters of these deliveries; a huge batch takes several loop iterations."""
        loop = self.host.loop
        group: list[Delivery] = []
        count = 0
        for delivery in waiting[:_NOTIFIED_AT_ONCE]:
            group.append(delivery)
            count += delivery._listener_count()
            if count >= _CALLED_AT_ONCE:
                _call_them(loop, group, count)
                group, count = [], 0
        _call_them(loop, group, count)
        if len(waiting) > _NOTIFIED_AT_ONCE:
            loop.call_soon(self._notify, waiting[_NOTIFIED_AT_ONCE:])

    def _note_waiting(self, delivery: Delivery) -> None:
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(delivery)

    def _part_of(self, index: int) -> tuple[BatchOutcome, int]:
        for first, part in reversed(self._parts or ()):
            if first <= index:
                return part, index - first
        raise IndexError(index)

    def _error_of(self, index: int) -> KafkaError | None:
        """Return the error of one record, an instance of its own; None when it was written.

        Raising one instance from many awaits would add the tracebacks of all of them to it. Only a
        weak reference is kept here, so that its traceback and those frames can be freed.
        """
        shared = self.error
        if self.record_errors is not None:
            shared = self.record_errors.get(index, shared)
        if shared is None:
            return None
        if self._raised is None:
            self._raised = {}
        seen = self._raised.get(index)
        own = None if seen is None else seen()
        if own is None:
            own = copy.copy(shared)
            own.__cause__ = shared.__cause__
            self._raised[index] = weakref.ref(own)
        return own

    def __del__(self) -> None:
        if self.error is None or self.reported:
            return
        unseen = self.count - (len(self._raised) if self._raised else 0)
        if unseen > 0:
            self.host.unseen_failure(self, unseen)


@cython.final
@cython.freelist(64)
@cython.cclass
class Waiter:
    """One ``await`` of a pending delivery: its iterator, and the future that its task waits on.

    A future of the loop schedules each of its callbacks separately, which costs twice as much as
    the rest of an await; a generator as the iterator would be two more objects for the collector.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_context",
        "_delivery",
        "_fn",
        "_message",
        "_more",
        "_state",
    )
    _asyncio_future_blocking: bool
    _delivery: Delivery
    _state: int
    _fn: Any
    _context: Any
    _more: list[Any] | None
    _message: Any

    def __init__(self) -> None:
        raise TypeError("await a Delivery, which makes one")

    def __await__(self) -> Waiter:
        return self

    def __iter__(self) -> Waiter:
        return self

    def __next__(self) -> Waiter:
        if self._begins():
            return self
        raise StopIteration(self._delivery.result())

    def _begins(self) -> bool:
        """Return whether this step, the first one, suspends the task; else the outcome is there."""
        delivery = self._delivery
        if self._state == _NEW and not delivery._outcome.done and not delivery.done():
            self._state = _WAITS
            delivery._listen(self)
            return True
        if self._state == _WAITS:
            self.close()
            raise RuntimeError("await wasn't used with a task")
        return False

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> None:
        """End the wait with an error, as a generator's ``throw`` does."""
        self.close()
        error = kind
        if isinstance(kind, type):
            error = value if isinstance(value, kind) else kind(*() if value is None else (value,))
        try:
            raise error if traceback is None else error.with_traceback(traceback)
        finally:  # else this frame and the error hold each other
            del error, kind, value, traceback

    def close(self) -> None:
        """End the wait after its task was closed."""
        if self._state == _WAITS:
            self._state = _DROPPED
            self._fn = self._context = self._more = None
            self._delivery._forget(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the delivery."""
        loop: asyncio.AbstractEventLoop = self._delivery._outcome.host.loop
        return loop

    def add_done_callback(self, fn: Callable[[Waiter], object], /, *, context: Any = None) -> None:
        """Have the loop call ``fn(self)`` when the wait is over."""
        if context is None:
            context = _copy_context()
        if self._state > _WAITS:
            self.get_loop().call_soon(fn, self, context=context)
        elif self._fn is None:
            self._fn = fn
            self._context = context
        else:
            if self._more is None:
                self._more = []
            self._more.append((fn, context, self))

    def done(self) -> bool:
        """True if the wait is over."""
        return self._state > _WAITS

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the wait; False if it is over. The delivery is not affected."""
        if self._state > _WAITS:
            return False
        self._state = _DROPPED
        self._message = msg
        self._delivery._forget(self)
        callbacks: list[Any] = []
        self._hand_over(callbacks)
        _call_soon(self.get_loop(), callbacks)
        return True

    def result(self) -> None:
        """Return None if the wait is over and not cancelled: the delivery has the outcome."""
        if self._state == _FIRED:
            return
        future = self.get_loop().create_future()
        if self._state == _DROPPED:
            future.cancel(self._message)
        future.result()

    def _fire(self, callbacks: list[Any]) -> None:
        if self._state == _WAITS:
            self._state = _FIRED
            self._hand_over(callbacks)

    def _hand_over(self, callbacks: list[Any]) -> None:
        if self._fn is not None:
            callbacks.append((self._fn, self._context, self))
        if self._more is not None:
            callbacks.extend(self._more)
        self._fn = self._context = self._more = None


def _wait_for(delivery: Delivery) -> Waiter:
    waiter = Waiter.__new__(Waiter)  # calling __init__ would cost as much as the rest
    waiter._asyncio_future_blocking = True  # shows a task that this is awaited
    waiter._delivery = delivery
    waiter._state = _NEW
    waiter._fn = waiter._context = waiter._more = waiter._message = None
    return waiter


@cython.final
@cython.freelist(64)
@cython.cclass
class Delivery:
    """The outcome of one record: await it for ``RecordMetadata``, or for the failure.

    It behaves like an ``asyncio.Future`` that only the producer can complete, so
    ``asyncio.gather``, ``wait``, ``wait_for`` and ``shield`` accept it without creating a task.
    Awaiting a finished one doesn't suspend. ``maybe_written`` of a failure is True if the record
    may nevertheless be in the log.

    Cancellation: cancelling a task that awaits it stops only that await. ``cancel()`` abandons the
    delivery itself: a record that still waits for memory or metadata is removed and definitely not
    written, so a transaction that it is in can only be aborted; one that is already in a batch is
    still sent, but its outcome is not reported. Until Python 3.11 ``asyncio.wait_for`` calls it.
    """

    # Garbage collection of very many handles would cost more than creating them. The compiled build
    # leaves a handle untracked until the first waiter, which may close a cycle. Before that, it
    # refers only to its batch, and through that, while it isn't settled, to the producer.

    __slots__ = ("_index", "_listeners", "_outcome", "_timestamp")

    # asyncio.isfuture() checks for this attribute; it is never set, as __await__ returns a Waiter
    # instead of this object.
    _asyncio_future_blocking = False
    _cancel_message = None

    def __init__(self, outcome: BatchOutcome, index: int, timestamp: int) -> None:
        self._outcome = outcome
        self._index = index
        self._timestamp = timestamp
        # One Waiter or (function, context), or a list of them; None before the first.
        self._listeners: Any = None

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not cython.compiled and self.done():
            return self._at_once()
        steps: Any = _wait_for(self)
        return steps  # type: ignore[no-any-return]

    def _at_once(self) -> Generator[Any, None, RecordMetadata]:
        """Await a finished delivery: a generator, as the interpreter runs its step fastest."""
        return self.result()
        yield

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self._outcome.topic

    @property
    def partition(self) -> int | None:
        """The record's partition; None while it isn't chosen yet."""
        partition = self._outcome.partition
        return None if partition < 0 else partition

    def done(self) -> bool:
        """True when acknowledged, failed or cancelled."""
        outcome = self._outcome
        if outcome._parts is not None:
            outcome = self._resolved()
        return self._index < 0 or outcome.done

    def cancelled(self) -> bool:
        """True when ``cancel()`` abandoned it."""
        return self._index < 0

    def cancel(self, msg: Any = None) -> bool:
        """Abandon the delivery; False if it was done already. See the class for the record."""
        if self.done():
            return False
        self._outcome.withdraw()
        self._index = -1
        _call_them(self._outcome.host.loop, [self], 1)
        return True

    def result(self) -> RecordMetadata:
        """Return where the record was written.

        Raises:
            KafkaError: The record was not acknowledged; see its ``maybe_written``.
            asyncio.CancelledError: It was cancelled.
            asyncio.InvalidStateError: It is still pending.
        """
        outcome = self._outcome
        if self._index < 0 or not outcome.done or outcome.error is not None:
            error = self.exception()
            if error is not None:
                # Without the frames of an earlier raise.
                raise error.with_traceback(None)
            outcome = self._outcome
        base = outcome.base_offset
        appended = outcome.log_append_time
        offset = base + self._index if base >= 0 else -1
        timestamp = appended if appended >= 0 else self._timestamp
        # Bypasses RecordMetadata.__new__, which is a Python function.
        if cython.compiled:
            made = new_metadata(  # type: ignore[name-defined] # noqa: F821 - it is in the .pxd
                _METADATA, outcome.topic, outcome.partition, offset, timestamp
            )
        else:
            fields = (outcome.topic, outcome.partition, offset, timestamp)
            made = tuple.__new__(RecordMetadata, fields)
        metadata: RecordMetadata = made
        return metadata

    def exception(self) -> KafkaError | None:
        """Return the failure, or None if the record was written; else raise as ``result`` does."""
        if not self.done() or self._index < 0:
            self._refuse()
        return self._outcome._error_of(self._index)

    def add_done_callback(
        self,
        fn: Callable[[Delivery], object],
        /,
        *,
        context: contextvars.Context | None = None,
    ) -> None:
        """Have the loop call ``fn(delivery)`` once it is done; soon if it is done already."""
        if context is None:
            context = _copy_context()
        if self.done():
            self._outcome.host.loop.call_soon(fn, self, context=context)
        else:
            self._listen((fn, context))

    def remove_done_callback(self, fn: Callable[[Delivery], object], /) -> int:
        """Drop every callback equal to ``fn``; return how many there were."""
        before = self._all_listeners()
        kept = [entry for entry in before if type(entry) is not tuple or entry[0] != fn]
        if len(before) > len(kept):
            self._listeners = kept
        return len(before) - len(kept)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the producer runs on."""
        return self._outcome.host.loop

    def _untrack(self) -> None:
        """Untrack it in the garbage collector. Only for the function that has just created it."""
        if cython.compiled:
            PyObject_GC_UnTrack(self)  # type: ignore[name-defined] # noqa: F821

    def _track(self) -> None:
        if not PyObject_GC_IsTracked(self):  # type: ignore[name-defined] # noqa: F821
            PyObject_GC_Track(self)  # type: ignore[name-defined] # noqa: F821

    def _resolved(self) -> BatchOutcome:
        while self._outcome._parts is not None and self._index >= 0:
            self._outcome, self._index = self._outcome._part_of(self._index)
        return self._outcome

    def _follow(self) -> None:
        """Wait for the part that has this record, after its batch was divided."""
        if self._index >= 0 and self._listeners is not None:
            self._resolved()._note_waiting(self)

    def _all_listeners(self) -> list[Any]:
        listeners = self._listeners
        if type(listeners) is list:
            return listeners
        return [] if listeners is None else [listeners]

    def _listener_count(self) -> int:
        listeners = self._listeners
        return len(listeners) if type(listeners) is list else int(listeners is not None)

    def _listen(self, listener: Any) -> None:
        if self._listeners is None:
            if cython.compiled:
                self._track()
            self._resolved()._note_waiting(self)
            self._listeners = listener
        elif type(self._listeners) is list:
            self._listeners.append(listener)
        else:
            self._listeners = [self._listeners, listener]

    def _forget(self, waiter: Waiter) -> None:
        if self._listeners is not None:
            self._listeners = [each for each in self._all_listeners() if each is not waiter]

    def _fire(self, callbacks: list[Any]) -> None:
        """Complete the waiters of this delivery; add the callbacks to call to ``callbacks``."""
        listeners, self._listeners = self._listeners, None
        if type(listeners) is list:
            for listener in listeners:
                self._fire_one(listener, callbacks)
        elif listeners is not None:
            self._fire_one(listeners, callbacks)

    def _fire_one(self, listener: Any, callbacks: list[Any]) -> None:
        if type(listener) is tuple:
            callbacks.append((*listener, self))
        else:
            waiter: Waiter = listener
            waiter._fire(callbacks)

    def _refuse(self) -> None:
        """Raise what an asyncio future in this state raises."""
        self._like().result()

    def _make_cancelled_error(self) -> BaseException:
        """Return the error of a cancelled future, for ``asyncio.gather``."""
        return self._like()._make_cancelled_error()  # type: ignore[no-any-return]

    def _like(self) -> Any:
        """An asyncio future in the same state: pending, or cancelled."""
        future = self._outcome.host.loop.create_future()
        if self._index < 0:
            future.cancel()
        return future

    def __repr__(self) -> str:
        if self._index < 0:
            state = "cancelled"
        elif not self.done():
            state = "pending"
        elif self._outcome.error is not None:
            state = f"failed {type(self._outcome.error).__name__}"
        else:
            state = f"offset={self._outcome.base_offset + self._index}"
        return f"<Delivery {self._outcome.topic}-{self._outcome.partition} {state}>"


if cython.compiled:
    # In the .pxd: ``await`` gets the outcome as a result, while ``__next__`` must raise it.
    install_await_steps()  # type: ignore[name-defined] # noqa: F821
