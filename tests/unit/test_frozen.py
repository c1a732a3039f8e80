"""frozen: immutable values; no method but their __init__ is compiled for them."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from kclient.backoff import Backoff
from kclient.frozen import Frozen, frozen


@frozen
class Point(Frozen):
    x: int
    y: int = 2
    cache: dict[str, int] | None = dataclasses.field(default=None, compare=False, repr=False)


@frozen
class Other(Frozen):
    x: int
    y: int = 2


def test_values_are_equal_by_class_and_compared_fields() -> None:
    assert Point(1) == Point(1, 2, {"a": 1})
    assert hash(Point(1)) == hash(Point(1, 2, {"a": 1}))
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 2)


def test_fields_can_not_be_changed_deleted_or_made_up() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        point.x = 5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="'y'"):
        del point.y
    with pytest.raises(AttributeError, match="z"):
        point.z = 5  # type: ignore[attr-defined]
    assert (point.x, point.y) == (1, 2)


def test_a_method_can_not_be_replaced_on_an_instance() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Backoff(1.0, 2.0).delay = None  # type: ignore[assignment, method-assign]


def test_they_show_copy_pickle_and_replace_as_dataclasses_do() -> None:
    point = Point(1, 3, {"a": 1})
    assert repr(point) == "Point(x=1, y=3)"
    pickled = [pickle.loads(pickle.dumps(point, protocol)) for protocol in range(6)]
    for twin in (copy.copy(point), copy.deepcopy(point), *pickled):
        assert twin == point
        assert twin.cache == {"a": 1}
    assert dataclasses.replace(point, y=7) == Point(1, 7)
    assert [field.name for field in dataclasses.fields(Point)] == ["x", "y", "cache"]
