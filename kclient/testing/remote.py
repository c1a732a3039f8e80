"""Stand-ins for objects that belong to the loop of another thread.

``ThreadedCluster`` is one for its cluster. Whatever is asked of a stand-in happens in the loop,
and the caller waits. Live objects of this room that come back (faults, brokers, logs) come as
stand-ins, too; values come as they are. It finds attributes by name, since it must have all that
the real ones have, today's and tomorrow's; type checkers see the real classes.
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

from kclient.errors import KafkaError
from kclient.frozen import Frozen
from kclient.testing.controller import Tally
from kclient.testing.loop_thread import LoopThread

_VALUES = (enum.Enum, BaseException, tuple, Frozen, Tally)
"""A ``Tally`` is a copy when a test gets it."""
_ROOM = __name__.rpartition(".")[0] + "."


class Remote:
    """A stand-in for ``target``, which is touched in the loop only."""

    __slots__ = ("_target", "_thread")

    def __init__(self, target: object, thread: LoopThread) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_thread", thread)

    def _ask(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        arguments = [_unwrapped(one) for one in args]
        named = {name: _unwrapped(one) for name, one in kwargs.items()}
        return self._wrapped(self._thread.call(function, *arguments, **named))

    def _wrapped(self, value: Any) -> Any:
        if _is_live(value):
            return Remote(value, self._thread)
        kind = type(value)
        if kind is list or kind is tuple:
            return kind(self._wrapped(one) for one in value)
        if kind is dict or kind is MappingProxyType:
            return {key: self._wrapped(one) for key, one in value.items()}
        if inspect.ismethod(value) and _is_live(value.__self__):
            return self._method(value)
        return value

    def _method(self, method: Any) -> Callable[..., Any]:
        @functools.wraps(method)
        def ask(*args: Any, **kwargs: Any) -> Any:
            return self._ask(method, *args, **kwargs)

        return ask

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self._target).__name__} keeps {name!r} to itself")
        if inspect.isfunction(getattr(type(self._target), name, None)):
            return self._method(getattr(self._target, name))  # nothing runs until it is called
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


def _entered(target: Any) -> Any:
    return target.__enter__()


def _left(target: Any, *error: Any) -> Any:
    return target.__exit__(*error)


def _unwrapped(value: Any) -> Any:
    return value._target if isinstance(value, Remote) else value


def _is_live(value: object) -> bool:
    """An object of this room that changes: no value, no copy, no member of an enum, no class."""
    kind = type(value)
    if not kind.__module__.startswith(_ROOM) or isinstance(value, _VALUES):
        return False
    settings = getattr(kind, "__dataclass_params__", None)
    return settings is None or not settings.frozen
