"""What brokers keep saying of a topic: since when, by whom, and what ends it."""

from __future__ import annotations

import math

import pytest

from kclient.cluster.hearsay import Hearsay
from kclient.cluster.merge import BELIEVE_AFTER, Past
from kclient.cluster.topic import EMPTY_ROW, Topic
from tests.unit.cluster.answers import A, B

UNKNOWN, LEADERLESS = 3, 5
C = b"C" * 16
GRACE = 3.0
WAY = 0.5
"""Seconds between a question and its answer."""


class Told:
    """A client that is told of topic t, answer by answer."""

    def __init__(self, brokers: int = 2) -> None:
        self.hearsay, self.past = Hearsay(), Past()
        self.brokers = brokers
        self.view: Topic | None = None

    def tell(self, now: float, node_id: int, topic_id: bytes, partitions: int) -> None:
        ones = [1] * partitions
        new = Topic.of_columns("t", topic_id, False, 0, ones, ones, [EMPTY_ROW] * partitions)
        self._told(new, node_id, now)

    def err(self, now: float, node_id: int, error: int) -> None:
        self._told(Topic("t", error=error), node_id, now)

    def _told(self, new: Topic, node_id: int, now: float) -> None:
        self.view = self.past.merged(self.view, new)
        self.hearsay.note(new.facts, self.past, node_id, now - WAY, now)

    def fewer_since(self, partition: int) -> float:
        return self.hearsay.fewer_since("t", partition, self.brokers, GRACE)

    def lacks(self, partition: int, now: float, since: float = 0.0) -> bool:
        return self.hearsay.surely_lacks("t", partition, self.brokers, since, GRACE, now)


def made_anew(brokers: int = 2) -> Told:
    """Topic t of three partitions is told to have one since 10.0, by broker 1."""
    told = Told(brokers)
    told.tell(0.0, 1, A, 3)
    told.tell(10.0, 1, B, 1)
    return told


def test_a_partition_is_gone_when_two_have_said_so_for_long() -> None:
    told = made_anew()
    told.tell(11.0, 2, B, 1)
    assert not told.lacks(1, 12.9)
    assert told.lacks(1, 13.0) and told.lacks(2, 13.0)
    assert not told.lacks(0, 13.0)
    assert not told.lacks(1, 99.0, since=96.1)  # nor before it was said again to who asks now


def test_of_many_three_must_say_so() -> None:
    told = made_anew(brokers=9)
    told.tell(11.0, 2, B, 1)
    assert not told.lacks(1, 99.0)
    told.tell(12.0, 7, B, 1)
    assert told.lacks(1, 99.0)


def test_one_of_two_is_not_enough_and_one_of_one_is() -> None:
    told = made_anew()
    told.tell(11.0, 1, B, 1)
    told.tell(12.0, -1, B, 1)  # a bootstrap address is that of a broker
    assert not told.lacks(1, 99.0)
    assert made_anew(brokers=1).lacks(1, 13.0)


def test_an_answer_that_is_doubted_starts_it_anew() -> None:
    told = made_anew()
    told.tell(11.0, 2, B, 1)
    for number in range(BELIEVE_AFTER - 1):
        told.tell(12.0 + number, 2, A, 3)
        assert told.view is not None and told.view.topic_id == B
        assert not told.lacks(1, 99.0)
    told.tell(20.0, 1, B, 1)
    told.tell(21.0, 2, B, 1)
    assert not told.lacks(1, 22.9)
    assert told.lacks(1, 23.0)


def test_answers_that_are_doubted_agree_on_nothing() -> None:
    told = Told()
    told.tell(0.0, 1, A, 1)
    told.tell(10.0, 1, B, 3)
    for number in range(BELIEVE_AFTER - 1):
        told.tell(11.0 + number, 1 + number, A, 1)
    assert told.view is not None and told.view.topic_id == B
    assert not told.lacks(1, 99.0)


def test_another_id_or_count_and_errors_start_it_anew() -> None:
    for spoil in (
        lambda told: told.tell(12.0, 2, C, 1),
        lambda told: told.tell(12.0, 2, B, 2),
        lambda told: told.err(12.0, 2, UNKNOWN),
        lambda told: told.err(12.0, 2, LEADERLESS),
    ):
        told = made_anew()
        told.tell(11.0, 2, B, 1)
        spoil(told)
        assert not told.lacks(2, 99.0)


def test_fewer_partitions_of_the_same_topic_are_no_reason() -> None:
    told = Told()
    told.tell(0.0, 1, A, 3)
    for number in range(30):
        told.tell(1.0 + number, 1 + number % 2, A, 1)
        assert not told.lacks(2, 99.0)


def test_it_is_forgotten_with_the_topic() -> None:
    told = made_anew(brokers=1)
    told.hearsay.forget("t")
    assert not told.lacks(1, 99.0)


NEVER = -math.inf


def counted(brokers: int = 2) -> Told:
    """It is remembered how many partitions each broker tells of."""
    told = Told(brokers)
    told.hearsay.count("t")
    return told


def test_nothing_is_remembered_of_partitions_before_somebody_wants_one() -> None:
    told = Told()
    for number in range(9):
        told.tell(10.0 + number, 1 + number % 2, A, 2)
    assert told.fewer_since(2) == NEVER


def test_fewer_partitions_are_believed_of_two_who_were_asked_since() -> None:
    told = counted()
    told.tell(10.5, 1, A, 2)
    told.tell(11.5, 2, A, 2)
    assert told.fewer_since(2) == told.fewer_since(9) == 11.0 - GRACE
    told.tell(15.5, 1, A, 2)
    assert told.fewer_since(2) == 11.0  # 2 was asked no later
    told.tell(16.5, 2, A, 2)
    assert told.fewer_since(2) == 16.0 - GRACE
    assert told.fewer_since(1) == NEVER


def test_one_of_several_is_believed_after_twice_as_long() -> None:
    told = counted(brokers=3)
    for number in range(9):
        told.tell(10.5 + number, 1, A, 2)
    assert told.fewer_since(2) == 18.0 - 2 * GRACE
    told.tell(18.6, -1, A, 2)  # a bootstrap address is that of a broker
    assert told.fewer_since(2) == pytest.approx(18.1 - 2 * GRACE)
    told = counted(brokers=1)
    told.tell(18.5, 1, A, 2)
    assert told.fewer_since(2) == 18.0 - GRACE


def test_one_who_tells_of_more_ends_it() -> None:
    told = counted(brokers=3)
    for number in range(8):
        told.tell(10.5 + number, 1 + number % 2, A, 2)
    assert told.fewer_since(3) == 17.0 - GRACE
    told.tell(18.5, 3, A, 4)
    assert told.fewer_since(3) == NEVER
    assert told.fewer_since(4) == 18.0 - GRACE
    for number in range(6):  # unless all others have said otherwise for long since then
        told.tell(19.5 + number, 1 + number % 2, A, 2)
    assert told.fewer_since(3) == 24.0 - GRACE


def test_errors_say_nothing_of_partitions() -> None:
    told = counted()
    for now in (10.5, 15.5):
        told.tell(now, 1, A, 2)
        told.tell(now, 2, A, 2)
    told.err(16.5, 2, LEADERLESS)
    assert told.fewer_since(2) == 15.0 - 2 * GRACE
    told.err(17.5, 1, UNKNOWN)
    assert told.fewer_since(2) == NEVER


def test_counts_are_forgotten_with_the_topic() -> None:
    told = counted()
    told.tell(10.5, 1, A, 2)
    told.hearsay.forget("t")
    told.tell(11.5, 1, A, 2)
    assert told.fewer_since(2) == NEVER
