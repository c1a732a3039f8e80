"""``EventLog``: the events inside a cluster, for tests that read them, listen or wait.

``cluster.events`` is one. The quorum adds the events; the log doesn't know the quorum. It has
no task, and no timer but that of a ``wait_for``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from kclient.errors import InvalidArgument
from kclient.testing.arguments import seconds_of
from kclient.testing.events import ClusterEvent
from kclient.testing.fault_arguments import counted
from kclient.testing.timers import offer, waited

E = TypeVar("E", bound=ClusterEvent)

DEFAULT_LIMIT = 4096
_SHOWN = 5
"""Number of events that a time-out's text, or the log's ``repr``, names."""


class EventLog:
    """The last events, oldest first.

    Args:
        now: Monotonic seconds.
        failed: Called with what a listener raised.
        limit: Number of events that are kept.

    Example::

        cluster.events.clear()
        cluster.isolate(cluster.leader("flights"))
        elected = await cluster.events.wait_for(LeaderElected, lambda one: one.topic == "flights")
        assert not elected.unclean
    """

    def __init__(
        self,
        now: Callable[[], float],
        failed: Callable[[BaseException], None],
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._now = now
        self._failed = failed
        self._events: deque[ClusterEvent] = deque(maxlen=limit)
        self._listeners: list[Callable[[ClusterEvent], None]] = []
        self._undelivered: deque[ClusterEvent] = deque()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[ClusterEvent]:
        return iter(tuple(self._events))

    def __repr__(self) -> str:
        if not self:
            return "<EventLog: no events>"
        last = "".join(f"\n  {one}" for one in self._last())
        return f"<EventLog: {counted(len(self), 'event')}; the last ones:{last}>"

    def _last(self) -> list[str]:
        """The last events with their times."""
        return [f"{one!r} at {one.at:.3f}" for one in [*self._events][-_SHOWN:]]

    def of(self, kind: type[E], condition: Callable[[E], bool] | None = None) -> list[E]:
        """Kept events of a class, and for which ``condition`` is true if one is given, in order."""
        _check(kind, condition)
        return [
            one
            for one in self._events
            if isinstance(one, kind) and (condition is None or condition(one))
        ]

    def clear(self) -> None:
        """Forget all events up to now."""
        self._events.clear()

    def listen(self, listener: Callable[[ClusterEvent], None]) -> None:
        """Call ``listener`` with each event at the moment that it happens, until ``remove``.

        It is called in the middle of the change: it may read the state of the cluster, but must
        leave changes to ``loop.call_soon`` or a task. ``Cluster.close`` and ``faults.check`` raise
        what it raises.

        Raises:
            InvalidArgument: It isn't a function, or is a coroutine function, which isn't awaited.
        """
        if not callable(listener):
            raise InvalidArgument(f"listen takes a function, not {listener!r}")
        if inspect.iscoroutinefunction(listener):
            raise InvalidArgument(
                "listener must not be a coroutine function: let a plain one start the coroutine, "
                "with loop.create_task"
            )
        self._listeners.append(listener)

    def remove(self, listener: Callable[[ClusterEvent], None]) -> None:
        """Remove a listener; does nothing if it isn't registered."""
        self._listeners = [one for one in self._listeners if one != listener]

    async def wait_for(
        self,
        kind: type[E],
        condition: Callable[[E], bool] | None = None,
        *,
        timeout: float = 10.0,
    ) -> E:
        """Return the first event of a class; wait for one if there is none yet.

        The kept events are searched first: call ``clear()`` before, to wait for a new one.

        Args:
            kind: One of the classes of events, or ``ClusterEvent`` for all.
            condition: Called with an event of that class; returns whether it matches.
            timeout: Seconds.

        Raises:
            RequestTimedOut: None came in time; the text names the last events.
            InvalidArgument: An argument isn't a class of events, a function or seconds.
            Exception: Whatever ``condition`` raises.

        Cancellation: safe; nothing is left behind.
        """
        seconds_of("timeout", timeout)
        found = self.of(kind, condition)
        if found:
            return found[0]
        future: asyncio.Future[E] = asyncio.get_running_loop().create_future()

        def look(event: ClusterEvent) -> None:
            if not future.done() and isinstance(event, kind):
                offer(future, event, condition)

        def text() -> str:
            last = ", ".join(self._last()) or "nothing"
            return f"no {kind.__name__} within {timeout:.3g} s; what happened last: {last}"

        self._listeners.append(look)
        try:
            return await waited(future, timeout, text)
        finally:
            self._listeners.remove(look)

    def add(self, event: ClusterEvent) -> None:
        """Add an event, with the time.

        All listeners get the events in the same order, whatever they do meanwhile.
        """
        event = replace(event, at=self._now())
        self._events.append(event)
        self._undelivered.append(event)
        if len(self._undelivered) > 1:
            return  # caused by a listener: the outer call delivers it
        try:
            while self._undelivered:
                for listener in tuple(self._listeners):
                    self._notify(listener, self._undelivered[0])
                self._undelivered.popleft()
        finally:
            self._undelivered.clear()

    def _notify(self, listener: Callable[[ClusterEvent], None], event: ClusterEvent) -> None:
        try:
            listener(event)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # pytest.fail() raises one that is no Exception
            self._failed(error)


def _check(kind: Any, condition: Any) -> None:
    if not isinstance(kind, type) or not issubclass(kind, ClusterEvent):
        raise InvalidArgument(f"{kind!r} is no class of events, see kclient.testing.events")
    if condition is not None and not callable(condition):
        raise InvalidArgument(f"condition={condition!r} must be a function of an event")
    if inspect.iscoroutinefunction(condition):  # the coroutine that it returns is always true
        raise InvalidArgument("condition must not be a coroutine function: nobody would await it")
