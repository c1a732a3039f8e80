"""Describing and listing: requests, how responses are read; and from outcomes to results."""

from __future__ import annotations

import pytest

from kclient.admin import descriptions
from kclient.admin.admin import values_or_raise
from kclient.admin.descriptions import TopicDescription, TopicListing
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.cluster.view import Broker
from kclient.errors import NoCommonVersion, broker_error
from kclient.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from kclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = b"I" * 16


def said(name: str | None, count: int = 1, **fields: object) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        partitions=[
            MetadataResponsePartition(
                partition_index=n, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]
            )
            for n in range(count)
        ],
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("version", range(14))
def test_names_can_be_asked_for_in_every_version_without_creating_them(version: int) -> None:
    request = descriptions.request_for(["a"], version)
    again = MetadataRequest.decode(request.encode(version), version)
    assert [t.name for t in again.topics or []] == ["a"]
    assert again.allow_auto_topic_creation is (version < 4)


@pytest.mark.parametrize("version", range(14))
def test_all_topics_can_be_asked_for_in_every_version(version: int) -> None:
    request = descriptions.request_for_all(version)
    again = MetadataRequest.decode(request.encode(version), version)
    assert again.topics == ([] if version == 0 else None)


def test_ids_need_version_12() -> None:
    with pytest.raises(NoCommonVersion, match="topic id"):
        descriptions.request_for([ID], 11)
    request = descriptions.request_for([ID], 12)
    assert request.topics is not None
    assert (request.topics[0].name, request.topics[0].topic_id) == (None, ID)


def test_names_and_ids_go_apart_and_in_pieces() -> None:
    names = [f"t{n}" for n in range(1001)]
    pieces = list(descriptions.chunks([ID, *names]))
    assert [len(piece) for piece in pieces] == [500, 500, 1, 1]
    assert pieces[-1] == [ID]


def test_descriptions_are_read_by_what_they_were_asked_by() -> None:
    response = MetadataResponse(topics=[said("a", 2, topic_id=ID), said("b", 0, error_code=3)])
    found = descriptions.read_descriptions(response, ["a", "b"])
    described = found["a"]
    assert isinstance(described, TopicDescription)
    assert (described.name, described.topic_id, described.replication_factor) == ("a", ID, 2)
    assert [p.index for p in described.under_replicated] == [0, 1]
    assert described.offline == []
    assert isinstance(found["b"], UnknownTopicOrPartition)
    again = MetadataResponse(topics=[said("a", 2, topic_id=ID)])
    assert ID in descriptions.read_descriptions(again, [ID])


def test_listing_is_sorted_and_leaves_internal_and_broken_topics_out() -> None:
    def listed(internal: bool) -> list[TopicListing]:
        response = MetadataResponse(
            topics=[
                said("b", 3, topic_id=ID),
                said("a"),
                said("__consumer_offsets", is_internal=True),
                said("forbidden", 0, error_code=29),
            ]
        )
        steps = descriptions.listing_steps(response, internal=internal)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: list[TopicListing] = end.value
                return found

    assert listed(False) == [
        TopicListing("a", None, False, 1),
        TopicListing("b", ID, False, 3),
    ]
    assert [t.name for t in listed(True)] == ["__consumer_offsets", "a", "b"]


def test_both_apis_describe_the_cluster_alike() -> None:
    new = descriptions.cluster_from_describe_cluster(
        DescribeClusterResponse(
            cluster_id="c",
            controller_id=2,
            brokers=[
                DescribeClusterBroker(broker_id=2, host="b", port=2, rack="r"),
                DescribeClusterBroker(broker_id=1, host="a", port=1, rack=None),
            ],
        )
    )
    old = descriptions.cluster_from_metadata(
        MetadataResponse(
            cluster_id="c",
            controller_id=2,
            brokers=[
                MetadataResponseBroker(node_id=2, host="b", port=2, rack="r"),
                MetadataResponseBroker(node_id=1, host="a", port=1, rack=None),
            ],
        )
    )
    assert new == old
    assert new.brokers == (Broker(1, "a", 1), Broker(2, "b", 2, "r"))
    assert new.controller == Broker(2, "b", 2, "r")


def test_a_cluster_without_controller_has_none() -> None:
    found = descriptions.cluster_from_metadata(
        MetadataResponse(cluster_id=None, controller_id=-1, brokers=[])
    )
    assert (found.controller_id, found.controller, found.cluster_id) == (None, None, None)


def test_all_values_are_given() -> None:
    assert values_or_raise({"a": 1, "b": 2}) == {"a": 1, "b": 2}


def test_the_first_error_is_raised_with_notes_about_the_others() -> None:
    outcomes = {"a": 1, **{n: broker_error(3, f"topic {n}") for n in "bcdefghi"}}
    with pytest.raises(UnknownTopicOrPartition, match="topic b") as error:
        values_or_raise(outcomes)
    notes = error.value.__notes__
    assert "c failed, too" in notes[0]
    assert "2 more failed" in notes[-2]
    assert notes[-1] == "1 of 9 succeeded"
