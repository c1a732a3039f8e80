"""The cluster's values: what they say, and that they are replaced instead of edited."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from kclient.cluster.view import NO_TOPIC_ID, Broker, Cluster, Partition, Replica, Topic
from kclient.errors import InvalidArgument
from kclient.types import TopicPartition

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
    return Cluster.of(
        [Broker(1, "a", 9092), Broker(2, "b", 9092, "east")],
        [Topic("orders", [partition(0), partition(1, leader=None, isr=())], topic_id=ID)],
        cluster_id="c",
        controller_id=2,
    )


class TestBroker:
    def test_connection_string_is_host_and_port(self) -> None:
        assert Broker(1, "kafka-1.example", 9092).connection_string == "kafka-1.example:9092"

    def test_connection_string_puts_ipv6_in_brackets(self) -> None:
        assert Broker(1, "2001:db8::1", 9093).connection_string == "[2001:db8::1]:9093"

    def test_says_who_it_is(self) -> None:
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

    def test_replica_states_tell_leader_isr_and_offline(self) -> None:
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

    def test_offsets_are_put_in_later(self) -> None:
        found = partition().with_offsets(high_watermark=90, log_end_offset=100)
        assert (found.high_watermark, found.log_end_offset, found.uncommitted) == (90, 100, 10)
        assert partition().uncommitted is None

    def test_high_watermark_past_the_log_end_is_refused(self) -> None:
        with pytest.raises(InvalidArgument, match=r"high_watermark 11 of orders-0 .* 10"):
            partition(high_watermark=11, log_end_offset=10)

    def test_names_itself(self) -> None:
        assert str(partition(3)) == "orders-3"
        assert partition(3).topic_partition == TopicPartition("orders", 3)


class TestTopic:
    def test_keeps_every_field_of_its_partitions(self) -> None:
        given = [
            partition(1, high_watermark=1, log_end_offset=2),
            partition(0, error=5, leader=None),
        ]
        topic = Topic("orders", given)
        assert list(topic.partitions) == sorted(given, key=lambda p: p.index)

    def test_partitions_with_a_hole_are_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="orders"):
            Topic("orders", [partition(0), partition(2)])

    def test_partitions_are_a_sequence(self) -> None:
        topic = Topic("orders", [partition(0), partition(1), partition(2)])
        assert len(topic.partitions) == 3
        assert topic.partitions[-1].index == 2
        assert [p.index for p in topic.partitions[1:]] == [1, 2]
        assert topic.partitions == [partition(0), partition(1), partition(2)]
        with pytest.raises(IndexError):
            topic.partitions[3]
        with pytest.raises(IndexError):
            topic.partition(-1)

    def test_equal_content_is_equal(self) -> None:
        assert Topic("a", [], topic_id=ID) == Topic("a", [], topic_id=ID)
        assert Topic("a", [], topic_id=ID) != Topic("a", [], topic_id=NO_TOPIC_ID)
        assert Topic("orders", [partition()]) != Topic("orders", [partition(leader_epoch=8)])
        assert hash(Topic("orders", [partition()])) == hash(Topic("orders", [partition()]))

    def test_with_leader_clears_the_error_of_that_partition_only(self) -> None:
        topic = Topic("orders", [partition(0, error=5), partition(1, error=5)])
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
        assert view.partition(topic, index) is None

    def test_an_unknown_topic_has_no_partitions(self) -> None:
        assert cluster().partition_count("no") is None
        assert list(cluster().partitions_of("no")) == []
        assert cluster().topic("no") is None
        assert cluster().topic_error("no") == 0

    def test_topic_with_an_error_has_no_count(self) -> None:
        view = cluster().with_topic(Topic("bad", error=29))
        assert view.partition_count("bad") is None
        assert view.topic_error("bad") == 29

    def test_tells_whether_a_topic_is_led_alike(self) -> None:
        view, name = cluster(), "orders"
        assert view.leads_like(cluster(), name)
        assert view.leads_like(view.with_partition(partition(0, isr=(1,))), name)
        assert not view.leads_like(view.with_partition(partition(0, leader=2)), name)
        assert not view.leads_like(view.with_partition(partition(0, leader_epoch=8)), name)
        assert not view.leads_like(view.with_partition(partition(2)), name)
        assert not view.leads_like(view.without_topic(name), name)
        assert not view.without_topic(name).leads_like(view, name)
        assert view.without_topic(name).leads_like(view.without_topic(name), name)
        anew = Topic(name, [partition(0), partition(1, leader=None, isr=())])
        assert not view.leads_like(view.with_topic(anew), name)

    def test_looks_up_topic_ids_both_ways(self) -> None:
        view = cluster().with_topic(Topic("old", [Partition("old", 0)]))
        assert view.topic_id("orders") == ID
        assert view.topic_name(ID) == "orders"
        assert view.topic_id("old") is None
        assert view.topic_name(NO_TOPIC_ID) is None

    def test_a_new_topic_is_found_by_id_in_the_new_view(self) -> None:
        view = cluster()
        assert view.topic_name(ID) == "orders"
        other = bytes(15) + b"\1"
        assert view.with_topic(Topic("late", topic_id=other)).topic_name(other) == "late"

    def test_adding_and_removing_gives_new_views(self) -> None:
        view = cluster()
        grown = view.with_broker(Broker(3, "c", 9092))
        assert sorted(grown.brokers) == [1, 2, 3]
        assert sorted(view.brokers) == [1, 2]
        assert grown.version == view.version + 1
        assert sorted(grown.without_broker(1).brokers) == [2, 3]
        assert "orders" not in view.without_topic("orders").topics
        assert "orders" in view.topics

    def test_with_partition_replaces_or_appends(self) -> None:
        view = cluster().with_partition(partition(1, leader=2, leader_epoch=9))
        assert view.leader("orders", 1) == 2
        view = view.with_partition(partition(2))
        assert view.partition_count("orders") == 3
        assert view.topic_id("orders") == ID
        assert view.with_partition(Partition("new", 0, leader=1)).leader("new", 0) == 1

    def test_lists_what_is_offline_under_replicated_and_led_by(self) -> None:
        view = cluster()
        assert [str(p) for p in view.offline] == ["orders-1"]
        assert [str(p) for p in view.under_replicated] == ["orders-0", "orders-1"]
        assert [str(p) for p in view.led_by(1)] == ["orders-0"]
        assert view.partition_total == 2

    def test_knows_its_controller(self) -> None:
        assert cluster().controller == Broker(2, "b", 9092, "east")
        assert cluster().with_controller(None).controller is None
        assert cluster().with_controller(9).controller is None

    def test_maps_can_not_be_edited(self) -> None:
        with pytest.raises(TypeError):
            cluster().brokers[3] = Broker(3, "c", 1)  # type: ignore[index]

    def test_survives_pickle_and_copy(self) -> None:
        view = cluster()
        assert pickle.loads(pickle.dumps(view)) == view
        assert copy.deepcopy(view) == view
        assert pickle.loads(pickle.dumps(view)).version == view.version

    def test_equality_is_of_content_not_version(self) -> None:
        view = cluster()
        again = view.with_broker(view.brokers[1])
        assert again == view
        assert again.version != view.version
        assert view.without_broker(1) != view
