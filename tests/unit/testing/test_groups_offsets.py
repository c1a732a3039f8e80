"""Offsets of groups: which commits are accepted, what is read and when, what is deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kclient.error_codes import ErrorCode
from tests.unit.testing.group_rig import Rig, entered

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
SUBSCRIBED_TO_T = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"


def test_any_client_commits_for_an_empty_group_but_not_as_a_member() -> None:
    rig = Rig()
    member_id, generation = rig.alone()
    rig.leave(member_id)
    assert rig.commit(5, member_id="x") == [NONE]
    code = rig.commit(5, member_id=member_id, generation=generation)
    assert code == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_is_a_sign_of_life() -> None:
    rig = Rig()
    member_id, generation = rig.alone(session_ms=6_000)
    rig.pass_time(5)
    rig.commit(5, member_id=member_id, generation=generation)
    rig.pass_time(5)
    assert rig.beat(generation, member_id) is NONE


# With replication


def test_readers_get_what_is_committed() -> None:
    rig = Rig()
    rig.commit(5)
    rig.slow = True
    answers = rig.commit(6)
    assert answers == []
    assert rig.fetch() == [{("t", 0): 5}]
    rig.commit_all()
    assert answers == [NONE]
    assert rig.fetch() == [{("t", 0): 6}]


def test_a_fetch_of_stable_offsets_waits_for_what_was_appended() -> None:
    rig = Rig()
    assert rig.fetch(stable=True) == [{}]
    rig.slow = True
    rig.commit(5)
    answers = rig.fetch(stable=True)
    assert answers == []
    rig.commit_all()
    assert answers == [{("t", 0): 5}]


def test_stable_offsets_that_never_come_are_to_be_had_elsewhere() -> None:
    rig = Rig()
    rig.slow = True
    committed = rig.commit(5)
    answers = rig.fetch(stable=True)
    rig.pass_time(5.1)
    assert committed == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert answers == [ErrorCode.NOT_COORDINATOR]
    rig.commit_all()
    assert rig.fetch() == [{("t", 0): 5}]  # late, but committed


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_can_not_be_appended_did_not_happen(why: ErrorCode, code: ErrorCode) -> None:
    rig = Rig()
    rig.refuse = why
    assert rig.commit(5) == [code]
    assert not rig.shard.groups
    assert rig.fetch() == [{}]


def test_what_is_not_committed_fails_with_the_coordinator() -> None:
    rig = Rig()
    rig.slow = True
    answers = rig.commit(5)
    fetched = rig.fetch(stable=True)
    rig.shard.unload(rig.moment)
    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert fetched == [ErrorCode.NOT_COORDINATOR]
    rig.commit_all()
    assert len(answers) == 1
    assert not len(rig.deadlines)


# Deletion


@pytest.mark.parametrize("metadata", [b"", b"m", b"\xff\xff", SUBSCRIBED_TO_T[:7]])
def test_consumers_with_strange_metadata_may_consume_anything(metadata: bytes) -> None:
    rig = Rig()
    rig.alone(metadata=metadata)
    assert rig.delete_offsets(("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_group_is_deleted_with_its_offsets_when_it_is_empty() -> None:
    rig = Rig()
    member_id, generation = rig.alone()
    rig.commit(5, member_id=member_id, generation=generation)
    assert rig.delete_group() == [ErrorCode.NON_EMPTY_GROUP]
    rig.leave(member_id)
    assert rig.delete_group() == [NONE]
    assert rig.fetch() == [{}]
    assert rig.delete_group() == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert not rig.reload().shard.groups


def test_offsets_go_with_their_topic() -> None:
    rig = Rig()
    rig.commit(5)
    rig.topics["t"] = b"another topic now"[:16]
    assert rig.fetch() == [{}]
    rig.commit(6)
    assert rig.fetch() == [{("t", 0): 6}]
    del rig.topics["t"]
    assert rig.fetch() == [{}]
    assert rig.reload().fetch() == [{}]


# Retention (KIP-211)


def test_offsets_are_kept_for_a_while_after_the_group_is_empty() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=10 * MINUTE_MS)
    member_id, generation = rig.alone(session_ms=1_800_000)
    rig.commit(5, member_id=member_id, generation=generation)
    for _ in range(3):
        rig.pass_time(25 * 60)
        assert rig.beat(generation, member_id) is NONE
        assert rig.fetch() == [{("t", 0): 5}]  # as long as the group has a member
    rig.leave(member_id)
    rig.pass_time(59 * 60)
    assert rig.fetch() == [{("t", 0): 5}]
    rig.pass_time(10 * 60)
    assert rig.fetch() == [{}]
    assert not rig.shard.groups
    assert not rig.reload().shard.groups


def test_without_a_group_the_time_of_the_commit_counts() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.commit(5)
    rig.pass_time(40 * 60)
    rig.commit(6, partition=1)
    rig.pass_time(30 * 60)
    assert rig.fetch() == [{("t", 1): 6}]


def test_members_keep_what_they_subscribe_to() -> None:
    rig = Rig(retention_ms=10 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.topics["u"] = b"u" * 16
    member_id, generation = rig.alone(metadata=SUBSCRIBED_TO_T, session_ms=1_800_000)
    for topic in ("t", "u"):
        rig.commit(5, topic=topic, member_id=member_id, generation=generation)
    rig.pass_time(11 * 60)
    assert rig.fetch() == [{("t", 0): 5}]


def test_old_clients_set_the_retention_of_a_commit() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.commit(5, retention_ms=5 * MINUTE_MS, version=3)
    rig.commit(6, partition=1, retention_ms=500 * MINUTE_MS, version=3)
    rig = rig.reload()
    rig.pass_time(100 * 60)
    assert rig.fetch() == [{("t", 1): 6}]


def test_a_retention_past_the_end_of_time_keeps_offsets_for_ever() -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    assert rig.commit(5, retention_ms=(1 << 63) - 1, version=3) == [NONE]
    rig = rig.reload()
    rig.pass_time(1000 * 60)
    assert rig.fetch() == [{("t", 0): 5}]


def test_idle_groups_leave_nothing_to_do() -> None:
    rig = Rig()
    rig.commit(5)
    member_id, _ = rig.alone(group="g")
    rig.leave(member_id)
    assert not len(rig.deadlines)


# With transactions: offsets are pending until the marker comes


AT_5: list[object] = [{("t", 0): 5}]
AT_9: list[object] = [{("t", 0): 9}]
NOTHING: list[object] = [{}]


@pytest.fixture(params=[False, True], ids=["", "reloaded"])
def after(request: pytest.FixtureRequest) -> Callable[[Rig], Rig]:
    """The same coordinator, or another one that has loaded the log."""
    return Rig.reload if request.param else lambda rig: rig


def stable(rig: Rig) -> tuple[list[object], set[tuple[str, int]]]:
    """What a consumer gets that asks for stable offsets, and where there is none."""
    found = rig.fetch(stable=True)
    return list(found), rig.unstable


def test_an_offset_is_pending_until_its_transaction_is_committed(
    after: Callable[[Rig], Rig],
) -> None:
    rig = Rig()
    rig.commit(5)
    assert rig.commit(9, producer=1) == [NONE]
    rig = after(rig)
    assert rig.fetch() == AT_5
    assert rig.unstable == set()
    assert stable(rig) == (AT_5, {("t", 0)})
    rig.end(1, True)
    rig = after(rig)
    assert stable(rig) == (AT_9, set())


def test_an_offset_of_an_aborted_transaction_is_dropped(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(5)
    rig.commit(9, producer=1)
    rig = after(rig)
    rig.end(1, False)
    rig = after(rig)
    assert stable(rig) == (AT_5, set())


def test_the_last_offset_of_a_transaction_counts(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    for offset in (3, 12, 9):
        rig.commit(offset, producer=1)
    rig = after(rig)
    rig.end(1, True)
    assert after(rig).fetch() == AT_9


def test_a_later_commit_without_transaction_is_not_overwritten(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(5, producer=1)
    rig.commit(9)
    rig = after(rig)
    assert stable(rig) == (AT_9, {("t", 0)})
    rig.end(1, True)
    rig = after(rig)
    assert stable(rig) == (AT_9, set())


def test_of_two_transactions_the_later_offset_counts(after: Callable[[Rig], Rig]) -> None:
    for order in ((1, 2), (2, 1)):
        rig = Rig()
        rig.commit(5, producer=1)
        rig.commit(9, producer=2)
        rig = after(rig)
        rig.end(order[0], True)
        assert rig.unstable == set()
        assert stable(after(rig))[1] == {("t", 0)}
        rig.end(order[1], True)
        assert stable(after(rig)) == (AT_9, set())


def test_transactions_of_a_producer_do_not_mix(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(5, producer=1)
    rig.end(1, True)
    rig.end(1, True)  # a repeated marker
    rig.commit(9, producer=1)
    rig = after(rig)
    rig.end(1, False)
    assert stable(after(rig)) == (AT_5, set())


def test_pending_offsets_belong_to_a_group_and_a_partition(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(5, producer=1)
    rig.commit(6, producer=1, partition=1)
    rig.commit(7, producer=1, group="other")
    rig = after(rig)
    assert stable(rig)[1] == {("t", 0), ("t", 1)}
    rig.end(1, True)
    rig = after(rig)
    assert rig.fetch() == [{("t", 0): 5, ("t", 1): 6}]
    assert rig.fetch("other") == [{("t", 0): 7}]


def test_deleted_offsets_do_not_come_back_with_a_transaction(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(5)
    rig.commit(9, producer=1)
    rig.commit(9, producer=1, partition=1)
    rig = after(rig)
    assert rig.delete_offsets(("t", 0)) == [NONE]
    rig = after(rig)
    assert stable(rig) == (NOTHING, {("t", 1)})
    rig.end(1, True)
    assert after(rig).fetch() == [{("t", 1): 9}]


def test_an_offset_that_is_only_pending_can_be_deleted(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(9, producer=1)
    rig = after(rig)
    assert rig.delete_offsets(("t", 0)) == [NONE]
    rig.end(1, True)
    assert after(rig).fetch() == NOTHING


def test_a_deleted_group_does_not_come_back_with_a_transaction(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(5)
    rig.commit(9, producer=1, partition=1)
    rig = after(rig)
    assert rig.delete_group() == [NONE]
    rig.end(1, True)
    rig = after(rig)
    assert rig.fetch() == NOTHING
    assert not rig.shard.groups


def test_offsets_do_not_expire_before_their_transaction_ends(after: Callable[[Rig], Rig]) -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.commit(5)
    rig.commit(9, producer=1)
    rig = after(rig)
    rig.pass_time(61 * 60)
    assert rig.fetch() == AT_5
    rig.end(1, False)
    rig.pass_time(2 * 60)
    assert rig.fetch() == NOTHING
    assert not rig.shard.groups


def test_a_group_with_nothing_but_a_pending_offset_is_kept(after: Callable[[Rig], Rig]) -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    rig.commit(9, producer=1)
    rig = after(rig)
    rig.pass_time(61 * 60)
    assert rig.fetch() == NOTHING
    assert [one.group_id for one in rig.shard.known(rig.moment)] == ["g"]
    rig.end(1, True)
    assert rig.fetch() == AT_9


def test_offsets_of_a_deleted_topic_do_not_come_back_with_a_transaction() -> None:
    rig = Rig()
    rig.commit(5)
    rig.commit(9, producer=1)
    rig.topics["t"] = b"another topic now"[:16]
    assert rig.fetch() == NOTHING
    rig.end(1, True)
    assert rig.fetch() == NOTHING
    assert rig.reload().fetch() == NOTHING


def test_a_transaction_counts_once_all_in_sync_have_its_offset() -> None:
    rig = Rig()
    rig.slow = True
    answers = rig.commit(9, producer=1)
    assert answers == []
    assert rig.fetch() == NOTHING
    assert rig.unstable == set()
    rig.commit_all()
    assert answers == [NONE]
    assert stable(rig) == (NOTHING, {("t", 0)})


def test_a_commit_in_flight_is_not_overtaken_by_the_end_of_a_transaction() -> None:
    rig = Rig()
    rig.commit(5, producer=1)
    rig.slow = True
    rig.commit(9)
    rig.end(1, True)  # the plain commit is later in the log, and not committed yet
    assert rig.fetch() == AT_5
    rig.commit_all()
    assert rig.fetch() == AT_9


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        ("its", 0, NONE),
        ("its", 1, ErrorCode.ILLEGAL_GENERATION),
        ("its", -1, ErrorCode.ILLEGAL_GENERATION),
        ("x", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, NONE),  # of a producer that doesn't send them (before KIP-447)
    ],
)
def test_a_transaction_is_fenced_by_member_and_generation(
    member: str, generation: int, code: ErrorCode
) -> None:
    rig = Rig()
    member_id, now = rig.alone()
    given = member_id if member == "its" else member
    wanted = generation if generation < 0 else now + generation
    assert rig.commit(9, producer=1, member_id=given, generation=wanted) == [code]
    assert stable(rig)[1] == ({("t", 0)} if code is NONE else set())


def test_a_transaction_may_commit_while_members_wait_for_their_assignments() -> None:
    rig = Rig()
    (joined,) = entered(rig)
    rig.pass_time(rig.settings.initial_rebalance_delay_ms / 1000)
    answers = rig.commit(9, producer=1, member_id=joined.member_id, generation=joined.generation_id)
    assert answers == [NONE]
    plain = rig.commit(9, member_id=joined.member_id, generation=joined.generation_id)
    assert plain == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_transaction_for_an_unknown_group_creates_it_unless_it_names_a_generation() -> None:
    rig = Rig()
    refused = rig.commit(9, producer=1, member_id="x", generation=1)
    assert refused == [ErrorCode.ILLEGAL_GENERATION]
    assert not rig.shard.groups
    assert rig.commit(9, producer=1) == [NONE]
    assert set(rig.shard.groups) == {"g"}


def test_a_transaction_is_a_sign_of_life() -> None:
    rig = Rig()
    member_id, generation = rig.alone(session_ms=6_000)
    rig.pass_time(5)
    rig.commit(5, producer=1, member_id=member_id, generation=generation)
    rig.pass_time(5)
    assert rig.beat(generation, member_id) is NONE


def test_a_committed_transaction_leaves_offsets_like_any_other(after: Callable[[Rig], Rig]) -> None:
    rig = Rig(retention_ms=60 * MINUTE_MS, retention_check_ms=MINUTE_MS)
    for partition in range(3):
        rig.commit(9, producer=1, partition=partition)
    rig.end(1, True)
    rig = after(rig)
    assert rig.delete_offsets(("t", 0)) == [NONE]
    rig = after(rig)
    assert rig.fetch() == [{("t", 1): 9, ("t", 2): 9}]
    rig.pass_time(61 * 60)
    assert rig.fetch() == NOTHING


def test_a_group_is_deleted_with_offsets_of_its_transactions(after: Callable[[Rig], Rig]) -> None:
    rig = Rig()
    rig.commit(9, producer=1)
    rig.end(1, True)
    rig = after(rig)
    assert rig.delete_group() == [NONE]
    assert after(rig).fetch() == NOTHING
