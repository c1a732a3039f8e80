"""Transactions end everywhere once their end is decided, whatever becomes of brokers and topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster, VirtualLoop, run_virtually
from kclient.testing.events import CoordinatorElected, TransactionChanged
from kclient.testing.image import TRANSACTION_TOPIC
from kclient.testing.internal_topic import partition_of
from kclient.testing.request_info import RequestInfo
from kclient.testing.request_log import ServedRequest
from tests.embedded.transaction_scene import (
    CONCURRENT,
    NONE,
    Speaker,
    controls,
    is_stable,
    transaction_scene,
)

EACH_PROTOCOL = pytest.mark.parametrize("protocol", [1, 2])
EACH_END = pytest.mark.parametrize("committed", [True, False])
INDEX = partition_of("x", 50)


def shown(committed: bool) -> str:
    return "Commit" if committed else "Abort"


def elsewhere(cluster: Cluster, *others: int) -> int:
    """A broker that isn't one of these."""
    return next(one for one in cluster.brokers if one not in others)


async def leave(cluster: Cluster, how: str, node_id: int) -> None:
    """Have another broker coordinate x."""
    if how == "crash":
        await cluster.crash(node_id)
    else:
        cluster.move_transaction_coordinator("x", node_id % 3 + 1)


# The coordinator changes


@EACH_PROTOCOL
@EACH_END
@pytest.mark.parametrize("how", ["move", "crash"])
async def test_an_open_transaction_goes_on_at_the_next_coordinator(
    protocol: int, committed: bool, how: str
) -> None:
    async with transaction_scene(protocol) as (cluster, speaker):
        old = speaker.coordinator.node_id
        cluster.move_leader("t", 0, elsewhere(cluster, old))
        await speaker.send()
        await leave(cluster, how, old)
        assert speaker.coordinator.node_id != old
        assert await speaker.end(committed) is NONE
        await speaker.becomes(f"Complete{shown(committed)}")
        assert controls(cluster) == 1
        assert is_stable(cluster)


@EACH_PROTOCOL
@EACH_END
@pytest.mark.parametrize("how", ["move", "crash"])
async def test_a_decided_transaction_is_ended_by_the_next_coordinator(
    protocol: int, committed: bool, how: str
) -> None:
    async with transaction_scene(protocol) as (cluster, speaker):
        old = speaker.coordinator.node_id
        for index in (0, 1):
            cluster.move_leader("t", index, elsewhere(cluster, old))
            await speaker.send(index=index)
        held = cluster.faults.hold("WriteTxnMarkers", times=None)
        assert await speaker.end(committed) is NONE
        await held.wait_hits()
        assert not is_stable(cluster)
        cluster.events.clear()
        await leave(cluster, how, old)
        await cluster.events.wait_for(CoordinatorElected, lambda one: one.partition == INDEX)
        assert await speaker.init() is CONCURRENT
        held.remove()
        await speaker.becomes(f"Complete{shown(committed)}")
        assert [is_stable(cluster, index=one) for one in (0, 1)] == [True, True]
        aborted = cluster.log("t").transactions.aborted_between(0, 99)
        assert bool(aborted) is not committed
        assert speaker.states() == [f"Complete{shown(committed)}"]
        assert await speaker.init() is NONE


@EACH_PROTOCOL
async def test_a_finished_transaction_stays_so_at_the_next_coordinator(protocol: int) -> None:
    async with transaction_scene(protocol) as (cluster, speaker):
        await speaker.send()
        before = speaker.identity
        assert await speaker.end() is NONE
        await speaker.becomes("CompleteCommit")
        marked = controls(cluster)
        cluster.move_transaction_coordinator("x", speaker.coordinator.node_id % 3 + 1)
        speaker.identity = before
        assert await speaker.end() is NONE  # repeated, and known
        assert controls(cluster) == marked == 1
        assert (await speaker.described()).transaction_state == "CompleteCommit"
        await speaker.send()
        assert await speaker.end() is NONE


@EACH_PROTOCOL
@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_a_coordinator_that_is_alone_writes_its_markers_after_a_restart(
    protocol: int, how: str
) -> None:
    async with transaction_scene(protocol, brokers=1) as (cluster, speaker):
        await speaker.send()
        held = cluster.faults.hold("WriteTxnMarkers")
        assert await speaker.end() is NONE
        await held.wait_hits()
        await (cluster.crash(1) if how == "crash" else cluster.stop(1))
        held.release()
        await cluster.restart(1)
        await speaker.becomes("CompleteCommit")
        assert (controls(cluster), is_stable(cluster)) == (1, True)


def test_a_coordinator_remembers_when_a_transaction_began() -> None:
    async def main() -> None:
        async with Cluster(3) as cluster:
            cluster.create_topic("t", partitions=1, replication_factor=3)
            speaker = await Speaker(cluster).begin(timeout_ms=10_000)
            began = asyncio.get_running_loop().time()
            await speaker.send()
            await asyncio.sleep(4)
            await cluster.crash(speaker.coordinator.node_id)
            await asyncio.sleep(4)
            cluster.move_transaction_coordinator(
                "x", elsewhere(cluster, *_down(cluster), speaker.coordinator.node_id)
            )
            await speaker.becomes("CompleteAbort")
            assert asyncio.get_running_loop().time() - began == pytest.approx(10, abs=0.2)

    run_virtually(main(), limit=100)


def _down(cluster: Cluster) -> list[int]:
    return [one for one, broker in cluster.brokers.items() if not broker.running]


async def test_a_request_that_waits_for_its_write_fails_with_the_coordinator() -> None:
    async with transaction_scene() as (cluster, speaker):
        await speaker.send()
        old = speaker.coordinator.node_id
        fetches = [
            cluster.faults.hold("Fetch", times=None, replica=one, broker=old)
            for one in cluster.brokers
            if one != old
        ]
        for one in fetches:
            await one.wait_hits()
        ending = asyncio.create_task(speaker.end())
        log = cluster.log(TRANSACTION_TOPIC, INDEX)
        while log.high_watermark == log.end_offset:  # noqa: ASYNC110 - until it was appended
            await asyncio.sleep(0)
        cluster.move_transaction_coordinator("x", old % 3 + 1)
        for one in fetches:
            one.remove()
        assert await ending is ErrorCode.NOT_COORDINATOR
        assert await speaker.end() is NONE
        await speaker.becomes("CompleteCommit")
        assert is_stable(cluster)


async def test_an_older_coordinator_can_not_end_a_later_transaction() -> None:
    """Its request, which was on the way, arrives after the next one's markers."""
    async with transaction_scene(1) as (cluster, speaker):
        old = speaker.coordinator.node_id
        cluster.move_leader("t", 0, elsewhere(cluster, old))
        await speaker.send()
        held = cluster.faults.hold("WriteTxnMarkers")
        assert await speaker.end(False) is NONE
        await held.wait_hits()
        cluster.move_transaction_coordinator("x", old % 3 + 1)
        await speaker.becomes("CompleteAbort")
        await speaker.send()
        marked = controls(cluster)

        def served() -> list[ServedRequest]:
            sent = cluster.requests.of("WriteTxnMarkers")
            return [one for one in sent if one.response is not None]

        held.release()
        while not (late := [one for one in served() if _codes(one) != {NONE}]):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert _codes(late[0]) == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        assert controls(cluster) == marked
        assert not is_stable(cluster)
        assert await speaker.end() is NONE


def _codes(served: ServedRequest) -> set[int]:
    response: Any = served.response
    return {
        part.error_code
        for marker in response.markers
        for topic in marker.topics
        for part in topic.partitions
    }


# The leaders of the data


@EACH_PROTOCOL
@EACH_END
async def test_markers_wait_for_the_next_leader_of_a_partition(
    protocol: int, committed: bool
) -> None:
    async with transaction_scene(protocol) as (cluster, speaker):
        coordinator = speaker.coordinator.node_id
        leader = elsewhere(cluster, coordinator)
        cluster.move_leader("t", 0, leader)
        await speaker.send()
        held = cluster.faults.hold("WriteTxnMarkers", broker=leader)
        assert await speaker.end(committed) is NONE
        await held.wait_hits()
        await cluster.crash(leader)
        await speaker.becomes(f"Complete{shown(committed)}")
        assert cluster.leader("t") != leader
        assert is_stable(cluster)
        held.release()
        await cluster.restart(leader)
        for one in cluster.brokers:
            log = cluster.log("t", broker=one)
            assert [batch.is_control for batch in log.batches] == [False, True]


async def test_markers_wait_for_a_partition_without_leader() -> None:
    async with transaction_scene(partitions=1) as (cluster, speaker):
        leader = elsewhere(cluster, speaker.coordinator.node_id)
        others = [one for one in cluster.brokers if one != leader]
        cluster.create_topic("alone", assignments=[[leader]])
        await speaker.send("alone")
        await speaker.send("t")
        cluster.move_leader("t", 0, others[0])
        await cluster.crash(leader)
        assert await speaker.end() is NONE
        while not is_stable(cluster):  # noqa: ASYNC110 - the others don't wait
            await asyncio.sleep(0.001)
        assert await speaker.init() is CONCURRENT
        assert "CompleteCommit" not in speaker.states()
        await cluster.restart(leader)
        await speaker.becomes("CompleteCommit")
        assert is_stable(cluster, "alone")


@EACH_PROTOCOL
@pytest.mark.parametrize("fault", ["lost request", "lost response", "refused"])
async def test_markers_are_written_however_often_that_fails(protocol: int, fault: str) -> None:
    async with transaction_scene(protocol) as (cluster, speaker):
        for index in (0, 1):
            await speaker.send(index=index)
        faults = cluster.faults
        if fault == "lost request":
            made = faults.close("WriteTxnMarkers", times=3)
        elif fault == "lost response":
            made = faults.close("WriteTxnMarkers", times=3, after=True)
        else:
            made = faults.error("WriteTxnMarkers", ErrorCode.NOT_ENOUGH_REPLICAS, times=3)
        assert await speaker.end() is NONE
        await speaker.becomes("CompleteCommit")
        assert made.hits == 3
        assert [is_stable(cluster, index=one) for one in (0, 1)] == [True, True]
        assert speaker.states()[-2:] == ["PrepareCommit", "CompleteCommit"]


def refuse_one(_: RequestInfo, response: Any) -> Any:
    """Say of one marker that it wasn't written, though it was."""
    (topic,) = response.markers[0].topics
    topic.partitions[1].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return response


async def test_only_the_partitions_that_failed_are_asked_again() -> None:
    async with transaction_scene(brokers=1) as (cluster, speaker):
        for index in (0, 1):
            await speaker.send(index=index)
        cluster.faults.rewrite("WriteTxnMarkers", refuse_one)
        assert await speaker.end() is NONE
        await speaker.becomes("CompleteCommit")
        assert [controls(cluster, index=one) for one in (0, 1)] == [1, 2]
        assert cluster.requests.count("WriteTxnMarkers") == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_markers_that_came_too_late_are_left_to_the_next_coordinator(code: ErrorCode) -> None:
    async def main() -> None:
        async with transaction_scene(brokers=2) as (cluster, speaker):
            await speaker.send()
            late = cluster.faults.error("WriteTxnMarkers", code, times=None)
            assert await speaker.end() is NONE
            await late.wait_hits()
            await asyncio.sleep(30)
            assert late.hits == 1  # there is nothing to write any more, it thinks
            assert await speaker.init() is CONCURRENT
            late.remove()
            cluster.move_transaction_coordinator("x", speaker.coordinator.node_id % 2 + 1)
            await speaker.becomes("CompleteCommit")
            assert is_stable(cluster)

    run_virtually(main(), limit=100)


async def test_deleted_topics_need_no_marker() -> None:
    async with transaction_scene() as (cluster, speaker):
        cluster.create_topic("gone", partitions=2)
        for topic in ("gone", "t"):
            await speaker.send(topic)
        cluster.delete_topic("gone")
        assert await speaker.end() is NONE
        await speaker.becomes("CompleteCommit")
        assert is_stable(cluster)


async def test_a_topic_that_is_deleted_while_its_marker_is_written_needs_none() -> None:
    async with transaction_scene() as (cluster, speaker):
        cluster.create_topic("gone")
        await speaker.send("gone")
        held = cluster.faults.hold("WriteTxnMarkers")
        assert await speaker.end() is NONE
        await held.wait_hits()
        cluster.delete_topic("gone")
        held.release()
        await speaker.becomes("CompleteCommit")


async def test_the_last_state_is_written_until_that_succeeds() -> None:
    async with transaction_scene() as (cluster, speaker):
        coordinator = speaker.coordinator.node_id
        others = [one for one in cluster.brokers if one != coordinator]
        cluster.create_topic("alone", assignments=[[coordinator]])
        await speaker.send("alone")
        held = cluster.faults.hold("WriteTxnMarkers")
        assert await speaker.end() is NONE
        await held.wait_hits()
        for one in others:
            await cluster.crash(one)
        assert cluster.isr(TRANSACTION_TOPIC, INDEX) == (coordinator,)
        held.release()
        while not is_stable(cluster, "alone"):  # noqa: ASYNC110 - the marker needs no other broker
            await asyncio.sleep(0.001)
        assert await speaker.init() is CONCURRENT
        assert "CompleteCommit" not in speaker.states()
        for one in others:
            await cluster.restart(one)
        await speaker.becomes("CompleteCommit")
        assert speaker.states().count("CompleteCommit") == 1


# Pending offsets


@EACH_PROTOCOL
@EACH_END
async def test_offsets_follow_their_transaction_over_a_move_of_the_group(
    protocol: int, committed: bool
) -> None:
    async with transaction_scene(protocol) as (cluster, speaker):
        next(iter(cluster.brokers.values())).groups.find("g")
        if protocol == 1:
            assert await speaker.add_offsets() is NONE
        assert await speaker.commit_offset(5) is NONE
        cluster.move_coordinator("g", cluster.coordinator("g") % 3 + 1)
        offsets = cluster.brokers[cluster.coordinator("g")].groups.shard("g").offsets
        assert offsets.pending("g") == {("t", 0)}
        assert await speaker.end(committed) is NONE
        await speaker.becomes(f"Complete{shown(committed)}")
        assert offsets.pending("g") == set()
        cluster.move_coordinator("g", cluster.coordinator("g") % 3 + 1)
        offsets = cluster.brokers[cluster.coordinator("g")].groups.shard("g").offsets
        found = {one.offset for one in offsets.read("g").get("t", {}).values()}
        assert found == ({5} if committed else set())


# Clients


@pytest.mark.parametrize("seed", range(4))
def test_a_client_goes_on_while_brokers_crash_between_records_and_markers(seed: int) -> None:
    async def main() -> None:
        async with Cluster(3, seed=seed) as cluster:
            cluster.create_topic("t", partitions=3, replication_factor=3)
            async with kclient.Producer(cluster.bootstrap, transactional_id="x") as producer:
                wanted = []
                for number in range(6):
                    async with producer.transaction() as txn:
                        for index in range(3):
                            wanted.append(b"%d-%d" % (number, index))
                            txn.send("t", wanted[-1], partition=index)
                        await producer.flush()
                        held = cluster.faults.hold("WriteTxnMarkers")
                    await held.wait_hits()
                    down = cluster.leader("t", number % 3)
                    await cluster.crash(down)
                    held.release()
                    await cluster.restart(down)
            async with kclient.Consumer(
                cluster.bootstrap,
                "t",
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer:
                seen: list[bytes] = []
                while len(seen) < len(wanted):
                    seen += [one.value for one in await consumer.poll(timeout=10)]
                assert sorted(seen) == wanted

    run_virtually(main(), seed=seed, limit=600)


def test_a_coordinator_that_is_moved_between_two_runs_of_the_loop_writes_its_markers() -> None:
    loop = VirtualLoop(limit=60)
    asyncio.set_event_loop(None)
    cluster = Cluster(3)

    async def first() -> Speaker:
        await cluster.start()
        cluster.create_topic("t", partitions=1, replication_factor=3)
        speaker = await Speaker(cluster).begin()
        await speaker.send()
        cluster.faults.hold("WriteTxnMarkers")
        assert await speaker.end() is NONE
        return speaker

    async def second() -> None:
        await cluster.events.wait_for(TransactionChanged, lambda one: "Complete" in one.state)
        assert is_stable(cluster)
        await cluster.close()

    try:
        speaker = loop.run_until_complete(first())
        cluster.move_transaction_coordinator("x", speaker.coordinator.node_id % 3 + 1)
        loop.run_until_complete(second())
    finally:
        loop.close()


async def test_the_next_producer_waits_for_the_markers_of_the_one_before() -> None:
    async with transaction_scene() as (cluster, speaker):
        await speaker.send()
        held = cluster.faults.hold("WriteTxnMarkers")
        newer = Speaker(cluster)
        assert await newer.init() is CONCURRENT  # which aborts what is open
        await held.wait_hits()
        assert await newer.init() is CONCURRENT
        assert await speaker.end() is CONCURRENT
        held.release()
        await newer.becomes("CompleteAbort")
        assert await newer.init() is NONE
        assert is_stable(cluster)
