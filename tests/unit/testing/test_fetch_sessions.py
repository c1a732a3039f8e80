"""Incremental fetch sessions, beside what `tests/conformance` compares: changes, eviction."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from kclient.error_codes import ErrorCode
from kclient.testing.fetch_sessions import (
    EVICTION_SECONDS,
    FetchContext,
    FetchPartitionData,
    FetchSessions,
    PartitionKey,
    RequestedPartition,
    next_epoch,
)

A, B, C = (PartitionKey("t", index) for index in range(3))


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(random.Random(1), slots)


def wanted(*keys: PartitionKey, offset: int = 0) -> list[RequestedPartition]:
    return [RequestedPartition(key, offset, 1 << 20) for key in keys]


def answers(
    context: FetchContext, high_watermark: int = 5, size: Iterable[PartitionKey] = ()
) -> list[FetchPartitionData]:
    return [
        FetchPartitionData(
            one.key,
            high_watermark=high_watermark,
            log_start_offset=0,
            size_bytes=10 if one.key in size else 0,
        )
        for one in context.wanted
    ]


def keys(reported: list[FetchPartitionData]) -> list[PartitionKey]:
    return [answer.key for answer in reported]


def open_session(
    cache: FetchSessions, *parts: PartitionKey, now: float = 0.0, follower: int = -1
) -> int:
    context = cache.open(0, 0, wanted(*parts), (), 12, now, follower=follower)
    code, session_id, reported = cache.finish(context, answers(context), now)
    assert code is ErrorCode.NONE
    assert keys(reported) == list(parts)
    return session_id


def test_partitions_with_data_come_last_next_time() -> None:
    cache = sessions()
    session = open_session(cache, A, B, C)
    context = cache.open(session, 1, (), (), 12, 0)
    cache.finish(context, answers(context, size=[A, B]), 0)
    context = cache.open(session, 2, (), (), 12, 0)
    assert [one.key for one in context.wanted] == [C, A, B]


def test_a_log_start_that_moved_is_news() -> None:
    cache = sessions()
    session = open_session(cache, A)
    context = cache.open(session, 1, (), (), 12, 0)
    moved = answers(context)
    moved[0].log_start_offset = 3
    assert keys(cache.finish(context, moved, 0)[2]) == [A]


def test_an_error_is_reported_each_time_and_its_end_too() -> None:
    cache = sessions()
    session = open_session(cache, A)
    for epoch in (1, 2):
        context = cache.open(session, epoch, (), (), 12, 0)
        failed = [FetchPartitionData(A, error_code=1)]
        assert keys(cache.finish(context, failed, 0)[2]) == [A]
    context = cache.open(session, 3, (), (), 12, 0)
    assert keys(cache.finish(context, answers(context), 0)[2]) == [A]


def test_the_end_of_an_error_is_reported_though_nothing_else_changed() -> None:
    cache = sessions()
    session = open_session(cache, A)
    context = cache.open(session, 1, (), (), 12, 0)
    failed = answers(context)
    failed[0].error_code = 1
    cache.finish(context, failed, 0)
    context = cache.open(session, 2, (), (), 12, 0)
    assert keys(cache.finish(context, answers(context), 0)[2]) == [A]


def test_a_divergence_is_reported() -> None:
    cache = sessions()
    session = open_session(cache, A)
    context = cache.open(session, 1, (), (), 12, 0)
    diverging = answers(context)
    diverging[0].diverging = (1, 3)
    assert keys(cache.finish(context, diverging, 0)[2]) == [A]


def test_a_session_that_went_on_meanwhile_makes_the_response_invalid() -> None:
    cache = sessions()
    session = open_session(cache, A)
    slow = cache.open(session, 1, (), (), 12, 0)
    cache.open(session, 2, (), (), 12, 0)
    code, reported_id, reported = cache.finish(slow, answers(slow), 0)
    assert (code, reported_id, reported) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session, [])


def test_a_full_cache_gives_no_session() -> None:
    cache = sessions(slots=1)
    first = open_session(cache, A)
    assert open_session(cache, B, now=EVICTION_SECONDS) == 0
    assert cache.get(first) is not None


def test_an_unused_session_is_evicted() -> None:
    cache = sessions(slots=1)
    first = open_session(cache, A)
    assert open_session(cache, B, now=EVICTION_SECONDS + 1) != 0
    assert cache.get(first) is None


def test_sessions_of_followers_take_no_slot_and_are_never_evicted() -> None:
    cache = sessions(slots=1)
    follower = open_session(cache, A, follower=2)
    first = open_session(cache, B)
    assert follower != 0 != first
    late = EVICTION_SECONDS + 1
    assert open_session(cache, C, now=late) != 0
    assert cache.get(first) is None
    assert cache.get(follower) is not None
    assert open_session(sessions(slots=0), A, follower=2) != 0


def test_a_restart_forgets_all() -> None:
    cache = sessions()
    session = open_session(cache, A)
    cache.drop_all()
    assert cache.open(session, 1, (), (), 12, 0).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("epoch", "after"), [(0, 1), (1, 2), (2**31 - 1, 1), (-1, -1)])
def test_epochs_wrap_to_one(epoch: int, after: int) -> None:
    assert next_epoch(epoch) == after
