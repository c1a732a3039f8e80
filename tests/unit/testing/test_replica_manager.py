"""Which brokers join a leader's ISR, which leave it, and which count until that is known."""

from __future__ import annotations

import asyncio

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.controller import IsrChange
from kclient.testing.responses import ApiError
from tests.unit.testing.batches import stored
from tests.unit.testing.replica_manager_rig import LAG, Realm, on, timers

# Joining the ISR


def test_a_follower_that_caught_up_is_in_sync_at_once() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.append(2)
        assert realm.committed == 3
        realm.fetch(3, 2)
        assert realm.isr == (2,)
        realm.fetch(3, 3)
        assert realm.isr == (2, 3)


def test_a_follower_that_fetches_uncommitted_records_is_in_sync() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.append(2)
        assert realm.committed == 1
        realm.fetch(3, 1)
        assert realm.isr == (2, 1, 3)


def test_a_follower_that_caught_up_during_an_isr_request_joins_after_its_response() -> None:
    """That follower's fetch waits at the leader, and it doesn't fetch again."""

    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        realm.append()
        await asyncio.sleep(LAG + 0.1)
        assert realm.isr == (2,)
        realm.delay(1.0)
        realm.fetch(3, 1)
        realm.fetch(1, 1)
        assert realm.isr == (2, 3)
        await asyncio.sleep(3.0)
        assert realm.isr == (2, 3, 1)


def test_a_broker_without_a_replica_is_refused() -> None:
    @on()
    async def _(realm: Realm) -> None:
        with pytest.raises(ApiError) as caught:
            realm.fetch(1, 0)
        assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_joined_follower_is_waited_for() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.fetch(3, 1)
        realm.append()
        assert realm.committed == 1
        realm.fetch(3, 2)
        assert realm.committed == 2


def test_a_lost_isr_request_counts_and_is_sent_again_when_the_link_is_repaired() -> None:
    """Found by the cluster's simulation: it may be granted, and committed records got lost."""

    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.part(1, 2)
        realm.fetch(3, 1)
        assert realm.isr == (2,)
        realm.append()
        await asyncio.sleep(10.0)
        assert realm.committed == 1, "who is about to join may be in sync already"
        realm.fetch(3, 2)
        assert realm.committed == 2
        realm.mend()
        assert realm.isr == (2, 3)


def test_an_isr_request_with_a_lost_response_counts_until_the_image_is_there() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(1.0)
        realm.fetch(3, 1)
        assert realm.isr == (2, 3), "granted, and the leader doesn't know"
        realm.part(1, 2)
        realm.append()
        await asyncio.sleep(10.0)
        assert realm.replica().facts.isr == (2,)
        assert realm.committed == 1
        realm.mend()
        await asyncio.sleep(2.0)
        assert realm.replica().facts.isr == (2, 3)
        assert realm.committed == 1
        realm.fetch(3, 2)
        assert realm.committed == 2


def test_an_isr_request_to_a_replaced_controller_is_sent_again_a_second_later() -> None:
    """Found by the cluster's simulation: perhaps no later event would cause another request."""

    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(0.5, sender=2)
        realm.fetch(3, 1)
        realm.control_plane.resign()
        assert realm.control_plane.quorum.controller_id == 2
        realm.control_plane.resign()
        assert realm.control_plane.quorum.controller_id == 1
        await asyncio.sleep(0.6)
        assert realm.control_plane.tally.fences == 1
        assert realm.replica().pending_isr == (2, 3)
        assert realm.isr == (2,)
        await asyncio.sleep(2.0)
        assert realm.isr == (2, 3)
        assert realm.replica().pending_isr is None
        assert timers() == 0


def test_a_broker_that_the_controller_has_as_down_is_not_waited_for() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(1.0)
        realm.down(3)
        realm.fetch(3, 1)  # it was in flight
        realm.append()
        assert realm.replica().pending_isr == (2, 3)
        assert realm.committed == 1
        await asyncio.sleep(1.5)
        assert realm.replica().pending_isr is None
        assert realm.isr == (2,)
        realm.append()
        assert realm.committed == 3


def test_an_isr_request_on_stale_facts_counts_until_the_newer_image_is_there() -> None:
    """The newer image is unknown: the joining broker may be in its ISR already."""

    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(5.0)
        facts = realm.replica().facts
        change = IsrChange("t", 0, facts.leader_epoch, facts.partition_epoch, (2,))
        assert realm.reign.alter_isr(2, [change]) == [ErrorCode.NONE]
        realm.delay(1.0)
        realm.fetch(3, 1)
        realm.append()
        realm.fetch(1, 2)
        await asyncio.sleep(2.0)
        assert realm.control_plane.tally.fences == 1, "the wish was refused, and that was heard"
        assert realm.replica().pending_isr == (2, 1, 3)
        assert realm.committed == 1
        await asyncio.sleep(3.5)
        assert realm.replica().facts.isr == (2,)
        assert realm.committed == 2


def test_a_broker_that_is_up_again_joins_without_another_fetch() -> None:
    """Its fetch arrived before the image in which it is up."""

    @on()
    async def _(realm: Realm) -> None:
        realm.down(3)
        realm.delay(1.0)
        realm.up(3)
        realm.fetch(3, 0)
        assert realm.replica().pending_isr is None, "it is down, as far as the leader knows"
        await asyncio.sleep(3.0)
        assert realm.isr == (2, 3)


# Leaving the ISR


def test_a_late_follower_leaves_when_its_time_is_over() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await asyncio.sleep(LAG)
        assert timers() == 0, "nobody is behind"
        realm.append()
        assert timers() == 1
        await asyncio.sleep(LAG - 0.1)
        assert realm.isr == (2, 3)
        await asyncio.sleep(0.2)
        assert realm.isr == (2,)
        assert realm.committed == 1
        assert timers() == 0


def test_a_follower_that_caught_up_again_stays_and_its_timer_ends() -> None:
    @on()
    async def _(realm: Realm) -> None:
        realm.append()
        await asyncio.sleep(LAG - 1.0)
        realm.fetch(3, 1)
        await asyncio.sleep(2 * LAG)
        assert realm.isr == (2, 3)
        assert timers() == 0


def test_all_that_are_late_leave_in_one_change() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        realm.append()
        await asyncio.sleep(LAG + 0.1)
        assert realm.isr == (2,)
        assert realm.control_plane.tally.isr_shrinks == 1


def test_a_late_follower_without_a_controller_leaves_when_one_is_back() -> None:
    @on()
    async def _(realm: Realm) -> None:
        realm.part(1, 2)
        realm.append()
        await asyncio.sleep(LAG + 10.0)
        assert realm.isr == (2, 3)
        assert realm.committed == 0
        realm.mend()
        assert realm.isr == (2,)
        assert realm.committed == 1


def test_a_follower_that_never_fetches_from_a_new_leader_leaves_without_writes() -> None:
    @on()
    async def _(realm: Realm) -> None:
        realm.move(3)
        await asyncio.sleep(LAG - 0.1)
        assert realm.isr == (2, 3)
        await asyncio.sleep(0.2)
        assert realm.isr == (3,)


def test_each_partition_has_its_own_time_though_no_response_came_yet() -> None:
    @on()
    async def _(realm: Realm) -> None:
        realm.create("u", (2, 3))
        other = realm.leader.replicas.get("u", 0)
        assert other is not None
        realm.leader.fetched_by(other, 3, 0, 0)
        await asyncio.sleep(LAG)
        realm.delay(2 * LAG)
        realm.append()
        await asyncio.sleep(10.0)
        realm.leader.append(other, stored(), None)
        await asyncio.sleep(LAG - 5.0)
        assert realm.isr == (2,)
        await asyncio.sleep(5.1)
        assert [one.isr for one in realm.control_plane.image.partitions()] == [(2,), (2,)]


def test_a_late_follower_leaves_though_an_isr_request_for_another_was_refused() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(1.0)
        realm.down(3)
        realm.fetch(3, 1)
        realm.append()  # no follower's lag is checked while the request has no response
        await asyncio.sleep(1.5)
        assert realm.replica().pending_isr is None
        await asyncio.sleep(LAG - 1.6)
        assert realm.isr == (2, 1)
        await asyncio.sleep(0.2)
        assert realm.isr == (2,)


def test_one_that_leads_no_more_checks_no_followers() -> None:
    @on()
    async def _(realm: Realm) -> None:
        realm.append()
        realm.move(3)
        await asyncio.sleep(0.1)
        assert realm.boxes[2].replica_manager.replicas.next_check() is None
        assert realm.boxes[3].replica_manager.replicas.next_check() is not None
