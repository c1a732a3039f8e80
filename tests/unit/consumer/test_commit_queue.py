"""The queue of commits: order, outcomes, deadlines; and whatever happens, nothing moves back."""

from __future__ import annotations

import random

import pytest

from kclient.backoff import Backoff
from kclient.broker_errors import (
    CoordinatorLoadInProgress,
    IllegalGeneration,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from kclient.consumer.commit_queue import Commit, CommitQueue
from kclient.errors import CommitFailed, ConnectionLost, KafkaError
from kclient.types import OffsetAndMetadata, TopicPartition

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))
PARTITIONS = (P0, P1, P2)
BACKOFF = Backoff(0.1, 1.0)
LONG = 60.0
PATIENCE = 5.0


def new_queue() -> CommitQueue[str]:
    return CommitQueue("g", BACKOFF, random.Random(1), lambda partition, topic_id: PATIENCE)


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, None, metadata)


def ours(partition: TopicPartition) -> bool:
    return True


def ask(
    queue: CommitQueue[str],
    offsets: dict[TopicPartition, int],
    *,
    now: float = 0.0,
    timeout: float = LONG,
    at_least: bool = False,
    lost: tuple[TopicPartition, ...] = (),
) -> Commit[str]:
    call = Commit("token", now, now + timeout)
    wanted = {partition: at(offset) for partition, offset in offsets.items()}
    queue.add(call, wanted, lambda one: one not in lost, at_least=at_least)
    return call


def take(queue: CommitQueue[str], now: float = 0.0) -> dict[TopicPartition, int]:
    return {key: one.offset for key, one in queue.take(now, ours).items()}


def answer(
    queue: CommitQueue[str],
    *errors: tuple[TopicPartition, KafkaError | None],
    now: float = 0.0,
    outdated: bool = False,
) -> None:
    queue.answered(dict(errors), now, outdated=outdated)


def failed(call: Commit[str]) -> KafkaError:
    assert call.done
    assert call.error is not None
    return call.error


def test_a_call_is_sent_and_done() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 5, P1: 6})
    assert take(queue) == {P0: 5, P1: 6}
    assert not call.done
    answer(queue, (P0, None), (P1, None))
    assert call.done
    assert call.error is None
    assert queue.finished() == [call]
    assert queue.finished() == []
    assert queue.committed == {P0: 5, P1: 6}
    assert queue.idle


def test_nothing_to_commit_is_done_at_once() -> None:
    queue = new_queue()
    assert ask(queue, {}).done
    assert queue.idle


def test_calls_before_an_attempt_are_one_and_the_last_offset_counts() -> None:
    queue = new_queue()
    first, second = ask(queue, {P0: 9, P1: 1}), ask(queue, {P0: 5})
    assert take(queue) == {P0: 5, P1: 1}
    answer(queue, (P0, None), (P1, None))
    assert queue.finished() == [second, first] or queue.finished() == []
    assert first.done
    assert second.done


def test_what_comes_during_an_attempt_waits_for_its_end() -> None:
    queue = new_queue()
    first = ask(queue, {P0: 1})
    take(queue)
    second = ask(queue, {P0: 2})
    answer(queue, (P0, None))
    assert (first.done, second.done) == (True, False)
    assert take(queue) == {P0: 2}
    answer(queue, (P0, None))
    assert second.done


def test_an_offset_that_failed_never_follows_a_later_one() -> None:
    queue = new_queue()
    first = ask(queue, {P0: 1, P1: 1})
    take(queue)
    second = ask(queue, {P0: 2})
    answer(queue, (P0, ConnectionLost("x")), (P1, ConnectionLost("x")))
    assert take(queue) == {}
    assert take(queue, queue.due) == {P0: 2, P1: 1}  # together
    answer(queue, (P0, None), (P1, None))
    assert [first.error, second.error] == [None, None]
    assert first.done
    assert second.done


def test_back_off_grows_and_ends_with_a_success() -> None:
    queue = new_queue()
    ask(queue, {P0: 1})
    waits = []
    now = 0.0
    for _ in range(6):
        assert take(queue, now) == {P0: 1}
        answer(queue, (P0, NotCoordinator("x")), now=now)
        waits.append(queue.due - now)
        now = queue.due
    assert 0.05 < waits[0] < 0.3
    assert waits[-1] > 0.7
    take(queue, now)
    answer(queue, (P0, None), now=now)
    ask(queue, {P0: 2}, now=now)
    assert take(queue, now) == {P0: 2}


def test_one_partition_that_fails_does_not_make_the_others_wait() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1, P1: 1})
    take(queue)
    answer(queue, (P0, None), (P1, CoordinatorLoadInProgress("x")))
    assert not call.done
    ask(queue, {P0: 2})
    assert take(queue) == {P0: 2}


def test_where_all_fails_later_calls_wait_too() -> None:
    queue = new_queue()
    ask(queue, {P0: 1})
    take(queue)
    answer(queue, (P0, NotCoordinator("x")))
    ask(queue, {P1: 1})
    assert take(queue) == {}
    queue.retry_now()
    assert take(queue) == {P0: 1, P1: 1}


def test_a_refusal_is_an_outcome_and_the_other_partitions_are_committed() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1, P1: 1, P2: 1})
    take(queue)
    answer(
        queue,
        (P0, None),
        (P1, TopicAuthorizationFailed("x")),
        (P2, TopicAuthorizationFailed("x")),
    )
    error = failed(call)
    assert isinstance(error, TopicAuthorizationFailed)
    assert "t-1, t-2" in str(error)
    assert queue.committed == {P0: 1}


def test_a_partition_that_is_not_ours_is_never_sent() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1, P1: 1}, lost=(P1,))
    assert take(queue) == {P0: 1}
    answer(queue, (P0, None))
    error = failed(call)
    assert isinstance(error, CommitFailed)
    assert (error.partitions, error.topic_partition) == ((P1,), P1)
    assert not error.fatal
    assert not error.retriable
    assert failed(ask(queue, {P1: 1}, lost=(P1,))).topic_partition == P1


def test_a_partition_that_is_lost_before_it_is_sent_fails_and_the_others_go() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1, P1: 1})
    assert list(queue.take(0.0, lambda one: one == P0)) == [P0]
    answer(queue, (P0, None))
    error = failed(call)
    assert isinstance(error, CommitFailed)
    assert error.partitions == (P1,)


@pytest.mark.parametrize("sent", [False, True])
def test_a_partition_that_went_and_came_back_does_not_bring_its_commit_along(sent: bool) -> None:
    queue = new_queue()
    call = ask(queue, {P0: 5})
    if sent:
        take(queue)
    queue.forget([P0])
    queue.learned({P0: at(8)})  # another member had it meanwhile
    if sent:
        answer(queue, (P0, RebalanceInProgress("x")))
    error = failed(call)
    assert isinstance(error, CommitFailed)
    assert take(queue, LONG) == {}
    assert queue.committed == {P0: 8}


def test_what_was_in_flight_when_the_partition_was_revoked_is_done_if_it_succeeds() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 5})
    take(queue)
    queue.forget([P0])
    answer(queue, (P0, None))
    assert call.done
    assert call.error is None
    assert queue.committed == {}


def test_a_fenced_member_gets_the_brokers_error_as_the_cause() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1, P1: 1})
    take(queue)
    answer(queue, (P0, IllegalGeneration("x")), (P1, IllegalGeneration("x")))
    error = failed(call)
    assert isinstance(error, CommitFailed)
    assert error.partitions == (P0, P1)
    assert isinstance(error.__cause__, IllegalGeneration)
    assert "ILLEGAL_GENERATION" in str(error)
    assert queue.idle


def test_a_generation_that_was_over_by_the_response_is_no_outcome() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1})
    take(queue)
    answer(queue, (P0, IllegalGeneration("x")), outdated=True)
    assert not call.done
    assert take(queue, queue.due) == {P0: 1}


def test_a_call_that_is_refused_and_fenced_reports_both() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1, P1: 1})
    take(queue)
    answer(queue, (P0, OffsetMetadataTooLarge("x")), (P1, IllegalGeneration("x")))
    error = failed(call)
    assert isinstance(error, CommitFailed)
    assert error.partitions == (P1,)
    assert any("OFFSET_METADATA_TOO_LARGE" in note for note in error.__notes__)


def test_a_partition_that_is_unknown_fails_when_that_is_sure() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1})
    now = 0.0
    while now < PATIENCE:
        assert take(queue, now) == {P0: 1}
        answer(queue, (P0, UnknownTopicOrPartition("x")), now=now)
        assert not call.done
        now = queue.due
    take(queue, now)
    answer(queue, (P0, UnknownTopicOrPartition("x")), now=now)
    assert isinstance(failed(call), UnknownTopicOrPartition)
    assert failed(call).topic_partition == P0
    assert queue.idle


def test_only_a_call_that_has_waited_for_long_is_refused_for_an_unknown_partition() -> None:
    queue = new_queue()
    early = ask(queue, {P0: 1})
    take(queue)
    later = ask(queue, {P0: 2}, now=1.0)
    answer(queue, (P0, UnknownTopicOrPartition("x")), now=1.0)
    take(queue, PATIENCE)
    answer(queue, (P0, UnknownTopicOrPartition("x")), now=PATIENCE)
    assert (early.done, later.done) == (False, False)  # it was first reported at 1.0
    latest = ask(queue, {P0: 3}, now=PATIENCE)
    take(queue, 1.0 + PATIENCE)
    answer(queue, (P0, UnknownTopicOrPartition("x")), now=1.0 + PATIENCE)
    assert (early.done, later.done, latest.done) == (True, True, False)
    assert take(queue, LONG) == {P0: 3}
    answer(queue, (P0, None), now=LONG)
    assert latest.error is None


def test_another_error_in_between_starts_the_patience_over() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1})
    for now, error in (
        (0.0, UnknownTopicOrPartition("x")),
        (PATIENCE, NotCoordinator("x")),
        (2 * PATIENCE, UnknownTopicOrPartition("x")),
    ):
        take(queue, now)
        answer(queue, (P0, error), now=now)
    assert not call.done


def test_an_unknown_partition_makes_no_other_wait() -> None:
    queue = new_queue()
    ask(queue, {P0: 1})
    for now in (0.0, 1.5, 3.0):
        take(queue, now)
        answer(queue, (P0, UnknownTopicOrPartition("x")), now=now)
    ask(queue, {P1: 1}, now=3.0)
    assert take(queue, 3.0) == {P1: 1}


def test_what_was_never_ours_is_distinguished_from_what_was_revoked() -> None:
    queue = new_queue()
    call = ask(queue, {P0: 1, P1: 1}, lost=(P1,))
    assert "not assigned to this consumer" in str(failed(ask(queue, {P1: 1}, lost=(P1,))))
    queue.forget([P0])
    error = failed(call)
    assert isinstance(error, CommitFailed)
    assert error.partitions == (P1, P0)
    assert "taken from this consumer" in str(error)
    assert error.__notes__ == ["t-1: not assigned to this consumer at the time of the call"]


# At least


def test_at_least_is_fulfilled_by_what_is_committed_waits_or_is_in_flight() -> None:
    queue = new_queue()
    ask(queue, {P0: 9})
    waits = ask(queue, {P0: 5}, at_least=True)
    assert take(queue) == {P0: 9}
    joins = ask(queue, {P0: 9}, at_least=True)
    more = ask(queue, {P0: 10}, at_least=True)
    answer(queue, (P0, None))
    assert (waits.done, joins.done, more.done) == (True, True, False)
    assert take(queue) == {P0: 10}
    answer(queue, (P0, None))
    assert ask(queue, {P0: 10}, at_least=True).done
    assert not ask(queue, {P0: 3}).done  # an explicit offset may move it back


def test_at_least_brings_up_again_what_may_have_been_committed() -> None:
    queue = new_queue()
    ask(queue, {P0: 9}, timeout=5.0)
    take(queue)
    answer(queue, (P0, ConnectionLost("x")))
    queue.expire(5.0)
    call = ask(queue, {P0: 5}, now=5.0, at_least=True)
    assert take(queue, 6.0) == {P0: 9}
    answer(queue, (P0, None))
    assert call.done


def test_what_was_known_to_be_committed_at_the_start_counts() -> None:
    queue = new_queue()
    queue.learned({P0: at(7)})
    assert ask(queue, {P0: 6}, at_least=True).done
    assert not ask(queue, {P0: 8}, at_least=True).done
    queue.learned({P0: at(1)})
    assert queue.committed == {P0: 7}


def test_changes_are_what_is_neither_committed_nor_about_to_be() -> None:
    queue = new_queue()
    wanted = {P0: at(5), P1: at(5)}
    assert queue.changes(wanted) == wanted
    ask(queue, {P0: 5})
    assert queue.changes(wanted) == {P1: at(5)}
    take(queue)
    assert queue.changes(wanted) == {P1: at(5)}
    later = ask(queue, {P0: 3}, timeout=1.0)
    assert queue.changes(wanted) == wanted
    queue.expire(1.0)
    assert later.done
    answer(queue, (P0, ConnectionLost("x")), now=1.0)
    queue.expire(LONG)
    assert queue.changes(wanted) == wanted  # whether it is committed is not known


def test_unconfirmed_is_what_is_not_committed_yet_by_whichever_call() -> None:
    queue = new_queue()
    wanted = {P0: at(5), P1: at(5)}
    ask(queue, {P0: 5})
    assert queue.unconfirmed(wanted) == wanted
    take(queue)
    assert queue.unconfirmed(wanted) == wanted
    answer(queue, (P0, None))
    assert queue.unconfirmed(wanted) == {P1: at(5)}
    ask(queue, {P0: 5})
    assert queue.unconfirmed(wanted) == wanted  # it is being made again


def test_the_same_offset_is_not_sent_twice_for_two_calls() -> None:
    queue = new_queue()
    first = ask(queue, {P0: 5})
    take(queue)
    second = ask(queue, {P0: 5})
    other = Commit("token", 0.0, LONG)
    queue.add(other, {P0: at(5, "with a note")}, ours)
    answer(queue, (P0, None))
    assert (first.done, second.done, other.done) == (True, True, False)
    assert take(queue) == {P0: 5}


def test_a_call_that_joins_a_commit_that_fails_waits_for_the_next_attempt() -> None:
    queue = new_queue()
    ask(queue, {P0: 5}, timeout=1.0)
    take(queue)
    second = ask(queue, {P0: 5})
    queue.expire(1.0)
    answer(queue, (P0, ConnectionLost("x")), now=1.0)
    assert take(queue, queue.due) == {P0: 5}
    answer(queue, (P0, None))
    assert second.done
    assert second.error is None


# A crowd


def test_calls_may_share_an_outcome_if_all_of_it_waits_and_the_time_is_much_the_same() -> None:
    queue = new_queue()
    first = ask(queue, {P0: 1, P1: 1})
    assert queue.join(1.0, 1.0 + LONG, {P0: at(2)}) is None
    assert queue.join(1.0, 1.0 + LONG, {P0: at(2), P1: at(2)}) is first
    assert queue.join(10.0, 10.0 + LONG, {P0: at(3), P1: at(3)}) is None  # much later
    assert queue.join(1.0, 30.0, {P0: at(3), P1: at(3)}) is None  # less time
    assert queue.join(1.0, 1.0 + LONG, {P0: at(1), P1: at(3)}, at_least=True) is first
    assert queue.open == 1
    assert take(queue) == {P0: 2, P1: 3}
    assert queue.join(1.0, 1.0 + LONG, {P0: at(2), P1: at(2)}) is None


def test_calls_of_other_partitions_share_nothing() -> None:
    queue = new_queue()
    ask(queue, {P0: 1})
    ask(queue, {P1: 1})
    assert queue.join(0.0, LONG, {P0: at(2), P1: at(2)}) is None
    assert queue.join(0.0, LONG, {P2: at(2)}) is None


def test_a_commit_is_repeated_while_any_other_offset_without_a_response_may_follow_it() -> None:
    queue = new_queue()
    for second, offset in enumerate((5, 8)):
        ask(queue, {P0: offset}, now=second)
        queue.retry_now()
        assert take(queue, second) == {P0: offset}
        answer(queue, (P0, ConnectionLost("cut")), now=second + 0.1)
    ask(queue, {P0: 5}, now=2.0)
    queue.retry_now()
    assert take(queue, 2.0) == {P0: 5}
    answer(queue, (P0, None), now=2.1)
    assert queue.repeats(now=2.2) == {}  # not at once, however often is committed
    assert {key: one.offset for key, one in queue.repeats(now=3.2).items()} == {P0: 5}
