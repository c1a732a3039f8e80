"""Workers: the tasks in which handlers run, at most ``concurrency`` of them.

``runner`` makes one pool per run. A worker takes what ``schedule`` gives, calls the handler and
goes on with the next record without a trip through the loop, as long as the handler doesn't wait
for anything; when it does, another worker is woken, if there is something to do. What becomes of an
outcome is the runner's business. The loop gets a turn every ``TURN`` seconds in any case.

These tasks run the user's code, so they are not among those of the client: one that would not end
when it is cancelled must not hold up ``close``. ``run`` itself answers for them.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol

from kclient.consumer.running.calling import called, coroutine_of, not_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kclient.consumer.running.host import RunHost
    from kclient.consumer.running.schedule import Schedule
    from kclient.consumer.running.tracker import Job, Track

TURN = 0.005
"""Seconds of work after which the loop gets a turn."""


class Outcomes(Protocol):
    """Who is told what became of a call."""

    def done(self, job: Job) -> None:
        """The handler has finished."""
        ...

    async def failed(self, job: Job, error: BaseException, waits: Callable[[], object]) -> None:
        """It has raised ``error``. ``waits()`` is to be called before anything is awaited."""
        ...

    def rested(self, track: Track) -> None:
        """One handler less is at work on a partition that is given up."""
        ...

    def stop_for(self, error: BaseException) -> None:
        """The run can't go on."""
        ...


class Worker:
    """One worker.

    Attributes:
        task: Its task.
        job: What it works on.
        since: When it began with that.
        told: It was said that this takes long.
        waiter: Done when there may be something to do.
        retired: It was cancelled, by us, and takes nothing any more.
    """

    __slots__ = ("job", "retired", "since", "task", "told", "waiter")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.job: Job | None = None
        self.since = 0.0
        self.told = False
        self.waiter: asyncio.Future[None] | None = None
        self.retired = False


class Workers:
    """The pool of one run.

    Tasks: ``kclient:handler-N``, made when there is more to do than the others can, until ``stop``.
    One that is killed from outside is replaced; the attempt that it was at has failed.
    """

    def __init__(
        self,
        host: RunHost,
        schedule: Schedule,
        outcomes: Outcomes,
        handler: Callable[[Any], Any],
        concurrency: int,
    ) -> None:
        self._host = host
        self._schedule = schedule
        self._outcomes = outcomes
        self._handler = handler
        self._concurrency = concurrency
        self._all: dict[asyncio.Task[None], Worker] = {}
        self._idle: list[Worker] = []
        self._timer: asyncio.TimerHandle | None = None
        self._turn_at = 0.0
        self._turning = 0
        self._made = 0
        self._stopping = False

    @property
    def busy(self) -> list[Worker]:
        """Those that are at work, the longest first."""
        busy = [worker for worker in self._all.values() if worker.job is not None]
        return sorted(busy, key=lambda worker: worker.since)

    def includes(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether ``task`` is that of a worker, so that a handler runs in it."""
        return task in self._all

    # Waking

    def wake(self) -> None:
        """If something is ready, have one more worker look at it."""
        if self._schedule.ready and not self._stopping and not self._turning:
            while self._idle:
                waiter = self._idle.pop().waiter
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)
                    return
            if len(self._all) < self._concurrency:
                self._make()

    def arm(self) -> None:
        """See to it that what is delayed is looked at in time. One timer for all."""
        due = self._schedule.next_due
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._stopping:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - self._host.clock.now()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._schedule.wake(self._host.clock.now())
        self.wake()
        self.arm()

    def _make(self) -> None:
        self._made += 1
        worker = Worker()
        worker.task = asyncio.get_running_loop().create_task(
            self._work(worker), name=f"kclient:handler-{self._made}"
        )
        self._all[worker.task] = worker
        worker.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        worker = self._all.pop(task)
        if worker in self._idle:
            self._idle.remove(worker)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._outcomes.stop_for(error)  # a defect of ours: what handlers raise is caught
        self.wake()  # it may have been woken for something

    # Ending

    def retire(self, tracks: Iterable[Track]) -> list[Worker]:
        """Cancel the handlers that work on ``tracks``. Returns their workers."""
        wanted = set(map(id, tracks))
        found = [
            worker
            for worker in self._all.values()
            if worker.job is not None and id(worker.job.track) in wanted
        ]
        for worker in found:
            self._retire(worker)
        return found

    def stop(self) -> None:
        """Start nothing any more, and cancel what runs."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for worker in tuple(self._all.values()):
            self._retire(worker)

    async def wait_ended(self, seconds: float) -> list[Worker]:
        """Wait for the end of all workers, ``seconds`` at most. Returns those that still run.

        Cancellation: safe.
        """
        if self._all:
            await asyncio.wait(tuple(self._all), timeout=seconds)
        return [worker for task, worker in self._all.items() if not task.done()]

    def _retire(self, worker: Worker) -> None:
        if not worker.retired and worker.task is not None:
            worker.retired = True
            worker.task.cancel()

    # Working

    async def _work(self, worker: Worker) -> None:
        """The worker's task. It ends when it is retired, or killed from outside."""
        schedule, outcomes, now = self._schedule, self._outcomes, self._host.clock.now
        self._turn_at = now() + TURN
        while not worker.retired:
            started = now()
            if started >= self._turn_at:
                await self._others()
                self._turn_at = (started := now()) + TURN
            job = schedule.next()
            if job is None:
                await self._rest(worker)
                continue
            if not self._host.may_start():
                schedule.put_back(job)  # its partition is about to be lost, and the job with it
                await self._rest(worker)
                continue
            if job.due > started:
                schedule.delay(job, job.due)
                self.arm()
                continue
            worker.since = started
            worker.job = job
            track = job.track
            track.running += 1
            try:
                await self._handle(job, worker)
            finally:
                worker.job = None
                worker.told = False
                track.running -= 1
                if track.halted:
                    outcomes.rested(track)

    async def _others(self) -> None:
        """The loop's turn, after which this worker goes on: nobody need be woken meanwhile."""
        self._turning += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._turning -= 1

    async def _rest(self, worker: Worker) -> None:
        worker.waiter = asyncio.get_running_loop().create_future()
        self._idle.append(worker)
        try:
            await worker.waiter
            self._turn_at = self._host.clock.now() + TURN
        finally:
            worker.waiter = None

    async def _handle(self, job: Job, worker: Worker) -> None:
        """One call of the handler, and what follows from its outcome."""
        failure: BaseException | None = job.failure
        if failure is None:
            try:
                if not await self._call(job):
                    return
            except Exception as error:
                failure = error
            except asyncio.CancelledError as error:
                if worker.retired:
                    return
                failure = error  # the handler's own, or somebody else killed this task
            except GeneratorExit:
                raise
            except BaseException as error:  # KeyboardInterrupt, SystemExit
                self._outcomes.stop_for(error)
                return
        if worker.retired and job.track.void:
            return
        if failure is None:
            self._outcomes.done(job)
            return
        try:
            await self._outcomes.failed(job, failure, self.wake)
        except asyncio.CancelledError:
            if not worker.retired:
                raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            worker.retired = True  # so the task is to end

    async def _call(self, job: Job) -> bool:
        """Call the handler. False where that is no handler, which ends the run."""
        convert = self._host.convert
        record: Any = job.record if convert is None else convert(job.record)
        context = copy_context()
        made = context.run(self._handler, record)
        if type(made) is not CoroutineType:
            coroutine = coroutine_of(made)
            if coroutine is None:
                self._outcomes.stop_for(not_async(made))
                return False
            made = coroutine
        await called(context, made, self.wake)
        return True
