"""A broker's metadata image: placement of replicas, topics by name and id, partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.image import PartitionRegistration
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig
from tests.unit.testing.images import add, cluster


def test_leaders_are_placed_round_robin() -> None:
    assert cluster().place(4, 2) == [[1, 2], [2, 3], [3, 1], [1, 2]]


def test_growth_goes_on_where_it_stopped() -> None:
    assert cluster().place(2, 1, first=2) == [[3], [1]]


def test_racks_alternate() -> None:
    assert cluster(4, ("a", "a", "b", "b")).place(2, 2) == [[1, 3], [3, 2]]


def test_racks_of_unlike_sizes_alternate_as_long_as_they_can() -> None:
    assert cluster(4, ("a", "a", "a", "b")).place(1, 4) == [[1, 4, 2, 3]]


def test_brokers_that_are_down_come_last() -> None:
    image = cluster(down=(1,))
    assert image.place(2, 3) == [[2, 3, 1], [3, 2, 1]]
    assert image.place(1, 2) == [[2, 3]]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(ApiError) as caught:
        cluster().place(1, 4)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_no_broker_that_is_up_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        cluster(1, down=(1,)).place(1, 1)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_those_that_are_up_come_by_node_id() -> None:
    assert [one.node_id for one in cluster(4, down=(2,)).alive_brokers] == [1, 3, 4]


def test_a_partition_that_is_not_there_is_none() -> None:
    image = add(cluster(), "t", [1, 2])
    assert image.partition("t", 0) is image.topics["t"].partitions[0]
    assert image.partition("t", 1) is None
    assert image.partition("t", -1) is None
    assert image.partition("u", 0) is None


def test_a_topic_is_found_by_its_id_until_it_is_deleted() -> None:
    image = add(cluster(), "t", [1])
    topic = image.topics["t"]
    assert image.topic_by_id(topic.topic_id) is topic
    gone = image.without_topic(topic)
    assert gone.topic_by_id(topic.topic_id) is None
    assert "t" not in gone.topics
    assert image.topic_by_id(topic.topic_id) is topic, "an image was edited"


def test_a_topic_that_is_recreated_is_found_by_its_new_id_only() -> None:
    image = add(cluster(), "t", [1])
    old = image.topics["t"]
    again = image.without_topic(old).with_topics(replace(old, topic_id=b"2" * 16))
    assert again.topic_by_id(old.topic_id) is None
    assert again.topic_by_id(b"2" * 16) is again.topics["t"]


def test_changed_partitions_leave_all_others_the_same() -> None:
    image = add(add(cluster(), "t", [1, 2], [2, 3]), "u", [3])
    changed = replace(image.topics["t"].partitions[1], leader=3)
    after = image.with_partitions([changed])
    assert after.partition("t", 1) is changed
    assert after.partition("t", 0) is image.partition("t", 0)
    assert after.topics["u"] is image.topics["u"]
    assert image.topics["t"].partitions[1].leader == 2, "an image was edited"
    assert [(one.topic, one.index) for one in after.partitions()] == [
        ("t", 0),
        ("t", 1),
        ("u", 0),
    ]


def test_a_broker_that_is_unregistered_is_not_placed_on() -> None:
    image = cluster().without_broker(3)
    assert sorted(image.brokers) == [1, 2]
    assert image.place(1, 2, first=1) == [[2, 1]]


@pytest.mark.parametrize(
    ("wanted", "replicas", "isr", "enough"),
    [
        ("1", (1, 2, 3), (1,), True),
        ("2", (1, 2, 3), (1,), False),
        ("2", (1, 2, 3), (1, 3), True),
        ("3", (1, 2), (1, 2), True),  # bounded by the number of replicas (KIP-966)
        ("3", (1, 2), (1,), False),
        ("1", (1, 2), (), False),
    ],
)
def test_min_isr(
    wanted: str, replicas: tuple[int, ...], isr: tuple[int, ...], enough: bool
) -> None:
    config = TopicConfig({"min.insync.replicas": wanted}, cluster().config.topic_defaults)
    assert PartitionRegistration("t", 0, replicas, isr, 1).has_min_isr(config) is enough
