"""A broker's partitions: news for followers, the broker's own appends, cleaning."""

from __future__ import annotations

import asyncio

from kclient.error_codes import ErrorCode
from kclient.testing.image import NO_LEADER
from tests.unit.testing.batches import NOW, placed, stored
from tests.unit.testing.replica_manager_rig import LAG, Realm, on, timers

RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
HOUR = 3600.0


# News for followers


def test_appended_records_are_news_for_all_followers() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        for one in (1, 3):
            realm.reported(one)
            realm.leader.follower_state(one).has_grown = False
        realm.append()
        assert [realm.news(one) for one in (1, 3)] == [True, True]
        assert [realm.leader.follower_state(one).has_grown for one in (1, 3)] == [True, True]


def test_a_high_watermark_that_moved_is_news_for_all_followers() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        realm.append()
        realm.fetch(3, 1)
        for one in (1, 3):
            realm.reported(one)
        realm.fetch(1, 1)
        assert realm.committed == 1
        assert [realm.news(one) for one in (1, 3)] == [True, True]


def test_a_high_watermark_that_moves_with_an_image_is_news_too() -> None:
    """No fetch comes then whose response would report it."""

    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        realm.append()
        realm.fetch(1, 1)
        realm.reported(1)
        await asyncio.sleep(LAG + 0.1)
        assert (realm.isr, realm.committed) == ((2, 1), 1)
        assert realm.news(1)


def test_what_a_test_puts_into_logs_is_there_at_once() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        replica = realm.replica()
        replica.log.append_placed(stored(4))
        realm.leader.put(replica, 0, [3])
        assert [one.end_offset for one in replica.followers.values()] == [4, 0]
        assert realm.committed == 0
        assert realm.news(1)
        assert realm.leader.has_uncommitted


def test_a_broker_owes_what_others_in_sync_do_not_have() -> None:
    @on()
    async def _(realm: Realm) -> None:
        assert not realm.leader.has_uncommitted
        realm.append()
        assert realm.leader.has_uncommitted
        realm.replica(3).take([placed(1, 0)])
        assert not realm.boxes[3].replica_manager.has_uncommitted, "it doesn't lead"
        realm.fetch(3, 1)
        assert not realm.leader.has_uncommitted


def test_what_no_other_in_sync_replica_could_have_is_not_owed() -> None:
    @on(configs={"min.insync.replicas": "2"})
    async def _(realm: Realm) -> None:
        realm.down(3)
        realm.append()
        assert realm.committed == 0
        assert not realm.leader.has_uncommitted


# Appends of the broker itself


def internal(realm: Realm, node_id: int = 2, index: int = 0) -> list[ErrorCode]:
    """Append as a group coordinator does; return the codes, as they come."""
    codes: list[ErrorCode] = []
    realm.boxes[node_id].replica_manager.append_internal("t", index, stored(2), codes.append)
    return codes


def test_what_the_broker_appends_is_done_when_all_in_sync_have_it() -> None:
    @on()
    async def _(realm: Realm) -> None:
        codes = internal(realm)
        assert realm.news(3)
        await asyncio.sleep(1.0)
        assert codes == []
        realm.fetch(3, 2)
        await asyncio.sleep(0.1)
        assert codes == [ErrorCode.NONE]
        await asyncio.sleep(10.0)
        assert codes == [ErrorCode.NONE]
        assert not realm.leader._internal, "something of it is kept"


def test_what_the_broker_appends_alone_is_done_at_once() -> None:
    @on(2)
    async def _(realm: Realm) -> None:
        assert internal(realm) == [ErrorCode.NONE]
        assert timers() == 0


def test_what_the_broker_appends_has_five_seconds() -> None:
    @on()
    async def _(realm: Realm) -> None:
        codes = internal(realm)
        await asyncio.sleep(4.9)
        assert codes == []
        await asyncio.sleep(0.2)
        assert codes == [ErrorCode.REQUEST_TIMED_OUT]


def test_only_a_leader_with_enough_in_sync_appends() -> None:
    @on(configs={"min.insync.replicas": "2"})
    async def _(realm: Realm) -> None:
        assert internal(realm, node_id=3) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert internal(realm, index=7) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        realm.down(3)
        assert internal(realm) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert realm.replica().log.end_offset == 0


def test_an_election_ends_the_wait_for_what_the_broker_appended() -> None:
    @on()
    async def _(realm: Realm) -> None:
        codes = internal(realm)
        realm.move(3)
        await asyncio.sleep(0.1)
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_what_the_broker_appended_has_no_outcome_once_the_broker_is_down() -> None:
    @on()
    async def _(realm: Realm) -> None:
        codes = internal(realm)
        assert timers() > 0
        realm.down(2)
        assert timers() == 0
        await asyncio.sleep(10.0)
        assert codes == []


# Followers that consumers are redirected to


def test_a_consumer_is_sent_to_the_follower_in_its_rack_that_has_the_offset() -> None:
    @on(2, 3, 1, configs=RACKS, racks=("a", "b", "c"))
    async def _(realm: Realm) -> None:
        realm.append(4)
        realm.fetch(3, 4)
        realm.fetch(1, 2)
        replica = realm.replica()

        def choose(rack: str, offset: int) -> int:
            return realm.leader.preferred_replica(replica, rack, offset)

        assert choose("c", 0) == 3
        assert choose("a", 2) == 1
        assert choose("a", 3) == NO_LEADER, "it has no such record yet"
        assert choose("b", 0) == NO_LEADER, "that is the leader's own rack"
        assert choose("z", 0) == NO_LEADER
        realm.down(3)
        assert choose("c", 0) == NO_LEADER


def test_of_two_in_a_rack_the_one_that_is_further_serves_then_the_lower_id() -> None:
    @on(2, 3, 1, configs=RACKS, racks=("a", "b", "a"))
    async def _(realm: Realm) -> None:
        realm.append(4)
        realm.fetch(3, 4)
        realm.fetch(1, 2)
        assert realm.leader.preferred_replica(realm.replica(), "a", 1) == 3
        realm.fetch(1, 4)
        assert realm.leader.preferred_replica(realm.replica(), "a", 1) == 1


def test_a_consumer_stays_with_a_leader_in_its_rack_and_uses_no_out_of_sync_follower() -> None:
    @on(2, 3, 1, configs=RACKS, racks=("b", "b", "c"))
    async def _(realm: Realm) -> None:
        assert realm.leader.preferred_replica(realm.replica(), "b", 0) == NO_LEADER
        assert realm.leader.preferred_replica(realm.replica(), "c", 0) == 3
        await realm.lag(3)
        assert realm.leader.preferred_replica(realm.replica(), "c", 0) == NO_LEADER


def test_without_a_selector_no_consumer_is_redirected() -> None:
    @on(2, 3, racks=("a", "b", "c"))
    async def _(realm: Realm) -> None:
        assert realm.leader.preferred_replica(realm.replica(), "c", 0) == NO_LEADER


# Cleaning


def test_a_log_is_cleaned_when_its_time_has_come_and_its_start_is_news_for_followers() -> None:
    @on(configs={"log.retention.check.interval.ms": "300000", "log.retention.hours": "1"})
    async def _(realm: Realm) -> None:
        realm.append(3)
        realm.fetch_all()
        replica = realm.replica()
        await asyncio.sleep(HOUR + 1.0)
        realm.reported(3)
        realm.leader.tidy(replica)
        assert replica.log.start_offset == 3
        assert realm.news(3)


def test_a_log_is_not_looked_at_before_its_time() -> None:
    @on(configs={"log.retention.check.interval.ms": "300000", "log.retention.hours": "1"})
    async def _(realm: Realm) -> None:
        realm.append(3, timestamp=NOW - int(2 * HOUR * 1000))
        realm.fetch_all()
        replica = realm.replica()
        await asyncio.sleep(299.0)
        realm.leader.tidy(replica)
        assert replica.log.start_offset == 0
        await asyncio.sleep(2.0)
        realm.leader.tidy(replica)
        assert replica.log.start_offset == 3


def test_a_new_leader_cleans_what_it_took_as_a_follower() -> None:
    @on(configs={"log.retention.check.interval.ms": "300000", "log.retention.hours": "1"})
    async def _(realm: Realm) -> None:
        replica = realm.replica(3)
        replica.take([stored(3, timestamp=NOW - int(2 * HOUR * 1000))])
        realm.move(3)
        replica_manager = realm.boxes[3].replica_manager
        replica_manager.fetched_by(replica, 2, 3, 0)
        replica_manager.tidy(replica)
        assert replica.log.start_offset == 0
        await asyncio.sleep(301.0)
        replica_manager.tidy(replica)
        assert replica.log.start_offset == 3


# Brokers that are down


def test_one_that_is_down_has_neither_timers_nor_followers() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.create("u", (2, 3))
        state = realm.leader.follower_state(3)
        realm.part(1, 2)
        realm.fetch(3, 1)
        assert timers() == 2, "one to ask again, one for who is late in the other partition"
        realm.down(2)
        assert timers() == 0
        assert realm.leader.follower_state(3) is not state


def test_one_that_was_down_leads_nothing_until_an_image_has_it_as_leader() -> None:
    """It got no image meanwhile: another broker may lead its partitions."""

    @on()
    async def _(realm: Realm) -> None:
        realm.append()
        realm.down(2)
        assert not realm.replica().leads
        assert realm.replica().followers == {}
        assert realm.replica().log.end_offset == 1, "its logs outlive it"
        assert internal(realm) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
