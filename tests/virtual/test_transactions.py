"""Transactions by hand when calls are cancelled or cut off, and when responses are lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import kclient
from kclient import GroupMetadata, TopicPartition
from kclient.testing import Cluster, ErrorCode, TransactionChanged, run_virtually
from tests.virtual.transaction_storm import storm

SEEDS = 12
OFFSETS = {TopicPartition("t", 0): 1}
Scene = Callable[[Cluster, Any], Awaitable[None]]


def play(scene: Scene, version: int = 2, **settings: Any) -> None:
    """Run ``scene`` on virtual time with a cluster and a producer."""

    async def main() -> None:
        async with Cluster(transaction_version=version) as cluster:
            cluster.create_topic("t")
            async with producer_of(cluster, **settings) as producer:
                await scene(cluster, producer)

    run_virtually(main(), seed=1, limit=2000)


@contextlib.asynccontextmanager
async def producer_of(cluster: Cluster, **settings: Any) -> AsyncIterator[Any]:
    settings = {"transactional_id": "x", "client_id": "first", "linger": 0.0, **settings}
    async with kclient.Producer(cluster.bootstrap, **settings) as producer:
        yield producer


def member_of(cluster: Cluster) -> kclient.Consumer[Any, Any]:
    """A consumer whose offsets transactions commit."""
    return kclient.Consumer(
        cluster.bootstrap,
        "t",
        group="g",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


async def committed(cluster: Cluster, topic: str = "t") -> list[bytes]:
    reading: dict[str, Any] = {
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
    }
    async with kclient.Consumer(cluster.bootstrap, topic, **reading) as consumer:
        return [record.value for record in await consumer.poll(timeout=5.0)]


@pytest.mark.parametrize("version", [1, 2])
def test_whatever_is_cancelled_nothing_is_lost_doubled_or_stuck(version: int) -> None:
    wrong = {seed: found for seed in range(SEEDS) if (found := storm(seed, version))}
    assert not wrong


def test_a_record_that_is_sent_while_prepare_waits_is_a_part_of_it() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        hold = cluster.faults.hold("TxnOffsetCommit")
        offsets = asyncio.create_task(txn.commit_offsets(GroupMetadata("g"), OFFSETS))
        await cluster.requests.wait_for("TxnOffsetCommit")
        prepare = asyncio.create_task(txn.prepare())
        await asyncio.sleep(0.5)
        cluster.faults.lose_requests("Produce", times=None)
        delivery = txn.send("t", b"late")
        await asyncio.sleep(0.1)
        hold.release()
        await offsets
        with pytest.raises(kclient.TransactionAborted, match="not acknowledged"):
            await prepare
        with pytest.raises(kclient.DeliveryTimedOut):
            await delivery

    play(scene, delivery_timeout=5.0, request_timeout=4.0)


@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "AddPartitionsToTxn"])
def test_an_abort_ends_what_an_unanswered_addition_began(api: str) -> None:
    """The coordinator has an open transaction then: a higher epoch would fence this producer."""

    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        cluster.faults.lose_answers(api, times=None)
        if api == "AddOffsetsToTxn":
            with pytest.raises(kclient.RequestTimedOut):
                await txn.commit_offsets(GroupMetadata("g"), OFFSETS, timeout=1.0)
        else:
            with pytest.raises(kclient.DeliveryTimedOut):
                await txn.send("t", b"v")
        cluster.faults.clear()
        await txn.abort()
        assert cluster.requests.count("EndTxn") == 1
        async with producer.transaction():
            txn.send("t", b"next")
        assert await committed(cluster) == [b"next"]

    play(scene, version=1, api_timeout=10.0, request_timeout=8.0, delivery_timeout=10.0)


def test_a_topic_that_was_deleted_keeps_no_transaction_from_its_abort() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        cluster.create_topic("gone")
        async with producer.transaction() as txn:
            await txn.send("gone", b"v")
        await txn.begin()
        await txn.send("t", b"v")
        cluster.delete_topic("gone")
        with pytest.raises(kclient.DeliveryTimedOut):
            await txn.send("gone", b"v")
        await txn.abort()
        async with producer.transaction():
            txn.send("t", b"next")
        assert await committed(cluster) == [b"next"]

    play(scene, version=1, api_timeout=2.0, request_timeout=1.0, delivery_timeout=4.0)


def test_an_addition_that_was_refused_needs_no_end() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        cluster.faults.error("AddOffsetsToTxn", refused, times=None)
        with pytest.raises(kclient.GroupAuthorizationFailed):
            await txn.commit_offsets(GroupMetadata("g"), OFFSETS)
        await txn.abort()
        assert cluster.requests.count("EndTxn") == 0
        async with producer.transaction():
            txn.send("t", b"next")

    play(scene, version=1)


def test_process_goes_on_after_a_cancellation_while_offsets_are_added() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        async with kclient.Producer(cluster.bootstrap) as writer:
            await writer.send("t", b"one")
        cluster.faults.delay("AddOffsetsToTxn", 0.5, after=True)
        async with member_of(cluster) as consumer:
            for until in ("AddOffsetsToTxn", "EndTxn"):
                work = kclient.process(consumer, producer, lambda record, txn: None)
                task = asyncio.create_task(work)
                await cluster.requests.wait_for(until)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    play(scene, version=1)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_begin_that_is_cut_off_leaves_nothing_stuck(cancelled: bool) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        cluster.faults.error("InitProducerId", refusal)
        await txn.abort()
        await asyncio.sleep(1)  # the refusal is known
        hold = cluster.faults.hold("InitProducerId", times=None)
        began = asyncio.get_running_loop().time()
        if cancelled:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await txn.begin()
        else:
            with pytest.raises(kclient.RequestTimedOut, match="epoch could not be raised yet"):
                await txn.begin(timeout=1)
        assert asyncio.get_running_loop().time() - began == pytest.approx(1, abs=0.01)
        hold.release()
        cluster.faults.clear()
        await txn.begin()
        await txn.abort()

    play(scene, version=1)


def test_a_refused_epoch_is_raised_by_begin_and_asked_for_again_by_the_next() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        cluster.faults.error("InitProducerId", refusal, times=2)
        await txn.abort()
        await asyncio.sleep(1)
        with pytest.raises(kclient.TransactionalIdAuthorizationFailed):
            await txn.begin()
        await txn.begin()
        await txn.abort()

    play(scene, version=1)


@pytest.mark.parametrize("commit", [True, False])
def test_an_outcome_is_reported_though_the_epoch_can_not_be_raised(commit: bool) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        await txn.prepare()
        hold = cluster.faults.hold("InitProducerId", times=None)
        await (txn.commit() if commit else txn.abort())
        assert await committed(cluster) == ([b"v"] if commit else [])
        with pytest.raises(kclient.WrongTransactionState, match="outside a transaction"):
            txn.send("t", b"outside")
        hold.release()

    play(scene, version=1, api_timeout=5.0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_fence_behind_an_unanswered_commit_says_that_it_may_be_committed(version: int) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        cluster.faults.lose_answers("EndTxn", client_id="first")
        commit = asyncio.create_task(txn.commit())
        await cluster.events.wait_for(TransactionChanged, lambda e: e.state == "PrepareCommit")
        hold = cluster.faults.hold("EndTxn", client_id="first", times=None)
        async with producer_of(cluster, client_id="second"):
            hold.release()
            with pytest.raises(kclient.ProducerFenced, match="an earlier EndTxn") as raised:
                await commit
        assert raised.value.maybe_written is True
        assert await committed(cluster) == [b"v"]

    play(scene, version)


def test_a_fence_at_the_first_commit_says_that_nothing_is_committed() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        async with producer_of(cluster, client_id="second"):
            with pytest.raises(kclient.ProducerFenced) as raised:
                await txn.commit()
        assert raised.value.maybe_written is not True
        assert producer.health().transaction == "FATAL_ERROR"
        assert not producer.health().ok

    play(scene)


def test_a_commit_that_close_has_cut_off_names_what_shows_its_outcome() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        txn.send("t", b"v")
        cluster.faults.delay("EndTxn", 2.0, after=True)
        commit = asyncio.create_task(txn.commit())
        await cluster.requests.wait_for("EndTxn")
        await producer.close(timeout=0.3)
        with pytest.raises(kclient.CommitOutcomeUnknown, match="readers show whether"):
            await commit

    play(scene)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_process_ends_when_its_producer_can_not_go_on(code: ErrorCode) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        async with kclient.Producer(cluster.bootstrap) as writer:
            await writer.send("t", b"one")
        cluster.faults.error("EndTxn", code)
        async with member_of(cluster) as consumer:
            with pytest.raises(kclient.BrokerError) as raised:
                await kclient.process(consumer, producer, lambda record, txn: None)
            assert (raised.value.code, raised.value.fatal) == (code, True)

    play(scene)


@pytest.mark.parametrize("version", [1, 2])
def test_process_ends_where_a_call_of_its_handler_takes_longer_than_a_transaction_may(
    version: int,
) -> None:
    """With V2 the producer could go on, and handle the same record for ever."""

    async def scene(cluster: Cluster, producer: Any) -> None:
        async with kclient.Producer(cluster.bootstrap) as writer:
            await writer.send("t", b"one")
        handled = []

        async def handle(record: Any, txn: Any) -> None:
            handled.append(record.value)
            await txn.send("t", b"begun")
            await asyncio.sleep(30)
            await txn.send("t", b"late")

        async with member_of(cluster) as consumer:
            with pytest.raises(kclient.KafkaError, match="longer than transaction_timeout"):
                await kclient.process(consumer, producer, handle)
        assert handled == [b"one"]

    play(scene, version, transaction_timeout=5.0)


def test_process_leaves_a_transaction_of_the_user_alone() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        async with kclient.Consumer(
            cluster.bootstrap, "t", group="g", enable_auto_commit=False
        ) as consumer:
            async with producer.transaction() as txn:
                txn.send("t", b"mine")
                with pytest.raises(kclient.WrongTransactionState, match="an open one"):
                    await kclient.process(consumer, producer, lambda record, txn: None)
        assert await committed(cluster) == [b"mine"]

    play(scene)


def test_a_delivery_that_is_cancelled_before_it_is_sent_fails_its_transaction() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        cluster.create_topic("slow")
        cluster.faults.delay("Metadata", 1.0)
        txn = producer.transaction()
        await txn.begin()
        assert txn.send("slow", b"v").cancel()
        with pytest.raises(kclient.TransactionAborted, match="cancelled before it was sent"):
            await txn.commit()
        await txn.begin()
        delivery = txn.send("slow", b"v")
        await asyncio.sleep(0)
        await producer.flush()
        delivery.cancel()  # too late to take it back
        await txn.commit()
        assert await committed(cluster, "slow") == [b"v"]

    play(scene)


def test_a_part_that_fails_in_the_iteration_of_the_commit_aborts_it() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        cluster.create_topic("slow")
        cluster.faults.delay("Metadata", 1.0)
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        delivery = txn.send("slow", b"v")
        asyncio.get_running_loop().call_soon(delivery.cancel)
        with pytest.raises(kclient.TransactionAborted, match="cancelled before it was sent"):
            await txn.commit()
        async with producer.transaction():
            txn.send("t", b"next")
        assert await committed(cluster) == [b"next"]

    play(scene)


def test_an_enqueue_that_is_cancelled_leaves_its_transaction_as_it_is() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        cluster.create_topic("slow")
        async with producer.transaction() as txn:
            await txn.send("t", b"v")
            cluster.faults.delay("Metadata", 1.0)
            waiting = asyncio.create_task(txn.enqueue("slow", b"v"))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await committed(cluster) == [b"v"]
        assert await committed(cluster, "slow") == []

    play(scene)


@pytest.mark.parametrize(
    "offset",
    [
        kclient.OffsetAndMetadata(5, None, 7),  # type: ignore[arg-type]
        kclient.OffsetAndMetadata(5, None, "\ud800"),
        kclient.OffsetAndMetadata(5, -2),
        2**63,
        -1,
        "5",
    ],
    ids=repr,
)
def test_offsets_that_can_not_be_are_refused_and_the_transaction_goes_on(offset: Any) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        async with producer.transaction() as txn:
            txn.send("t", b"v")
            with pytest.raises(kclient.InvalidArgument):
                await txn.commit_offsets(GroupMetadata("g"), {TopicPartition("t", 0): offset})
        assert await committed(cluster) == [b"v"]

    play(scene)


def test_the_end_of_a_transaction_of_nothing_may_be_repeated() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.abort()
        await txn.abort()
        with pytest.raises(kclient.WrongTransactionState):
            await txn.commit()
        await txn.begin()
        await txn.commit()
        with pytest.raises(kclient.WrongTransactionState):
            await txn.abort()

    play(scene)


@pytest.mark.parametrize("version", [1, 2])
def test_a_topic_that_is_replaced_within_a_transaction_does_not_disturb_the_next(
    version: int,
) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"first")
        cluster.delete_topic("t")
        cluster.create_topic("t")
        await asyncio.sleep(6)
        with contextlib.suppress(kclient.TransactionAborted):
            await txn.commit()
        for value in (b"second", b"third"):
            async with producer.transaction():
                await txn.send("t", value)
        assert await committed(cluster) == [b"second", b"third"]

    play(scene, version, metadata_max_age=2.0)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_outlasts_a_failing_search_for_its_coordinator(commit: bool) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        cluster.faults.error("EndTxn", ErrorCode.NOT_COORDINATOR)
        code = ErrorCode.TRANSACTION_ABORTABLE
        cluster.faults.error("FindCoordinator", code, times=3)
        await (txn.commit() if commit else txn.abort())
        await txn.begin()
        await txn.abort()
        assert await committed(cluster) == ([b"v"] if commit else [])

    play(scene)


def test_a_handle_ends_and_fills_no_transaction_but_its_own() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        one, other = producer.transaction(), producer.transaction()
        await one.begin()
        txn_calls = (other.commit, other.abort, other.prepare)
        for call in (*txn_calls, lambda: other.commit_offsets(GroupMetadata("g"), OFFSETS)):
            with pytest.raises(kclient.WrongTransactionState, match="isn't the open one"):
                await call()
        one.send("t", b"v")
        await one.commit()
        assert await committed(cluster) == [b"v"]
        assert repr(one) == "<Transaction transactional_id='x' READY>"

    play(scene)


def test_a_handle_takes_no_outcome_of_another_ones_commit() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        one, other = producer.transaction(), producer.transaction()
        await one.begin()
        one.send("t", b"v")
        cluster.faults.error("EndTxn", ErrorCode.TRANSACTION_ABORTABLE)
        commit = asyncio.create_task(one.commit())
        await cluster.requests.wait_for("EndTxn")
        with pytest.raises(kclient.WrongTransactionState, match="isn't the open one"):
            await other.commit()
        commit.cancel()
        await asyncio.sleep(1)
        for call in (other.commit, other.abort):
            with pytest.raises(kclient.WrongTransactionState, match="outside a transaction"):
                await call()
        with pytest.raises(kclient.TransactionAborted, match="TRANSACTION_ABORTABLE"):
            await other.begin()

    play(scene)


def test_a_block_that_has_ended_its_transaction_has_no_part_in_the_next_one() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        other = producer.transaction()
        async with producer.transaction() as txn:
            txn.send("t", b"one")
            await txn.commit()
            await other.begin()
        other.send("t", b"other")
        await other.commit()
        assert await committed(cluster) == [b"one", b"other"]

    play(scene)


@pytest.mark.parametrize("commit", [True, False])
def test_a_block_may_end_its_transaction_itself(commit: bool) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        async with producer.transaction() as txn:
            txn.send("t", b"v")
            await (txn.commit() if commit else txn.abort())
        assert await committed(cluster) == ([b"v"] if commit else [])

    play(scene)


def test_a_block_whose_commit_was_cut_off_waits_for_its_outcome() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        with pytest.raises(kclient.TransactionAborted, match="not committed"):
            async with producer.transaction() as txn:
                txn.send("t", b"v")
                cluster.faults.error("EndTxn", ErrorCode.TRANSACTION_ABORTABLE)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await txn.commit()
                await asyncio.sleep(1)

    play(scene)


@pytest.mark.parametrize("version", [1, 2])
def test_a_block_whose_producer_is_fenced_raises_that(version: int) -> None:
    """A leader responds with INVALID_PRODUCER_EPOCH: only the coordinator knows why."""

    async def scene(cluster: Cluster, producer: Any) -> None:
        with pytest.raises(kclient.ProducerFenced) as raised:
            async with producer.transaction() as txn:
                await txn.send("t", b"one")
                async with producer_of(cluster, client_id="second"):
                    await txn.send("t", b"other")
        assert isinstance(raised.value.__cause__, kclient.InvalidProducerEpoch)

    play(scene, version)


def test_a_consumer_that_commits_by_itself_is_refused() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        async with kclient.Consumer(cluster.bootstrap, "t", group="g") as consumer:
            await consumer.poll(timeout=1.0)
            async with producer.transaction() as txn:
                with pytest.raises(kclient.InvalidConfig, match="enable_auto_commit=False"):
                    await txn.commit_offsets(consumer)

    play(scene)


def test_process_names_what_is_wrong_with_its_arguments() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        async with (
            kclient.Consumer(
                cluster.bootstrap, "t", group="g", enable_auto_commit=False
            ) as consumer,
            kclient.Producer(cluster.bootstrap) as plain,
        ):
            for arguments, text in (
                ((producer, consumer), r"process\(Producer, Consumer\) can't be used"),
                ((consumer, plain), "a producer with a transactional_id"),
            ):
                with pytest.raises((kclient.InvalidArgument, kclient.InvalidConfig), match=text):
                    await kclient.process(*arguments, print)  # type: ignore[arg-type]
            with pytest.raises(kclient.InvalidArgument, match="max_interval must be"):
                await kclient.process(consumer, producer, print, max_interval=-1)

    play(scene)


def test_with_v2_the_next_transaction_gives_the_markers_of_the_last_one_a_moment() -> None:
    """Without it Kafka 4.3 lets every third of them wait for 20 ms at the leader."""

    async def scene(cluster: Cluster, producer: Any) -> None:
        clock = asyncio.get_running_loop().time
        txn = producer.transaction()
        waits = []
        for pause in (0.0, 0.0, 1.0):
            await asyncio.sleep(pause)
            began = clock()
            await txn.begin()
            waits.append(round(clock() - began, 6))
            await txn.send("t", b"v")
            await txn.commit()
        assert waits == [0.0, 0.0005, 0.0]

    play(scene)
