"""Proxies for objects that belong to the loop of another thread, and that thread.

``ThreadedCluster`` is a proxy of its cluster. Every access to a proxy runs in the loop, and the
caller waits, or awaits if it runs in the loop itself. Live objects of this package that are
returned (faults, brokers, logs) are wrapped in proxies, too; values are returned as they are. A
proxy finds attributes by name, so that it always has all those of the real object; type checkers
see the real classes. ``LoopThread`` doesn't depend on clusters: it opens and closes an asynchronous
context manager in its loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import enum
import functools
import inspect
import operator
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any

from kclient.errors import ClientClosed, KafkaError, RequestTimedOut, WrongContext
from kclient.frozen import Frozen
from kclient.testing.controller import Tally

_VALUES = (enum.Enum, BaseException, tuple, Frozen, Tally)
"""Types that are returned as they are; a test gets a copy of the ``Tally``."""
WAIT_TIMEOUT = 30.0
"""Seconds, instead of for ever: a thread that hangs is of no use to a test."""
_PACKAGE = __name__.rpartition(".")[0] + "."
_LAST_ROUNDS = 10
"""Loop iterations at the end in which a connection that was just accepted is closed cleanly: its
socket would stay open when the loop is dropped."""


class LoopThread:
    """One thread with a loop; it holds ``inside`` open from ``start`` to ``end``.

    Args:
        inside: Context manager, entered in the loop at the start, left at the end.
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
        self._leaving = True  # before it reads ``_loop``: ``_hold`` does both in reverse order
        if self._thread is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed in between
            if (loop := self._loop) is not None:
                loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()
        self._ended.result()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call in the loop, await the result if it is a coroutine, and return it.

        While no loop runs, before the start and after the end, plain functions are called in the
        caller's thread. So are all functions when the loop's thread itself calls, as it can't wait
        for itself: it gets a coroutine as it is.

        Raises:
            ClientClosed: A coroutine while no loop runs, or one that the end has cancelled.
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
            if future.done():  # the function itself raised it
                raise
            raise RequestTimedOut(f"{name} took more than {self._timeout:g} s") from None
        finally:
            future.cancel()  # a call that was abandoned, for example by Ctrl-C

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


class ThreadProxy:
    """A proxy for ``target``, which is accessed in the loop only.

    Args:
        target: The real object.
        thread: The thread of the loop.
        failed: Called with an error if a test's function did not await a coroutine.
    """

    __slots__ = ("_failed", "_target", "_thread")

    def __init__(
        self, target: object, thread: LoopThread, failed: Callable[[BaseException], None]
    ) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_thread", thread)
        object.__setattr__(self, "_failed", failed)

    def _ask(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        arguments = [_unwrapped(one) for one in args]
        named = {name: _unwrapped(one) for name, one in kwargs.items()}
        value = self._thread.call(function, *arguments, **named)
        if inspect.iscoroutine(value):
            return _Unawaited(value, self._wrapped, self._failed)
        return self._wrapped(value)

    def _wrapped(self, value: Any) -> Any:
        if _is_live(value):
            return ThreadProxy(value, self._thread, self._failed)
        kind = type(value)
        if kind is list or kind is tuple:
            return kind(self._wrapped(one) for one in value)
        if kind is dict or kind is MappingProxyType:
            return {key: self._wrapped(one) for key, one in value.items()}
        if inspect.ismethod(value) and _is_live(value.__self__):
            return self._method(value)
        return value

    def _method(self, method: Any) -> Callable[..., Any]:
        endless = _is_endless(method)

        @functools.wraps(method)
        def ask(*args: Any, **kwargs: Any) -> Any:
            if endless:
                kwargs.setdefault("timeout", WAIT_TIMEOUT)
            return self._ask(method, *args, **kwargs)

        return ask

    def __getattr__(self, name: str) -> Any:
        if name in ThreadProxy.__slots__:
            raise AttributeError(f"{name} isn't set: __init__ has failed")
        if name.startswith("_"):
            raise AttributeError(f"{type(self._target).__name__} keeps {name!r} to itself")
        if inspect.isfunction(getattr(type(self._target), name, None)):
            return self._method(getattr(self._target, name))  # a method: runs when it is called
        return self._ask(getattr, self._target, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._ask(setattr, self._target, name, value)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __repr__(self) -> str:
        try:
            return str(self._thread.call(repr, self._target))
        except KafkaError:  # the loop is busy
            return f"<{type(self._target).__name__} in a thread of its own>"

    def __eq__(self, other: object) -> bool:
        return bool(self._target == _unwrapped(other))

    def __hash__(self) -> int:
        return hash(self._target)

    def __enter__(self) -> Any:
        return self._ask(_entered, self._target)

    def __exit__(self, *error: Any) -> Any:
        return self._ask(_left, self._target, *error)

    def __bool__(self) -> bool:
        return bool(self._thread.call(bool, self._target))

    def __len__(self) -> int:
        return int(self._thread.call(len, self._target))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ask(list, self._target))

    def __contains__(self, one: object) -> bool:
        return bool(self._ask(operator.contains, self._target, one))

    def __getitem__(self, key: Any) -> Any:
        return self._ask(operator.getitem, self._target, key)


class _Unawaited(Coroutine[Any, Any, Any]):
    """A coroutine that a function in the loop got from a proxy, and has to await.

    A coroutine that is never awaited fails the test; a bare coroutine would only warn.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        wrapped: Callable[[Any], Any],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._coroutine: Any = coroutine
        self._wrapped = wrapped
        self._failed = failed
        self._started = False

    def __await__(self) -> Generator[Any, Any, Any]:
        self._started = True
        return self._wrapped((yield from self._coroutine.__await__()))

    def send(self, value: Any) -> Any:
        self._started = True
        try:
            return self._coroutine.send(value)
        except StopIteration as ended:
            raise StopIteration(self._wrapped(ended.value)) from None

    def throw(self, *error: Any) -> Any:
        self._started = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._started = True
        self._coroutine.close()

    def __del__(self) -> None:
        if not self._started:
            name = self._coroutine.__qualname__
            self._coroutine.close()
            text = f"{name} wasn't awaited by a function that runs in the cluster's thread"
            self._failed(WrongContext(text, hint="make it 'async def', and 'await' what waits"))


def _is_endless(method: Any) -> bool:
    """Whether it is a coroutine function whose ``timeout`` defaults to None, for ever."""
    if not inspect.iscoroutinefunction(method):
        return False
    timeout = inspect.signature(method).parameters.get("timeout")
    return timeout is not None and timeout.default is None


def _entered(target: Any) -> Any:
    return target.__enter__()


def _left(target: Any, *error: Any) -> Any:
    return target.__exit__(*error)


def _unwrapped(value: Any) -> Any:
    return value._target if isinstance(value, ThreadProxy) else value


def _is_live(value: object) -> bool:
    """Whether it is a mutable object of this package: no value, copy, enum member or class."""
    kind = type(value)
    if not kind.__module__.startswith(_PACKAGE) or isinstance(value, _VALUES):
        return False
    settings = getattr(kind, "__dataclass_params__", None)
    return settings is None or not settings.frozen
