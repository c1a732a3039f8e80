"""CallbackInvoker: calls the application's rebalance functions, and reports one that hangs.

One at a time; ``consumer.rebalance_listener`` and ``user_protocol`` have one each. An awaitable
that a function returns runs in a task of its own, which is not among those of the client: one that
goes on though it is cancelled must not hold up ``close``. Results and errors of a function are up
to the caller.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger, LoggerAdapter

    from kclient.clock import Clock

SLOW = 0.5
"""Part of the patience after which a warning about a function is logged."""
GRACE = 0.1
"""Seconds that a function has to end once it is cancelled."""

_let_go: set[asyncio.Future[Any]] = set()
"""Abandoned tasks, which are awaited no more. Nothing else might reference them while they run."""


class CallbackInvoker:
    """Calls functions of the application.

    Tasks: ``kclient:on_...`` while one is awaited, and one timer.

    Args:
        clock: The client's.
        log: Gets warnings of one that takes long, and of one that is abandoned.
        patience: Seconds that one may take.
        setting: The setting that these come from, for texts.
        on_late: Called each time that they have passed: ``take_stall`` is to be checked.
        whose: Follows the name in texts.

    Attributes:
        name: The function that is running; None where none is.
        since: From when on.
        stalled: It takes longer than it may.
    """

    def __init__(
        self,
        clock: Clock,
        log: Logger | LoggerAdapter[Any],
        patience: float,
        setting: str,
        on_late: Callable[[], object],
        whose: str = "",
    ) -> None:
        self._clock = clock
        self._log = log
        self._patience = patience
        self._setting = setting
        self._on_late = on_late
        self._whose = whose
        self._about = ""
        self._task: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._limit: asyncio.Timeout | None = None
        self._unreported = False
        self.name: str | None = None
        self.since = 0.0
        self.stalled = False

    async def call(self, name: str, function: Callable[[], Any], about: str = "") -> Any:
        """Call ``function``, and return its result in the end.

        Args:
            name: The application's name of it.
            function: The application's; plain or ``async``.
            about: What it is called for, for texts; begins with a blank.

        Raises:
            Exception: The error that it raised.
            InvalidArgument: A CancelledError came out of it that isn't meant for the caller.

        Cancellation: it is cancelled, too, and abandoned where it doesn't end soon; a task or
        future that the function returned belongs to the application and is only abandoned.
        """
        self.name, self._about = name, about
        self.since = self._clock.now()
        self._task = asyncio.current_task()
        try:
            given = function()
            return await self._finish(name, given) if inspect.isawaitable(given) else given
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Of a task of the application's that the function waited for, not ours. Unchanged, it
            # would look to our caller like a cancellation of its own wait.
            raise InvalidArgument(
                f"{name}{self._whose} let the CancelledError of another task through"
            ) from cancelled
        finally:
            self.name = self._task = None
            self.stalled = self._unreported = False

    async def _finish(self, name: str, given: Any) -> Any:
        """Wait for the end of an awaitable that a function returned."""
        self._task = task = asyncio.ensure_future(given)
        own = task is not given  # else the application made it
        if own and isinstance(task, asyncio.Task):
            task.set_name(f"kclient:{name}")
        self._arm(self._patience * SLOW, self._slow)
        try:
            async with asyncio.timeout(None) as self._limit:
                await asyncio.wait([task])
        except TimeoutError:
            if not task.done():
                await self._part_from(task, own)
                return None
        except BaseException:
            await self._part_from(task, own)
            raise
        finally:
            self._limit = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return task.result()

    def shorten_deadline(self, deadline: float) -> None:
        """Shorten the deadline of a running function to ``deadline``, on the client's clock.

        Then it is cancelled, as if its caller were, and its result is None.
        """
        if self._limit is not None and not self._limit.expired():
            left = max(0.0, deadline - self._clock.now())
            self._limit.reschedule(asyncio.get_running_loop().time() + left)

    async def _part_from(self, task: asyncio.Future[Any], own: bool) -> None:
        """Stop waiting for ``task``, and cancel it if it is our ``own``."""
        if not own:
            self._log.warning("%s: the task that it returned goes on %s", self.title, self.figures)
            return
        task.cancel()
        try:
            await asyncio.wait([task], timeout=GRACE)
        finally:
            if task.done():
                self._log.warning("%s was cancelled %s", self.title, self.figures)
            else:
                self._log.warning(
                    "%s doesn't end, though cancelled: it is let go %s", self.title, self.figures
                )
                _let_go.add(task)
            task.add_done_callback(self._parted)

    def _parted(self, task: asyncio.Future[Any]) -> None:
        _let_go.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.warning("a callback that was cancelled raised %r", error)

    @property
    def makes_this_call(self) -> bool:
        """Whether the current task runs inside of such a function."""
        return self._task is not None and asyncio.current_task() is self._task

    # A function that takes long

    def take_stall(self) -> bool:
        """Whether a function takes too long, if not reported yet; True again after as long."""
        unreported, self._unreported = self._unreported, False
        return unreported

    @property
    def seconds(self) -> float:
        """For how long the function has been running."""
        return self._clock.now() - self.since

    @property
    def title(self) -> str:
        """The running function, for texts."""
        return f"{self.name}{self._whose}"

    @property
    def figures(self) -> str:
        """For how long it has been running, and what for, for texts."""
        limit = f"({self._setting} is {self._patience:g} s)"
        return f"after {self.seconds:.1f} s{self._about} {limit}"

    def _slow(self) -> None:
        self._log.warning("%s has not ended %s", self.title, self.figures)
        self._arm(self._patience * (1 - SLOW), self._late)

    def _late(self) -> None:
        self.stalled = self._unreported = True
        self._arm(self._patience, self._late)
        self._on_late()

    def _arm(self, seconds: float, then: Callable[[], object]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, then)
