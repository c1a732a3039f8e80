"""The requests that change topics, in every version: what is written, how responses are read."""

from __future__ import annotations

from typing import Any

import pytest

from kclient.admin.topics import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DefaultsNeeded,
    DeletedTopic,
    DeleteTopics,
    NewTopic,
)
from kclient.broker_errors import (
    InvalidPartitions,
    NotController,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from kclient.cluster.offset_lookup import broker_timeout_ms
from kclient.cluster.view import Cluster
from kclient.errors import NoCommonVersion, broker_error
from kclient.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kclient.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kclient.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

VIEW = Cluster()
ID = b"I" * 16


def create(*topics: NewTopic, validate_only: bool = False) -> CreateTopics:
    return CreateTopics({t.name: t for t in topics}, validate_only=validate_only)


def round_trip(request: Any, version: int) -> Any:
    return type(request).decode(request.encode(version), version)


@pytest.mark.parametrize(
    "version", range(CreateTopicsRequest.MIN_VERSION, CreateTopicsRequest.MAX_VERSION + 1)
)
def test_create_can_be_written_in_every_version(version: int) -> None:
    question = create(NewTopic("a", 3, 2, {"x": 1}), NewTopic("b", assignments=[[1, 2]]))
    again = round_trip(question.build(["a", "b"], version, VIEW, 10.0), version)
    a, b = again.topics
    assert (a.name, a.num_partitions, a.replication_factor) == ("a", 3, 2)
    assert [(c.name, c.value) for c in a.configs] == [("x", "1")]
    assert (b.num_partitions, b.replication_factor) == (-1, -1)
    assert [(x.partition_index, x.broker_ids) for x in b.assignments] == [(0, [1, 2])]
    assert again.timeout_ms == 8000


@pytest.mark.parametrize("version", [2, 3])
def test_open_numbers_are_not_for_old_controllers(version: int) -> None:
    with pytest.raises(DefaultsNeeded, match="partitions and replication_factor"):
        create(NewTopic("a", 1)).build(["a"], version, VIEW, 1.0)
    assert create(NewTopic("a", 1)).build(["a"], 4, VIEW, 1.0).topics[0].replication_factor == -1


def test_assignments_are_for_old_controllers_too() -> None:
    assert create(NewTopic("a", assignments=[[1]])).build(["a"], 2, VIEW, 1.0)


def test_validate_only_is_passed_on() -> None:
    assert create(NewTopic("a", 1, 1), validate_only=True).build(["a"], 7, VIEW, 1.0).validate_only


def test_created_topics_are_read_with_what_brokers_report() -> None:
    question = create(NewTopic("a"), NewTopic("b", 3, 2), NewTopic("c", assignments=[[1, 2]]))
    response = CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name="a",
                topic_id=ID,
                num_partitions=5,
                replication_factor=2,
                configs=[CreatableTopicConfigs(name="x", value="1")],
            ),
            CreatableTopicResult(name="b", num_partitions=-1, replication_factor=-1, configs=None),
            CreatableTopicResult(name="c", num_partitions=-1, replication_factor=-1, configs=None),
        ]
    )
    assert question.read(response, ["a", "b", "c"]) == {
        "a": CreatedTopic("a", ID, 5, 2, {"x": "1"}),
        "b": CreatedTopic("b", None, 3, 2),
        "c": CreatedTopic("c", None, 1, 2),
    }


def test_a_refused_topic_is_an_error_with_the_brokers_message() -> None:
    response = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="a", error_code=36, error_message="it is there")]
    )
    error = create(NewTopic("a", 1, 1)).read(response, ["a"])["a"]
    assert isinstance(error, TopicAlreadyExists)
    assert "topic a" in str(error)
    assert "it is there" in str(error)


@pytest.mark.parametrize(
    "version", range(DeleteTopicsRequest.MIN_VERSION, DeleteTopicsRequest.MAX_VERSION + 1)
)
def test_delete_by_name_can_be_written_in_every_version(version: int) -> None:
    again = round_trip(DeleteTopics().build(["a", "b"], version, VIEW, 1.0), version)
    names = again.topic_names if version < 6 else [t.name for t in again.topics]
    assert names == ["a", "b"]


def test_delete_by_id_needs_version_6() -> None:
    with pytest.raises(NoCommonVersion, match="by id"):
        DeleteTopics().build([ID], 5, VIEW, 1.0)
    again = round_trip(DeleteTopics().build([ID], 6, VIEW, 1.0), 6)
    assert [(t.name, t.topic_id) for t in again.topics] == [(None, ID)]


def test_deleted_topics_are_read_by_what_they_were_asked_by() -> None:
    response = DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name="a", topic_id=ID),
            DeletableTopicResult(name="b"),
            DeletableTopicResult(name="c", error_code=3),
        ]
    )
    found = DeleteTopics().read(response, ["a", "b", "c"])
    assert found["a"] == DeletedTopic("a", ID)
    assert found["b"] == DeletedTopic("b", None)
    assert isinstance(found["c"], UnknownTopicOrPartition)
    assert DeleteTopics().read(response, [ID])[ID] == DeletedTopic("a", ID)


@pytest.mark.parametrize(
    "version",
    range(CreatePartitionsRequest.MIN_VERSION, CreatePartitionsRequest.MAX_VERSION + 1),
)
def test_growing_can_be_written_in_every_version(version: int) -> None:
    question = CreatePartitions({"a": 3, "b": 4}, {"b": [[1], [2]]}, validate_only=True)
    again = round_trip(question.build(["a", "b"], version, VIEW, 1.0), version)
    a, b = again.topics
    assert (a.name, a.count, a.assignments) == ("a", 3, None)
    assert [x.broker_ids for x in b.assignments] == [[1], [2]]
    assert again.validate_only


def test_growth_is_read() -> None:
    question = CreatePartitions({"a": 3, "b": 1}, {}, validate_only=False)
    response = CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name="a"),
            CreatePartitionsTopicResult(name="b", error_code=37, error_message="has 3"),
        ]
    )
    found = question.read(response, ["a", "b"])
    assert found["a"] == 3
    assert isinstance(found["b"], InvalidPartitions)


def test_the_controllers_error_for_an_unknown_topic_is_final_and_a_move_is_not() -> None:
    assert DeleteTopics().is_final(broker_error(3))
    assert DeleteTopics().is_final(broker_error(100))
    assert not DeleteTopics().is_final(NotController("moved"))


def test_the_broker_gets_less_time_than_the_request() -> None:
    assert broker_timeout_ms(30.0) == 24_000
    assert broker_timeout_ms(0.0001) == 1
