"""One replica of a partition: high watermark, late and caught-up followers, log truncation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient.error_codes import ErrorCode
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.image import PartitionRegistration
from kclient.testing.replica import Replica
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig
from tests.unit.testing.batches import placed, stored

LAG = 30.0


def config(min_isr: int = 1) -> TopicConfig:
    return TopicConfig({"min.insync.replicas": str(min_isr)}, BrokerConfig({}).topic_defaults)


def copy(
    node_id: int = 1,
    *,
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    min_isr: int = 1,
) -> Replica:
    facts = PartitionRegistration("t", 0, replicas, replicas if isr is None else isr, leader)
    made = Replica(node_id, b"t" * 16, facts, config(min_isr))
    made.begin(0.0)
    return made


def append(replica: Replica, count: int = 1, now: float = 0.0) -> None:
    replica.append(stored(count), None, now)


def turn(replica: Replica, leader: int, now: float = 0.0, isr: tuple[int, ...] = ()) -> None:
    """Elect a leader in the next epoch."""
    was = replica.facts
    facts = replace(
        was,
        leader=leader,
        isr=isr or was.isr,
        leader_epoch=was.leader_epoch + 1,
        partition_epoch=was.partition_epoch + 1,
    )
    replica.become(facts, replica.config, now)


def accept(replica: Replica, isr: tuple[int, ...], now: float = 0.0) -> None:
    """Grant another ISR, as the controller does."""
    was = replica.facts
    facts = replace(was, isr=isr, partition_epoch=was.partition_epoch + 1)
    replica.become(facts, replica.config, now)


# The high watermark


def test_one_copy_alone_commits_at_once() -> None:
    replica = copy(replicas=(1,))
    append(replica, 3)
    assert replica.log.high_watermark == 3


def test_the_high_watermark_is_the_least_of_those_in_sync() -> None:
    replica = copy()
    append(replica, 5)
    assert replica.log.high_watermark == 0
    assert not replica.fetched_by(2, 5, 0, 0.0)
    assert replica.fetched_by(3, 4, 0, 0.0)
    assert replica.log.high_watermark == 4


def test_an_out_of_sync_follower_is_not_waited_for() -> None:
    replica = copy(isr=(1, 2))
    append(replica, 5)
    replica.fetched_by(2, 5, 0, 0.0)
    assert replica.log.high_watermark == 5


def test_a_joining_follower_is_waited_for() -> None:
    replica = copy(isr=(1, 2))
    replica.fetched_by(3, 0, 0, 0.0)
    replica.pending_isr = replica.to_expand([1, 2, 3])
    append(replica, 5)
    replica.fetched_by(2, 5, 0, 0.0)
    assert replica.log.high_watermark == 0
    replica.fetched_by(3, 2, 0, 0.0)
    assert replica.log.high_watermark == 2


def test_a_leaving_follower_is_waited_for_until_it_has_left() -> None:
    replica = copy(isr=(1, 2))
    append(replica, 5)
    replica.pending_isr = replica.to_shrink(LAG, LAG)
    assert replica.pending_isr == (1,)
    assert not replica.advance()
    accept(replica, (1,))
    assert replica.log.high_watermark == 5
    assert replica.pending_isr is None


def test_below_min_isr_readers_get_no_more_until_enough_are_back() -> None:
    replica = copy(isr=(1,), min_isr=2)
    append(replica, 3)
    assert (replica.log.end_offset, replica.log.high_watermark) == (3, 0)
    replica.fetched_by(2, 3, 0, 0.0)
    assert replica.log.high_watermark == 0
    accept(replica, (1, 2))
    assert replica.log.high_watermark == 3


def test_a_fetch_of_one_without_a_replica_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        copy().fetched_by(4, 0, 0, 0.0)
    assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


# Falling behind


def test_a_follower_is_late_once_it_lacked_something_for_the_whole_lag_time() -> None:
    replica = copy()
    for one in (2, 3):
        replica.fetched_by(one, 0, 0, 1.0)
    assert replica.next_lag(LAG) is None
    append(replica, 1, now=100.0)
    assert replica.next_lag(LAG) == 130.0
    replica.fetched_by(2, 1, 0, 101.0)
    assert replica.to_shrink(129.9, LAG) is None
    assert replica.to_shrink(130.0, LAG) == (1, 2)


def test_a_late_follower_is_late_at_its_deadline_however_floats_are_rounded() -> None:
    """Else its leader would check again at the same time, for ever."""
    for late in range(1, 400):
        replica = copy(replicas=(1, 2))
        replica.fetched_by(2, 0, 0, 0.0)
        append(replica, 1, now=late / 7)
        due = replica.next_lag(LAG / 9)
        assert due is not None
        assert replica.to_shrink(due, LAG / 9) == (1,), f"written at {late / 7}"


def test_a_quiet_partition_has_no_late_follower() -> None:
    replica = copy()
    for one in (2, 3):
        replica.fetched_by(one, 0, 0, 1.0)
    assert replica.to_shrink(1e9, LAG) is None


def test_a_follower_that_never_fetches_from_a_new_leader_is_late_without_writes() -> None:
    replica = copy()
    assert replica.next_lag(LAG) == LAG
    assert replica.to_shrink(LAG, LAG) == (1,)


def test_more_writes_do_not_renew_the_time_of_a_follower_that_is_behind() -> None:
    replica = copy(replicas=(1, 2))
    replica.fetched_by(2, 0, 0, 0.0)
    append(replica, 1, now=10.0)
    append(replica, 1, now=20.0)
    assert replica.next_lag(LAG) == 40.0


def test_a_follower_that_keeps_pace_is_never_late_though_there_is_always_more() -> None:
    replica = copy(replicas=(1, 2))
    replica.fetched_by(2, 0, 0, 0.0)
    append(replica, 1, now=0.0)
    for second in range(1, 100):
        append(replica, 1, now=float(second))
        replica.fetched_by(2, second, 0, float(second))  # all records of a second ago
        assert replica.to_shrink(float(second), 5.0) is None


def test_a_follower_that_fetches_but_falls_further_behind_is_late() -> None:
    replica = copy(replicas=(1, 2))
    replica.fetched_by(2, 0, 0, 0.0)
    for second in range(1, 12):
        append(replica, 2, now=float(second))
        replica.fetched_by(2, second, 0, float(second))
    assert replica.to_shrink(12.0, 5.0) == (1,)


# Catching up


def test_a_follower_with_all_committed_records_joins() -> None:
    replica = copy(isr=(1, 2))
    append(replica, 5)
    replica.fetched_by(2, 3, 0, 0.0)
    replica.fetched_by(3, 2, 0, 0.0)
    assert replica.to_expand([1, 2, 3], asking=3) is None
    replica.fetched_by(3, 3, 0, 0.0)
    assert replica.to_expand([1, 2, 3], asking=3) == (1, 2, 3)
    assert replica.to_expand([1, 2], asking=3) is None, "one that is down joined"


def test_one_that_does_not_ask_joins_only_if_it_had_all() -> None:
    replica = copy(isr=(1, 2))
    append(replica, 5)
    replica.fetched_by(2, 3, 0, 0.0)
    replica.fetched_by(3, 3, 0, 0.0)
    assert replica.to_expand([1, 2, 3]) is None
    assert replica.to_expand([1, 2, 3], asking=2) is None
    replica.fetched_by(3, 5, 0, 0.0)
    assert replica.to_expand([1, 2, 3]) == (1, 2, 3)


def test_a_follower_that_joins_below_the_log_end_has_its_time_from_then_on() -> None:
    replica = copy(isr=(1, 2))
    append(replica, 5)
    for node_id in (2, 3):
        replica.fetched_by(node_id, 3, 0, 50.0)
    replica.fetched_by(2, 5, 0, 50.0)
    accept(replica, (1, 2, 3), now=50.0)
    assert replica.to_shrink(50.0 + LAG - 0.1, LAG) is None
    assert replica.to_shrink(50.0 + LAG, LAG) == (1, 2)


def test_a_follower_must_have_the_leaders_records_of_its_election_to_join() -> None:
    replica = copy(2, replicas=(1, 2, 3))
    replica.log.append_placed(stored(4))
    turn(replica, 2, isr=(2, 1))
    assert replica.leader_epoch_start_offset == 4
    replica.fetched_by(3, 3, 0, 0.0)
    assert replica.to_expand([1, 2, 3]) is None
    replica.fetched_by(3, 4, 0, 0.0)
    assert replica.to_expand([1, 2, 3]) == (2, 1, 3)


def test_one_isr_request_at_a_time() -> None:
    replica = copy(isr=(1, 2))
    replica.fetched_by(3, 0, 0, 0.0)
    replica.pending_isr = (1, 2, 3)
    assert replica.to_expand([1, 2, 3]) is None
    assert replica.to_shrink(1e9, LAG) is None
    assert replica.next_lag(LAG) is None


def test_followers_request_no_isr() -> None:
    replica = copy(2)
    assert replica.to_expand([1, 2, 3]) is None
    assert replica.to_shrink(1e9, LAG) is None
    assert replica.followers == {}


# Leadership changes


def test_a_leader_that_is_elected_again_knows_nothing_of_its_followers() -> None:
    replica = copy()
    append(replica, 2)
    replica.fetched_by(2, 2, 0, 0.0)
    turn(replica, 1, now=7.0)
    assert [one.end_offset for one in replica.followers.values()] == [-1, -1]
    assert replica.next_lag(LAG) == 37.0


def test_a_leader_that_is_replaced_has_no_followers() -> None:
    replica = copy()
    turn(replica, 2)
    assert replica.followers == {}


def test_one_that_stands_down_leads_again_only_after_an_election() -> None:
    replica = copy()
    replica.pending_isr = (1,)
    replica.stand_down()
    assert (replica.leads, replica.followers, replica.pending_isr) == (False, {}, None)
    turn(replica, 1)
    assert replica.leads
    assert sorted(replica.followers) == [2, 3]


def test_a_new_leader_begins_its_epoch_where_its_log_ends() -> None:
    replica = copy(2)
    replica.log.append_placed(stored(3))
    turn(replica, 2)
    append(replica)
    assert replica.log.epochs.entries()[-1] == (1, 3)


# Following


def follow(leader: Replica, follower: Replica, *, rounds: int = 20) -> int:
    """Fetch as Kafka does until there is no more; return how often the log was truncated."""
    cut = 0
    for _ in range(rounds):
        log, epoch = follower.log, follower.last_fetched_epoch
        if log.end_offset > leader.log.end_offset and epoch < 0:
            raise AssertionError("out of range")
        reported = leader.log.epochs.end_of(epoch, leader.log.end_offset)
        if epoch >= 0 and (reported.epoch < epoch or reported.end_offset < log.end_offset):
            cut += follower.truncate_diverging(reported.epoch, reported.end_offset)
            continue
        more = leader.log.batches_between(log.end_offset, leader.log.end_offset)
        follower.take(more)
        follower.follow(leader.log.high_watermark, leader.log.start_offset)
        if not more:
            return cut
    raise AssertionError("the follower never had all")


def content(replica: Replica) -> list[tuple[int, int]]:
    return [(one.base_offset, one.leader_epoch) for one in replica.log.batches]


def test_what_is_there_already_is_not_taken_twice() -> None:
    leader, follower = copy(), copy(2)
    append(leader, 2)
    append(leader, 2)
    follower.take(leader.log.batches[:1])
    follower.take(leader.log.batches)
    assert content(follower) == [(0, 0), (2, 0)]


def test_a_follower_commits_no_more_than_it_has() -> None:
    follower = copy(2)
    follower.take([stored(2)])
    follower.follow(9, 0)
    assert follower.log.high_watermark == 2


def test_a_follower_begins_where_its_leader_begins() -> None:
    follower = copy(2)
    follower.take([stored(4)])
    follower.follow(4, 3)
    assert (follower.log.start_offset, follower.log.end_offset) == (3, 4)
    follower.follow(4, 1)
    assert follower.log.start_offset == 3


def test_what_the_leader_never_had_is_cut_back() -> None:
    """KIP-101: broker 1 led and wrote records that no follower fetched; then broker 2 leads."""
    one, two = copy(), copy(2)
    append(one, 2)
    follow(one, two)
    append(one, 5)
    turn(two, 2)
    turn(one, 2)
    append(two, 3)
    assert follow(two, one) == 1
    assert content(one) == content(two) == [(0, 0), (2, 1)]


def test_reigns_in_which_nothing_was_written_cut_nothing() -> None:
    """The log ends with epochs that the next leader doesn't know; its records are all right."""
    one, two = copy(), copy(2)
    append(one, 2)
    follow(one, two)
    for _ in range(3):
        turn(one, 1)
    for _ in range(4):
        two.facts = replace(two.facts, leader_epoch=two.facts.leader_epoch + 1)
    turn(two, 2)
    one.become(two.facts, one.config, 0.0)
    append(two)
    assert one.last_fetched_epoch == 3
    assert follow(two, one) == 0
    assert content(one) == content(two)
    assert one.last_fetched_epoch == 5


def test_logs_that_parted_twice_are_cut_epoch_by_epoch() -> None:
    one, two = copy(), copy(2)
    append(one, 2)
    follow(one, two)
    append(one)  # epoch 0, not fetched by broker 2
    turn(one, 1)
    turn(one, 1)
    append(one)  # epoch 2
    turn(two, 2)
    append(two, 2)  # epoch 1
    two.facts = replace(two.facts, leader_epoch=2)
    turn(two, 2)
    append(two)  # epoch 3
    one.become(two.facts, one.config, 0.0)
    assert follow(two, one) >= 1
    assert content(one) == content(two) == [(0, 0), (2, 1), (4, 3)]


def test_what_is_committed_goes_back_with_the_log() -> None:
    replica = copy(2)
    replica.take([stored(4)])
    replica.follow(4, 0)
    assert replica.truncate_diverging(-1, 0)
    assert (replica.log.end_offset, replica.log.high_watermark) == (0, 0)


def test_a_log_is_not_cut_below_its_start() -> None:
    replica = copy(2)
    replica.take([stored(4)])
    replica.follow(4, 4)
    assert not replica.truncate_diverging(0, 1)
    assert (replica.log.start_offset, replica.log.end_offset) == (4, 4)


def test_a_log_that_starts_over_is_empty_and_knows_no_epoch() -> None:
    replica = copy(2)
    replica.take([stored(4)])
    replica.log.restart(40)
    log = replica.log
    assert (log.start_offset, log.end_offset, log.high_watermark) == (40, 40, 40)
    assert replica.last_fetched_epoch == -1
    assert log.epochs.entries() == []


def test_a_log_may_begin_in_the_middle_of_a_batch() -> None:
    """The leader's records before that offset were deleted; its batches come whole."""
    leader, follower = copy(), copy(2)
    append(leader, 4)
    append(leader, 1)
    follower.log.restart(2)
    follower.take(leader.log.batches)
    log = follower.log
    assert (log.start_offset, log.end_offset) == (2, 5)
    assert content(follower) == content(leader) == [(0, 0), (4, 0)]


@pytest.mark.parametrize(("end", "start"), [(6, 4), (4, 4), (1, 1)])
def test_a_log_goes_back_to_its_leaders_end_wherever_it_begins_itself(end: int, start: int) -> None:
    replica = copy(2)
    replica.take([placed(2, offset) for offset in range(0, 8, 2)])
    replica.follow(8, 4)
    replica.truncate_to(end)
    assert (replica.log.start_offset, replica.log.end_offset) == (start, end)


_STEPS = st.lists(
    st.tuples(st.sampled_from(("write", "fetch", "lead")), st.integers(0, 2), st.integers(1, 3)),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(_STEPS)
def test_all_replicas_end_with_the_log_of_the_last_leader(
    steps: list[tuple[str, int, int]],
) -> None:
    copies = [copy(node_id) for node_id in (1, 2, 3)]
    leader = copies[0]
    for step, which, count in steps:
        one = copies[which]
        if step == "write":
            append(leader, count)
        elif step == "fetch" and one is not leader:
            one.become(leader.facts, one.config, 0.0)
            follow(leader, one)
        elif step == "lead":  # clean or unclean, whatever its log has
            facts = replace(leader.facts, leader_epoch=leader.epoch + 1, leader=one.node_id)
            leader, _ = one, one.become(facts, one.config, 0.0)
    for one in copies:
        if one is not leader:
            one.become(leader.facts, one.config, 0.0)
            follow(leader, one)
        assert content(one) == content(leader)
