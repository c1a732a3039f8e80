"""Offsets that a group commits and reads, in virtual time, while its coordinator moves and dies."""

from __future__ import annotations

import pytest

from kclient.broker_errors import (
    GroupAuthorizationFailed,
    GroupIdNotFound,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    TopicAuthorizationFailed,
    UnstableOffsetCommit,
)
from kclient.error_codes import ErrorCode
from kclient.errors import CommitFailed, KafkaError, RequestTimedOut
from kclient.testing import run_virtually
from kclient.types import OffsetAndMetadata
from tests.virtual.commit_scene import COMMIT, FETCH, P0, P1, P2, STRANGER, at, scene


@pytest.mark.parametrize("known", [True, False])
def test_committed_offsets_are_found_by_every_caller(known: bool) -> None:
    async def main() -> None:
        async with scene(known=known) as here:
            offsets = {P0: OffsetAndMetadata(7, 0, "note"), P1: at(0)}
            await here.commit(offsets)
            found = await here.offsets.fetch([P2, P0, P1])
            assert list(found.items()) == [(P2, None), *offsets.items()]
            [request] = here.cluster.requests.of(COMMIT)
            assert request.version == (10 if known else 9)

    run_virtually(main())


@pytest.mark.parametrize("version", [(2, 3), (2, 6), (2, 8), (9, 9)])
def test_older_brokers_are_spoken_to_as_they_like(version: tuple[int, int]) -> None:
    async def main() -> None:
        async with scene() as here:
            for broker in here.cluster.brokers.values():
                broker.speak(COMMIT, *version)
                broker.speak(FETCH, 1, version[1])
            await here.commit({P0: OffsetAndMetadata(7, 0, "note")})
            epoch = 0 if version[1] >= 6 else None
            assert await here.offsets.fetch([P0, P1]) == {
                P0: OffsetAndMetadata(7, epoch, "note"),
                P1: None,
            }

    run_virtually(main())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_what_passes_is_tried_again_for_those_that_failed(code: ErrorCode) -> None:
    async def main() -> None:
        async with scene() as here:
            here.cluster.faults.error(COMMIT, code, times=3, topic="flights", partition=1)
            await here.commit({P0: at(5), P1: at(6)})
            assert await here.committed(P0, P1) == [5, 6]
            sent = [
                [one.partition_index for topic in entry.request.topics for one in topic.partitions]
                for entry in here.cluster.requests.of(COMMIT)
            ]
            assert sent == [[0, 1], [1], [1], [1]]

    run_virtually(main())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, OffsetMetadataTooLarge),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailed),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
    ],
)
def test_an_error_response_is_raised_at_once(code: ErrorCode, expected: type[KafkaError]) -> None:
    async def main() -> None:
        async with scene() as here:
            here.cluster.faults.error(COMMIT, code, topic="flights", partition=1)
            with pytest.raises(expected, match="flights-1"):
                await here.commit({P0: at(5), P1: at(6)})
            assert await here.committed(P0, P1) == [5, None]

    run_virtually(main())


def test_a_caller_that_is_not_a_member_gets_that_error() -> None:
    async def main() -> None:
        async with scene() as here:
            here.generation = STRANGER
            for expected in (GroupIdNotFound, IllegalGeneration):
                with pytest.raises(CommitFailed) as caught:
                    await here.commit({P0: at(5)})
                assert isinstance(caught.value.__cause__, expected)
                for broker in here.cluster.brokers.values():
                    broker.speak(COMMIT, 2, 8)

    run_virtually(main())


@pytest.mark.parametrize("way", ["lose_answers", "lose_requests"])
def test_a_commit_whose_response_is_lost_is_made_again(way: str) -> None:
    async def main() -> None:
        async with scene() as here:
            getattr(here.cluster.faults, way)(COMMIT, 2)
            await here.commit({P0: at(2)})
            assert await here.committed() == [2]

    run_virtually(main())


def test_the_coordinator_dies_and_another_one_takes_over() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(1)})
            await here.cluster.crash(here.cluster.coordinator("g"))
            await here.commit({P0: at(2)})
            assert await here.committed() == [2]

    run_virtually(main())


def test_offsets_that_stay_unstable_are_an_error_and_not_a_default() -> None:
    async def main() -> None:
        async with scene() as here:
            here.cluster.faults.error(
                FETCH,
                ErrorCode.UNSTABLE_OFFSET_COMMIT,
                times=None,
                topic="flights",
                partition=1,
            )
            found = await here.offsets.fetch([P0, P1], 5.0)
            assert found[P0] is None
            error = found[P1]
            assert isinstance(error, RequestTimedOut)
            assert isinstance(error.__cause__, UnstableOffsetCommit)
            assert "flights-1" in str(error)

    run_virtually(main())


def test_a_fetch_survives_a_coordinator_that_moves_loads_and_dies() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(4)})
            here.cluster.faults.error(FETCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
            assert await here.committed() == [4]
            here.cluster.move_coordinator("g", here.cluster.coordinator("g") % 3 + 1)
            assert await here.committed() == [4]
            here.cluster.faults.lose_answers(FETCH)
            await here.cluster.crash(here.cluster.coordinator("g"))
            assert await here.committed() == [4]

    run_virtually(main())
