"""RunOptions: the checked arguments of ``Consumer.run``. A value, sans-IO.

``Consumer.run`` makes it of its arguments, ``run`` works by it. Each check names the argument, the
value given and what is allowed.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

from kclient.consumer.dead_letters import unfit
from kclient.consumer.handlers.retries import Policy, Retries, RetryTopic
from kclient.consumer.handlers.tracker import Ordering
from kclient.durations import call_timeout
from kclient.errors import InvalidArgument, a_or_an
from kclient.frozen import Frozen, frozen
from kclient.types import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable

ASYNC = (
    "make it an `async def`; what blocks goes to a thread: `await asyncio.to_thread(work, record)`"
)


@frozen
class RunOptions(Frozen):
    """How records are handled.

    Attributes:
        concurrency: Handlers at the same time.
        ordering: What must not be overtaken.
        policy: What follows a failure.
        max_in_flight: Records that are taken and not finished; None goes by the others.
        drain_timeout: Seconds that running handlers are given when they have to end.
    """

    concurrency: int
    ordering: Ordering
    policy: Policy
    max_in_flight: int | None
    drain_timeout: float


def planned(
    concurrency: object,
    ordering: object,
    retries: object,
    retry_topics: Iterable[object],
    dead_letter_topic: object,
    max_in_flight: object,
    drain_timeout: object,
) -> RunOptions:
    """Make a plan of the arguments of ``run``.

    Raises:
        InvalidArgument: An argument can't work.
    """
    if retries is not None and not isinstance(retries, Retries):
        raise InvalidArgument(f"retries must be a kclient.Retries or None, not {retries!r}")
    topics = _retry_topics(retry_topics)
    last = None
    if dead_letter_topic is not None:
        last = check_topic_name(dead_letter_topic, "dead_letter_topic")
        if any(one.topic == last for one in topics):
            raise InvalidArgument(f"{last!r} can't be a retry topic and the dead-letter topic, too")
    return RunOptions(
        _count("concurrency", concurrency),
        _ordering(ordering),
        Policy(retries or Retries(), topics, last),
        None if max_in_flight is None else _count("max_in_flight", max_in_flight),
        call_timeout(drain_timeout, name="drain_timeout", finite=True),
    )


def checked_handler(handler: Any) -> None:
    """Refuse a handler that isn't an async function of one record.

    A ``def`` without ``async`` is only accepted if its annotation has a return type. Anything else
    that can be called, a lambda, a partial or an object, is checked by its first call.

    Raises:
        InvalidArgument: With what is allowed.
    """
    if not callable(handler) or isinstance(handler, type):
        raise InvalidArgument(
            f"the handler must be an async function of one record, not {handler!r}",
            hint="`async def handle(record): ...`",
        )
    called = _function_of(handler)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidArgument(
            "the handler is a generator function: it would never run", hint="leave out the `yield`"
        )
    # Only names: a default or what a partial holds may be a secret.
    name = getattr(handler, "__qualname__", type(handler).__name__).rpartition(".")[2]
    if _is_plain(called):
        raise InvalidArgument(
            f"the handler {name}() must be an async function of one record", hint=ASYNC
        )
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError, NameError):
        return  # one without a signature is accepted
    try:
        signature.bind(None)
    except TypeError:
        raise InvalidArgument(
            f"the handler {name}({', '.join(signature.parameters)}) can't be used: allowed is an "
            "async function of one record",
            hint="bind what else it needs: `functools.partial(handle, database)`",
        ) from None


def _function_of(handler: Any) -> Any:
    """The function inside of a partial, a method or a decorator; other objects unchanged."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.unwrap(getattr(handler, "__func__", handler))


def _is_plain(called: Any) -> bool:
    """Whether it is a ``def`` without ``async`` and without a return annotation."""
    if type(called) is not types.FunctionType or inspect.iscoroutinefunction(called):
        return False
    if getattr(called, "_is_coroutine", None) is not None:  # set by mocks of async functions
        return False
    try:
        annotation = called.__annotations__.get("return")
    except NameError:  # names for type checkers only, from Python 3.14 on
        return False
    return called.__name__ != "<lambda>" and annotation in (None, "None")


def checked_producer(producer: Any, plan: RunOptions) -> None:
    """Refuse a producer that can't send, and the lack of one where it is needed.

    Raises:
        InvalidArgument: With the reason.
    """
    if producer is None:
        if plan.policy.topics:
            raise InvalidArgument(
                "a retry topic or a dead-letter topic needs a producer",
                hint="give run() one without serializers: `producer=producer`",
            )
    elif isinstance(producer, type) or not callable(getattr(producer, "send", None)):
        raise InvalidArgument(f"producer must have a method send(), not be {producer!r}")
    elif plan.policy.topics and (why := unfit(producer, running=True)) is not None:
        raise InvalidArgument(f"producer can't be used: {why}")


def _retry_topics(values: Iterable[object]) -> list[RetryTopic]:
    if isinstance(values, RetryTopic | str) or not hasattr(values, "__iter__"):
        raise InvalidArgument(f"retry_topics must be a sequence of RetryTopic, not {values!r}")
    topics = []
    for value in values:
        if not isinstance(value, RetryTopic):
            raise InvalidArgument(f"retry_topics must hold RetryTopic values, not {value!r}")
        topics.append(value)
    if len({one.topic for one in topics}) < len(topics):
        raise InvalidArgument("retry_topics names a topic twice", hint="give each delay its own")
    return topics


def _ordering(value: object) -> Ordering:
    for ordering in Ordering:
        if value == ordering.value:
            return ordering
    raise InvalidArgument(f"ordering must be 'partition', 'key' or 'none', not {value!r}")


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} must be an int, not {a_or_an(type(value).__name__)}")
    if value < 1:
        raise InvalidArgument(f"{name} must be at least 1, not {value}")
    return value
