"""``in_thread``: calls of the system that may block for long, such as look-ups of names.

Not in the loop's own pool: its few threads are shared with what users and consumers run there, and
the end of the process would wait for each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T], name: str) -> T:
    """Return what ``function`` returns, called in a thread that ends with it.

    Args:
        function: May block.
        name: Of the thread.

    Raises:
        Exception: What ``function`` raises.

    Cancellation: the call goes on, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def notify(result: T | None, error: Exception | None) -> None:
        if done.done():
            return  # cancelled meanwhile
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        result: T | None = None
        error: Exception | None = None
        try:
            result = function()
        except Exception as failure:
            error = failure
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no waiter any more
            loop.call_soon_threadsafe(notify, result, error)

    threading.Thread(target=call, name=name, daemon=True).start()
    return await done
