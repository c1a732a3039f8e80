"""Checks of arguments for ``cluster.faults``, made at once: a fault that can't act misleads a test.

Used by ``faults.Faults`` and ``fault.Fault``. An invalid argument raises an ``InvalidArgument`` of
one line that names the argument and the allowed values.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.api_versions import API_NAMES, request_class
from kclient.testing.api_versions import VERSIONS, ApiName
from kclient.testing.arguments import did_you_mean, flag, is_number, is_whole, node_of, text, whole
from kclient.testing.request_info import REPLICA_ID, RequestInfo, names_partitions, names_topics

if TYPE_CHECKING:
    from kclient.testing.fault import Fault

T = TypeVar("T")
P = ParamSpec("P")

_FLAGS = {"after", "framed", "reset"}


class Where(TypedDict, total=False):
    """Which requests a fault is for; a key that is left out matches all, except ``replica``."""

    broker: int
    """Node id of the broker that gets the request, one that the cluster has. For one that is added
    later, ``when=lambda request: request.broker == 4``."""
    client_id: str
    """The id that the client sends."""
    topic: str
    """A topic that the request names, or that the session of a fetch contains; with ``error`` the
    fault is for the entries of that topic only. It need not exist yet."""
    partition: int
    """With ``topic``."""
    version: int
    """Of the API."""
    connection: int
    """Number of the connection, as in ``cluster.requests``; 0 for those of other brokers."""
    replica: int | Literal["any"]
    """Requests of this follower, by node id, or of ``"any"`` sender; left out: those of clients."""
    when: Callable[[RequestInfo], bool]
    """Any other condition, free of side effects: it may be called twice for a request."""


def called(function: object) -> str:
    """The name of a function, for texts."""
    return f"{getattr(function, '__name__', type(function).__name__)}()"


def counted(count: int, noun: str) -> str:
    """``1 time``, ``2 times``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


WORDS = tuple(sorted(Where.__annotations__))


def named(method: Callable[P, Fault]) -> Callable[P, Fault]:
    """Make a method of ``Faults`` refuse unknown keywords, and name its fault after it."""

    @functools.wraps(method)
    def make(*args: P.args, **kwargs: P.kwargs) -> Fault:
        check_words("faults", method, kwargs)
        for word in kwargs.keys() & _FLAGS:
            flag(word, kwargs[word])
        fault = method(*args, **kwargs)
        fault.name = method.__name__
        return fault

    return make


def check_words(owner: str, method: Callable[..., object], given: Iterable[str]) -> None:
    """Raise InvalidArgument if a method has no such keyword."""
    words = _words_of(method)
    for word in given:
        if word not in words:
            raise InvalidArgument(
                f"{owner}.{method.__name__}() takes no {word!r}{did_you_mean(word, words)}; "
                f"it takes {', '.join(words)}"
            )


@functools.cache
def _words_of(method: Callable[..., object]) -> list[str]:
    """The keywords of a method, looked up at its first call: not at import."""
    parameters = [*inspect.signature(method).parameters][1:]
    own = [one for one in parameters if one != "where"]
    return own if own == parameters else [*own, *WORDS]


# Single values


def api(method: str, value: ApiName | None) -> ApiName:
    """The API, for a method that can't act on all of them."""
    if value is None:
        raise InvalidArgument(
            f"faults.{method}() needs an API: what it does isn't the same for all"
        )
    return value


def number(name: str, value: object, words: str, holds: Callable[[float], bool]) -> float:
    """An int or float that is finite and for which ``holds`` is true."""
    if is_number(value) and math.isfinite(value) and holds(value):
        return value
    raise InvalidArgument(f"{name}={value!r} must be a number {words}")


def how_often(times: object) -> None:
    """Check ``times`` of a fault."""
    if times is not None and (not is_whole(times) or times < 1):
        raise InvalidArgument(f"times={times!r} must be an int of at least 1, or None for ever")


def raw(data: object) -> bytes:
    """Bytes."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise InvalidArgument(f"data={data!r} must be bytes")


def function(name: str, value: object, *, plain: bool = True) -> None:
    """Check that it can be called; with ``plain`` it must not be a coroutine function."""
    if not callable(value):
        raise InvalidArgument(f"{name}={value!r} must be a function")
    if plain and inspect.iscoroutinefunction(value):
        raise InvalidArgument(f"{name} must not be a coroutine function: on() takes those")


def one_of(name: str, value: object, allowed: Mapping[str, T]) -> T:
    """The value that one of the allowed words stands for."""
    if isinstance(value, str) and value in allowed:
        return allowed[value]
    raise InvalidArgument(
        f"{name}={value!r} must be one of {', '.join(allowed)}{did_you_mean(value, allowed)}"
    )


def error_code(code: object) -> ErrorCode:
    """An error code for a response, also given by its number.

    Raises:
        InvalidArgument: It is NONE, or no code of Kafka's.
    """
    if not is_whole(code):
        near = did_you_mean(code, ErrorCode.__members__, "ErrorCode.{}")
        raise InvalidArgument(f"code={code!r} must be an ErrorCode{near}")
    if code == ErrorCode.NONE:
        raise InvalidArgument("code must not be ErrorCode.NONE, which is no error")
    try:
        return ErrorCode(code)
    except ValueError:
        raise InvalidArgument(
            f"code={code} is no error code of Kafka's: rewrite() can answer with any"
        ) from None


# Which requests


def check_where(key: int | None, where: Mapping[str, Any]) -> None:
    """Raise InvalidArgument if no request of that API (None for any) can match ``where``."""
    for name, value in where.items():
        if value is None:
            raise InvalidArgument(f"{name}=None matches nothing: leave it out for all")
    for name in where.keys() & {"client_id", "topic"}:
        text(name, where[name])
    for name, least in (("broker", None), ("partition", 0), ("connection", 0), ("version", 0)):
        if name in where:
            whole(name, where[name], least)
    if "when" in where:
        function("when", where["when"])
    if where.get("topic") == "":
        raise InvalidArgument("topic must not be empty")
    if "partition" in where and "topic" not in where:
        raise InvalidArgument("partition needs topic")
    if "replica" in where and where["replica"] != "any":
        _check_replica(key, where["replica"], where.get("broker"))
    if key is not None:
        _check_api(key, where)


def _check_replica(key: int | None, replica: object, broker: object) -> None:
    if not is_whole(replica) or replica < 1:
        raise InvalidArgument(f"replica={replica!r} must be a follower's node id, or 'any'")
    if key is not None and key not in REPLICA_ID:
        those = ", ".join(API_NAMES[one] for one in REPLICA_ID)
        raise InvalidArgument(f"replica: followers send {those}, and no {API_NAMES[key]}")
    if broker == replica:
        raise InvalidArgument(f"broker {replica} is no follower of itself: replica={replica}")


def _check_api(key: int, where: Mapping[str, Any]) -> None:
    kind, name, (least, most) = request_class(key), API_NAMES[key], VERSIONS[key]
    if not least <= where.get("version", least) <= most:
        raise InvalidArgument(
            f"version={where['version']}: {name} is served in versions {least} to {most}"
        )
    if "topic" in where and not names_topics(kind):
        raise InvalidArgument(f"topic: {name} names no topics")
    if "partition" in where and not names_partitions(kind):
        raise InvalidArgument(f"partition: {name} names no partitions")


def check_brokers(where: Mapping[str, Any], node_ids: Collection[int]) -> None:
    """Raise InvalidArgument if it names a broker that the cluster doesn't have."""
    for name in ("broker", "replica"):
        value = where.get(name)
        if value not in (None, "any"):
            node_of(name, value, node_ids)
