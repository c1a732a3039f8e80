"""Record: an immutable value, the same in both builds."""

from __future__ import annotations

import copy
import datetime
import gc
import pickle
import types
from typing import Any

import pytest

from kclient.errors import InvalidArgument, SerializationFailed
from kclient.record.implementation import Implementation, load
from kclient.types import TimestampType, TopicPartition
from tests.unit.record.conftest import BUILDS

HEADERS = (("a", b"1"), ("b", None), ("a", b""))


def some_record(build: Implementation, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "topic": "flights",
        "partition": 3,
        "offset": 17,
        "timestamp": 1357016400123,
        "key": b"N14228",
        "value": b"UA1545",
        "headers": HEADERS,
        "timestamp_type": TimestampType.LOG_APPEND_TIME,
        "leader_epoch": 5,
    }
    return build.Record(**(fields | changes))


def test_it_shows_what_it_was_made_of(build: Implementation) -> None:
    record = some_record(build)
    assert record.topic == "flights"
    assert record.partition == 3
    assert record.offset == 17
    assert record.timestamp == 1357016400123
    assert record.key == b"N14228"
    assert record.value == b"UA1545"
    assert record.headers == HEADERS
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert record.leader_epoch == 5


def test_what_is_derived(build: Implementation) -> None:
    record = some_record(build)
    assert record.topic_partition == TopicPartition("flights", 3)
    assert record.datetime == datetime.datetime(2013, 1, 1, 5, 0, 0, 123000, tzinfo=datetime.UTC)
    assert record.size_bytes == 12
    assert some_record(build, key=None, value=None).size_bytes == 0


def test_what_may_be_left_out(build: Implementation) -> None:
    record = build.Record("t", 0, 1, 2, None, None)
    assert record.headers == ()
    assert record.timestamp_type is TimestampType.CREATE_TIME
    assert record.leader_epoch is None


@pytest.mark.parametrize("name", ["offset", "key", "value", "headers", "topic", "new"])
def test_nothing_of_it_can_be_set(build: Implementation, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(some_record(build), name, None)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "other"},
        {"partition": 4},
        {"offset": 18},
        {"timestamp": 0},
        {"key": None},
        {"value": b""},
        {"headers": ()},
        {"timestamp_type": TimestampType.CREATE_TIME},
        {"leader_epoch": None},
    ],
)
def test_equal_only_if_all_is_equal(build: Implementation, change: dict[str, Any]) -> None:
    assert some_record(build) == some_record(build)
    assert hash(some_record(build)) == hash(some_record(build))
    assert some_record(build) != some_record(build, **change)
    assert some_record(build) != "a record"


def test_repr_shows_where_it_is_from_and_not_all_of_a_long_value(build: Implementation) -> None:
    text = repr(some_record(build, value=b"x" * 5000))
    assert "topic='flights', partition=3, offset=17" in text
    assert "key=b'N14228'" in text
    assert "(5000 bytes)" in text
    assert len(text) < 300


def test_copies_and_pickles_are_equal(build: Implementation) -> None:
    record = load_current(some_record(build))
    assert copy.copy(record) == record
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(record, protocol)) == record


def load_current(record: Any) -> Any:
    """Return the same record in the build that pickles are read into."""
    return pickle.loads(pickle.dumps(record))


def test_a_pickle_does_not_name_the_build_that_made_it() -> None:
    made = [pickle.dumps(some_record(load(name))) for name in BUILDS]
    assert not any(b"batch" in data for data in made)
    assert len({pickle.loads(data) for data in made}) == 1


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("wrong", ["text", 5, bytearray(b"x")])
def test_key_and_value_must_be_bytes(build: Implementation, field: str, wrong: object) -> None:
    with pytest.raises(InvalidArgument, match=f"{field} must be bytes or None, not"):
        some_record(build, **{field: wrong})


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ((("a", "b"),), "the value of header 'a' must be bytes or None, not str"),
        (((b"a", b"b"),), "a header's name must be a str, not bytes"),
        ((("a",),), r"a header must be a \(name, value\) tuple"),
        (("ab",), r"a header must be a \(name, value\) tuple"),
        ((("\ud800", b""),), "can't be UTF-8"),
    ],
)
def test_headers_must_be_pairs_of_str_and_bytes(
    build: Implementation, headers: Any, text: str
) -> None:
    with pytest.raises(SerializationFailed, match=text):
        some_record(build, headers=headers)


def test_the_garbage_collector_does_not_track_compiled_records(build: Implementation) -> None:
    # no_gc, final and freelist are taken from the .py only; in a .pxd they would be ignored.
    tracked = gc.is_tracked(some_record(build))
    assert tracked == (build.name == "pure")


def test_key_and_value_are_fields_that_can_be_read_without_a_call(build: Implementation) -> None:
    # The interpreter reads members of a type by itself; a property, in C or not, is called.
    kinds = {type(getattr(build.Record, name)) for name in ("key", "value")}
    assert kinds == {property if build.name == "pure" else types.MemberDescriptorType}
    record = some_record(build)
    for name in ("key", "value", "offset"):
        with pytest.raises(AttributeError):
            setattr(record, name, b"other")
    assert (record.key, record.value) == (b"N14228", b"UA1545")
    assert "tombstone" in build.Record.value.__doc__


def test_a_compiled_record_is_small_and_final() -> None:
    for name in BUILDS:
        build = load(name)
        if name == "cython":
            assert some_record(build).__sizeof__() == 64
            with pytest.raises(TypeError, match="not an acceptable base type"):
                type("Sub", (build.Record,), {})
        assert not hasattr(some_record(build), "__dict__")
