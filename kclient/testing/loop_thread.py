"""A thread with an event loop of its own, and blocking calls into it from other threads.

``ThreadedCluster`` runs its cluster on one; ``remote.Remote`` makes calls. It knows nothing of
clusters: what is opened and closed in the loop is an asynchronous context manager.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from kclient.errors import ClientClosed, RequestTimedOut, WrongContext

_LAST_ROUNDS = 10
"""Turns of the loop in which a connection that was accepted at the very end is refused in order:
its socket would be dropped open with the loop."""


class LoopThread:
    """One thread; it holds ``inside`` open from ``start`` to ``end``.

    Args:
        inside: Entered in the loop at the start, left at the end.
        timeout: Seconds that a call may take; None for ever.

    Its only task besides those of calls is the one that holds ``inside``; ``end`` stops all.
    """

    def __init__(self, inside: AbstractAsyncContextManager[object], timeout: float | None) -> None:
        self._inside = inside
        self._timeout = timeout
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave = asyncio.Event()
        self._leaving = False
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()

    def start(self) -> None:
        """Start the thread and wait until ``inside`` is entered; does nothing when it is.

        Raises:
            ClientClosed: It has ended.
        """
        if self._leaving:
            raise ClientClosed("the cluster was closed: make another one")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kclient-cluster", daemon=True)
            self._thread.start()
        try:
            self._opened.result()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Leave ``inside``, end the loop and wait for the thread. Twice is fine.

        Raises:
            WrongContext: From the thread itself, which would wait for itself.
        """
        if self.is_current():
            raise WrongContext("what runs in the cluster's thread can't close it")
        self._leaving = True  # before the loop is looked at: `_hold` does both the other way round
        if self._thread is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed in between
            if (loop := self._loop) is not None:
                loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()
        self._ended.result()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call in the loop, await what it returns if that is a coroutine, and return the result.

        While no loop runs, before the start and after the end, plain functions are called here.
        So are all when the loop's thread itself calls, as it can't wait for itself: it gets a
        coroutine as it is.

        Raises:
            ClientClosed: A coroutine while no loop runs, or one that the end has cut short.
            RequestTimedOut: It took too long, and was cancelled.
        """
        loop, inside = self._loop, self.is_current()
        if loop is not None and not inside:
            return self._wait(loop, _call(function, args, kwargs), function)
        result = function(*args, **kwargs)
        if not inside and inspect.iscoroutine(result):
            result.close()
            raise ClientClosed("the cluster isn't started", hint="start() it, or use it in 'with'")
        return result

    def is_current(self) -> bool:
        """Whether the caller is in this thread."""
        return threading.current_thread() is self._thread

    def _wait(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        function: Callable[..., Any],
    ) -> Any:
        name = getattr(function, "__name__", repr(function))
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop was closed in between
            coroutine.close()
            raise ClientClosed(f"{name}: the cluster was closed") from None
        try:
            return future.result(self._timeout)
        except concurrent.futures.CancelledError:
            raise ClientClosed(f"{name}: the cluster was closed meanwhile") from None
        except TimeoutError:
            if future.done():  # it is the call's own
                raise
            raise RequestTimedOut(f"{name} took more than {self._timeout:g} s") from None
        finally:
            future.cancel()  # what was given up, as by Ctrl-C

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                try:
                    runner.run(self._hold())
                finally:
                    self._loop = None
        except BaseException as error:
            (self._ended if self._opened.done() else self._opened).set_exception(error)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _hold(self) -> None:
        async with self._inside:
            self._loop = asyncio.get_running_loop()
            self._opened.set_result(None)
            if not self._leaving:
                await self._leave.wait()
        for _ in range(_LAST_ROUNDS):
            await asyncio.sleep(0)


async def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = function(*args, **kwargs)
    return await result if inspect.iscoroutine(result) else result
