"""Supervisor: the task group of one client, and the context in which it may be used; its Closing.

``ClientCore`` has one, and every task of the client is in it. One that ends before its time must
reach the user: the error is kept, given to all waiters, and raised by ``check`` from then on, and
the others are stopped, as they are of no more use. ``check`` also refuses another loop, thread or
process than the client was entered in; it is called per record, so it is one comparison unless
something is wrong.

``Closing`` is the end of a client as one piece of work, done once for any number of callers. It
runs in a task of its own, so that a cancelled caller doesn't interrupt it; where that task itself
is killed, a waiter starts it again, so the work must be able to go on from any point. Its deadline
is the earliest of its callers'.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import threading
from asyncio.events import _get_running_loop
from collections.abc import AsyncIterator, Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kclient.errors import BackgroundTaskDied, ClientClosed, KafkaError, WrongContext, fresh

if TYPE_CHECKING:
    from kclient.clock import Clock
    from kclient.hooks import Counters, Hooks

logger = logging.getLogger("kclient.cluster")

_NOWHERE = object()
"""Stands for the loop of a client that is not in use: no running loop is equal to it."""


DEFECT = "close this client and make a new one; please report it as a bug"
LEFT_OPEN = (
    "was the client left open when its event loop ended, or did something cancel all tasks of the "
    "loop? Use it in 'async with', or close it"
)


T = TypeVar("T")

ATTEMPTS = 3
"""How often the work is started before its error is the caller's."""


class TaskKind(Enum):
    """What the end of a task means."""

    ENDLESS = "runs until it is stopped: any other end fails the client"
    VITAL = "may end by itself: an error, or a cancellation from outside, fails the client"
    OWNED = "whoever needs it starts another one, whatever ended it: counted, no failure"


class Supervisor:
    """Tasks and context of one client.

    Tasks: those of ``spawn`` and ``spawn_owned``, until they end. ``stop``, ``close`` and the death
    of one of ``spawn`` end those of ``spawn``; the others belong to their owners.

    Args:
        on_death: Called with the error when an internal task died, so that waiters hear of it.

    Attributes:
        failure: Why the client is of no more use; None while it is.
        restarts: How often a task of ``spawn_owned`` was started in place of one that was killed.
    """

    def __init__(
        self, hooks: Hooks, counters: Counters, on_death: Callable[[KafkaError], object]
    ) -> None:
        self._hooks = hooks
        self._log = hooks.log(logger)
        self._counters = counters
        self._on_death = on_death
        self._tasks: dict[asyncio.Task[Any], TaskKind] = {}
        self._expected: set[asyncio.Task[Any]] = set()
        self._home: object = _NOWHERE
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._pid = 0
        self._closed = False
        self.failure: KafkaError | None = None
        self.restarts = 0

    def enter(self) -> None:
        """Bind to the running loop, thread and process."""
        self._loop = asyncio.get_running_loop()
        self._home = self._loop
        self._thread = threading.get_ident()
        self._pid = os.getpid()

    def check(self) -> None:
        """Raise unless the client can be used, here and now.

        Raises:
            ClientClosed: Before ``start`` or after ``close``.
            WrongContext: Another event loop, thread or process than that of ``start``.
            BackgroundTaskDied: An internal task ended with an error, which is the ``__cause__``.
        """
        # CPython's own record of the running loop is per thread and is void after a fork.
        if _get_running_loop() is not self._home or self.failure is not None:
            self._refuse()

    def _refuse(self) -> None:
        self.check_context()
        if self._home is _NOWHERE:
            if self._closed:
                raise ClientClosed("this client is closed", hint="make a new one")
            raise ClientClosed(
                "this client was not started", hint="use it in 'async with', or call start() first"
            )
        if self.failure is not None:
            raise fresh(self.failure)

    def check_context(self) -> None:
        """Raise WrongContext in another loop, thread or process than that of ``start``."""
        if self._loop is None:
            return
        if os.getpid() != self._pid:
            raise WrongContext(
                f"this client was started in process {self._pid} and used in process "
                f"{os.getpid()}, after a fork",
                hint="make a client of its own in each process",
            )
        if threading.get_ident() != self._thread:
            raise WrongContext(
                f"this client was started in thread {self._thread} and used in thread "
                f"{threading.get_ident()}",
                hint="use asyncio.run_coroutine_threadsafe to reach its event loop",
            )
        if _get_running_loop() is not self._loop:
            raise WrongContext(
                "this client was started in another event loop than the one that it is used in",
                hint="make and use a client inside one asyncio.run",
            )

    # Tasks.

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], name: str, *, endless: bool = False
    ) -> asyncio.Task[Any]:
        """Run an internal task that the client can't do without.

        Where it raises, is cancelled from outside, or returns although it is ``endless``, the
        client has failed.
        """
        return self._start(coroutine, name, TaskKind.ENDLESS if endless else TaskKind.VITAL)

    def spawn_owned(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a task whose end, of whatever kind, its owner deals with.

        An owner that starts another in place of one that was killed says so: ``task_restarted``.
        """
        return self._start(coroutine, name, TaskKind.OWNED)

    def _start(
        self, coroutine: Coroutine[Any, Any, Any], name: str, duty: TaskKind
    ) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"kclient:{name}")
        self._tasks[task] = duty
        task.add_done_callback(self._ended)
        if self.failure is not None and duty is not TaskKind.OWNED:
            self._cancel([task])  # too late: whatever it would do is of no use to anybody
        return task

    def task_restarted(self, name: str, why: str) -> None:
        """A task of ``spawn_owned`` was killed, and another one takes its place."""
        self.restarts += 1
        self._counters.add("tasks.restarted")
        self._log.warning("internal task kclient:%s is started anew: %s", name, why)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that run."""
        return tuple(sorted(task.get_name() for task in self._tasks))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        duty = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if duty is TaskKind.OWNED:
            return
        if task in self._expected or self._closed:
            self._expected.discard(task)
            if error is not None:
                self._log.warning(
                    "task %s failed while it was stopped", task.get_name(), exc_info=error
                )
        elif task.cancelled():
            self._died(task.get_name(), "was cancelled from outside", None, hint=LEFT_OPEN)
        elif error is not None:
            self._died(task.get_name(), f"ended with {type(error).__name__}: {error}", error)
        elif duty is TaskKind.ENDLESS:
            self._died(task.get_name(), "ended, though it should run as long as the client", None)

    def listener_failed(self, error: Exception) -> None:
        """A listener of ours raised inside the network: as bad as the death of a task."""
        self._died("network listener", f"failed with {type(error).__name__}: {error}", error)

    def _died(
        self, name: str, how: str, error: BaseException | None, *, hint: str = DEFECT
    ) -> None:
        self._counters.add("tasks.died")
        # All tasks of a loop that ends are cancelled at once: one line about that is enough.
        again = self.failure is not None and error is None
        level = logging.DEBUG if again else logging.ERROR
        self._log.log(level, "internal task %s %s (%s)", name, how, hint, exc_info=error)
        if self._hooks.active:
            from kclient.events import TaskDied

            self._hooks.emit(TaskDied(name, how))
        if self.failure is None:
            self.failure = BackgroundTaskDied(
                f"the client's internal task {name} {how}",
                hint=hint,
            )
            self.failure.__cause__ = error
            self._cancel(self._vital())
            self._on_death(self.failure)

    def _vital(self) -> list[asyncio.Task[Any]]:
        return [
            task
            for task, duty in self._tasks.items()
            if duty is not TaskKind.OWNED and not task.done()
        ]

    def _cancel(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            self._expected.add(task)
            task.cancel()

    async def stop(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel tasks of ``spawn`` on purpose and wait for their end.

        Cancellation: they are cancelled all the same.
        """
        mine = [task for task in tasks if not task.done()]
        self._cancel(mine)
        if mine:
            await asyncio.wait(mine)

    def shut(self) -> None:
        """Refuse all further use."""
        self._closed = True
        self._home = _NOWHERE

    async def close(self) -> None:
        """Refuse all further use and stop what ``spawn`` has started and still runs.

        Cancellation: it is stopped all the same.
        """
        self.shut()
        current = asyncio.current_task()
        await self.stop(*[task for task in self._vital() if task is not current])


class Closing(Generic[T]):
    """The one run of a piece of work.

    Tasks: one, from the first ``run`` until the work is done.

    Args:
        supervisor: Knows the task.
        clock: Time.
        name: Of the task.
        work: Makes the coroutine; the work must be able to go on where it was killed.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        clock: Clock,
        name: str,
        work: Callable[[], Coroutine[Any, Any, T]],
    ) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._name = name
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._attempts = 0
        self._deadline = math.inf
        self._limit: asyncio.Timeout | None = None

    @property
    def begun(self) -> bool:
        """It was requested."""
        return self._task is not None

    @property
    def time_left(self) -> float:
        """Seconds until the deadline of the most hurried caller; 0 after it."""
        return max(0.0, self._deadline - self._clock.now())

    async def run(self, timeout: float) -> T:
        """Begin if need be, and wait for the end.

        Args:
            timeout: Seconds for what is under ``limit``, also where another caller began it.

        Raises:
            Exception: What the work raised each time; CancelledError where it was cancelled each
                time.

        Cancellation: it goes on all the same.
        """
        self.shorten_deadline(timeout)
        while True:
            task = self._task if self._task is not None else self._begin()
            # Not a shield: there the cancellation of the work looks like that of the caller.
            await asyncio.wait([task])
            if task is not self._task:
                continue  # another waiter has started it again
            why = _killed_by(task)
            if why is None or self._attempts >= ATTEMPTS:
                return task.result()
            self._supervisor.task_restarted(self._name, why)
            self._begin()

    def shorten_deadline(self, timeout: float) -> None:
        """Leave the work ``timeout`` seconds from now at most."""
        deadline = self._clock.now() + timeout
        if deadline < self._deadline:
            self._deadline = deadline
            if self._limit is not None:
                self._limit.reschedule(deadline)

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """For the work: end the block at the deadline, with TimeoutError as ``asyncio.timeout``."""
        at = None if self._deadline == math.inf else self._deadline
        try:
            async with asyncio.timeout_at(at) as self._limit:
                yield
        finally:
            self._limit = None

    def _begin(self) -> asyncio.Task[T]:
        self._attempts += 1
        self._task = self._supervisor.spawn_owned(self._work(), self._name)
        return self._task


def _killed_by(task: asyncio.Task[Any]) -> str | None:
    if task.cancelled():
        return "it was cancelled from outside"
    error = task.exception()
    return None if error is None else f"it ended with {type(error).__name__}: {error}"
