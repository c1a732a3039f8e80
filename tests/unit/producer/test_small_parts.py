"""Partitioner, deadline queue, flush tally, actions, serializing, refusal of transactions."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import InvalidArgument, KafkaError, SerializationFailed
from kclient.producer._compiled import StickyPartitioner
from kclient.producer.deadline_queue import DeadlineQueue
from kclient.producer.flush import ERRORS_KEPT, FailureTally, FlushWait
from kclient.producer.outgoing import (
    Outgoing,
    checked_partition,
    checked_timestamp,
    plain_bytes,
    plain_headers,
    serialized,
)
from kclient.producer.produce_response import (
    ResponseAction,
    action_for,
    may_be_written,
    wants_metadata,
)
from kclient.serializers import JsonSerializer, StringSerializer
from tests.unit.producer.rig import Rig

# Partitions.


def sticky(seed: int = 1, backlog: dict[int, int] | None = None) -> StickyPartitioner:
    return StickyPartitioner(1000, random.Random(seed), lambda p: (backlog or {}).get(p, 0))


def test_sticky_spreads_bytes_evenly() -> None:
    choice, counts = sticky(), Counter()
    choice.move([0, 1, 2, 3], 4)
    for _ in range(40_000):
        if choice.due():
            choice.move([0, 1, 2, 3], 4)
        counts[choice.current] += 1
        choice.note(100)
    assert set(counts) == {0, 1, 2, 3}
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_sticky_stays_for_a_batch_of_bytes() -> None:
    choice = sticky()
    choice.move([0, 1], 2)
    choice.note(999)
    assert not choice.due()
    choice.note(1)
    assert choice.due() and choice.ready(0) == choice.ready(999) == choice.current
    assert choice.ready(1000) == -1
    choice.note(1000)
    assert choice.ready(0) == -1


def test_sticky_prefers_the_shorter_queue() -> None:
    choice, counts = sticky(backlog={0: 50}), Counter()
    for _ in range(1000):
        counts[choice.move([0, 1], 2)] += 1
    assert counts[0] < 400  # only where both candidates are 0


def test_sticky_avoids_partitions_without_a_leader() -> None:
    choice = sticky()
    assert {choice.move([2], 3) for _ in range(20)} == {2}


def test_sticky_takes_any_where_no_partition_has_a_leader() -> None:
    choice = sticky()
    assert {choice.move([], 3) for _ in range(60)} == {0, 1, 2}


class Fixed:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        return self.answer  # type: ignore[return-value]


def test_a_custom_partitioner_is_believed_within_the_topic() -> None:
    assert Rig(3, partitioner=Fixed(2)).send(b"v").partition == 2


@pytest.mark.parametrize("answer", [3, -1, None, "1", True, 1.0])
def test_a_custom_partitioner_outside_of_the_topic_is_named(answer: object) -> None:
    with pytest.raises(InvalidArgument, match="Fixed"):
        Rig(3, partitioner=Fixed(answer)).send(b"v").result()


# Deadline queues.


def test_due_items_come_by_time() -> None:
    due: DeadlineQueue[str] = DeadlineQueue(lambda item: True)
    for when, item in [(3.0, "c"), (1.0, "a"), (2.0, "b")]:
        due.push(when, item)
    assert due.next_at() == 1.0
    assert [due.pop_due(2.5), due.pop_due(2.5), due.pop_due(2.5)] == ["a", "b", None]


def test_dead_items_never_come_up() -> None:
    alive = {"b"}
    due: DeadlineQueue[str] = DeadlineQueue(alive.__contains__)
    due.push(1.0, "a")
    due.push(2.0, "b")
    assert due.next_at() == 2.0
    assert due.pop_due(9.0) == "b"


def test_dead_items_do_not_pile_up() -> None:
    alive: set[int] = set()
    due: DeadlineQueue[int] = DeadlineQueue(alive.__contains__)
    for number in range(100_000):
        alive.add(number)
        due.push(1e9 + number, number)
        alive.discard(number - 10)
    assert len(due) < 200


def test_a_due_list_keeps_the_order_of_times_and_then_of_arrival() -> None:
    rng, expected = random.Random(5), []
    due: DeadlineQueue[int] = DeadlineQueue(lambda item: True)
    for number in range(3000):
        when = float(rng.randrange(50) if rng.random() < 0.3 else number // 10)
        expected.append((when, number))
        due.push(when, number)
        if rng.random() < 0.2:
            expected.sort()
            assert due.next_at() == expected[0][0]
            assert due.pop_due(expected[0][0]) == expected.pop(0)[1]
            assert due.pop_due(-1.0) is None
    expected.sort()
    assert [due.pop_due(1e9) for _ in expected] == [number for _, number in expected]
    assert due.next_at() is None and len(due) == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 30)),
            st.tuples(st.just("kill"), st.integers(0, 30)),
            st.tuples(st.just("pop"), st.integers(0, 30)),
        ),
        max_size=200,
    )
)
def test_nothing_of_a_due_list_comes_up_before_its_earliest(steps: list[tuple[str, int]]) -> None:
    alive: dict[int, int] = {}
    due: DeadlineQueue[int] = DeadlineQueue(alive.__contains__)
    for number, (step, at) in enumerate(steps):
        if step == "push":
            alive[number] = at
            due.push(float(at), number)
        elif step == "kill":
            alive.pop(at, None)
        else:
            first = min(((when, one) for one, when in alive.items()), default=(99, 0))
            popped = due.pop_due(float(at))
            assert popped == (first[1] if first[0] <= at else None)
            alive.pop(first[1] if popped is not None else -1, None)
        assert due.earliest <= min(alive.values(), default=math.inf)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_due_list_drops_very_many_dead_ones_without_popping_each(
    monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    alive = set(range(20_000))
    due: DeadlineQueue[int] = DeadlineQueue(alive.__contains__)
    for item in sorted(alive, reverse=backwards):
        due.push(float(item), item)
    alive -= set(range(19_000))
    drops: list[object] = []
    pop = heapq.heappop
    monkeypatch.setattr(heapq, "heappop", lambda heap: (drops.append(1), pop(heap))[1])
    assert due.next_at() == 19_000.0
    assert len(drops) < 2000
    assert len(due) == 1000
    assert due.pop_due(19_001.0) == 19_000


# Flush.


def test_a_tally_keeps_the_count_and_the_first_errors() -> None:
    tally = FailureTally()
    assert tally.failure() is None
    for number in range(ERRORS_KEPT + 5):
        tally.add(2, KafkaError(str(number)))
    failure = tally.failure()
    assert failure is not None
    assert failure.count == 2 * (ERRORS_KEPT + 5)
    assert [e.message for e in failure.errors] == [str(n) for n in range(ERRORS_KEPT)]
    assert "30 records were not delivered; first: 0" in str(failure)


def test_tallies_add_up() -> None:
    one, other = FailureTally(), FailureTally()
    one.add(1, KafkaError("a"))
    other.add(2, KafkaError("b"))
    one.merge(other)
    assert (one.count, len(one.errors)) == (3, 2)


def test_a_wait_notifies_when_something_settles() -> None:
    wait, notified = FlushWait(urgent=True), []
    wait.pending = 2
    wait.notify = lambda: notified.append(wait.pending)
    wait.settled(10)
    wait.failed(3, KafkaError("no"))
    assert notified == [1, 0]
    assert (wait.delivered, wait.tally.count) == (10, 3)


def test_a_wait_notifies_once_that_little_is_unsent() -> None:
    wait, notified = FlushWait(urgent=False), []
    wait.unsent = 100
    wait.left(10)
    wait.when_few_unsent(50, lambda: notified.append(wait.unsent))
    wait.left(30)
    assert notified == []
    wait.left(20)
    wait.left(20)
    assert notified == [40]


# Actions.


def verdict(code: int, *, count: int = 5, first: bool = True, start: bool = True) -> ResponseAction:
    return action_for(code, count, first=first, numbered=True, log_start_known=start)


def test_every_code_of_the_table_has_an_action() -> None:
    assert all(isinstance(verdict(code), ResponseAction) for code in TABLE)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NONE, ResponseAction.COMPLETE),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ResponseAction.COMPLETE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ResponseAction.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ResponseAction.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_ID, ResponseAction.RETRY),
        (ErrorCode.LEADER_NOT_AVAILABLE, ResponseAction.RETRY),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ResponseAction.RETRY),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ResponseAction.RETRY),
        (ErrorCode.CORRUPT_MESSAGE, ResponseAction.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, ResponseAction.RETRY),
        (ErrorCode.KAFKA_STORAGE_ERROR, ResponseAction.RETRY),
        (ErrorCode.MESSAGE_TOO_LARGE, ResponseAction.SPLIT),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ResponseAction.SPLIT),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ResponseAction.BUMP_EPOCH),
        (ErrorCode.UNKNOWN_PRODUCER_ID, ResponseAction.BUMP_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ResponseAction.NEW_PRODUCER_ID),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ResponseAction.REJECT),
        (ErrorCode.INVALID_RECORD, ResponseAction.REJECT),
        (ErrorCode.INVALID_TIMESTAMP, ResponseAction.REJECT),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ResponseAction.REJECT),
        (12345, ResponseAction.REJECT),
    ],
)
def test_actions(code: int, expected: ResponseAction) -> None:
    assert verdict(code) is expected


def test_a_single_record_cannot_be_split() -> None:
    assert verdict(ErrorCode.MESSAGE_TOO_LARGE, count=1) is ResponseAction.REJECT


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_a_batch_that_is_not_the_first_is_only_retried(code: int) -> None:
    assert verdict(code, first=False) is ResponseAction.RETRY


def test_unknown_producer_without_log_start_is_asked_again() -> None:
    assert verdict(ErrorCode.UNKNOWN_PRODUCER_ID, start=False) is ResponseAction.RETRY


def test_numbering_errors_without_numbers_are_final() -> None:
    found = action_for(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        5,
        first=True,
        numbered=False,
        log_start_known=True,
    )
    assert found is ResponseAction.REJECT


def test_what_may_have_been_written() -> None:
    assert may_be_written(ErrorCode.REQUEST_TIMED_OUT, acks_all=False)
    assert may_be_written(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, acks_all=True)
    assert may_be_written(12345, acks_all=False)
    assert may_be_written(ErrorCode.NOT_LEADER_OR_FOLLOWER, acks_all=True)
    assert not may_be_written(ErrorCode.NOT_LEADER_OR_FOLLOWER, acks_all=False)
    assert not may_be_written(ErrorCode.NOT_ENOUGH_REPLICAS, acks_all=True)
    assert not may_be_written(ErrorCode.MESSAGE_TOO_LARGE, acks_all=True)


def test_which_errors_request_a_metadata_update() -> None:
    assert wants_metadata(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert wants_metadata(ErrorCode.UNKNOWN_TOPIC_ID)
    assert not wants_metadata(ErrorCode.MESSAGE_TOO_LARGE)
    assert not wants_metadata(12345)


# Serializing.


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_like_values_become_bytes(value: object) -> None:
    assert plain_bytes("t", "value", value) == b"x"
    assert type(plain_bytes("t", "value", value)) is bytes


@pytest.mark.parametrize("value", ["x", 1, 1.5, [1], {}, object(), True])
def test_other_values_are_named_by_type_and_not_shown(value: object) -> None:
    with pytest.raises(SerializationFailed) as caught:
        plain_bytes("t", "value", value)
    assert type(value).__name__ in str(caught.value)
    assert "value_serializer" in str(caught.value)
    assert caught.value.maybe_written is False


def test_a_serializer_may_return_bytes_like_or_none() -> None:
    assert serialized("t", "key", 1, lambda topic, value: bytearray(b"k")) == b"k"
    assert serialized("t", "key", 1, lambda topic, value: None) is None


def test_a_failing_serializer_is_the_cause() -> None:
    with pytest.raises(SerializationFailed, match="key_serializer failed on an int") as caught:
        serialized("t", "key", 0, lambda topic, value: 1 // value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "ZeroDivisionError: integer division" in str(caught.value)


@pytest.mark.parametrize("role", ["key", "value"])
@pytest.mark.parametrize(
    ("write", "refused", "words"),
    [
        (StringSerializer(), b"v", "a bytes was given for topic 'a' where a str or None is needed"),
        (
            JsonSerializer(),
            {"at": datetime(2013, 1, 1)},
            "a dict for topic 'a' is not JSON: Object of type datetime is not JSON serializable",
        ),
    ],
)
def test_what_a_ready_made_serializer_rejects_is_named_as_key_or_value(
    role: str, write: Any, refused: object, words: str
) -> None:
    with pytest.raises(SerializationFailed) as caught:
        serialized("a", role, refused, write)
    hint = f"convert it first, or give the producer another {role}_serializer"
    assert str(caught.value) == f"the {role} can't be serialized: {words} ({hint})"
    assert caught.value.maybe_written is False


def test_an_error_of_the_users_own_serializer_stays_itself() -> None:
    class Refused(SerializationFailed):
        pass

    def refuse(topic: str, value: object) -> bytes:
        raise error

    error = Refused("no")
    with pytest.raises(Refused) as caught:
        serialized("t", "key", 1, refuse)
    assert caught.value is error


def test_a_serializer_that_returns_text_is_refused() -> None:
    with pytest.raises(SerializationFailed, match="returned a str"):
        serialized("t", "key", 1, lambda topic, value: "text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "headers",
    [
        (("a", b"1"), ("a", None)),
        [("a", bytearray(b"1")), ("a", None)],
        iter([("a", b"1"), ("a", None)]),
    ],
)
def test_headers_become_a_tuple(headers: object) -> None:
    assert plain_headers("t", headers)[0] == (("a", b"1"), ("a", None))


def test_headers_may_be_a_mapping() -> None:
    assert plain_headers("t", {"a": b"1"})[0] == (("a", b"1"),)


@pytest.mark.parametrize(
    "headers", [5, [("a",)], [(b"a", b"1")], [("a", "text")], ["ab", "c"], [("a", b"1", 2)]]
)
def test_bad_headers_are_refused(headers: object) -> None:
    with pytest.raises(SerializationFailed, match="headers"):
        plain_headers("t", headers)


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ([("a", b"1", 2)], "a tuple of 3"),
        ([("a",)], "a tuple of 1"),
        (["ab"], "a str"),
        ("ab", "a str"),
        ([b"ab"], "a bytes"),
        ([5], "an int"),
        ({"a": b"1"}.keys(), "a str"),
    ],
)
def test_headers_that_are_no_pairs_are_named(headers: object, shown: str) -> None:
    words = rf"\(name, value\) pair is expected, not {shown}"
    with pytest.raises(SerializationFailed, match=words):
        plain_headers("t", headers)


@pytest.mark.parametrize("value", [[b"a", b"b"], (b"k", b"v"), Outgoing(b"v")])
def test_several_values_for_one_record_get_a_hint_about_send_many(value: object) -> None:
    with pytest.raises(SerializationFailed, match="send_many"):
        plain_bytes("t", "value", value)


@pytest.mark.parametrize("timestamp", [-1, 2**63, 1.5, "1", True])
def test_bad_timestamps_are_refused(timestamp: object) -> None:
    with pytest.raises(InvalidArgument, match="timestamp"):
        checked_timestamp(timestamp)


@pytest.mark.parametrize("partition", [-1, 2**31, 1.5, "1", True])
def test_bad_partitions_are_refused(partition: object) -> None:
    with pytest.raises(InvalidArgument, match="partition"):
        checked_partition(partition)
