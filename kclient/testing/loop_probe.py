"""Measures how long single callbacks block the event loop, in CPU time of its thread.

For tests and examples that must show that no callback of theirs, of the clients or of the embedded
cluster blocks the loop. It must not be left on in production: it slows down every callback.
Works on asyncio's own loops; uvloop runs its callbacks elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class LoopProbe:
    """Context manager that times every callback of all asyncio loops of this process.

    Attributes:
        longest: Seconds of thread CPU of the longest callback so far. CPU time rather than wall
            time, so that other processes on a busy machine don't count.
        longest_callback: A description of that callback, as text.
        callbacks: How many callbacks ran.

    Example::

        with LoopProbe() as probe:
            asyncio.run(main())
        print(probe.longest, probe.longest_callback)
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.longest_callback = ""
        self.callbacks = 0
        self._original: Callable[[asyncio.Handle], None] | None = None

    def __enter__(self) -> Self:
        if self._original is not None:
            raise RuntimeError("this probe is already on")
        handle: Any = asyncio.Handle
        original = handle._run
        self._original = original
        clock = time.thread_time

        def run(one: asyncio.Handle) -> None:
            began = clock()
            original(one)
            held = clock() - began
            self.callbacks += 1
            if held > self.longest:
                self.longest = held
                self.longest_callback = _describe(one)

        handle._run = run
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        handle: Any = asyncio.Handle
        handle._run = self._original
        self._original = None


def _describe(handle: asyncio.Handle) -> str:
    callback: Any = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()}"
    if owner is not None:
        return f"{type(owner).__name__}.{getattr(callback, '__name__', '?')}"
    return getattr(callback, "__qualname__", repr(callback))
