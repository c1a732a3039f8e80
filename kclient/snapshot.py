"""``Snapshot``: base of the values of ``health()``, which turn into plain JSON. Sans-IO."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from kclient.types import TopicPartition


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
