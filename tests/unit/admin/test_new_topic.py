"""NewTopic and the other arguments of Admin check themselves and name the field."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pytest

from kclient.admin import NewTopic, arguments
from kclient.errors import InvalidArgument
from kclient.types import OffsetSpec, TopicPartition

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": ".."}, "name"),
        ({"name": "x" * 250}, "name"),
        ({"name": 5}, "name"),
        ({"partitions": 0}, "partitions"),
        ({"partitions": -1}, "partitions"),
        ({"partitions": True}, "partitions"),
        ({"partitions": 1.0}, "partitions"),
        ({"partitions": 2**31}, "partitions"),
        ({"replication_factor": 0}, "replication_factor"),
        ({"replication_factor": 40_000}, "replication_factor"),
        ({"configs": [("a", "b")]}, "configs"),
        ({"configs": {1: "b"}}, "configs"),
        ({"configs": {"": "b"}}, "configs"),
        ({"configs": {"a": ["b"]}}, r"configs\['a'\]"),
        ({"assignments": []}, "assignments"),
        ({"assignments": [[]]}, r"assignments\[0\]"),
        ({"assignments": [[1, 1]]}, r"assignments\[0\]"),
        ({"assignments": [[1], [-1]]}, r"assignments\[1\]"),
        ({"assignments": [["1"]]}, r"assignments\[0\]"),
        ({"assignments": [[[1]]]}, r"assignments\[0\]"),
        ({"assignments": [1, 2]}, "assignments"),
        ({"assignments": [[1, 2], [1]]}, r"assignments\[1\]"),
        ({"assignments": [[1]], "partitions": 2}, "partitions"),
        ({"assignments": [[1]], "replication_factor": 2}, "replication_factor"),
    ],
)
def test_a_field_that_can_not_be_right_is_refused_by_name(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        NewTopic(**{"name": "orders", **fields})


def test_the_same_numbers_beside_assignments_are_fine() -> None:
    topic = NewTopic("t", 2, 1, assignments=[[1], [2]])
    assert topic.assignments == ((1,), (2,))
    assert not topic.needs_defaults


def test_configs_are_written_as_kafka_writes_them() -> None:
    topic = NewTopic("t", configs={"a": True, "b": False, "c": 5, "d": 0.5, "e": "x", "f": None})
    assert topic.configs == {"a": "true", "b": "false", "c": "5", "d": "0.5", "e": "x"}


def test_defaults_fill_only_what_is_open() -> None:
    assert NewTopic("t").needs_defaults
    assert NewTopic("t", 3).needs_defaults
    assert not NewTopic("t", 3, 1).needs_defaults
    filled = NewTopic("t", 3, configs={"a": 1}).with_defaults(9, 2)
    assert (filled.partitions, filled.replication_factor) == (3, 2)
    assert filled.configs == {"a": "1"}
    assert not filled.needs_defaults


def test_can_be_pickled_and_compared() -> None:
    topic = NewTopic("t", 1, 1, {"a": 1})
    assert pickle.loads(pickle.dumps(topic)) == topic
    assigned = NewTopic("t", assignments=[[1]])
    assert pickle.loads(pickle.dumps(assigned)) == assigned


def test_topics_to_create_are_new_topics_each_once() -> None:
    one, two = NewTopic("a"), NewTopic("b")
    assert arguments.new_topics(iter([one, two])) == {"a": one, "b": two}
    for bad in (one, "a", ["a"], [one, NewTopic("a", 3)]):
        with pytest.raises(InvalidArgument, match="topics"):
            arguments.new_topics(bad)  # type: ignore[arg-type]


def test_topic_refs_are_names_and_ids_each_once() -> None:
    topic_id = b"x" * 16
    assert arguments.topic_refs(["a", topic_id, "a"]) == ["a", topic_id]
    for bad in ("a", topic_id, [b"short"], [bytes(16)], ["a b"], [None]):
        with pytest.raises(InvalidArgument, match="topics"):
            arguments.topic_refs(bad)  # type: ignore[arg-type]


def test_totals_are_counts_and_assignments_fit_them() -> None:
    assert arguments.totals({"a": 2}, {"a": [[1]]}) == ({"a": 2}, {"a": ((1,),)})
    assert arguments.totals({"a": 2}, None) == ({"a": 2}, {})
    bad: list[tuple[Any, Any]] = [
        (["a"], None),
        ({"a": 0}, None),
        ({"a": True}, None),
        ({"a b": 2}, None),
        ({"a": 2}, {"b": [[1]]}),
        ({"a": 2}, {"a": [[]]}),
    ]
    for counts, assignments in bad:
        with pytest.raises(InvalidArgument, match=r"totals|assignments"):
            arguments.totals(counts, assignments)


def test_times_become_milliseconds() -> None:
    when = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    checked = arguments.offset_specs({T0: when, TopicPartition("t", 1): OffsetSpec.LATEST})
    assert checked == {T0: 1_356_998_400_000, TopicPartition("t", 1): OffsetSpec.LATEST}


@pytest.mark.parametrize(
    "specs",
    [
        [T0],
        {"t": OffsetSpec.LATEST},
        {("t", -1): OffsetSpec.LATEST},
        {("t", True): OffsetSpec.LATEST},
        {("a b", 0): OffsetSpec.LATEST},
    ],
)
def test_partitions_to_look_up_are_checked(specs: Any) -> None:
    with pytest.raises(InvalidArgument, match="specs"):
        arguments.offset_specs(specs)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="time zone"):
        arguments.offset_specs({T0: datetime.datetime(2013, 1, 1)})
