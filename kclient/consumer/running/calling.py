"""Calling a handler: in a context of its own, without a task of its own.

A task per record costs five times what the call does, and a bare ``await`` would let what one
handler sets in context variables (a trace, a log's fields) show up in the next one's. So each call
has its context, and the worker that makes the call is told when the handler waits for something:
only then another worker is of use.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from kclient.errors import InvalidArgument, a_or_an

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

ASYNC = (
    "make it an `async def`; what blocks goes to a thread: `await asyncio.to_thread(work, record)`"
)


@types.coroutine
def called(
    context: Context, coroutine: Coroutine[Any, Any, Any], waits: Callable[[], object]
) -> Generator[Any, Any, None]:
    """Run ``coroutine`` in ``context`` to its end; ``waits()`` is called when it first suspends.

    Cancellation: the coroutine gets it.
    """
    run, send = context.run, coroutine.send
    try:
        asked = run(send, None)
    except StopIteration:
        return
    waits()
    step: Callable[[Any], Any]
    while True:
        try:
            answer = yield asked
        except GeneratorExit:
            run(coroutine.close)
            raise
        except BaseException as error:
            step, value = coroutine.throw, error
        else:
            step, value = send, answer
        try:
            asked = run(step, value)
        except StopIteration:
            return
        finally:
            del value


def coroutine_of(made: object) -> Coroutine[Any, Any, Any] | None:
    """What a handler's call gave, such as a task, as a coroutine; None if it can't be awaited."""
    if isinstance(made, types.CoroutineType):
        return made
    return _awaiting(made) if isinstance(made, Awaitable) else None


def not_async(made: object) -> InvalidArgument:
    """The error of a handler that gave ``made``."""
    return InvalidArgument(
        f"the handler of run() returned {a_or_an(type(made).__name__)}, which can't be awaited",
        hint=ASYNC,
    )


async def _awaiting(made: Awaitable[Any]) -> None:
    await made
