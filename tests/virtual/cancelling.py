"""Cancel a call at one of its suspensions, in a world of its own, and check what is left behind.

``cancel_at`` runs one point: a cluster and a client on virtual time, a call of the client that is
cancelled when it suspends for the n-th time, then the checks that hold for every call: the
cancellation came through and in time, the client goes on or is closed, its close returns, no task,
timer or connection is left, and nothing reached the loop's exception handler. What the call did to
records is judged by the scene (``tests.virtual.scenes``). ``enumerate_points`` runs the call
uncancelled first, which shows where it suspends, and for how long; then every point of it.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import gc
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient.testing import run_virtually

if TYPE_CHECKING:
    from tests.virtual.scenes import Scene

LONGEST = 120.0
"""Virtual seconds that any point may take in total."""
PROMPT = 2.5
"""Virtual seconds in which a cancelled call must be over."""


class Moment(enum.Enum):
    """The moment within the suspension at which the cancellation comes."""

    AT_ONCE = "as soon as the call waits"
    AMID = "while it waits for the network"
    LATE = "while it waits for long, as in a back-off"
    DONE = "when what it waits for is there, and it didn't run yet"


_INTO = {Moment.AMID: 0.0003, Moment.LATE: 0.03}
"""Seconds into the suspension."""
_SOME = 1e-9
"""Seconds of a suspension that waits for something and takes no time."""


class Cancelling:
    """Await a coroutine and request the cancellation of the task at one of its suspensions."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, moment: Moment) -> None:
        self._coroutine = coroutine
        self._at = at
        self._moment = moment
        self._timer: asyncio.TimerHandle | None = None
        self.waits: list[float] = []
        """Seconds of each suspension so far; 0.0 of one that waits for nothing."""
        self.asked_at: float | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        error: BaseException | None = None
        while True:
            try:
                waits_for = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            began = asyncio.get_running_loop().time()
            self.waits.append(0.0)
            if len(self.waits) == self._at:
                self._arm(waits_for)
            try:
                yield waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as thrown:
                error = thrown
            if waits_for is not None:
                self.waits[-1] = max(_SOME, asyncio.get_running_loop().time() - began)
            if self._timer is not None:
                self._timer.cancel()

    def _arm(self, waits_for: Any) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None

        def cancel(*_: object) -> None:
            self.asked_at = loop.time()
            task.cancel()

        if self._moment is Moment.AT_ONCE or waits_for is None:
            cancel()
        elif self._moment is Moment.DONE:
            waits_for.add_done_callback(cancel)  # before the task's own, so it comes first
        else:
            self._timer = loop.call_later(_INTO[self._moment], cancel)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one point.

    Attributes:
        waits: Seconds of each suspension; 0.0 of one that waits for nothing.
        cancelled: The cancellation was requested.
        trouble: What is wrong.
    """

    waits: tuple[float, ...]
    cancelled: bool
    trouble: tuple[str, ...]


def cancel_at(make: Callable[[], Scene], suspension: int, moment: Moment) -> Outcome:
    """Run one point; none is cancelled at suspension 0."""
    trouble: list[str] = []
    seen: list[Cancelling] = []

    async def play() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, context: trouble.append(f"reached the loop: {context!r}")
        )
        scene = make()
        async with scene.cluster:
            await scene.set_up()
            driver = Cancelling(scene.play(), suspension, moment)
            seen.append(driver)
            task = loop.create_task(_await(driver), name="the call")
            await asyncio.wait([task])
            trouble.extend(_judge(task, driver, loop.time()))
            try:
                await scene.look()
            finally:
                await scene.close()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            trouble.extend(f"left behind: {task!r}" for task in left)
            trouble.extend(f"left behind: {timer!r}" for timer in client_timers(loop))
            await asyncio.sleep(0.01)  # the close reaches the brokers
            links = loop.network.links  # type: ignore[attr-defined]
            trouble.extend(f"left behind: a connection to {link.address}" for link in links)
            scene.judge()

    try:
        run_virtually(play(), limit=LONGEST)
    except Exception as error:
        trouble.append(f"{type(error).__name__}: {error}")
    gc.collect(0)
    [driver] = seen
    return Outcome(tuple(driver.waits), driver.asked_at is not None, tuple(trouble))


async def _await(driver: Cancelling) -> Any:
    return await driver


def _judge(task: asyncio.Task[Any], driver: Cancelling, now: float) -> list[str]:
    if driver.asked_at is None:
        return [] if task.cancelled() or task.exception() is None else [f"{task.exception()!r}"]
    found = []
    if not task.cancelled():
        found.append(f"the cancellation was swallowed: {task!r}")
    if now - driver.asked_at > PROMPT:
        found.append(f"the cancelled call took {now - driver.asked_at:.1f} s to end")
    return found


def client_timers(loop: Any) -> list[asyncio.TimerHandle]:
    """The timers that a client has set on a loop and that would still run."""
    return [
        handle
        for handle in loop._scheduled
        if not handle.cancelled() and _module_of(handle._callback).startswith(_OURS)
    ]


_OURS = (
    *("kclient.network", "kclient.cluster", "kclient.group"),
    *("kclient.producer", "kclient.consumer", "asyncio"),
)


def _module_of(callback: Any) -> str:
    while isinstance(callback, functools.partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    return str(getattr(owner, "__module__", None) or getattr(callback, "__module__", ""))


def enumerate_points(make: Callable[[], Scene]) -> tuple[int, list[str]]:
    """Cancel at every suspension, at every moment; how many points there were, what is wrong."""
    points, trouble = points_of(make)
    for suspension, moment in points:
        outcome = cancel_at(make, suspension, moment)
        where = f"suspension {suspension}, {moment.name}"
        trouble += [f"{where}: {what}" for what in outcome.trouble]
        if not outcome.cancelled:
            trouble.append(f"{where}: it was not reached")
    return len(points), trouble


def points_of(make: Callable[[], Scene]) -> tuple[list[tuple[int, Moment]], list[str]]:
    """The suspensions and moments at which a call can be cancelled, and what is wrong without."""
    whole = cancel_at(make, 0, Moment.AT_ONCE)
    points = [
        (suspension, moment)
        for moment in Moment
        for suspension, seconds in enumerate(whole.waits, 1)
        if moment is Moment.AT_ONCE or seconds > _INTO.get(moment, 0.0)
    ]
    return points, [f"uncancelled: {what}" for what in whole.trouble]
