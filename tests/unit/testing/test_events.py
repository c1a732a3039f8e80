"""Events: what the quorum reports of sessions, claim and images, and how the log delivers it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kclient.errors import InvalidArgument, RequestTimedOut
from kclient.testing.event_log import EventLog
from kclient.testing.events import (
    BrokerDown,
    BrokerFenced,
    BrokerUp,
    ClusterEvent,
    ControllerElected,
    ControllerLost,
    CoordinatorElected,
    IsrExpanded,
    IsrShrunk,
    LeaderElected,
    LeaderLost,
    changes,
)
from kclient.testing.image import NO_LEADER, MetadataImage
from kclient.testing.quorum import Quorum, QuorumEvent
from tests.unit.testing.images import add, cluster

THREE = [1, 2, 3]


def changed(image: MetadataImage, topic: str = "t", **facts: Any) -> MetadataImage:
    """Return the image with other facts of the topic's first partition."""
    found = image.partition(topic, 0)
    assert found is not None
    return image.with_partitions([replace(found, **facts)])


def reported(before: MetadataImage, after: MetadataImage) -> list[ClusterEvent]:
    return list(changes(before, after))


# Events from the difference of two images


def test_the_same_image_gives_no_event() -> None:
    image = add(cluster(), "t", THREE)
    assert reported(image, image) == []
    assert reported(image, replace(image, version=2)) == []


def test_topics_that_are_created_deleted_or_recreated_give_no_event() -> None:
    empty = cluster()
    image = add(empty, "t", THREE)
    (topic,) = image.topics.values()
    anew = empty.with_topics(replace(topic, topic_id=b"x" * 16, partitions=()))
    assert reported(empty, image) == reported(image, empty) == reported(image, anew) == []


def test_partitions_that_are_added_give_no_event() -> None:
    assert reported(add(cluster(), "t", THREE), add(cluster(), "t", THREE, THREE)) == []


def test_a_leader_that_goes_leaves_the_isr_before_another_one_leads() -> None:
    image = add(cluster(), "t", THREE)
    assert reported(image, changed(image, isr=(2, 3), leader=2, leader_epoch=1)) == [
        IsrShrunk("t", 0, (2, 3), (1,)),
        LeaderElected("t", 0, 2, 1),
    ]


def test_a_leader_from_outside_the_isr_is_unclean() -> None:
    image = changed(add(cluster(), "t", THREE), isr=(1,))
    assert reported(image, changed(image, isr=(3,), leader=3, leader_epoch=1)) == [
        IsrShrunk("t", 0, (3,), (1,)),
        LeaderElected("t", 0, 3, 1, unclean=True),
        IsrExpanded("t", 0, (3,), (3,)),
    ]


def test_an_eligible_replica_that_leads_is_not_unclean() -> None:
    image = changed(add(cluster(), "t", THREE), isr=(), leader=NO_LEADER, elr=(3,))
    (elected, _) = reported(image, changed(image, isr=(3,), leader=3, leader_epoch=1, elr=()))
    assert elected == LeaderElected("t", 0, 3, 1, unclean=False)


def test_the_same_leader_in_a_new_epoch_was_elected() -> None:
    image = add(cluster(), "t", THREE)
    assert reported(image, changed(image, leader_epoch=2)) == [LeaderElected("t", 0, 1, 2)]


def test_a_partition_without_a_leader_is_reported() -> None:
    image = changed(add(cluster(), "t", [1]), isr=(1,))
    assert reported(image, changed(image, isr=(), leader=NO_LEADER, leader_epoch=1)) == [
        IsrShrunk("t", 0, (), (1,)),
        LeaderLost("t", 0, 1),
    ]


def test_a_leader_of_the_offsets_topic_coordinates() -> None:
    image = add(cluster(), "__consumer_offsets", THREE)
    (event,) = reported(image, changed(image, "__consumer_offsets", leader=2, leader_epoch=1))
    assert event == CoordinatorElected("__consumer_offsets", 0, 2, 1)
    assert isinstance(event, LeaderElected)


def test_other_changes_of_a_partition_give_no_event() -> None:
    image = add(cluster(), "t", THREE)
    assert reported(image, changed(image, partition_epoch=9, isr=(3, 2, 1))) == []


# Events as values


def test_an_event_is_equal_to_one_of_another_time_and_never_changes() -> None:
    event = LeaderElected("t", 0, 2, 1, at=5.0)
    assert event == LeaderElected("t", 0, 2, 1) != CoordinatorElected("t", 0, 2, 1)
    assert len({event, LeaderElected("t", 0, 2, 1, at=6.0), BrokerUp(1, 0)}) == 2
    with pytest.raises(AttributeError):
        event.leader = 3  # type: ignore[misc]


# Events from the quorum


def heard_from(quorum: Quorum) -> list[ClusterEvent]:
    heard: list[ClusterEvent] = []
    quorum.listen(heard.append)
    return heard


def test_the_race_for_the_claim_is_reported_in_order() -> None:
    quorum = Quorum(cluster())
    heard = heard_from(quorum)
    quorum.open_session(1)
    quorum.open_session(2)
    quorum.claim(1)
    quorum.claim(2)
    quorum.resign(1, 1)
    quorum.claim(2)
    quorum.end_session(2)
    quorum.end_session(1, expired=True)
    quorum.end_session(1)
    assert heard == [
        BrokerUp(1, 0),
        BrokerUp(2, 1),
        ControllerElected(1, 1),
        ControllerLost(1, 1),
        ControllerElected(2, 2),
        BrokerDown(2, 1),
        ControllerLost(2, 2),
        BrokerFenced(1, 0),
    ]


def test_an_event_is_reported_when_it_is_so_and_before_any_watcher_acts_on_it() -> None:
    quorum = Quorum(cluster())
    heard: list[tuple[ClusterEvent, int]] = []
    quorum.listen(lambda event: heard.append((event, quorum.controller_id)))

    def race(news: QuorumEvent, node_id: int) -> None:
        quorum.claim(2)

    quorum.watch(race)
    quorum.open_session(2)
    quorum.open_session(1)
    quorum.resign(2, 1)
    assert heard == [
        (BrokerUp(2, 0), NO_LEADER),
        (ControllerElected(2, 1), 2),
        (BrokerUp(1, 1), 2),
        (ControllerLost(2, 1), NO_LEADER),
        (ControllerElected(2, 2), 2),
    ]


def test_what_is_written_is_there_when_it_is_reported() -> None:
    quorum = Quorum(add(cluster(), "t", THREE))
    quorum.open_session(1)
    quorum.claim(1)
    seen: list[int] = []
    quorum.listen(lambda _: seen.append(quorum.image.topics["t"].partitions[0].leader))
    quorum.write(1, 1, changed(quorum.image, leader=2, leader_epoch=1))
    assert seen == [2]


# The log


def log_of(*events: ClusterEvent, limit: int = 10) -> tuple[EventLog, list[BaseException]]:
    failures: list[BaseException] = []
    log = EventLog(lambda: 7.5, failures.append, limit)
    for event in events:
        log.add(event)
    return log, failures


def test_events_are_kept_in_order_with_their_times_up_to_the_limit() -> None:
    log, _ = log_of(BrokerUp(1, 0), BrokerUp(2, 1), ControllerElected(1, 1), limit=2)
    assert list(log) == [BrokerUp(2, 1), ControllerElected(1, 1)]
    assert len(log) == 2
    assert [one.at for one in log] == [7.5, 7.5]
    log.clear()
    assert list(log) == []


def test_events_are_found_by_class_and_condition() -> None:
    log, _ = log_of(
        LeaderElected("t", 0, 2, 1),
        CoordinatorElected("__consumer_offsets", 0, 2, 1),
        BrokerUp(1, 0),
    )
    assert len(log.of(LeaderElected)) == 2
    assert len(log.of(CoordinatorElected)) == 1
    assert log.of(LeaderElected, lambda one: one.topic == "t") == [LeaderElected("t", 0, 2, 1)]
    assert log.of(BrokerDown) == []


@pytest.mark.parametrize("kind", ["LeaderElected", int, None])
async def test_what_is_no_class_of_events_is_refused(kind: Any) -> None:
    log, _ = log_of()
    with pytest.raises(InvalidArgument, match="is no class of events"):
        log.of(kind)
    with pytest.raises(InvalidArgument, match="is no class of events"):
        await log.wait_for(kind)


async def test_what_is_no_condition_or_no_time_is_refused() -> None:
    log, _ = log_of(BrokerUp(1, 0))
    with pytest.raises(InvalidArgument, match="must be a function of an event"):
        log.of(BrokerUp, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="timeout=-1 must be seconds"):
        await log.wait_for(BrokerUp, timeout=-1)


def test_the_log_shows_what_happened_last() -> None:
    log, _ = log_of()
    assert repr(log) == "<EventLog: no events>"
    log.add(BrokerUp(1, 0))
    assert repr(log) == (
        "<EventLog: 1 event; the last ones:\n  BrokerUp(node_id=1, epoch=0) at 7.500>"
    )


def test_listeners_are_notified_until_they_are_removed() -> None:
    log, _ = log_of()
    heard: list[ClusterEvent] = []
    log.listen(heard.append)
    log.add(BrokerUp(1, 0))
    log.remove(heard.append)
    log.remove(heard.append)
    log.add(BrokerUp(2, 1))
    assert heard == [BrokerUp(1, 0)]
    with pytest.raises(InvalidArgument, match="takes a function"):
        log.listen(None)  # type: ignore[arg-type]


async def test_a_coroutine_function_that_would_not_be_awaited_is_refused() -> None:
    log, _ = log_of(BrokerUp(1, 0))

    async def hear(event: ClusterEvent) -> bool:
        return isinstance(event, BrokerDown)

    with pytest.raises(InvalidArgument, match=r"coroutine function: .* loop\.create_task"):
        log.listen(hear)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="condition must not be a coroutine function"):
        log.of(BrokerUp, hear)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="condition must not be a coroutine function"):
        await log.wait_for(BrokerUp, hear)  # type: ignore[arg-type]


def test_all_listeners_get_the_same_order_though_one_causes_more_events() -> None:
    log, _ = log_of()
    heard: list[ClusterEvent] = []

    def provoke(event: ClusterEvent) -> None:
        if isinstance(event, BrokerDown):
            log.add(ControllerLost(1, 1))

    log.listen(provoke)
    log.listen(heard.append)
    log.add(BrokerDown(1, 0))
    assert heard == list(log) == [BrokerDown(1, 0), ControllerLost(1, 1)]


def test_what_a_listener_raises_is_kept_for_the_test_and_stops_no_other() -> None:
    log, failures = log_of()
    heard: list[ClusterEvent] = []

    def fail(event: ClusterEvent) -> None:
        pytest.fail("not this one")

    log.listen(fail)
    log.listen(heard.append)
    log.add(BrokerUp(1, 0))
    assert heard == [BrokerUp(1, 0)]
    assert [str(one) for one in failures] == ["not this one"]


def test_a_listener_that_is_interrupted_leaves_the_log_at_work() -> None:
    log, _ = log_of()
    heard: list[ClusterEvent] = []

    def interrupt(event: ClusterEvent) -> None:
        raise KeyboardInterrupt

    log.listen(interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.add(BrokerUp(1, 0))
    log.remove(interrupt)
    log.listen(heard.append)
    log.add(BrokerUp(2, 1))
    assert heard == [BrokerUp(2, 1)]


async def test_what_is_there_is_not_waited_for() -> None:
    log, _ = log_of(BrokerUp(1, 0), BrokerUp(2, 1))
    assert await log.wait_for(BrokerUp) == BrokerUp(1, 0)
    assert await log.wait_for(BrokerUp, lambda one: one.node_id == 2) == BrokerUp(2, 1)


async def test_what_is_not_there_is_waited_for() -> None:
    log, _ = log_of(BrokerUp(1, 0))
    waiting = asyncio.create_task(log.wait_for(BrokerUp, lambda one: one.epoch > 0))
    await asyncio.sleep(0)
    log.add(ControllerElected(1, 1))
    log.add(BrokerUp(2, 1))
    log.add(BrokerUp(3, 2))
    assert await waiting == BrokerUp(2, 1)


async def test_a_wait_that_takes_too_long_names_what_happened_last() -> None:
    log, _ = log_of(*(BrokerUp(node_id, node_id) for node_id in range(1, 8)))
    with pytest.raises(
        RequestTimedOut, match=r"no BrokerDown within 0.001 s; .*node_id=7, epoch=7\) at 7.500"
    ) as reported:
        await log.wait_for(BrokerDown, timeout=0.001)
    assert "node_id=2" not in str(reported.value)
    empty, _ = log_of()
    with pytest.raises(RequestTimedOut, match="happened last: nothing"):
        await empty.wait_for(BrokerDown, timeout=0.001)


@pytest.mark.parametrize("error", [TimeoutError("mine"), pytest.fail.Exception("mine")])
async def test_what_a_condition_raises_ends_the_wait(error: BaseException) -> None:
    log, failures = log_of()

    def fail(event: BrokerUp) -> bool:
        raise error

    waiting = asyncio.create_task(log.wait_for(BrokerUp, fail))
    await asyncio.sleep(0)
    log.add(BrokerUp(1, 0))
    with pytest.raises(type(error), match="mine"):
        await waiting
    assert failures == []


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    log, _ = log_of()
    waiting = asyncio.create_task(log.wait_for(BrokerUp))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert log._listeners == []
