"""The controller: what it changes, what it refuses, and that a replaced one changes nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.controller import Controller, IsrChange, Tally
from kclient.testing.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from kclient.testing.quorum import Quorum
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig
from tests.unit.testing.images import cluster


class Realm:
    """A quorum with brokers that are up, the first of which is the controller."""

    def __init__(self, brokers: int = 3) -> None:
        self.quorum = Quorum(cluster(brokers))
        for node_id in range(1, brokers + 1):
            session = self.quorum.open_session(node_id)
            facts = replace(self.quorum.image.brokers[node_id], epoch=session)
            self.quorum.image = self.quorum.image.with_broker(facts)
        self.tally = Tally()
        self.in_touch = True
        self.published: list[MetadataImage] = []
        self.controller = self.reign(1)

    def reign(self, node_id: int) -> Controller:
        epoch = self.quorum.claim(node_id)
        assert epoch is not None
        return Controller(
            node_id,
            epoch,
            self.quorum,
            random.Random(1),
            self.tally,
            lambda _, image: self.published.append(image),
            lambda: self.in_touch,
        )

    def create(self, *assignments: list[int], **configs: str) -> None:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        self.controller.create_topic("t", assignments, self.config(given))

    def config(self, given: dict[str, str]) -> TopicConfig:
        return self.quorum.image.topic_config(given)

    def facts(self, index: int = 0) -> PartitionRegistration:
        found = self.quorum.image.partition("t", index)
        assert found is not None
        return found

    def wish(self, *isr: int, node_id: int = 1, **other: int) -> ErrorCode:
        now = self.facts()
        change = IsrChange("t", 0, now.leader_epoch, now.partition_epoch, isr)
        return self.controller.alter_isr(node_id, [replace(change, **other)])[0]  # type: ignore[arg-type]

    def down(self, *brokers: int) -> None:
        for one in brokers:
            self.controller.broker_down(one)

    def up(self, node_id: int) -> None:
        was = self.quorum.image.brokers[node_id]
        self.controller.broker_up(replace(was, alive=True, epoch=was.epoch + 10))


def test_each_change_is_published_as_it_was_written() -> None:
    realm = Realm()
    realm.create([1, 2])
    realm.down(2)
    assert [one.version for one in realm.published] == [1, 2]
    assert realm.published[-1] is realm.quorum.image
    assert realm.published[-1].controller_id == 1


def test_a_new_partition_is_led_by_its_first_replica_that_is_up() -> None:
    realm = Realm()
    realm.down(2)
    realm.create([2, 3])
    assert (realm.facts().leader, realm.facts().isr) == (3, (3,))


def test_partitions_that_are_added_go_on_counting() -> None:
    realm = Realm()
    realm.create([1, 2])
    realm.controller.add_partitions("t", [[2, 3], [3, 1]])
    assert [realm.facts(index).leader for index in range(3)] == [1, 2, 3]
    assert realm.facts(2).index == 2


def test_other_configurations_leave_partitions_alone() -> None:
    realm = Realm()
    realm.create([1, 2])
    before = realm.facts()
    config = realm.config({"min.insync.replicas": "2"})
    realm.controller.set_topic_configs({"t": config})
    assert realm.quorum.image.topics["t"].config is config
    assert realm.facts() is before


# Brokers


def test_a_broker_that_goes_is_down_and_others_lead() -> None:
    realm = Realm()
    realm.create([1, 2], [2, 3])
    realm.down(1)
    assert not realm.quorum.image.brokers[1].alive
    assert (realm.facts(0).leader, realm.facts(0).isr) == (2, (2,))
    assert realm.facts(1).leader_epoch == 0
    assert (realm.tally.elections, realm.tally.isr_shrinks) == (1, 1)


def test_a_broker_that_is_down_goes_only_once() -> None:
    realm = Realm()
    realm.down(2, 2)
    assert len(realm.published) == 1


def test_a_broker_that_is_back_leads_what_only_it_can() -> None:
    realm = Realm()
    realm.create([2, 3])
    realm.down(3, 2)
    realm.up(3)
    assert realm.facts().leader == NO_LEADER
    realm.up(2)
    assert (realm.facts().leader, realm.facts().isr) == (2, (2,))
    assert realm.tally.unclean_elections == 0


def test_a_new_session_of_a_broker_that_was_up_takes_it_out_first() -> None:
    realm = Realm()
    realm.create([2, 3])
    realm.up(2)
    assert (realm.facts().leader, realm.facts().isr) == (3, (3,))
    assert realm.quorum.image.brokers[2].alive


def test_unclean_elections_are_counted() -> None:
    realm = Realm()
    realm.create([2, 3], unclean_leader_election_enable="true")
    realm.down(3, 2)
    realm.up(3)
    assert (realm.facts().leader, realm.facts().isr) == (3, (3,))
    assert realm.tally.unclean_elections == 1


def test_a_broker_that_is_forgotten_is_not_registered() -> None:
    realm = Realm()
    realm.down(3)
    realm.controller.forget_broker(3)
    assert sorted(realm.quorum.image.brokers) == [1, 2]


def test_a_new_controller_takes_out_brokers_that_left_without_a_controller() -> None:
    realm = Realm()
    realm.create([1, 2, 3], [3, 2])
    realm.quorum.end_session(1)
    realm.quorum.end_session(3)
    successor = realm.reign(2)
    successor.announce()
    image = realm.quorum.image
    assert [one.node_id for one in image.alive_brokers] == [2]
    assert [one.leader for one in image.partitions()] == [2, 2]
    assert (image.controller_id, image.controller_epoch) == (2, 2)


def test_a_new_controller_elects_no_broker_that_left_with_the_last_one() -> None:
    """Not even for a moment: such a leader would count as having all committed records."""
    realm = Realm()
    realm.create([1, 2], unclean_leader_election_enable="true")
    assert realm.wish(1) is ErrorCode.NONE
    realm.quorum.end_session(1)
    realm.quorum.end_session(2)
    realm.reign(3).announce()
    assert (realm.facts().leader, realm.facts().leader_epoch) == (NO_LEADER, 1)
    assert (realm.facts().elr, realm.facts().last_known_elr) == ((1,), (1,))
    assert (realm.tally.elections, realm.tally.unclean_elections) == (0, 0)


# In-sync replicas


def test_a_leaders_requested_isr_is_granted() -> None:
    realm = Realm()
    realm.create([1, 2, 3])
    assert realm.wish(1, 3) is ErrorCode.NONE
    assert realm.facts().isr == (1, 3)
    assert realm.wish(1, 2, 3) is ErrorCode.NONE
    assert realm.facts().isr == (1, 2, 3)
    assert (realm.facts().leader_epoch, realm.facts().partition_epoch) == (0, 2)
    assert (realm.tally.isr_shrinks, realm.tally.isr_expands) == (1, 1)


def test_a_replica_that_leaves_below_min_isr_stays_eligible() -> None:
    realm = Realm()
    realm.create([1, 2, 3], min_insync_replicas="2")
    assert realm.wish(1) is ErrorCode.NONE
    assert realm.facts().elr == (2, 3)


def test_an_eligible_replica_is_so_no_more_once_fewer_are_enough() -> None:
    """From then on the leader alone commits records that the removed replicas lack."""
    realm = Realm()
    realm.create([1, 2, 3], min_insync_replicas="2")
    assert realm.wish(1) is ErrorCode.NONE
    realm.controller.set_topic_configs({"t": realm.config({"min.insync.replicas": "1"})})
    assert (realm.facts().isr, realm.facts().elr) == ((1,), ())
    realm.down(1)
    assert realm.facts().leader == NO_LEADER


def test_an_eligible_replica_stays_so_while_the_isr_is_too_small() -> None:
    realm = Realm()
    realm.create([1, 2, 3], min_insync_replicas="3")
    assert realm.wish(1) is ErrorCode.NONE
    before = realm.facts()
    realm.controller.set_topic_configs({"t": realm.config({"min.insync.replicas": "2"})})
    assert realm.facts() is before
    assert before.elr == (2, 3)


def other_epoch() -> Realm:
    """Return a realm whose leader is broker 1, after an election of broker 2 in between."""
    realm = Realm()
    realm.create([1, 2, 3])
    realm.controller.move_leader("t", 0, 2)
    realm.controller.move_leader("t", 0, 1)
    return realm


@pytest.mark.parametrize(
    ("isr", "other", "code", "fences"),
    [
        ((1, 2), {"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ((1, 2), {"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH, 1),
        ((1, 2), {"leader_epoch": 3}, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1),
        ((2, 3), {"node_id": 2}, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1),
        ((1, 2), {"partition_epoch": 1}, ErrorCode.INVALID_UPDATE_VERSION, 1),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST, 0),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST, 0),
    ],
)
def test_an_isr_request_that_is_refused_changes_nothing(
    isr: tuple[int, ...], other: dict[str, int], code: ErrorCode, fences: int
) -> None:
    realm = other_epoch()
    before = realm.quorum.image
    assert realm.wish(*isr, **other) is code
    assert realm.quorum.image is before
    assert realm.tally.fences == fences


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_replica_that_is_down_is_not_taken_in(forgotten: bool) -> None:
    realm = Realm()
    realm.create([1, 2, 3])
    realm.down(3)
    if forgotten:
        realm.controller.forget_broker(3)
    assert realm.wish(1, 2, 3) is ErrorCode.INELIGIBLE_REPLICA
    assert realm.facts().isr == (1, 2)


def test_one_refused_isr_request_leaves_the_others() -> None:
    realm = Realm()
    realm.create([1, 2], [1, 2])
    wishes = [IsrChange("t", 0, 0, 5, (1,)), IsrChange("t", 1, 0, 0, (1,))]
    codes = realm.controller.alter_isr(1, wishes)
    assert codes == [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE]
    assert [realm.facts(index).isr for index in range(2)] == [(1, 2), (1,)]


# Requested elections


def test_moving_a_leader_raises_the_epoch() -> None:
    realm = Realm()
    realm.create([1, 2])
    realm.controller.move_leader("t", 0, 2)
    assert (realm.facts().leader, realm.facts().leader_epoch) == (2, 1)
    assert realm.facts().isr == (1, 2)
    assert realm.tally.elections == 1


@pytest.mark.parametrize(
    ("index", "node_id", "code"),
    [
        (0, 3, ErrorCode.REPLICA_NOT_AVAILABLE),
        (0, 9, ErrorCode.REPLICA_NOT_AVAILABLE),
        (5, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_moving_to_what_cannot_lead_is_refused(index: int, node_id: int, code: ErrorCode) -> None:
    realm = Realm()
    realm.create([1, 2])
    with pytest.raises(ApiError) as caught:
        realm.controller.move_leader("t", index, node_id)
    assert caught.value.code is code


def test_moving_to_a_replica_that_is_down_is_refused() -> None:
    realm = Realm()
    realm.create([1, 2])
    realm.down(2)
    with pytest.raises(ApiError) as caught:
        realm.controller.move_leader("t", 0, 2)
    assert caught.value.code is ErrorCode.REPLICA_NOT_AVAILABLE


# A replaced controller


def test_one_that_was_replaced_changes_nothing() -> None:
    realm = Realm()
    realm.create([1, 2])
    realm.quorum.resign(1, 1)
    realm.reign(2)
    before = realm.quorum.image
    with pytest.raises(ApiError) as caught:
        realm.controller.move_leader("t", 0, 2)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert realm.quorum.image is before


def test_one_that_is_cut_off_changes_nothing_until_it_is_back() -> None:
    realm = Realm()
    realm.create([1, 2])
    realm.in_touch = False
    for action in (realm.controller.announce, lambda: realm.up(2), lambda: realm.wish(1)):
        with pytest.raises(ApiError) as caught:
            action()
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
    realm.in_touch = True
    realm.controller.announce()


def test_one_that_is_replaced_in_mid_change_is_fenced() -> None:
    realm = Realm()

    def lose() -> bool:
        """Replace the controller between the check and the write."""
        realm.quorum.epoch += 1
        return True

    image = realm.controller.image
    realm.controller._check = lose  # type: ignore[method-assign,assignment]
    with pytest.raises(ApiError) as caught:
        realm.controller._commit(image)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert realm.published == []


def test_a_broker_that_registers_is_known_by_its_own_facts() -> None:
    realm = Realm()
    realm.controller.broker_up(BrokerRegistration(4, "127.0.0.1", "b", 9094, alive=True, epoch=7))
    assert realm.quorum.image.brokers[4].rack == "b"
    assert len(realm.quorum.image.alive_brokers) == 4
