"""The one place where a RequestFuture meets the event loop: a waiter for whoever awaits it.

Called by ``RequestFuture.__await__`` only, and only when the outcome isn't there yet. It is kept
apart so that ``future.py`` itself needs neither a loop nor asyncio.
"""

from __future__ import annotations

import asyncio


def new_waiter() -> asyncio.Future[None]:
    """A future of the running loop. Raises RuntimeError where no loop runs."""
    return asyncio.get_running_loop().create_future()


def wake(waiter: asyncio.Future[None]) -> None:
    """Let the waiter go on, unless it was cancelled meanwhile."""
    if not waiter.done():
        waiter.set_result(None)
