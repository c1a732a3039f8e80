"""The cluster's values: what they report, and that they are replaced instead of edited."""

from __future__ import annotations

import dataclasses

import pytest

from kclient.cluster.topic import NO_TOPIC_ID, Partition, Replica
from kclient.cluster.view import Broker, Cluster
from kclient.errors import InvalidArgument
from kclient.types import TopicPartition
from tests.support.views import (
    topic_of,
    view_of,
    with_brokers,
    with_partition,
    with_topic,
    without_topic,
)

ID = bytes(range(16))


def partition(index: int = 0, **fields: object) -> Partition:
    values = {
        "leader": 1,
        "leader_epoch": 7,
        "replicas": (1, 2, 3),
        "isr": (1, 2),
        "offline_replicas": (3,),
    }
    return Partition("orders", index, **{**values, **fields})  # type: ignore[arg-type]


def cluster() -> Cluster:
    return view_of(
        [Broker(1, "a", 9092), Broker(2, "b", 9092, "east")],
        [topic_of("orders", [partition(0), partition(1, leader=None, isr=())], topic_id=ID)],
        cluster_id="c",
        controller_id=2,
    )


class TestBroker:
    def test_connection_string_is_host_and_port(self) -> None:
        assert Broker(1, "kafka-1.example", 9092).connection_string == "kafka-1.example:9092"

    def test_connection_string_puts_ipv6_in_brackets(self) -> None:
        assert Broker(1, "2001:db8::1", 9093).connection_string == "[2001:db8::1]:9093"

    def test_names_its_id_and_address(self) -> None:
        assert str(Broker(4, "::1", 9092)) == "broker 4 at [::1]:9092"

    def test_is_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            Broker(1, "a", 1).port = 2  # type: ignore[misc]


class TestPartition:
    def test_with_fewer_in_sync_than_assigned_is_under_replicated(self) -> None:
        assert partition().under_replicated
        assert not partition(isr=(3, 2, 1)).under_replicated

    def test_without_leader_is_offline(self) -> None:
        assert partition(leader=None).offline
        assert not partition(leader=0).offline

    def test_replica_states_show_leader_isr_and_offline(self) -> None:
        assert partition(log_end_offset=10).replica_states == (
            Replica(1, is_leader=True, in_sync=True, log_end_offset=10),
            Replica(2, in_sync=True),
            Replica(3, offline=True),
        )

    def test_replica_looks_one_up(self) -> None:
        assert partition().replica(2) == Replica(2, in_sync=True)
        assert partition().replica(9) is None

    def test_preferred_leader_is_the_first_assigned(self) -> None:
        assert partition(replicas=(3, 1)).preferred_leader == 3
        assert partition(replicas=()).preferred_leader is None

    def test_uncommitted_is_what_lies_behind_the_high_watermark(self) -> None:
        assert partition(high_watermark=90, log_end_offset=100).uncommitted == 10
        assert partition().uncommitted is None

    def test_high_watermark_past_the_log_end_is_refused(self) -> None:
        with pytest.raises(InvalidArgument, match=r"high_watermark 11 of orders-0 .* 10"):
            partition(high_watermark=11, log_end_offset=10)

    def test_names_itself(self) -> None:
        assert str(partition(3)) == "orders-3"
        assert partition(3).topic_partition == TopicPartition("orders", 3)


class TestTopic:
    def test_keeps_every_field_of_its_partitions(self) -> None:
        given = [partition(1), partition(0, error=5, leader=None)]
        topic = topic_of("orders", given)
        assert list(topic.partitions) == sorted(given, key=lambda p: p.index)

    def test_partitions_are_a_sequence(self) -> None:
        topic = topic_of("orders", [partition(0), partition(1), partition(2)])
        assert len(topic.partitions) == 3
        assert topic.partitions[-1].index == 2
        assert [p.index for p in topic.partitions[1:]] == [1, 2]
        assert topic.partitions == [partition(0), partition(1), partition(2)]
        with pytest.raises(IndexError):
            topic.partitions[3]
        with pytest.raises(IndexError):
            topic.partition(-1)

    def test_equal_content_is_equal(self) -> None:
        assert topic_of("a", [], topic_id=ID) == topic_of("a", [], topic_id=ID)
        assert topic_of("a", [], topic_id=ID) != topic_of("a", [], topic_id=NO_TOPIC_ID)
        assert topic_of("orders", [partition()]) != topic_of("orders", [partition(leader_epoch=8)])

    def test_with_leader_clears_the_error_of_that_partition_only(self) -> None:
        topic = topic_of("orders", [partition(0, error=5), partition(1, error=5)])
        moved = topic.with_leader(0, 2, 8)
        assert (moved.partition(0).leader, moved.partition(0).leader_epoch) == (2, 8)
        assert moved.partition_errors == {1: 5}
        assert topic.partition(0).leader == 1


class TestCluster:
    def test_looks_up_leader_epoch_and_count(self) -> None:
        view = cluster()
        assert view.leader("orders", 0) == 1
        assert view.leader("orders", 1) is None
        assert view.leader_epoch("orders", 0) == 7
        assert view.partition_count("orders") == 2

    @pytest.mark.parametrize(("topic", "index"), [("orders", 2), ("orders", -1), ("no", 0)])
    def test_what_is_unknown_is_none_and_not_an_error(self, topic: str, index: int) -> None:
        view = cluster()
        assert view.leader(topic, index) is None
        assert view.leader_epoch(topic, index) == -1

    def test_an_unknown_topic_has_no_partitions(self) -> None:
        assert cluster().partition_count("no") is None
        assert list(cluster().partitions_of("no")) == []
        assert cluster().topic("no") is None
        assert cluster().topic_error("no") == 0

    def test_topic_with_an_error_has_no_count(self) -> None:
        view = with_topic(cluster(), topic_of("bad", error=29))
        assert view.partition_count("bad") is None
        assert view.topic_error("bad") == 29

    def test_reports_whether_a_topic_is_led_alike(self) -> None:
        view, name = cluster(), "orders"
        assert view.has_same_leaders(cluster(), name)
        assert view.has_same_leaders(with_partition(view, partition(0, isr=(1,))), name)
        assert not view.has_same_leaders(with_partition(view, partition(0, leader=2)), name)
        assert not view.has_same_leaders(with_partition(view, partition(0, leader_epoch=8)), name)
        assert not view.has_same_leaders(with_partition(view, partition(2)), name)
        assert not view.has_same_leaders(without_topic(view, name), name)
        assert not without_topic(view, name).has_same_leaders(view, name)
        assert without_topic(view, name).has_same_leaders(without_topic(view, name), name)
        anew = topic_of(name, [partition(0), partition(1, leader=None, isr=())])
        assert not view.has_same_leaders(with_topic(view, anew), name)

    def test_looks_up_topic_ids(self) -> None:
        view = with_topic(cluster(), topic_of("old", [Partition("old", 0)]))
        assert view.topic_id("orders") == ID
        assert view.topic_id("old") is None

    def test_counts_the_partitions_of_all_topics(self) -> None:
        assert with_partition(cluster(), Partition("new", 0)).partition_total == 3

    def test_maps_can_not_be_edited(self) -> None:
        with pytest.raises(TypeError):
            cluster().brokers[3] = Broker(3, "c", 1)  # type: ignore[index]

    def test_equality_is_of_content_not_version(self) -> None:
        view = cluster()
        again = with_brokers(view, view.brokers)
        assert again == view
        assert again.version != view.version
        assert with_brokers(view, {}) != view
