"""Cluster state: placement, elections, in-sync replicas, topic ids."""

from __future__ import annotations

import random

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.log import ENDLESS_BYTES
from kclient.testing.refused import Refused
from kclient.testing.state import NO_LEADER, BrokerState, ClusterState, PartitionState
from tests.unit.testing.batches import stored


def cluster(brokers: int = 3, racks: tuple[str | None, ...] = ()) -> ClusterState:
    state = ClusterState(BrokerConfig({}), random.Random(1))
    for node_id in range(1, brokers + 1):
        rack = racks[node_id - 1] if racks else None
        state.brokers[node_id] = BrokerState(node_id, "127.0.0.1", rack)
        state.broker_up(node_id)
    return state


def add(state: ClusterState, *assignments: list[int]) -> list[PartitionState]:
    return state.add_topic("t", assignments, state.topic_config({})).partitions


def facts(partition: PartitionState) -> tuple[int, int, list[int]]:
    return partition.leader, partition.leader_epoch, partition.isr


def test_leaders_take_turns() -> None:
    assert cluster().place(4, 2) == [[1, 2], [2, 3], [3, 1], [1, 2]]


def test_growth_goes_on_where_it_stopped() -> None:
    assert cluster().place(2, 1, first=2) == [[3], [1]]


def test_racks_alternate() -> None:
    state = cluster(4, ("a", "a", "b", "b"))
    assert state.place(2, 2) == [[1, 3], [3, 2]]


def test_brokers_that_are_down_come_last() -> None:
    state = cluster()
    state.broker_down(1)
    assert state.place(2, 3) == [[2, 3, 1], [3, 2, 1]]
    assert state.place(1, 2) == [[2, 3]]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(Refused, match="replication factor of 4 cannot be reached") as caught:
        cluster().place(1, 4)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_no_broker_that_is_up_is_refused() -> None:
    state = cluster(1)
    state.broker_down(1)
    with pytest.raises(Refused, match="fenced"):
        state.place(1, 1)


def test_a_new_partition_is_led_by_its_first_replica_that_is_up() -> None:
    state = cluster()
    state.broker_down(2)
    assert facts(add(state, [2, 3])[0]) == (3, 0, [3])


def test_a_broker_that_goes_hands_over_and_leaves_the_isr() -> None:
    state = cluster()
    one, two = add(state, [1, 2, 3], [2, 3, 1])
    state.broker_down(1)
    assert facts(one) == (2, 1, [2, 3])
    assert facts(two) == (2, 0, [2, 3])
    assert state.controller_id == 2


def test_a_broker_that_comes_back_is_in_sync_and_leads_nothing() -> None:
    state = cluster()
    (one,) = add(state, [1, 2, 3])
    state.broker_down(1)
    state.broker_up(1)
    assert facts(one) == (2, 1, [1, 2, 3])


def test_the_last_one_in_sync_leads_when_it_is_back_and_nobody_else() -> None:
    state = cluster(2)
    (one,) = add(state, [1, 2])
    state.broker_down(1)
    state.broker_down(2)
    assert facts(one) == (NO_LEADER, 2, [])
    assert (one.elr, one.last_known_elr) == ([2], [2])
    state.broker_up(1)
    assert facts(one) == (NO_LEADER, 2, [])
    state.broker_up(2)
    assert facts(one) == (2, 3, [2])
    assert (one.elr, one.last_known_elr) == ([], [])


def min_isr_2(state: ClusterState) -> PartitionState:
    config = state.topic_config({"min.insync.replicas": "2"})
    return state.add_topic("m", [[1, 2, 3]], config).partitions[0]


def test_below_min_isr_those_that_go_may_lead_again() -> None:
    state = cluster()
    one = min_isr_2(state)
    state.broker_down(3)
    assert (one.isr, one.elr) == ([1, 2], [])
    state.broker_down(2)
    assert (one.isr, one.elr) == ([1], [2])
    state.broker_down(1)
    assert (one.leader, one.isr, one.elr) == (NO_LEADER, [], [1, 2])
    state.broker_up(3)
    assert one.leader == NO_LEADER
    state.broker_up(2)
    assert (one.leader, one.isr, one.elr) == (2, [2], [1])
    state.broker_up(1)
    assert (one.isr, one.elr) == ([1, 2], [])


def test_below_min_isr_readers_get_no_more_until_enough_are_back() -> None:
    state = cluster()
    one = min_isr_2(state)
    state.broker_down(2)
    state.broker_down(3)
    assert not one.has_min_isr
    one.append(stored(3), None)
    assert (one.log.end_offset, one.log.high_watermark) == (3, 0)
    state.broker_up(2)
    assert one.log.high_watermark == 3


def test_no_broker_up_means_no_controller() -> None:
    state = cluster(1)
    state.broker_down(1)
    assert state.controller_id == -1


def test_moving_a_leader_raises_the_epoch_and_wakes_readers() -> None:
    state = cluster()
    (one,) = add(state, [1, 2])
    heard: list[int] = []
    one.log.listen(heard.append)
    state.move_leader("t", 0, 2)
    assert facts(one) == (2, 1, [1, 2])
    assert one.log.epochs.entries() == [(1, 0)]
    assert heard == [ENDLESS_BYTES]


@pytest.mark.parametrize(("partition", "node_id"), [(0, 3), (0, 9), (5, 1)])
def test_moving_to_what_cannot_lead_is_refused(partition: int, node_id: int) -> None:
    state = cluster()
    add(state, [1, 2])
    with pytest.raises(Refused):
        state.move_leader("t", partition, node_id)


def test_moving_to_a_replica_that_is_down_is_refused() -> None:
    state = cluster()
    add(state, [1, 2])
    state.broker_down(2)
    with pytest.raises(Refused) as caught:
        state.move_leader("t", 0, 2)
    assert caught.value.code is ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_topic_that_is_made_again_has_another_id_and_an_empty_log() -> None:
    state = cluster()
    add(state, [1])
    first = state.topics["t"]
    heard: list[int] = []
    first.partitions[0].log.listen(heard.append)
    state.delete_topic(first)
    assert heard == [ENDLESS_BYTES]
    assert state.topic_by_id(first.topic_id) is None
    add(state, [1])
    again = state.topics["t"]
    assert again.topic_id != first.topic_id
    assert state.topic_by_id(again.topic_id) is again


def test_the_same_seed_gives_the_same_ids() -> None:
    one, two = cluster(), cluster()
    assert one.cluster_id == two.cluster_id
    assert len(one.cluster_id) == 22
    add(one, [1])
    add(two, [1])
    assert one.topics["t"].topic_id == two.topics["t"].topic_id


def test_producer_ids_differ() -> None:
    state = cluster()
    assert state.new_producer_id() != state.new_producer_id()
