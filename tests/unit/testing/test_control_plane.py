"""The control plane: sessions, the race for the claim, and which broker gets which image."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing import run_virtually
from kclient.testing.control_plane import QUORUM, ControlPlane
from kclient.testing.controller import IsrChange
from kclient.testing.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from kclient.testing.responses import ApiError
from tests.unit.testing.images import cluster

SESSION = 9.0
"""Kafka's ``broker.session.timeout.ms``."""


class Host:
    """A broker as the inside of its cluster sees it."""

    def __init__(self, node_id: int, port: int) -> None:
        self.node_id = node_id
        self.port = port
        self.images: list[MetadataImage] = []
        self.heard_of_ways = 0

    def facts(self) -> BrokerRegistration:
        return BrokerRegistration(self.node_id, "127.0.0.1", None, self.port)

    def apply(self, image: MetadataImage) -> None:
        self.images.append(image)

    def links_changed(self) -> None:
        self.heard_of_ways += 1

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)

    @property
    def version(self) -> int:
        """The version of the newest image that it has."""
        return max((one.version for one in self.images), default=-1)


class Realm:
    """Brokers that joined one after the other, so that the first one is the controller."""

    def __init__(self, brokers: int = 3) -> None:
        self.control_plane = ControlPlane(cluster(0), random.Random(1))
        self.quorum = self.control_plane.quorum
        self.hosts: dict[int, Host] = {}
        for node_id in range(1, brokers + 1):
            self.join(node_id)

    def join(self, node_id: int, port: int = 9092) -> Host:
        host = self.hosts[node_id] = Host(node_id, port)
        self.control_plane.join(host)
        return host

    def leave(self, node_id: int) -> None:
        self.control_plane.leave(node_id)

    def cut_off(self, node_id: int) -> None:
        """Cut the link between a broker and the quorum only."""
        self.control_plane.links.part([(node_id, QUORUM)])

    def mend(self) -> None:
        self.control_plane.links.join()

    def create(self, *assignments: list[int]) -> None:
        reign = self.control_plane.controller
        assert reign is not None
        reign.create_topic("t", assignments, self.control_plane.image.topic_config({}))

    def facts(self) -> PartitionRegistration:
        found = self.control_plane.image.partition("t", 0)
        assert found is not None
        return found

    @property
    def up(self) -> list[int]:
        """The brokers that are alive in the newest image."""
        return [one.node_id for one in self.control_plane.image.alive_brokers]

    @property
    def reign(self) -> tuple[int, int]:
        """The holder of the claim, and its epoch."""
        return self.quorum.controller_id, self.quorum.epoch

    def known(self) -> list[int]:
        """Return the version of each broker's image."""
        return [one.version for one in self.hosts.values()]


def scene(act: Callable[[Realm], Coroutine[Any, Any, None]]) -> None:
    """Run a scene with three brokers on virtual time."""

    async def main() -> None:
        realm = Realm()
        await act(realm)
        realm.control_plane.close()

    run_virtually(main())


# Joining and leaving


def test_the_first_one_is_the_controller_and_all_have_the_same_image() -> None:
    realm = Realm()
    assert realm.reign == (1, 1)
    assert realm.up == [1, 2, 3]
    assert realm.known() == [realm.control_plane.image.version] * 3
    assert realm.hosts[3].images[-1] is realm.control_plane.image


def test_a_brokers_epoch_is_its_session() -> None:
    realm = Realm()
    for node_id, facts in realm.control_plane.image.brokers.items():
        assert facts.epoch == realm.quorum.session_of(node_id)


def test_one_that_leaves_is_down_at_once_and_its_partitions_have_other_leaders() -> None:
    realm = Realm()
    realm.create([3, 2])
    realm.leave(3)
    assert realm.up == [1, 2]
    assert realm.quorum.session_of(3) is None
    assert (realm.facts().leader, realm.facts().isr) == (2, (2,))
    assert realm.hosts[2].images[-1] is realm.control_plane.image
    assert realm.hosts[3].images[-1] is not realm.control_plane.image, (
        "one that is down heard of it"
    )


def test_one_that_comes_back_has_a_higher_epoch_and_may_listen_elsewhere() -> None:
    realm = Realm()
    before = realm.control_plane.image.brokers[3]
    realm.leave(3)
    realm.join(3, port=9999)
    after = realm.control_plane.image.brokers[3]
    assert (after.alive, after.port) == (True, 9999)
    assert after.epoch > before.epoch


def test_one_that_leaves_twice_is_removed_once() -> None:
    realm = Realm()
    realm.leave(3)
    version = realm.control_plane.image.version
    realm.leave(3)
    assert realm.control_plane.image.version == version


# The claim


def test_when_the_controller_goes_the_oldest_session_reigns_in_the_next_epoch() -> None:
    realm = Realm()
    realm.leave(2)
    realm.join(2)
    realm.leave(1)
    assert realm.reign == (3, 2)
    assert realm.up == [2, 3]
    assert (
        realm.control_plane.image.controller_id,
        realm.control_plane.image.controller_epoch,
    ) == (3, 2)


def test_one_that_resigns_comes_last_in_the_race() -> None:
    realm = Realm()
    realm.control_plane.resign()
    assert realm.reign == (2, 2)
    realm.leave(3)
    realm.leave(1)
    realm.control_plane.resign()
    assert realm.reign == (2, 3)


def test_a_reign_that_ended_is_refused() -> None:
    realm = Realm()
    first = realm.control_plane.controller
    assert first is not None
    realm.control_plane.resign()
    with pytest.raises(ApiError) as caught:
        first.broker_down(2)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert realm.up == [1, 2, 3]


def test_without_brokers_there_is_no_controller_and_the_next_one_is_it() -> None:
    realm = Realm()
    for node_id in (3, 2, 1):
        realm.leave(node_id)
    assert realm.quorum.controller_id == NO_LEADER
    assert realm.control_plane.controller is None
    realm.control_plane.resign()
    realm.join(2)
    assert realm.reign == (2, 2)
    assert realm.up == [2]


def test_one_that_cannot_reach_the_quorum_does_not_take_part_in_the_race() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.cut_off(2)
        realm.leave(1)
        assert realm.reign == (3, 2)
        realm.cut_off(3)
        realm.control_plane.resign()
        assert realm.quorum.controller_id == NO_LEADER
        realm.mend()
        assert realm.reign == (2, 3)


# Sessions of brokers that are cut off


def test_one_that_is_cut_off_has_its_session_until_the_time_is_over() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.cut_off(3)
        await asyncio.sleep(SESSION - 0.1)
        assert realm.up == [1, 2, 3]
        await asyncio.sleep(0.2)
        assert realm.up == [1, 2]
        assert realm.facts().leader == 2


def test_one_that_is_back_in_time_was_never_down() -> None:
    @scene
    async def _(realm: Realm) -> None:
        session = realm.quorum.session_of(3)
        realm.cut_off(3)
        await asyncio.sleep(SESSION - 0.1)
        realm.mend()
        await asyncio.sleep(2 * SESSION)
        assert realm.quorum.session_of(3) == session
        assert realm.up == [1, 2, 3]


def test_another_cut_link_does_not_prolong_a_session() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.cut_off(3)
        await asyncio.sleep(SESSION - 1.0)
        realm.control_plane.links.part([(3, 2)])
        await asyncio.sleep(1.1)
        assert realm.up == [1, 2]


def test_one_that_is_back_too_late_has_another_session() -> None:
    @scene
    async def _(realm: Realm) -> None:
        session = realm.quorum.session_of(3)
        assert session is not None
        realm.cut_off(3)
        await asyncio.sleep(SESSION + 0.1)
        realm.mend()
        assert realm.up == [1, 2, 3]
        epoch = realm.control_plane.image.brokers[3].epoch
        assert epoch == realm.quorum.session_of(3)
        assert epoch > session


def test_one_that_goes_while_it_is_cut_off_leaves_no_timer() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.cut_off(3)
        await asyncio.sleep(SESSION - 0.1)
        realm.leave(3)
        realm.mend()
        realm.join(3)
        await asyncio.sleep(SESSION)
        assert realm.up == [1, 2, 3]


def test_one_that_comes_up_cut_off_takes_part_once_it_reaches_the_quorum() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.cut_off(4)
        realm.join(4)
        assert realm.quorum.session_of(4) is None
        assert realm.up == [1, 2, 3]
        assert realm.hosts[4].images == [realm.control_plane.image], "the controller reaches it"
        realm.mend()
        assert realm.up == [1, 2, 3, 4]
        assert realm.hosts[4].images[-1] is realm.control_plane.image


def test_a_controller_that_is_cut_off_changes_nothing_until_its_session_ends() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.cut_off(1)
        realm.leave(3)
        assert realm.up == [1, 2, 3], "it can't write"
        assert realm.reign == (1, 1)
        await asyncio.sleep(SESSION + 0.1)
        assert realm.reign == (2, 2)
        assert realm.up == [2]
        assert realm.facts().leader == 2


def test_what_happened_while_the_controller_was_cut_off_counts_once_it_is_not() -> None:
    """Found by the cluster's simulation: brokers that came meanwhile were never taken in."""

    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.cut_off(1)
        realm.leave(3)
        realm.join(4)
        assert realm.up == [1, 2, 3]
        realm.mend()
        assert realm.reign == (1, 1)
        assert realm.up == [1, 2, 4]
        assert (realm.facts().leader, realm.facts().isr) == (2, (2,))
        assert realm.hosts[4].images[-1] is realm.control_plane.image


def test_one_that_was_restarted_while_the_controller_was_cut_off_is_updated() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.cut_off(1)
        realm.leave(3)
        realm.join(3, port=9999)
        realm.mend()
        facts = realm.control_plane.image.brokers[3]
        assert (facts.alive, facts.port) == (True, 9999)
        assert facts.epoch == realm.quorum.session_of(3)
        assert (realm.facts().leader, realm.facts().isr) == (2, (2,)), "its records may be lost"


def test_one_that_came_while_there_was_no_controller_is_taken_in_by_the_next() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.cut_off(1)
        realm.leave(2)
        realm.leave(3)
        realm.join(4)
        await asyncio.sleep(SESSION + 0.1)
        assert realm.reign == (4, 2)
        assert realm.up == [4]


def test_closing_leaves_no_timer() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.cut_off(3)
        realm.control_plane.close()
        await asyncio.sleep(2 * SESSION)
        assert realm.up == [1, 2, 3]


# Images


def test_an_unreachable_broker_gets_the_newest_image_once_the_link_is_repaired() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.control_plane.links.part([(1, 3)])
        before = realm.hosts[3].version
        realm.create([1, 2])
        assert realm.hosts[2].images[-1] is realm.control_plane.image
        assert realm.hosts[3].version == before
        realm.mend()
        assert realm.hosts[3].images[-1] is realm.control_plane.image


def test_an_image_for_a_broker_that_left_meanwhile_is_dropped() -> None:
    @scene
    async def _(realm: Realm) -> None:
        loop = asyncio.get_running_loop()
        realm.control_plane.links.later = loop.call_later
        realm.control_plane.links.delay = lambda sender, receiver: 1.0
        gone = realm.hosts[3]
        known = len(gone.images)
        realm.create([1, 2])
        realm.leave(3)
        back = realm.join(3)
        await asyncio.sleep(5.0)
        assert len(gone.images) == known
        assert back.images[-1] is realm.control_plane.image


def test_a_way_that_is_cut_and_mended_in_time_makes_no_image() -> None:
    @scene
    async def _(realm: Realm) -> None:
        before = realm.control_plane.image
        realm.control_plane.links.part([(2, 3)])
        realm.cut_off(1)
        realm.mend()
        assert realm.control_plane.image is before


def test_all_brokers_are_notified_of_changed_links() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.control_plane.links.part([(1, 2)])
        realm.mend()
        assert [one.heard_of_ways for one in realm.hosts.values()] == [2, 2, 2]


# Requests of brokers


def test_a_broker_that_does_not_reach_the_controller_is_refused() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.control_plane.links.part([(1, 3)])
        assert realm.control_plane.controller_for(2) is realm.control_plane.controller
        assert realm.control_plane.controller_for(1) is realm.control_plane.controller
        with pytest.raises(ApiError) as caught:
            realm.control_plane.controller_for(3)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER


def test_without_a_controller_all_brokers_are_refused() -> None:
    realm = Realm(brokers=1)
    realm.leave(1)
    with pytest.raises(ApiError) as caught:
        realm.control_plane.controller_for(2)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


def wish(realm: Realm, *isr: int) -> list[list[ErrorCode] | None]:
    """Request an ISR as the leader of t-0; return the responses, as they come."""
    facts, answers = realm.facts(), list[list[ErrorCode] | None]()
    change = IsrChange("t", 0, facts.leader_epoch, facts.partition_epoch, isr)
    realm.control_plane.alter_isr(facts.leader, [change], answers.append)
    return answers


def test_an_isr_request_gets_a_code_for_each_partition() -> None:
    realm = Realm()
    realm.create([3, 2])
    assert wish(realm, 3) == [[ErrorCode.NONE]]
    assert realm.facts().isr == (3,)
    assert wish(realm, 2) == [[ErrorCode.INVALID_REQUEST]]


def test_an_isr_request_that_reaches_no_controller_has_no_response() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.control_plane.links.part([(1, 3)])
        assert wish(realm, 3) == [None]
        assert realm.facts().isr == (3, 2)
        assert realm.control_plane.tally.fences == 0


def test_an_isr_request_to_a_replaced_controller_has_no_response_and_is_counted() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.control_plane.links.later = asyncio.get_running_loop().call_later
        realm.control_plane.links.delay = lambda sender, receiver: 1.0
        answers = wish(realm, 3)
        realm.control_plane.resign()
        await asyncio.sleep(1.5)
        assert answers == []
        await asyncio.sleep(1.0)
        assert answers == [None]
        assert realm.facts().isr == (3, 2)
        assert realm.control_plane.tally.fences == 1


def test_a_response_does_not_arrive_over_a_cut_link_though_the_isr_was_granted() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.control_plane.links.later = asyncio.get_running_loop().call_later
        realm.control_plane.links.delay = lambda sender, receiver: 1.0
        answers = wish(realm, 3)
        await asyncio.sleep(1.5)
        assert realm.facts().isr == (3,)
        realm.control_plane.links.part([(1, 3)])
        await asyncio.sleep(5.0)
        assert answers == []


def test_an_isr_request_sent_before_a_restart_is_not_granted_after_it() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.control_plane.links.later = asyncio.get_running_loop().call_later
        realm.control_plane.links.delay = lambda sender, _: 1.0 if sender == 3 else 0.0
        answers = wish(realm, 3)
        realm.leave(3)
        realm.join(3)
        facts = realm.facts()
        await asyncio.sleep(5.0)
        assert (answers, realm.facts()) == ([], facts)


def test_an_image_sent_before_a_restart_does_not_arrive_after_it() -> None:
    @scene
    async def _(realm: Realm) -> None:
        realm.create([3, 2])
        realm.control_plane.links.later = asyncio.get_running_loop().call_later
        realm.control_plane.links.delay = lambda _, receiver: 1.0 if receiver == 3 else 0.0
        assert wish(realm, 3) == []
        before = realm.control_plane.image.version
        realm.leave(3)
        back = realm.hosts[3]
        realm.control_plane.join(back)
        known = len(back.images)
        await asyncio.sleep(5.0)
        arrived = [one.version for one in back.images[known:]]
        assert arrived
        assert min(arrived) > before
