"""Waits of tests, with a time-out whose text names what didn't come.

For ``request_log``, ``event_log`` and ``fault``. The callers create the futures and clean up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kclient.errors import RequestTimedOut
from kclient.testing.arguments import seconds_of

T = TypeVar("T")


def check_timeout(timeout: object) -> None:
    """Raise InvalidArgument if it is neither seconds nor None."""
    if timeout is not None:
        seconds_of("timeout", timeout)


def offer(future: asyncio.Future[T], value: T, condition: Callable[[T], bool] | None) -> None:
    """Resolve the future with ``value`` if the condition holds, or with what the condition raises.

    Any exception goes to the waiting test, also that of ``pytest.fail()``.
    """
    try:
        if condition is None or condition(value):
            future.set_result(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        future.set_exception(error)


async def waited(future: asyncio.Future[T], timeout: float | None, text: Callable[[], str]) -> T:
    """Return the future's result; after ``timeout`` seconds raise RequestTimedOut with that text.

    Cancellation: safe; it cancels the future.
    """
    try:
        async with asyncio.timeout(timeout):
            return await future
    except TimeoutError as error:
        # The result came at the same moment, or a function of the test raised the TimeoutError.
        if future.done() and not future.cancelled():
            return future.result()
        raise RequestTimedOut(text()) from error
