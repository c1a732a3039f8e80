"""A follower's fetches: sessions, omitted and refused partitions, and diverged logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kclient.error_codes import ErrorCode
from kclient.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kclient.testing.controller import Tally
from kclient.testing.events import ClusterEvent, LogTruncated
from kclient.testing.follower_fetch import FollowerFetch
from kclient.testing.image import PartitionRegistration
from kclient.testing.replica import Replica
from kclient.types import OffsetSpec
from tests.unit.testing.batches import batch_bytes, placed
from tests.unit.testing.test_replica import config

BACKOFF = 1.0


def follower(index: int = 0, topic: str = "t") -> Replica:
    """Return broker 2's copy of a partition that broker 1 leads."""
    facts = PartitionRegistration(topic, index, (1, 2), (1, 2), 1)
    return Replica(2, topic.encode() * 16, facts, config())


class Scene:
    """Broker 2, which fetches from broker 1."""

    def __init__(self, *replicas: Replica) -> None:
        self.tally = Tally()
        self.reported: list[ClusterEvent] = []
        self.fetch = FollowerFetch(2, self.tally, self.reported.append)
        self.fetch.assign(list(replicas))
        self.fetch.begin()

    def ask(self) -> FetchRequest:
        return self.fetch.request(7)

    def answer(
        self, *parts: PartitionData, session: int = 9, code: int = 0, now: float = 0
    ) -> bool:
        topics = [FetchableTopicResponse(topic_id=b"t" * 16, partitions=list(parts))]
        response = FetchResponse(0, code, session, topics if parts else [])
        return self.fetch.take(response, now, BACKOFF)

    def located(self, offset: int, code: int = 0, index: int = 0) -> None:
        part = ListOffsetsPartitionResponse(index, code, offset=offset)
        response = ListOffsetsResponse(0, [ListOffsetsTopicResponse("t", [part])])
        self.fetch.locate(response, 0.0, BACKOFF)


def part(index: int = 0, code: int = 0, **fields: object) -> PartitionData:
    """Return a partition's response, without records by default."""
    made = PartitionData(index, code, high_watermark=0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def named(request: FetchRequest) -> list[tuple[int, int]]:
    """Return index and offset of each partition in a request."""
    return [
        (one.partition, one.fetch_offset) for topic in request.topics for one in topic.partitions
    ]


def left(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def test_a_session_begins_with_all_and_goes_on_with_what_moved() -> None:
    scene = Scene(follower(0), follower(1))
    first = scene.ask()
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (2, 7)
    assert named(first) == [(0, 0), (1, 0)]
    scene.answer(part(0, records=batch_bytes(3)), part(1))
    second = scene.ask()
    assert (second.session_id, second.session_epoch) == (9, 1)
    assert named(second) == [(0, 3)]
    scene.answer()
    third = scene.ask()
    assert (third.session_epoch, named(third)) == (2, [])


@pytest.mark.parametrize(("session", "code"), [(9, ErrorCode.FETCH_SESSION_ID_NOT_FOUND), (0, 0)])
def test_a_session_that_is_lost_or_not_granted_begins_again(session: int, code: int) -> None:
    scene = Scene(follower(0), follower(1))
    scene.ask()
    scene.answer()
    scene.ask()
    scene.answer(session=session, code=code)
    again = scene.ask()
    assert (again.session_id, again.session_epoch) == (0, 0)
    assert named(again) == [(0, 0), (1, 0)]


@pytest.mark.parametrize(
    ("session", "code", "goes_on"),
    [
        (9, ErrorCode.NONE, True),
        (0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, True),
        (0, ErrorCode.INVALID_FETCH_SESSION_EPOCH, True),
        (0, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, True),
        (0, ErrorCode.NONE, False),
        (0, ErrorCode.KAFKA_STORAGE_ERROR, False),
    ],
)
def test_a_leader_that_refuses_all_or_gives_no_session_is_left_alone_for_a_while(
    session: int, code: int, goes_on: bool
) -> None:
    scene = Scene(follower(0))
    scene.ask()
    assert scene.answer(session=session, code=code) is goes_on


def test_what_is_followed_no_more_is_forgotten_once() -> None:
    kept = follower(0)
    scene = Scene(kept, follower(1))
    scene.ask()
    scene.answer()
    assert scene.fetch.assign([kept])
    assert left(scene.ask()) == [1]
    scene.answer()
    assert left(scene.ask()) == []


def test_what_was_never_asked_for_need_not_be_forgotten() -> None:
    kept = follower(0)
    scene = Scene(kept)
    scene.ask()
    scene.fetch.assign([kept, follower(1)])
    scene.fetch.assign([kept])
    assert left(scene.ask()) == []


def test_only_what_is_new_makes_a_difference() -> None:
    one, two = follower(0), follower(1)
    scene = Scene(one)
    scene.ask()
    assert not scene.fetch.assign([one])
    assert scene.fetch.assign([one, two])
    assert named(scene.ask()) == [(1, 0)]
    two.facts = replace(two.facts, leader_epoch=1)
    assert scene.fetch.assign([one, two])
    (topic,) = scene.ask().topics
    assert [(each.partition, each.current_leader_epoch) for each in topic.partitions] == [(1, 1)]


def test_a_recreated_replica_takes_nothing_that_was_meant_for_the_last() -> None:
    scene = Scene(follower(0), follower(1))
    scene.ask()
    scene.fetch.assign([follower(0)])
    scene.answer(part(1, records=batch_bytes(3)))
    assert left(scene.ask()) == [1]


def test_what_the_leader_refuses_rests_until_its_time_has_come() -> None:
    scene = Scene(follower(0))
    scene.ask()
    scene.answer(part(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), now=5.0)
    assert scene.tally.fences == 1
    assert scene.fetch.all_delayed
    assert scene.fetch.next_retry == 5.0 + BACKOFF
    request = scene.ask()
    assert (named(request), left(request)) == ([], [0])
    assert not scene.fetch.revive(5.9)
    assert scene.fetch.revive(6.0)
    assert not scene.fetch.all_delayed
    assert named(scene.ask()) == [(0, 0)]


def test_one_that_is_refused_leaves_the_others_going() -> None:
    scene = Scene(follower(0), follower(1))
    scene.ask()
    scene.answer(part(0, ErrorCode.FENCED_LEADER_EPOCH), part(1, records=batch_bytes(2)))
    assert not scene.fetch.all_delayed
    assert named(scene.ask()) == [(1, 2)]


def test_one_that_was_refused_is_fetched_again_at_once_when_it_is_reassigned() -> None:
    one = follower(0)
    scene = Scene(one)
    scene.ask()
    scene.answer(part(0, ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert scene.fetch.assign([one])
    assert scene.fetch.next_retry is None
    request = scene.ask()
    assert (named(request), left(request)) == ([(0, 0)], [])


def test_a_log_that_parted_is_cut_back_and_asks_again_from_there() -> None:
    one = follower(0)
    one.take([placed(2, 0), placed(3, 2)])
    scene = Scene(one)
    scene.ask()
    scene.answer(part(0, diverging_epoch=EpochEndOffset(0, 2)))
    assert one.log.end_offset == 2
    assert scene.tally.truncations == 1
    assert scene.reported == [LogTruncated("t", 0, 2, 2, 3)]
    assert named(scene.ask()) == [(0, 2)]


def test_the_leaders_offsets_of_its_log_are_adopted() -> None:
    one = follower(0)
    scene = Scene(one)
    scene.ask()
    scene.answer(part(0, records=batch_bytes(4), high_watermark=3, log_start_offset=1))
    log = one.log
    assert (log.start_offset, log.high_watermark, log.end_offset) == (1, 3, 4)


def test_a_new_log_start_is_sent_to_the_leader_though_nothing_else_is_new() -> None:
    """A DeleteRecords may wait for it."""
    one = follower(0)
    one.take([placed(4, 0)])
    scene = Scene(one)
    scene.ask()
    scene.answer(part(0, high_watermark=4, log_start_offset=0))
    assert named(scene.ask()) == []
    scene.answer(part(0, high_watermark=4, log_start_offset=3))
    (topic,) = scene.ask().topics
    assert [each.log_start_offset for each in topic.partitions] == [3]
    scene.answer(part(0, high_watermark=4, log_start_offset=3))
    assert named(scene.ask()) == []


# Logs without a common end


def stray(*taken: int) -> tuple[Scene, Replica]:
    """Return a follower whose log end isn't within the leader's log."""
    one = follower(0)
    for count in taken:
        one.take([placed(count, one.log.end_offset)])
    scene = Scene(one)
    scene.ask()
    scene.answer(part(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    return scene, one


def asked(scene: Scene) -> int | None:
    request = scene.fetch.list_offsets_request()
    return None if request is None else request.topics[0].partitions[0].timestamp


def test_where_the_leader_begins_later_the_follower_starts_over() -> None:
    scene, one = stray(3)
    assert asked(scene) == OffsetSpec.EARLIEST
    scene.located(40)
    assert asked(scene) == OffsetSpec.LATEST
    scene.located(50)
    assert asked(scene) is None
    assert (one.log.start_offset, one.log.end_offset) == (40, 40)
    assert named(scene.ask()) == [(0, 40)]
    assert (scene.tally.truncations, scene.reported) == (0, [])


def test_where_the_leader_ends_earlier_the_follower_goes_back_to_its_end() -> None:
    scene, one = stray(2, 2)
    scene.located(0)
    scene.located(2)
    assert one.log.end_offset == 2
    assert scene.reported == [LogTruncated("t", 0, 2, 2, 2)]
    assert scene.tally.truncations == 1
    assert named(scene.ask()) == [(0, 2)]


def test_where_the_leader_ends_before_the_follower_begins_the_follower_goes_back_too() -> None:
    """The leader was elected uncleanly: the logs have no offset in common."""
    one = follower(0)
    one.log.restart(40)
    one.take([placed(2, 40)])
    scene = Scene(one)
    scene.ask()
    scene.answer(part(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    scene.located(0)
    scene.located(10)
    assert (one.log.start_offset, one.log.end_offset) == (10, 10)
    assert named(scene.ask()) == [(0, 10)]


def test_where_offsets_prove_nothing_the_uncommitted_is_cut_or_it_waits() -> None:
    scene, one = stray(2, 2)
    one.follow(2, 0)
    scene.located(0)
    scene.located(9)
    assert one.log.end_offset == 2
    scene, one = stray(2)
    one.follow(2, 0)
    scene.located(0)
    scene.located(9)
    assert scene.fetch.all_delayed


def test_a_leader_without_the_offset_is_asked_again_later() -> None:
    scene, _ = stray(2)
    scene.located(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert asked(scene) is None
    assert scene.fetch.next_retry == BACKOFF


def test_a_stray_that_is_followed_no_more_is_not_asked_for() -> None:
    scene, _ = stray(2)
    scene.fetch.assign([])
    assert asked(scene) is None
    assert scene.fetch.is_idle


def test_a_follower_knows_that_it_is_out_of_sync() -> None:
    one = follower(0)
    scene = Scene(one)
    assert not scene.fetch.is_left_out()
    one.facts = replace(one.facts, isr=(1,))
    assert scene.fetch.is_left_out()
