"""How one response about a topic is read, and what of an older one outlives it."""

from __future__ import annotations

import pytest

from kclient.cluster import metadata_merge
from kclient.cluster.topic import Row, Topic
from tests.unit.cluster.answers import A, B, topic


def read(name: str, partitions: object, *, version: int = 12, **fields: object) -> Topic:
    return metadata_merge.read_topic(topic(name, partitions, **fields), version, {})  # type: ignore[arg-type]


def merged(old: Topic, new: Topic) -> Topic:
    return metadata_merge.keep_newest(old, new) if metadata_merge.is_stale(old, new) else new


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


@pytest.mark.parametrize("absurd", [-1, 5_000_000, 2**31 - 1])
def test_an_absurd_partition_index_allocates_nothing(absurd: int) -> None:
    found = read("t", {0: (1, 0), absurd: (2, 0)})
    assert found.leaders == (1,)


@pytest.mark.parametrize("version", [0, 5, 7, 8])
def test_epochs_of_responses_before_version_9_are_not_believed(version: int) -> None:
    assert read("t", [(1, 5)], version=version).leader_epochs == (-1,)


def test_partition_errors_are_kept() -> None:
    said = topic("t", [(1, 0), (-1, 0)])
    said.partitions[1].error_code = 5
    assert metadata_merge.read_topic(said, 12, {}).partition(1).error == 5


def test_equal_rows_are_shared() -> None:
    rows: dict[Row, Row] = {}
    one = metadata_merge.read_topic(topic("t", [(1, 0), (2, 0)]), 12, rows)
    two = metadata_merge.read_topic(topic("u", [(1, 0)]), 12, rows)
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


def test_a_response_without_epochs_is_taken_in_the_middle_of_a_roll() -> None:
    old = read("t", [(1, 50)], topic_id=A)
    new = merged(old, read("t", [(2, -1)]))
    assert (new.leaders, new.leader_epochs) == ((2,), (-1,))


def test_the_same_topic_id_never_loses_partitions() -> None:
    old = read("t", [(1, 5), (2, 6)], topic_id=A)
    new = merged(old, read("t", [(2, 7)], topic_id=A))
    assert (new.leaders, new.leader_epochs) == ((2, 2), (7, 6))


def test_a_topic_without_id_keeps_its_partitions_while_the_response_may_be_stale() -> None:
    old = read("t", [(1, 5), (2, 6)])
    new = merged(old, read("t", [(2, 7)]))
    assert (new.leaders, new.leader_epochs) == ((2, 2), (7, 6))


def answers(*reported: Topic) -> list[Topic]:
    """Return the view of topic t after each of these responses."""
    past, known, seen = metadata_merge.TopicHistory(), None, []
    for new in reported:
        known = past.merged(known, new)
        seen.append(known)
    return seen


def test_a_topic_without_id_shrinks_when_responses_repeat_it() -> None:
    reported = [read("t", [(1, -1), (2, -1)], version=8), *[read("t", [(1, -1)], version=8)] * 3]
    assert [len(view.leaders) for view in answers(*reported)] == [2, 2, 2, 1]


def test_a_topic_id_that_was_left_behind_is_not_believed_again() -> None:
    old, new = read("t", [(1, 9)], topic_id=A), read("t", [(2, 0)], topic_id=B)
    assert answers(old, new, old, old, new, old) == [old, new, new, new, new, new]


def test_a_topic_id_that_was_left_behind_by_mistake_is_believed_in_the_end() -> None:
    """The first response was right, the second one stale: the right id must be accepted again."""
    right, old = read("t", [(1, 0)], topic_id=B), read("t", [(2, 9)], topic_id=A)
    seen = answers(right, old, right, right, right, right, old)
    assert seen == [right, old, old, old, right, right, right]


def test_a_topic_that_was_created_again_twice_is_followed_at_once() -> None:
    third = bytes([3]) * 16
    reported = [read("t", [(1, 5)], topic_id=topic_id) for topic_id in (A, B, third)]
    assert answers(*reported) == reported


def test_an_id_stays_left_behind_through_a_moment_of_unknown_topic() -> None:
    old, new = read("t", [(1, 9)], topic_id=A), read("t", [(2, 0)], topic_id=B)
    seen = answers(old, new, read("t", [], error=3), old)
    assert seen[-1] == new


def test_errors_of_a_refused_partition_are_not_taken_either() -> None:
    old = read("t", [(1, 5)], topic_id=A)
    said = topic("t", [(-1, 4)], topic_id=A)
    said.partitions[0].error_code = 5
    assert merged(old, metadata_merge.read_topic(said, 12, {})).partition_errors == {}
