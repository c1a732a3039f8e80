"""A broker's partitions at work: who is told what is new, who joins and leaves those in sync."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing import VirtualLoop, run_virtually
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.controller import IsrChange
from kclient.testing.feeds import key_of
from kclient.testing.hosted import Hosted
from kclient.testing.image import NO_LEADER, BrokerFacts, MetadataImage
from kclient.testing.inside import Inside
from kclient.testing.refused import Refused
from kclient.testing.replica import Replica
from tests.unit.testing.batches import NOW, placed, stored

LAG = 30.0
"""Kafka's ``replica.lag.time.max.ms``."""
RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
HOUR = 3600.0


class Box:
    """A broker without listeners: its partitions, and what it hears."""

    def __init__(self, node_id: int, inside: Inside, rack: str | None) -> None:
        self.node_id = node_id
        self._rack = rack
        self._began = self.now()
        self.hosted = Hosted(node_id, inside, self)

    def facts(self) -> BrokerFacts:
        return BrokerFacts(self.node_id, "127.0.0.1", self._rack, 9092)

    def apply(self, image: MetadataImage) -> None:
        if image.version > self.hosted.replicas.image.version:
            self.hosted.apply(image)

    def ways_changed(self) -> None:
        self.hosted.ways_changed()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return NOW + int((self.now() - self._began) * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


class Realm:
    """Three brokers, the first one the controller; broker 2 leads t-0, and the others follow."""

    def __init__(self, *replicas: int, configs: dict[str, str], racks: tuple[str, ...]) -> None:
        image = MetadataImage("cluster", BrokerConfig(configs))
        self.inside = Inside(image, random.Random(1))
        self.inside.interior.later = self._later
        self._under_way: list[asyncio.TimerHandle] = []
        self.boxes: dict[int, Box] = {}
        for node_id in (1, 2, 3):
            self.up(node_id, racks[node_id - 1] if racks else None)
        self.create("t", replicas)
        self.fetch_all()

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._under_way.append(asyncio.get_running_loop().call_later(seconds, callback))

    def close(self) -> None:
        """All brokers are down, and nothing that was said arrives any more."""
        for box in self.boxes.values():
            box.hosted.close()
        self.inside.close()
        for one in self._under_way:
            one.cancel()

    def up(self, node_id: int, rack: str | None = None) -> None:
        box = self.boxes[node_id] = Box(node_id, self.inside, rack)
        self.inside.join(box)

    def down(self, node_id: int) -> None:
        self.inside.leave(node_id)
        self.boxes[node_id].hosted.close()

    def create(self, name: str, *assignments: tuple[int, ...]) -> None:
        reign = self.inside.controller
        assert reign is not None
        reign.create_topic(name, assignments, self.inside.image.topic_config({}))

    def move(self, node_id: int) -> None:
        """Let another one lead."""
        reign = self.inside.controller
        assert reign is not None
        reign.move_leader("t", 0, node_id)

    def part(self, one: int, other: int) -> None:
        self.inside.interior.part([(one, other)])

    def mend(self) -> None:
        self.inside.interior.join()

    def delay(self, seconds: float, sender: int = 1) -> None:
        """Let what a broker says to others travel so long, from now on."""
        self.inside.interior.delay = lambda one, _: seconds if one == sender else 0.0

    @property
    def leader(self) -> Hosted:
        return self.boxes[2].hosted

    def replica(self, node_id: int = 2) -> Replica:
        found = self.boxes[node_id].hosted.replicas.get("t", 0)
        assert found is not None
        return found

    def append(self, count: int = 1, *, timestamp: int = NOW) -> None:
        self.leader.append(self.replica(), stored(count, timestamp=timestamp), None)

    def fetch(self, follower: int, offset: int) -> None:
        self.leader.fetched_by(self.replica(), follower, offset, 0)

    def fetch_all(self) -> None:
        """All followers have all."""
        for one in self.replica().followers:
            self.fetch(one, self.replica().log.end_offset)

    async def lag(self, node_id: int) -> None:
        """Let a follower be late by one record, so that it isn't in sync any more."""
        self.append()
        for one in self.replica().followers:
            if one != node_id:
                self.fetch(one, self.replica().log.end_offset)
        await asyncio.sleep(LAG + 0.1)
        assert node_id not in self.isr

    @property
    def isr(self) -> tuple[int, ...]:
        """As the controller has it."""
        found = self.inside.image.partition("t", 0)
        assert found is not None
        return found.isr

    @property
    def committed(self) -> int:
        return self.replica().log.high_watermark

    def news(self, follower: int) -> bool:
        """Whether the leader has news for a follower."""
        return key_of(self.replica()) in self.leader.feed(follower).news

    def told(self, follower: int) -> None:
        """The follower was told all."""
        self.leader.feed(follower).news.clear()


Scene = Callable[[Realm], Coroutine[Any, Any, None]]


def on(
    *replicas: int, configs: dict[str, str] | None = None, racks: tuple[str, ...] = ()
) -> Callable[[Scene], None]:
    """Run a scene in a realm on virtual time, at whose end there are no timers."""

    def run(act: Scene) -> None:
        async def main() -> None:
            realm = Realm(*(replicas or (2, 3)), configs=configs or {}, racks=racks)
            await act(realm)
            realm.close()
            assert timers() == 0

        run_virtually(main())

    return run


def timers() -> int:
    """How many are set."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return sum(not one.cancelled() for one in loop._scheduled)


# Who joins


def test_who_caught_up_is_in_sync_at_once() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.append(2)
        assert realm.committed == 3
        realm.fetch(3, 2)
        assert realm.isr == (2,)
        realm.fetch(3, 3)
        assert realm.isr == (2, 3)


def test_who_has_no_replica_is_refused() -> None:
    @on()
    async def _(realm: Realm) -> None:
        with pytest.raises(Refused) as caught:
            realm.fetch(1, 0)
        assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_who_joined_is_waited_for() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.fetch(3, 1)
        realm.append()
        assert realm.committed == 1
        realm.fetch(3, 2)
        assert realm.committed == 2


def test_a_wish_that_nobody_heard_counts_and_is_said_again_when_the_way_is_mended() -> None:
    """Found by the cluster's simulation: it may have been granted, and committed records went."""

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


def test_a_wish_whose_answer_got_lost_counts_until_the_image_is_there() -> None:
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


def test_a_wish_that_came_to_a_controller_that_was_replaced_is_said_again_a_second_later() -> None:
    """Found by the cluster's simulation: nothing else may ever happen that would say it again."""

    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(0.5, sender=2)
        realm.fetch(3, 1)
        realm.inside.resign()
        assert realm.inside.registry.holder == 2
        realm.inside.resign()
        assert realm.inside.registry.holder == 1
        await asyncio.sleep(0.6)
        assert realm.inside.tally.fences == 1
        assert realm.replica().wanted_isr == (2, 3)
        assert realm.isr == (2,)
        await asyncio.sleep(2.0)
        assert realm.isr == (2, 3)
        assert realm.replica().wanted_isr is None
        assert timers() == 0


def test_who_is_down_as_the_controller_knows_is_no_longer_waited_for() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(1.0)
        realm.down(3)
        realm.fetch(3, 1)  # it was on its way
        realm.append()
        assert realm.replica().wanted_isr == (2, 3)
        assert realm.committed == 1
        await asyncio.sleep(1.5)
        assert realm.replica().wanted_isr is None
        assert realm.isr == (2,)
        realm.append()
        assert realm.committed == 3


def test_a_wish_on_top_of_what_is_over_counts_until_the_newer_image_is_there() -> None:
    """What that image says isn't known: who is about to join may be in sync already."""

    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(5.0)
        reign = realm.inside.controller
        assert reign is not None
        facts = realm.replica().facts
        change = IsrChange("t", 0, facts.leader_epoch, facts.partition_epoch, (2,))
        assert reign.alter_isr(2, [change]) == [ErrorCode.NONE]
        realm.delay(1.0)
        realm.fetch(3, 1)
        realm.append()
        realm.fetch(1, 2)
        await asyncio.sleep(2.0)
        assert realm.inside.tally.fences == 1, "the wish was refused, and that was heard"
        assert realm.replica().wanted_isr == (2, 1, 3)
        assert realm.committed == 1
        await asyncio.sleep(3.5)
        assert realm.replica().facts.isr == (2,)
        assert realm.committed == 2


def test_a_broker_that_is_up_again_joins_without_another_fetch() -> None:
    """Its fetch was there before the news that it is up."""

    @on()
    async def _(realm: Realm) -> None:
        realm.down(3)
        realm.delay(1.0)
        realm.up(3)
        realm.fetch(3, 0)
        assert realm.replica().wanted_isr is None, "it is down, as far as the leader knows"
        await asyncio.sleep(3.0)
        assert realm.isr == (2, 3)


# Who leaves


def test_who_is_late_leaves_when_its_time_is_over() -> None:
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


def test_who_has_all_again_stays_and_there_is_no_timer_once_it_was_seen() -> None:
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
        assert realm.inside.tally.isr_shrinks == 1


def test_who_is_late_while_the_controller_is_away_leaves_when_it_is_back() -> None:
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


def test_who_never_fetches_from_a_new_leader_leaves_though_nothing_is_written() -> None:
    @on()
    async def _(realm: Realm) -> None:
        realm.move(3)
        await asyncio.sleep(LAG - 0.1)
        assert realm.isr == (2, 3)
        await asyncio.sleep(0.2)
        assert realm.isr == (3,)


def test_each_partition_has_its_own_time_though_no_answer_came_yet() -> None:
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
        assert [one.isr for one in realm.inside.image.partitions()] == [(2,), (2,)]


def test_who_is_late_leaves_though_a_wish_for_another_was_refused() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.delay(1.0)
        realm.down(3)
        realm.fetch(3, 1)
        realm.append()  # nobody's time is looked at while the wish has no answer
        await asyncio.sleep(1.5)
        assert realm.replica().wanted_isr is None
        await asyncio.sleep(LAG - 1.6)
        assert realm.isr == (2, 1)
        await asyncio.sleep(0.2)
        assert realm.isr == (2,)


def test_one_that_leads_no_more_looks_after_nobody() -> None:
    @on()
    async def _(realm: Realm) -> None:
        realm.append()
        realm.move(3)
        await asyncio.sleep(0.1)
        assert realm.boxes[2].hosted.replicas.next_check() is None
        assert realm.boxes[3].hosted.replicas.next_check() is not None


# What followers are told


def test_what_is_appended_is_news_for_all_followers() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        for one in (1, 3):
            realm.told(one)
            realm.leader.feed(one).has_grown = False
        realm.append()
        assert [realm.news(one) for one in (1, 3)] == [True, True]
        assert [realm.leader.feed(one).has_grown for one in (1, 3)] == [True, True]


def test_a_high_watermark_that_moved_is_news_for_all_followers() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        realm.append()
        realm.fetch(3, 1)
        for one in (1, 3):
            realm.told(one)
        realm.fetch(1, 1)
        assert realm.committed == 1
        assert [realm.news(one) for one in (1, 3)] == [True, True]


def test_what_a_test_puts_into_logs_is_there_at_once() -> None:
    @on(2, 3, 1)
    async def _(realm: Realm) -> None:
        replica = realm.replica()
        replica.log.append_placed(stored(4))
        realm.leader.put(replica, 0, [3])
        assert [one.end_offset for one in replica.followers.values()] == [4, 0]
        assert realm.committed == 0
        assert realm.news(1)
        assert realm.leader.is_owing


def test_a_broker_owes_what_others_in_sync_do_not_have() -> None:
    @on()
    async def _(realm: Realm) -> None:
        assert not realm.leader.is_owing
        realm.append()
        assert realm.leader.is_owing
        realm.replica(3).take([placed(1, 0)])
        assert not realm.boxes[3].hosted.is_owing, "it doesn't lead"
        realm.fetch(3, 1)
        assert not realm.leader.is_owing


def test_what_nobody_else_in_sync_could_have_is_not_owed() -> None:
    @on(configs={"min.insync.replicas": "2"})
    async def _(realm: Realm) -> None:
        realm.down(3)
        realm.append()
        assert realm.committed == 0
        assert not realm.leader.is_owing


# What the broker itself appends


def internal(realm: Realm, node_id: int = 2, index: int = 0) -> list[ErrorCode]:
    """Append as a group coordinator does; what it is told, as it comes."""
    codes: list[ErrorCode] = []
    realm.boxes[node_id].hosted.append_internal("t", index, stored(2), codes.append)
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


# Followers that consumers are sent to


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


def test_a_consumer_stays_with_a_leader_in_its_rack_and_is_sent_to_nobody_out_of_sync() -> None:
    @on(2, 3, 1, configs=RACKS, racks=("b", "b", "c"))
    async def _(realm: Realm) -> None:
        assert realm.leader.preferred_replica(realm.replica(), "b", 0) == NO_LEADER
        assert realm.leader.preferred_replica(realm.replica(), "c", 0) == 3
        await realm.lag(3)
        assert realm.leader.preferred_replica(realm.replica(), "c", 0) == NO_LEADER


def test_without_a_selector_nobody_is_sent_away() -> None:
    @on(2, 3, racks=("a", "b", "c"))
    async def _(realm: Realm) -> None:
        assert realm.leader.preferred_replica(realm.replica(), "c", 0) == NO_LEADER


# Cleaning


def test_a_log_is_looked_at_when_its_time_has_come_and_followers_hear_where_it_begins() -> None:
    @on(configs={"log.retention.check.interval.ms": "300000", "log.retention.hours": "1"})
    async def _(realm: Realm) -> None:
        realm.append(3)
        realm.fetch_all()
        replica = realm.replica()
        await asyncio.sleep(HOUR + 1.0)
        realm.told(3)
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


# The end


def test_one_that_is_down_has_neither_timers_nor_followers() -> None:
    @on()
    async def _(realm: Realm) -> None:
        await realm.lag(3)
        realm.create("u", (2, 3))
        feed = realm.leader.feed(3)
        realm.part(1, 2)
        realm.fetch(3, 1)
        assert timers() == 2, "one to ask again, one for who is late in the other partition"
        realm.down(2)
        assert timers() == 0
        assert realm.leader.feed(3) is not feed
