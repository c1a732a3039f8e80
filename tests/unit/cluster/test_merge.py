"""How one answer about a topic is read, and what of an older one outlives it."""

from __future__ import annotations

import pytest

from kclient.cluster import merge
from kclient.cluster.topic import Row, Topic
from tests.unit.cluster.answers import A, B, topic


def read(name: str, partitions: object, *, version: int = 12, **fields: object) -> Topic:
    return merge.read_topic(topic(name, partitions, **fields), version, {})  # type: ignore[arg-type]


def merged(old: Topic, new: Topic) -> Topic:
    return merge.keep_newest(old, new) if merge.goes_back(old, new) else new


def test_reads_leaders_and_epochs() -> None:
    found = read("t", [(1, 5), (-1, 6)], topic_id=A)
    assert found.partition(0).leader == 1
    assert found.partition(1).leader is None
    assert found.leader_epochs == (5, 6)
    assert found.topic_id == A


def test_partitions_in_any_order_are_put_in_order() -> None:
    found = read("t", {2: (3, 0), 0: (1, 0), 1: (2, 0)})
    assert found.leaders == (1, 2, 3)


def test_a_missing_partition_is_there_without_a_leader() -> None:
    found = read("t", {0: (1, 3), 2: (2, 4)})
    assert found.leaders == (1, -1, 2)
    assert found.leader_epochs == (3, -1, 4)
    assert found.partition(1).replicas == ()


@pytest.mark.parametrize("absurd", [-1, 2**31 - 1])
def test_an_absurd_partition_index_allocates_nothing(absurd: int) -> None:
    found = read("t", {0: (1, 0), absurd: (2, 0)})
    assert found.leaders == (1,)


@pytest.mark.parametrize("version", [0, 5, 7, 8])
def test_epochs_of_answers_before_version_9_are_not_believed(version: int) -> None:
    assert read("t", [(1, 5)], version=version).leader_epochs == (-1,)


def test_partition_errors_are_kept() -> None:
    said = topic("t", [(1, 0), (-1, 0)])
    said.partitions[1].error_code = 5
    assert merge.read_topic(said, 12, {}).partition(1).error == 5


def test_equal_rows_are_shared() -> None:
    rows: dict[Row, Row] = {}
    one = merge.read_topic(topic("t", [(1, 0), (2, 0)]), 12, rows)
    two = merge.read_topic(topic("u", [(1, 0)]), 12, rows)
    assert one.rows[0] is one.rows[1] is two.rows[0]


def test_a_lower_epoch_of_the_same_topic_id_is_not_taken() -> None:
    old = read("t", [(1, 5), (1, 5)], topic_id=A)
    new = merged(old, read("t", [(2, 4), (2, 6)], topic_id=A))
    assert new.leaders == (1, 2)
    assert new.leader_epochs == (5, 6)


def test_an_equal_epoch_is_taken_since_isr_and_offline_may_differ() -> None:
    old = read("t", [(1, 5)], topic_id=A)
    assert merged(old, read("t", [(-1, 5)], topic_id=A)).leaders == (-1,)


def test_another_topic_id_is_another_topic_whatever_its_epoch() -> None:
    old = read("t", [(1, 50), (1, 50), (1, 50)], topic_id=A)
    new = merged(old, read("t", [(2, 0)], topic_id=B))
    assert new.leaders == (2,)
    assert new.leader_epochs == (0,)


def test_an_answer_without_epochs_is_taken_in_the_middle_of_a_roll() -> None:
    old = read("t", [(1, 50)], topic_id=A)
    new = merged(old, read("t", [(2, -1)]))
    assert (new.leaders, new.leader_epochs) == ((2,), (-1,))


def test_the_same_topic_id_never_loses_partitions() -> None:
    old = read("t", [(1, 5), (2, 6)], topic_id=A)
    new = merged(old, read("t", [(2, 7)], topic_id=A))
    assert (new.leaders, new.leader_epochs) == ((2, 2), (7, 6))


def test_a_topic_without_id_may_come_back_smaller() -> None:
    old = read("t", [(1, 5), (2, 6)])
    assert len(merged(old, read("t", [(2, 7)])).leaders) == 1


def test_errors_of_a_refused_partition_are_not_taken_either() -> None:
    old = read("t", [(1, 5)], topic_id=A)
    said = topic("t", [(-1, 4)], topic_id=A)
    said.partitions[0].error_code = 5
    assert merged(old, merge.read_topic(said, 12, {})).partition_errors == {}
