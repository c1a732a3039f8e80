"""Snapshots of health become plain JSON, whatever their fields hold."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from kclient.frozen import Frozen, Snapshot, frozen
from kclient.types import IsolationLevel, TopicPartition

TP = TopicPartition("flights", 3)


class Color(enum.Enum):
    RED = "a sentence about red"


@dataclass(frozen=True, slots=True)
class Inner(Snapshot):
    value: Any

    @property
    def ok(self) -> bool:
        return False


@frozen
class Outer(Snapshot, Frozen):
    inner: Inner
    parts: Mapping[TopicPartition, Inner]
    listed: Sequence[Inner] = field(default=())


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (0.5, 0.5),
        (math.inf, None),
        (math.nan, None),
        ("text", "text"),
        (Color.RED, "RED"),
        (IsolationLevel.READ_COMMITTED, "READ_COMMITTED"),
        (TP, "flights-3"),
        ((TP, 1), ["flights-3", 1]),
        ({"b", "a"}, ["a", "b"]),
        (MappingProxyType({TP: (1,), Color.RED: 2, 3: 4}), {"flights-3": [1], "RED": 2, "3": 4}),
        (ValueError("why"), "why"),
    ],
)
def test_every_kind_of_value_is_plain(value: object, plain: object) -> None:
    reported = Inner(value).to_dict()
    assert reported == {"ok": False, "value": plain}
    assert json.loads(json.dumps(reported, allow_nan=False)) == reported


def test_nested_snapshots_are_dicts_by_field() -> None:
    one = {"ok": False, "value": 1}
    reported = Outer(Inner(1), {TP: Inner(1)}, (Inner(1),)).to_dict()
    assert reported == {"inner": one, "parts": {"flights-3": one}, "listed": [one]}
