"""Waiting for what a test asked for, with a time-out that says what didn't come.

For ``request_log``, ``event_log`` and ``fault``. It makes no future, and whoever made it cleans up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kclient.errors import RequestTimedOut
from kclient.testing.arguments import seconds_of

T = TypeVar("T")


def check_timeout(timeout: object) -> None:
    """Raises InvalidArgument if it is neither seconds nor None."""
    if timeout is not None:
        seconds_of("timeout", timeout)


def offer(future: asyncio.Future[T], value: T, condition: Callable[[T], bool] | None) -> None:
    """Give ``value`` to whoever waits, if the condition holds, or what the condition raises.

    That is the waiting test's: ``pytest.fail()``, too.
    """
    try:
        if condition is None or condition(value):
            future.set_result(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        future.set_exception(error)


async def waited(future: asyncio.Future[T], timeout: float | None, text: Callable[[], str]) -> T:
    """The future's result; after ``timeout`` seconds RequestTimedOut, with that text.

    Cancellation: safe; it cancels the future.
    """
    try:
        async with asyncio.timeout(timeout):
            return await future
    except TimeoutError as error:
        # At the same moment, or it is what a function of the test raised.
        if future.done() and not future.cancelled():
            return future.result()
        raise RequestTimedOut(text()) from error
