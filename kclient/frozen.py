"""``frozen``: dataclasses that can't be changed, and cost little to import. Sans-IO.

What ``dataclasses.dataclass`` writes for each class is source, which is compiled at every import:
most of a client's import time that isn't asyncio's. Here that is ``__init__`` alone; the rest is
inherited from ``Frozen``. ``Snapshot`` is the base of the values of ``health()``, which turn into
plain JSON.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, dataclass_transform

from kclient.types import TopicPartition

T = TypeVar("T", bound="Frozen")


class Frozen:
    """Base of these classes: compared, hashed and shown by their fields, which are set once."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)
        shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields if one.repr)
        return f"{self.__class__.__qualname__}({shown})"

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> list[Any]:
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def __setstate__(self, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    def _values(self) -> tuple[Any, ...]:
        fields = dataclasses.fields(self)
        return tuple([getattr(self, one.name) for one in fields if one.compare])


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a subclass of ``Frozen`` a dataclass with slots."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(slots=True, eq=False, repr=False)
    return make(cls)


class Snapshot:
    """A frozen dataclass about the state of a client at one moment."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain JSON, for a health endpoint or a structured log line.

        Nested snapshots are dicts by field, with their ``ok`` where they have one. A partition is
        ``topic-partition``, as key and as value; sequences are lists, members of enums their
        names, floats that aren't finite None.

        Example::

            json.dumps(producer.health().to_dict())
        """
        shown = {
            field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)
        }
        ok = getattr(self, "ok", None)
        return shown if ok is None else {"ok": ok, **shown}


def _plain(value: object) -> Any:
    if isinstance(value, Snapshot):
        return value.to_dict()
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(each) for each in value), key=str)
    return str(value)
