"""Commits and fetches of offsets that can't succeed fail soon, and hold up no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.broker_errors import (
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from kclient.cluster.retry import MISSING_PARTITION_GRACE, UNKNOWN_TOPIC_GRACE
from kclient.consumer.commits import CROWD
from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument, KafkaError
from kclient.testing import Cluster, run_virtually
from kclient.types import OffsetAndMetadata, TopicPartition
from tests.virtual.commit_scene import COMMIT, FETCH, P0, P1, at, scene
from tests.virtual.consumer_scene import T, fill, the_loop, until
from tests.virtual.group_scene import SETTINGS, Reader, settled

LACKING = TopicPartition("flights", 99)
NOWHERE = TopicPartition("nowhere", 0)
LATENCY = 2.0
"""Seconds that the last attempt may come late."""


@pytest.mark.parametrize(
    ("partition", "grace"),
    [(LACKING, MISSING_PARTITION_GRACE), (NOWHERE, UNKNOWN_TOPIC_GRACE)],
)
def test_a_commit_of_what_does_not_exist_is_refused_as_soon_as_that_is_sure(
    partition: TopicPartition, grace: float
) -> None:
    async def main() -> None:
        async with scene() as here:
            begun = here.now()
            with pytest.raises(UnknownTopicOrPartition, match=str(partition)) as caught:
                await here.commit({partition: at(1), P0: at(1)})
            assert grace <= here.now() - begun < grace + LATENCY
            assert not caught.value.fatal
            assert caught.value.topic_partition == partition
            assert "exists" in (caught.value.hint or "")
            assert await here.committed() == [1]

    run_virtually(main())


def test_no_commit_waits_behind_one_of_what_does_not_exist() -> None:
    async def main() -> None:
        async with scene() as here:
            bad = here.commits.submit({NOWHERE: at(1)})
            for offset in range(40):
                await asyncio.sleep(0.1)
                begun = here.now()
                await here.commit({P0: at(offset)})
                assert here.now() - begun < 0.05
            assert not bad.done()
            assert await here.commits.flush(here.now(UNKNOWN_TOPIC_GRACE))
            assert isinstance(bad.exception(), UnknownTopicOrPartition)

    run_virtually(main())


def test_each_commit_of_what_does_not_exist_waits_for_its_own_grace() -> None:
    async def main() -> None:
        async with scene() as here:
            first = here.commits.submit({NOWHERE: at(1)})
            await asyncio.sleep(UNKNOWN_TOPIC_GRACE - 0.5)
            second = here.commits.submit({NOWHERE: at(2)})
            with pytest.raises(UnknownTopicOrPartition):
                await first
            here.cluster.create_topic("nowhere", partitions=1)
            await second
            assert await here.committed(NOWHERE) == [2]

    run_virtually(main())


def test_a_coordinator_that_lags_behind_is_waited_for() -> None:
    async def main() -> None:
        async with scene() as here:
            for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                lagging = here.cluster.faults.error(COMMIT, code, times=None)
                commit = asyncio.create_task(here.commit({P0: at(int(code))}))
                await asyncio.sleep(4 * UNKNOWN_TOPIC_GRACE)
                assert not commit.done()
                lagging.remove()
                await commit
                assert await here.committed() == [int(code)]

    run_virtually(main())


def test_a_commit_of_a_topic_that_is_deleted_meanwhile_fails() -> None:
    async def main() -> None:
        async with scene() as here:
            await here.commit({P0: at(1)})
            here.cluster.delete_topic("flights")
            begun = here.now()
            with pytest.raises(UnknownTopicOrPartition, match="flights-0"):
                await here.commit({P0: at(2)})
            assert here.now() - begun < 2 * UNKNOWN_TOPIC_GRACE + 2 * LATENCY

    run_virtually(main())


# A crowd


@pytest.mark.parametrize("way", ["await", "wait_for", "gather", "cancel"])
def test_cancelling_a_shared_commit_cancels_no_other_waiter(way: str) -> None:
    async def main() -> None:
        async with scene() as here:
            held = here.cluster.faults.hold(COMMIT)
            first = here.commits.submit({P0: at(0)}, at_least=True)
            for offset in range(CROWD + 2):
                here.commits.submit({P1: at(offset)}, at_least=True)
            mine = here.commits.submit({P1: at(5000)}, at_least=True)
            other = asyncio.create_task(_wait(here.commits.submit({P1: at(5001)}, at_least=True)))
            await asyncio.sleep(0)
            if way == "cancel":
                mine.cancel()
            elif way == "wait_for":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(mine, 0.1)
            else:
                both = asyncio.gather(mine) if way == "gather" else asyncio.create_task(_wait(mine))
                await asyncio.sleep(0)
                both.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await both
            assert mine.cancelled()
            assert not other.done()
            held.release()
            await other
            await first
            assert await here.committed(P1) == [5001]

    run_virtually(main())


async def _wait(outcome: asyncio.Future[None]) -> None:
    await outcome


def test_waiters_of_a_shared_commit_that_fails_have_an_error_each() -> None:
    async def main() -> None:
        async with scene() as here:
            held = here.cluster.faults.hold(COMMIT)
            here.cluster.faults.error(COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
            outcomes = [here.commits.submit({P0: at(offset)}) for offset in range(CROWD + 3)]
            held.release()
            errors = await asyncio.gather(*outcomes, return_exceptions=True)
            assert len({id(error) for error in errors}) == CROWD + 3
            assert {type(error) for error in errors} == {GroupAuthorizationFailed}

    run_virtually(main())


def test_a_failure_whose_waiter_was_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with scene() as here:
            held = here.cluster.faults.hold(COMMIT)
            here.cluster.faults.error(COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            commit = asyncio.create_task(here.commit({P0: at(1)}))
            await held.wait_hits()
            commit.cancel()
            await asyncio.wait([commit])
            held.release()
            assert await here.commits.flush(here.now(10.0))

    run_virtually(main())
    assert any("not committed" in record.message for record in caplog.records)


# Fetches that are refused for good


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailed),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailed),
    ],
)
def test_a_fetch_that_is_refused_for_good_is_raised_by_the_next_poll(
    code: ErrorCode, expected: type[KafkaError]
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            refused = cluster.faults.error(FETCH, code, times=None)
            begun = the_loop().time()
            reader = await Reader(cluster).start()
            try:
                await until(lambda: reader.errors)
                assert the_loop().time() - begun < 5.0
                assert isinstance(reader.errors[0], expected)
                assert reader.seen == 0
                refused.remove()  # the right is given: it goes on by itself
                await settled(reader, partitions=2)
                await until(lambda: reader.seen == 40, 5.0)
            finally:
                await reader.stop()

    run_virtually(main())


def test_a_query_of_committed_offsets_raises_an_error_response_at_once() -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            async with kclient.Consumer(cluster.bootstrap, group="audit", **SETTINGS) as consumer:
                cluster.faults.error(FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
                begun = the_loop().time()
                with pytest.raises(GroupAuthorizationFailed):
                    await consumer.committed([P0])
                assert the_loop().time() - begun < 1.0

    run_virtually(main())


# What can't be sent


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (P0, "TopicPartition"),
        ([P0], "list"),
        ({P0: 1.5}, "offset"),
        ({P0: -1}, "offset"),
        ({P0: OffsetAndMetadata(2, "x")}, "leader_epoch"),  # type: ignore[arg-type]
        ({P0: OffsetAndMetadata(2, True)}, "leader_epoch"),
        ({P0: OffsetAndMetadata(2, -1)}, "leader_epoch"),
        ({P0: OffsetAndMetadata(2, 2**31)}, "leader_epoch"),
        ({P0: OffsetAndMetadata(2, None, b"x")}, "metadata"),  # type: ignore[arg-type]
        ({P0: OffsetAndMetadata(2, None, "\ud800")}, "metadata"),
        ({P0: OffsetAndMetadata(2, None, "\u00e4" * 2**14)}, "metadata"),
    ],
)
def test_what_can_not_be_sent_is_refused_at_once_and_spoils_no_other_commit(
    what: Any, name: str
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            async with kclient.Consumer(cluster.bootstrap, group="audit", **SETTINGS) as consumer:
                consumer.assign([P0, P1])
                good = consumer.commit_nowait({P1: OffsetAndMetadata(2, 2**31 - 1, "x" * 4096)})
                with pytest.raises(InvalidArgument, match=name):
                    consumer.commit_nowait(what)
                await good

    run_virtually(main())


# By hand


@pytest.mark.parametrize("partition", [LACKING, NOWHERE])
def test_unsubscribe_and_close_wait_for_no_commit_of_what_does_not_exist(
    partition: TopicPartition,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=1) as cluster:
            fill(cluster, 20, 2)
            async with kclient.Consumer(cluster.bootstrap, group="audit", **SETTINGS) as consumer:
                consumer.assign([P0])
                assert len(await consumer.poll(timeout=5.0)) == 20
                outcome = consumer.commit_nowait({partition: 2})
                begun = the_loop().time()
                first = asyncio.create_task(consumer.unsubscribe())
                await asyncio.sleep(0.1)
                await asyncio.gather(first, consumer.unsubscribe())
                assert the_loop().time() - begun < UNKNOWN_TOPIC_GRACE + LATENCY
                assert consumer.assignment == frozenset()
                assert await consumer.committed([P0]) == {P0: OffsetAndMetadata(20, 0)}
                assert isinstance(outcome.exception(), UnknownTopicOrPartition)
                consumer.subscribe("flights")
                async with asyncio.timeout(20.0):
                    while not await consumer.poll(timeout=1.0):
                        pass

    run_virtually(main())


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE]
)
def test_finished_records_are_committed_at_the_end_despite_one_topic_error(
    code: int,
) -> None:
    async def main() -> None:
        async with Cluster(brokers=3) as cluster:
            fill(cluster, 2)
            settings = {"group": "g", "auto_offset_reset": "earliest"}
            async with kclient.Consumer(cluster.bootstrap, T, **settings) as consumer:
                assert len(await consumer.poll(timeout=10.0)) == 2
                cluster.faults.error("Metadata", code, times=1, topic=T)
                core = consumer._engine.core
                core.metadata.request_update(T)
                await until(lambda: bool(core.metadata.view.topic_error(T)))
            async with kclient.Consumer(cluster.bootstrap, group="g") as other:
                committed = (await other.committed([P0]))[P0]
                assert committed is not None
                assert committed.offset == 2

    run_virtually(main())
