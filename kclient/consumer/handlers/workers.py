"""Workers: the tasks in which handlers run, at most ``concurrency`` of them.

``run`` makes one pool per run. A worker takes a job from ``tracker.Schedule``, calls the handler
and goes on with the next record without yielding to the loop, as long as the handler doesn't wait
for anything; when it does, another worker is woken, if there is something to do. The runner
processes the outcomes. A worker yields to the loop every ``TURN`` seconds in any case.

These tasks run the application's code, so they are not among those of the client: one that would
not end when it is cancelled must not hold up ``close``. ``run`` itself is responsible for them.

A handler is called in a context of its own, without a task of its own. A task per record costs five
times what the call does, and a bare ``await`` would let what one handler sets in context variables
(a trace, a log's fields) show up in the next one's. So each call has its context, and the worker
that makes the call is notified when the handler waits: only then another worker is of use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import copy_context
from dataclasses import dataclass
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any

from kclient.consumer.handlers.run_options import ASYNC
from kclient.errors import InvalidArgument, a_or_an

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from contextvars import Context

    from kclient.consumer.handlers.run import EngineHost, Runner
    from kclient.consumer.handlers.tracker import Job, Schedule, Track

TURN = 0.005
"""Seconds of work after which a worker yields to the loop."""


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """One worker.

    Attributes:
        task: Its task.
        job: The job that it works on.
        since: When it began with that.
        reported: It was logged as slow.
        waiter: Done when there may be something to do.
        retired: It was cancelled by this pool, and takes no more jobs.
    """

    task: asyncio.Task[None] | None = None
    job: Job | None = None
    since: float = 0.0
    reported: bool = False
    waiter: asyncio.Future[None] | None = None
    retired: bool = False


class Workers:
    """The pool of one run.

    Tasks: ``kclient:handler-N``, made when there is more to do than the others can, until ``stop``.
    One that is killed from outside is replaced; its current attempt counts as failed.
    """

    def __init__(
        self,
        host: EngineHost,
        schedule: Schedule,
        runner: Runner,
        handler: Callable[[Any], Any],
        concurrency: int,
    ) -> None:
        self._host = host
        self._schedule = schedule
        self._runner = runner
        self._handler = handler
        self._concurrency = concurrency
        self._all: dict[asyncio.Task[None], Worker] = {}
        self._idle: list[Worker] = []
        self._timer: asyncio.TimerHandle | None = None
        self._turn_at = 0.0
        self._turning = 0
        self._made = 0

    @property
    def busy(self) -> list[Worker]:
        """Workers that run a handler, the longest first."""
        busy = [worker for worker in self._all.values() if worker.job is not None]
        return sorted(busy, key=lambda worker: worker.since)

    def includes(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether ``task`` is that of a worker, so that a handler runs in it."""
        return task in self._all

    # Waking

    def wake(self) -> None:
        """If a job is ready, wake or make one more worker for it."""
        if self._schedule.ready and not self._schedule.stopped and not self._turning:
            while self._idle:
                waiter = self._idle.pop().waiter
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)
                    return
            if len(self._all) < self._concurrency:
                self._make()

    def arm(self) -> None:
        """Set the one timer to the next delayed job."""
        due = self._schedule.next_due
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._schedule.stopped:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - self._host.core.clock.now()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._schedule.wake(self._host.core.clock.now())
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
            self._runner.stop_for(error)  # a bug in this module: exceptions of handlers are caught
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
        """Start no more jobs, and cancel running handlers."""
        self._schedule.stopped = True
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
        schedule, now = self._schedule, self._host.core.clock.now
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
                worker.reported = False
                track.running -= 1
                if track.halted:
                    self._runner.rested(track)

    async def _others(self) -> None:
        """Yield to the loop; this worker goes on after that, so none need be woken meanwhile."""
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
            self._turn_at = self._host.core.clock.now() + TURN
        finally:
            worker.waiter = None

    async def _handle(self, job: Job, worker: Worker) -> None:
        """Call the handler for ``job``, and process the outcome."""
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
                failure = error  # the handler's own, or this task was killed from outside
            except GeneratorExit:
                raise
            except BaseException as error:  # KeyboardInterrupt, SystemExit
                self._runner.stop_for(error)
                return
        if worker.retired and job.track.void:
            return
        if failure is None:
            self._runner.done(job)
            return
        try:
            await self._runner.failed(job, failure, self.wake)
        except asyncio.CancelledError:
            if not worker.retired:
                raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            worker.retired = True  # the task was cancelled meanwhile

    async def _call(self, job: Job) -> bool:
        """Call the handler. False where it isn't async, which ends the run."""
        convert = self._host.convert
        record: Any = job.record if convert is None else convert(job.record)
        context = copy_context()
        made = context.run(self._handler, record)
        if not isinstance(made, CoroutineType):
            if not isinstance(made, Awaitable):
                kind = a_or_an(type(made).__name__)
                error = f"the handler of run() returned {kind}, which can't be awaited"
                self._runner.stop_for(InvalidArgument(error, hint=ASYNC))
                return False
            made = _awaiting(made)  # such as a task
        await called(context, made, self.wake)
        return True


@coroutine
def called(
    context: Context, made: Coroutine[Any, Any, Any], waits: Callable[[], object]
) -> Generator[Any, Any, None]:
    """Run ``made`` in ``context`` to its end; ``waits()`` is called when it first suspends.

    Cancellation: is thrown into the coroutine.
    """
    run, send = context.run, made.send
    try:
        asked = run(send, None)
    except StopIteration:
        return
    waits()
    step: Callable[[Any], Any]
    while True:
        try:
            result = yield asked
        except GeneratorExit:
            run(made.close)
            raise
        except BaseException as error:
            step, value = made.throw, error
        else:
            step, value = send, result
        try:
            asked = run(step, value)
        except StopIteration:
            return
        finally:
            del value


async def _awaiting(made: Awaitable[Any]) -> None:
    await made
