"""The transaction coordinator over sockets: refusals, fences, time-outs, ids that run out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from kclient.protocol.messages.init_producer_id import InitProducerIdRequest
from kclient.testing import Cluster, ThreadedCluster, run_virtually
from kclient.testing.events import TransactionChanged
from kclient.testing.image import TRANSACTION_TOPIC
from kclient.testing.internal_topic import partition_of
from kclient.testing.transactions.metadata import (
    LAST_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from kclient.testing.transactions.records import encode_batch
from tests.embedded.transaction_scene import (
    CONCURRENT,
    FENCED,
    INIT,
    NONE,
    Speaker,
    controls,
    is_stable,
    transaction_scene,
)
from tests.unit.testing.transaction_calls import markers

ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
EACH_PROTOCOL = pytest.mark.parametrize("protocol", [1, 2])
WHOLE = ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


# One transaction


@EACH_PROTOCOL
@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_ends_in_all_partitions(protocol: int, committed: bool) -> None:
    async with transaction_scene(protocol) as (cluster, speaker):
        for index in (0, 1, 0):
            await speaker.send(index=index)
        assert cluster.log("t").last_stable_offset == 0
        described = await speaker.described()
        assert described.transaction_state == "Ongoing"
        assert described.topics[0].partitions == [0, 1]
        assert await speaker.end(committed) is NONE
        how = "Commit" if committed else "Abort"
        await speaker.becomes(f"Complete{how}")
        assert [controls(cluster, index=one) for one in (0, 1)] == [1, 1]
        assert is_stable(cluster)
        assert speaker.states() == [
            "Empty",
            "Ongoing",
            "Ongoing",
            f"Prepare{how}",
            f"Complete{how}",
        ]
        assert (await speaker.described()).topics == []


async def test_in_version_2_each_end_gives_the_next_epoch() -> None:
    async with transaction_scene() as (_, speaker):
        producer_id, epoch = speaker.identity
        for number in range(1, 4):
            await speaker.send()
            assert await speaker.end(number % 2 == 0) is NONE
            assert speaker.identity == (producer_id, epoch + number)
            while await speaker.write() is CONCURRENT:  # the last one's markers are written
                pass


async def test_version_1_keeps_its_epoch() -> None:
    async with transaction_scene(1) as (_, speaker):
        before = speaker.identity
        await speaker.send()
        assert await speaker.end() is NONE
        await speaker.becomes("CompleteCommit")
        assert await speaker.end() is NONE  # repeated
        assert await speaker.end(False) is ErrorCode.INVALID_TXN_STATE
        assert speaker.identity == before


async def test_a_repeated_end_of_version_2_gets_the_same_identity() -> None:
    async with transaction_scene() as (_, speaker):
        await speaker.send()
        before = speaker.identity
        assert await speaker.end() is NONE
        after = speaker.identity
        await speaker.becomes("CompleteCommit")
        speaker.identity = before
        assert await speaker.end(False) is ErrorCode.INVALID_TXN_STATE
        assert await speaker.end() is NONE
        assert speaker.identity == after
        assert speaker.states() == WHOLE


async def test_in_version_1_a_partition_that_was_not_added_is_refused() -> None:
    async with transaction_scene(1) as (cluster, speaker):
        assert await speaker.write() is ABORTABLE
        assert await speaker.add(index=1) is NONE
        assert await speaker.write() is ABORTABLE
        assert cluster.end_offset("t", 0) == 0
        assert await speaker.write(index=1) is NONE


async def test_without_verification_version_1_may_write_anywhere() -> None:
    configs = {"transaction_partition_verification_enable": False}
    async with transaction_scene(1, **configs) as (cluster, speaker):
        assert await speaker.write() is NONE
        assert cluster.end_offset("t", 0) == 1


@EACH_PROTOCOL
async def test_a_batch_is_refused_if_a_marker_came_while_its_leader_asked(protocol: int) -> None:
    """Else it would begin a transaction that is never ended."""
    async with transaction_scene(protocol) as (cluster, speaker):
        leader = speaker.coordinator.node_id % 3 + 1
        cluster.move_leader("t", 0, leader)
        if protocol == 1:
            assert await speaker.add() is NONE
        held = cluster.faults.hold("AddPartitionsToTxn", after=True)
        writing = asyncio.create_task(speaker.write())
        await held.wait_hits()
        producer_id, epoch = speaker.identity
        marker = markers((producer_id, epoch + protocol - 1), ("t", 0), committed=False)
        written = await speaker.ask(marker, 2, leader)
        assert written.markers[0].topics[0].partitions[0].error_code == NONE
        held.release()
        stale = ErrorCode.INVALID_TXN_STATE if protocol == 1 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await writing is stale
        assert [one.is_control for one in cluster.log("t").batches] == [True]


@pytest.mark.parametrize(("seconds", "code"), [(0.06, NONE), (1.0, CONCURRENT)])
def test_a_leader_waits_a_little_for_the_markers_of_the_last_transaction(
    seconds: float, code: ErrorCode
) -> None:
    async def main() -> None:
        async with transaction_scene() as (cluster, speaker):
            await speaker.send()
            held = cluster.faults.hold("WriteTxnMarkers")
            assert await speaker.end() is NONE
            await held.wait_hits()
            asked = cluster.requests.count("AddPartitionsToTxn")
            asyncio.get_running_loop().call_later(seconds, held.release)
            assert await speaker.write(index=1) is code
            assert cluster.requests.count("AddPartitionsToTxn") > asked + 1

    run_virtually(main(), limit=60)


async def test_offsets_count_when_their_transaction_is_committed() -> None:
    for protocol in (1, 2):
        async with transaction_scene(protocol) as (cluster, speaker):
            next(iter(cluster.brokers.values())).groups.find("g")
            if protocol == 1:
                assert await speaker.commit_offset(5) is ABORTABLE
                assert await speaker.add_offsets() is NONE
            assert await speaker.commit_offset(5) is NONE
            shard = cluster.brokers[cluster.coordinator("g")].groups.shard("g")
            assert shard.offsets.pending("g") == {("t", 0)}
            assert await speaker.end() is NONE
            await speaker.becomes("CompleteCommit")
            assert shard.offsets.pending("g") == set()
            assert shard.offsets.read("g")["t"][0].offset == 5


# Fences: a newer producer began, so the older one gets an error from each API


async def fenced(protocol: int) -> dict[str, ErrorCode]:
    """The codes that a producer gets after another one began."""
    async with transaction_scene(protocol) as (cluster, old):
        next(iter(cluster.brokers.values())).groups.find("g")
        await old.send()
        if protocol == 1:
            assert await old.add_offsets() is NONE
        newer = await Speaker(cluster, protocol).begin()
        assert newer.identity > old.identity
        assert is_stable(cluster)
        codes = {
            "Produce": await old.write(),
            "TxnOffsetCommit": await old.commit_offset(5),
            "EndTxn": await old.end(),
            "InitProducerId": await old.init(goes_on=True),
        }
        if protocol == 1:
            codes["AddPartitionsToTxn"] = await old.add()
            codes["AddOffsetsToTxn"] = await old.add_offsets()
        await newer.send()
        assert await newer.end() is NONE
        return codes


@EACH_PROTOCOL
async def test_each_api_fences_a_producer_when_another_one_began(protocol: int) -> None:
    codes = await fenced(protocol)
    assert codes.pop("Produce") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes.pop("TxnOffsetCommit") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert set(codes.values()) == {FENCED}


async def test_older_versions_know_no_fenced_producer() -> None:
    async with transaction_scene(1) as (_, speaker):
        producer_id, epoch = speaker.identity
        request = InitProducerIdRequest("x", 60_000, producer_id, epoch + 1)
        for version, code in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)):
            assert (await speaker.ask(request, version)).error_code == code


@EACH_PROTOCOL
async def test_an_unknown_producer_id_is_no_fence(protocol: int) -> None:
    async with transaction_scene(protocol) as (_, speaker):
        producer_id, epoch = speaker.identity
        speaker.identity = (producer_id + 1000, epoch)
        assert await speaker.end() is UNMAPPED
        assert await speaker.add() is UNMAPPED
        assert await speaker.write() is UNMAPPED
        speaker.name = "unknown"
        await speaker.ask(FindCoordinatorRequest("unknown", 1), 3)
        assert await speaker.end() is UNMAPPED


@pytest.mark.parametrize(
    ("name", "timeout_ms", "code"),
    [
        ("", 60_000, ErrorCode.INVALID_REQUEST),
        ("x", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_000, NONE),
    ],
)
async def test_names_and_timeouts_have_limits(name: str, timeout_ms: int, code: ErrorCode) -> None:
    async with transaction_scene() as (_, speaker):
        request = InitProducerIdRequest(name, timeout_ms)
        assert (await speaker.ask(request, INIT)).error_code == code


async def test_other_brokers_do_not_coordinate() -> None:
    async with transaction_scene() as (_, speaker):
        other = speaker.coordinator.node_id % 3 + 1
        answer = await speaker.ask(InitProducerIdRequest("x", 60_000), INIT, other)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR


# Time


@EACH_PROTOCOL
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    protocol: int,
) -> None:
    async def main() -> None:
        # Without the finalized version the coordinator's own aborts are of version 1.
        async with Cluster(3, transaction_version=protocol) as cluster:
            cluster.create_topic("t", partitions=1, replication_factor=3)
            speaker = await Speaker(cluster, protocol).begin(timeout_ms=5_000)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await speaker.send()
            await speaker.becomes("CompleteAbort")
            assert 5.0 <= loop.time() - began < 5.2
            assert is_stable(cluster)
            assert cluster.log("t").transactions.aborted_between(0, 9)
            assert await speaker.write() is ErrorCode.INVALID_PRODUCER_EPOCH
            # In version 2 the epoch of the abort is also the one after the producer's own.
            ended = await speaker.end()
            assert ended is (FENCED if protocol == 1 else ErrorCode.INVALID_TXN_STATE)
            assert await speaker.init() is NONE
            await speaker.send()
            assert await speaker.end() is NONE

    run_virtually(main(), limit=60)


def test_in_version_2_the_producer_goes_on_when_it_aborts_what_took_too_long() -> None:
    async def main() -> None:
        async with transaction_scene(brokers=1) as (_, speaker):
            await speaker.begin(timeout_ms=5_000)
            producer_id, epoch = speaker.identity
            await speaker.send()
            await speaker.becomes("CompleteAbort")
            assert await speaker.end(False) is NONE
            assert speaker.identity == (producer_id, epoch + 1)
            await speaker.send()
            assert await speaker.end() is NONE

    run_virtually(main(), limit=60)


def test_a_late_abort_that_can_not_be_written_is_tried_again_without_haste() -> None:
    async def main() -> None:
        async with Cluster(3) as cluster:
            cluster.create_topic("t", partitions=1, replication_factor=3)
            speaker = await Speaker(cluster).begin(timeout_ms=5_000)
            await speaker.send()
            leader = speaker.coordinator.node_id
            others = [one for one in cluster.brokers if one != leader]
            for one in others:
                await cluster.crash(one)
            await asyncio.sleep(600)  # a loop that spins ends this test
            assert speaker.states() == ["Empty", "Ongoing"]
            for one in others:
                await cluster.restart(one)
            await speaker.becomes("CompleteAbort")
            assert is_stable(cluster)
            assert await speaker.end() is ErrorCode.INVALID_TXN_STATE

    run_virtually(main(), limit=700)


def test_ids_that_are_not_used_expire() -> None:
    async def main() -> None:
        configs = {
            "transactional.id.expiration.ms": 3_600_000,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 60_000,
        }
        async with Cluster(1, broker_configs=configs) as cluster:
            cluster.create_topic("t")
            idle, busy = Speaker(cluster), Speaker(cluster, name="busy")
            for one in (idle, busy):
                await one.begin()
                await one.send()
            assert await idle.end() is NONE
            await idle.becomes("CompleteCommit")
            for _ in range(3):
                await asyncio.sleep(1500)
                assert (await busy.init()) in (NONE, CONCURRENT)
                await busy.begin()
            was = idle.identity
            assert await idle.end() is UNMAPPED
            described = await idle.described()
            assert described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            await idle.begin()
            assert idle.identity[0] > was[0]
            assert idle.identity[1] == 0
            index = partition_of("x", 50)
            tombstones = [one for one in cluster.records(TRANSACTION_TOPIC, index) if not one.value]
            assert len(tombstones) == 1

    run_virtually(main(), limit=10_000)


def test_an_idle_cluster_has_no_timer_after_transactions() -> None:
    async def main() -> None:
        async with Cluster(3) as cluster:
            cluster.create_topic("t", partitions=3, replication_factor=3)
            async with kclient.Producer(cluster.bootstrap, transactional_id="x") as producer:
                for number in range(3):
                    async with producer.transaction() as txn:
                        txn.send("t", b"v", partition=number)
                        offset = {kclient.TopicPartition("t", 0): number}
                        await txn.commit_offsets(kclient.GroupMetadata("g"), offset)
            await asyncio.sleep(120)
            loop: Any = asyncio.get_running_loop()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert [one for one in loop._scheduled if not one.cancelled()] == []

    run_virtually(main(), limit=300)


# Epochs that run out


def metadata_at(epoch: int, state: TransactionState) -> TransactionMetadata:
    return TransactionMetadata(
        "x", 7_000, 60_000, 0, 7_000, epoch=epoch, state=state, started_ms=0, client_version=2
    )


async def with_epoch(cluster: Cluster, epoch: int) -> Speaker:
    """A producer whose id was used for so long that it has that epoch."""
    cluster.create_topic("t", partitions=1)
    speaker = Speaker(cluster)
    next(iter(cluster.brokers.values())).transactions.find("x")
    index, leader = partition_of("x", 50), speaker.coordinator.node_id
    state = metadata_at(epoch, TransactionState.COMPLETE_COMMIT)
    cluster.append(TRANSACTION_TOPIC, index, encode_batch([("x", state)], 0, 1))
    cluster.move_transaction_coordinator("x", leader % 3 + 1)
    speaker.identity = (7_000, epoch)
    return speaker


async def test_when_epochs_run_out_the_producer_goes_on_under_another_id() -> None:
    async with asyncio.timeout(60), Cluster(3) as cluster:
        speaker = await with_epoch(cluster, LAST_EPOCH - 3)
        seen = []
        for number in range(4):
            while await speaker.write() is CONCURRENT:
                pass
            assert await speaker.end(number % 2 == 0) is NONE
            seen.append(speaker.identity)
        last = seen[2][0]
        assert seen == [
            (7_000, LAST_EPOCH - 2),
            (7_000, LAST_EPOCH - 1),
            (last, 0),
            (last, 1),
        ]
        assert last != 7_000
        await cluster.events.wait_for(
            TransactionChanged, lambda one: (one.epoch, one.state) == (1, "CompleteAbort")
        )
        assert controls(cluster) == 4
        assert is_stable(cluster)


async def test_a_new_producer_of_an_exhausted_id_gets_another() -> None:
    async with asyncio.timeout(60), Cluster(3) as cluster:
        old = await with_epoch(cluster, LAST_EPOCH - 1)
        newer = await Speaker(cluster).begin()
        assert newer.identity[0] != 7_000
        assert newer.identity[1] == 0
        assert await old.write() is UNMAPPED
        assert await old.end() is FENCED
        assert await old.init(goes_on=True) is FENCED


# Threads


def test_a_threaded_cluster_has_transactions() -> None:
    async def write(bootstrap: str) -> None:
        async with kclient.Producer(bootstrap, transactional_id="x") as producer:
            async with producer.transaction() as txn:
                txn.send("t", b"v")

    with ThreadedCluster(Cluster(3)) as cluster:
        cluster.create_topic("t")
        asyncio.run(write(cluster.bootstrap))
        cluster.events.wait_for(TransactionChanged, lambda one: one.state == "CompleteCommit")
        assert [one.value for one in cluster.records("t")] == [b"v"]
        assert cluster.transaction_coordinator("x") in (1, 2, 3)
