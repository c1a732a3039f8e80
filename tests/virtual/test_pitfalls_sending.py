"""Producers with leaders that move or are unreachable, and with full memory, on virtual time.

As with the other pitfalls it matters what went over the wire, and when: what was saved by a
metadata request too many, or by a long wait, was not saved well.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import BufferFull, DeliveryTimedOut
from kclient.testing import Cluster
from tests.virtual.recovering import BATCH_EACH, outcomes, send, sending
from tests.virtual.relay import now, numbers, refresh, sent_in_order, values
from tests.virtual.wire import Owner

GAP, MOVED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NOT_LEADER_OR_FOLLOWER
SLOW_RETRY: dict[str, Any] = {"retry_backoff": 10.0, "retry_backoff_max": 10.0}
AT_ONCE = 0.02
"""Virtual seconds: a few messages to brokers and back, and a connection to one of them."""
IDLE = 30.0
"""Virtual seconds after which a metadata request wouldn't have to wait for a back-off."""

# 4: the leader moves twice while five batches are in flight


@pytest.mark.parametrize("to", [1, 3])
@pytest.mark.parametrize("appended", [0, 2, 5])
async def test_pitfall_4_batches_in_flight_survive_two_moves_of_their_leader(
    appended: int, to: int
) -> None:
    """Each takes a second; some are in the log although their responses report that it moved."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        async with sending(cluster) as (wire, producer):
            if appended:
                cluster.faults.error("Produce", MOVED, after=True, times=appended)
            cluster.faults.delay("Produce", 1.0, times=5)
            deliveries = send(producer, 1, 6)
            await asyncio.sleep(appended + 0.5)
            cluster.move_leader("t", 0, 2)
            cluster.faults.delay("Produce", 1.0, broker=2)  # it is deposed before it looks
            await asyncio.sleep(0.6)
            cluster.move_leader("t", 0, to)
            deliveries += send(producer, 6, 12)
            assert await outcomes(deliveries) == list(range(1, 12))
            codes = {reported.code for reported in wire.reported}
            assert MOVED in codes
            if to == 1 and appended < 5:
                assert GAP in codes  # it leads again, and lacks those that it refused
            assert wire.owners == [Owner(0, 0)]
            for number in range(12):
                assert len({one.data for one in wire.of(b"%d" % number)}) == 1
        assert values(cluster) == numbers(12)


@pytest.mark.parametrize("after", [True, False])
async def test_pitfall_4_batches_in_flight_survive_the_deaths_of_two_leaders(after: bool) -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        async with kclient.Producer(cluster.bootstrap, **BATCH_EACH) as producer:
            await sent_in_order(producer, 1)
            hold = cluster.faults.hold("Produce", times=None, after=after)
            deliveries = send(producer, 1, 6)
            for leader in (1, 2):
                async with asyncio.timeout(10.0):
                    while not hold.held:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.01)
                assert cluster.leader("t") == leader
                await cluster.crash(leader)
            hold.release()
            assert await outcomes(deliveries + send(producer, 6, 9)) == list(range(1, 9))
            assert producer.health().producer_epoch == 0
        assert values(cluster) == numbers(9)


# 17: a topic without a leader


async def test_pitfall_17_records_wait_for_a_leader_and_are_written_when_there_is_one() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1], [2]])
        async with kclient.Producer(cluster.bootstrap, **BATCH_EACH) as producer:
            await sent_in_order(producer, 1)
            await cluster.stop(1)
            assert (await refresh(producer)).leader("t", 0) is None
            asked = cluster.requests.count("Metadata")
            deliveries = send(producer, 1, 9)
            assert (await producer.send("t", b"led", partition=1)).offset == 0
            await asyncio.sleep(10.0)
            assert not any(delivery.done() for delivery in deliveries)
            assert 10 < cluster.requests.count("Metadata") - asked < 100
            await cluster.restart(1)
            began = now()
            assert await outcomes(deliveries) == list(range(1, 9))
            assert now() - began < 0.5
        assert values(cluster) == numbers(9)


async def test_pitfall_17_records_for_a_topic_that_never_had_a_leader_wait_as_well() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        await cluster.stop(1)
        async with kclient.Producer(cluster.bootstrap) as producer:
            deliveries = [producer.send("t", b"%d" % n, key=(None, b"k")[n % 2]) for n in range(8)]
            await asyncio.sleep(10.0)
            assert not any(delivery.done() for delivery in deliveries)
            await cluster.restart(1)
            assert await outcomes(deliveries) == list(range(8))
        assert values(cluster) == numbers(8)


async def test_pitfall_17_without_a_leader_records_fail_when_their_time_is_over_not_before() -> (
    None
):
    """And they report that they are not written."""
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", assignments=[[1]])
        settings = {**BATCH_EACH, "delivery_timeout": 10.0}
        async with kclient.Producer(cluster.bootstrap, **settings) as producer:
            await sent_in_order(producer, 1)
            await cluster.stop(1)
            await refresh(producer)
            began = now()
            first, second = send(producer, 1, 3)
            await asyncio.sleep(4.0)
            (later,) = send(producer, 3, 4)
            for delivery, at in ((first, 10.0), (second, 10.0), (later, 14.0)):
                with pytest.raises(DeliveryTimedOut, match="no leader") as error:
                    await delivery
                assert error.value.maybe_written is False
                assert now() - began == pytest.approx(at, abs=0.01)
            await cluster.restart(1)
            assert await outcomes(send(producer, 4, 6)) == [1, 2]
        assert values(cluster) == [b"0", b"4", b"5"]


# 18: many callers wait for memory

SENDERS, EACH = 100, 20
FILLER = b" " * 100
SMALL: dict[str, Any] = {"batch_size": 2000, "buffer_memory": 10_000}
"""With records of 100 bytes there is memory for about 80, and a batch has 18."""


def record(who: int, number: int) -> bytes:
    return (b"%d-%d " % (who, number)).ljust(100, b".")


async def full(producer: Any, cluster: Cluster) -> Any:
    """Take all of the memory, for records that are not acknowledged until the hold is released."""
    hold = cluster.faults.hold("Produce", times=None)
    with pytest.raises(BufferFull):
        while True:
            producer.enqueue_nowait("t", FILLER, partition=0)
    return hold


async def test_pitfall_18_waiters_for_memory_are_served_in_the_order_of_the_calls() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(cluster.bootstrap, **SMALL) as producer:
            await sent_in_order(producer, 1)
            hold = await full(producer, cluster)
            served: list[int] = []

            async def enqueue(who: int) -> None:
                # Small ones would fit where a large one that waits doesn't.
                await producer.enqueue(
                    "t", record(who, 1)[: 20 if who % 3 == 1 else 100], partition=0
                )
                served.append(who)

            async with asyncio.TaskGroup() as group:
                for who in range(SENDERS):
                    group.create_task(enqueue(who))
                    await asyncio.sleep(0.001)
                assert not served
                hold.release()
            assert served == list(range(SENDERS))
        written = [value for value in values(cluster)[1:] if value != FILLER]
        assert [int(value.split(b"-")[0]) for value in written] == list(range(SENDERS))


@pytest.mark.parametrize("partitions", [1, 12])
@pytest.mark.parametrize("linger", [0.0, 0.005, 4.0])
async def test_pitfall_18_a_hundred_senders_fill_full_memory_in_full_batches(
    partitions: int, linger: float
) -> None:
    """No sender is starved, and none waits for batches to linger that have all of the memory."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=partitions)
        async with kclient.Producer(cluster.bootstrap, **SMALL, linger=linger) as producer:
            for partition in range(partitions):
                producer.send("t", b"first", partition=partition)
            await producer.flush()
            hold = await full(producer, cluster)
            taken = [0] * SENDERS
            lead = 0

            async def write(who: int) -> None:
                nonlocal lead
                for number in range(1, EACH + 1):
                    value = record(who, number)
                    await producer.enqueue("t", value, partition=(who + number) % partitions)
                    taken[who] = number
                    lead = max(lead, number - min(taken))

            began = now()
            async with asyncio.TaskGroup() as group:
                for who in range(SENDERS):
                    group.create_task(write(who))
                await asyncio.sleep(1.0)
                hold.release()
            assert now() - began < 2.0
            assert lead <= 2
            await producer.flush()
        for partition in range(partitions):
            by_sender: dict[bytes, list[int]] = {}
            for value in values(cluster, "t", partition)[1:]:
                if value != FILLER:
                    sender, number = value.rstrip(b".").split(b"-")
                    by_sender.setdefault(sender, []).append(int(number))
            assert all(found == sorted(set(found)) for found in by_sender.values())
        logs = [cluster.log("t", partition).batches[1:] for partition in range(partitions)]
        sizes = [batch.record_count for batches in logs for batch in batches]
        assert sum(sizes) > SENDERS * EACH
        assert sizes.count(1) <= len(sizes) // 20
        assert sum(sizes) / len(sizes) > 0.8 * min(18, 80 / partitions)


# KIP-951: the response that a leader has moved names the new one


async def test_a_hint_is_followed_at_once_and_without_a_metadata_request() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        async with sending(cluster, **SLOW_RETRY) as (wire, producer):
            await asyncio.sleep(IDLE)
            asked, began = cluster.requests.count("Metadata"), now()
            for number, leader in enumerate((2, 3, 1), 1):
                cluster.move_leader("t", 0, leader)
                assert await outcomes(send(producer, number, number + 1)) == [number]
                assert [one.node for one in wire.of(b"%d" % number)][1:] == [leader]
            assert now() - began < 3 * AT_ONCE
            assert cluster.requests.count("Metadata") == asked


async def test_a_hint_serves_all_batches_in_flight_and_not_only_the_first() -> None:
    """The responses for those behind it report the same, which is no news by then."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        async with sending(cluster, **SLOW_RETRY) as (wire, producer):
            await asyncio.sleep(IDLE)
            asked, began = cluster.requests.count("Metadata"), now()
            cluster.move_leader("t", 0, 2)
            assert await outcomes(send(producer, 1, 6)) == [1, 2, 3, 4, 5]
            assert now() - began < 2 * AT_ONCE
            assert cluster.requests.count("Metadata") == asked
            assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(6)


async def test_a_hint_brings_the_address_of_an_unknown_broker() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])

        def alone(_: Any, response: Any) -> None:
            response.brokers = [broker for broker in response.brokers if broker.node_id == 1]

        cluster.faults.rewrite("Metadata", alone, times=None)
        bootstrap = cluster.bootstrap.split(",")[0]
        async with kclient.Producer(bootstrap, **{**BATCH_EACH, **SLOW_RETRY}) as producer:
            await sent_in_order(producer, 1)
            await asyncio.sleep(IDLE)
            asked, began = cluster.requests.count("Metadata"), now()
            cluster.move_leader("t", 0, 3)
            assert await outcomes(send(producer, 1, 2)) == [1]
            assert now() - began < AT_ONCE
            assert cluster.requests.count("Metadata") == asked
            assert [served.broker for served in cluster.requests.of("Produce")] == [1, 1, 3]


async def test_hints_for_many_partitions_are_followed_in_one_request_to_each_new_leader() -> None:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]] * 12)
        settings = {**BATCH_EACH, **SLOW_RETRY, "linger": 0.01, "batch_size": 1000}
        async with kclient.Producer(cluster.bootstrap, **settings) as producer:
            first = [producer.send("t", b"0", partition=p) for p in range(12)]
            assert await outcomes(first) == [0] * 12
            await asyncio.sleep(IDLE)
            cluster.requests.clear()
            for partition in range(12):
                cluster.move_leader("t", partition, 2 + partition % 2)
            began = now()
            second = [producer.send("t", b"1", partition=p) for p in range(12)]
            assert await outcomes(second) == [1] * 12
            assert now() - began < 0.01 + AT_ONCE
            assert cluster.requests.count("Metadata") == 0
            asked = [served.broker for served in cluster.requests.of("Produce")]
            assert sorted(asked) == [1, 2, 3]


def mislead(cluster: Cluster, leader: int, epoch: int, times: int) -> None:
    """Have the leader refuse batches and return such a hint, without any address."""

    def change(_: Any, response: Any) -> None:
        hint = response.responses[0].partition_responses[0].current_leader
        hint.leader_id, hint.leader_epoch = leader, epoch
        response.node_endpoints = []

    cluster.faults.error("Produce", MOVED, times=times)
    cluster.faults.rewrite("Produce", change, times=times)


@pytest.mark.parametrize(("leader", "epoch"), [(-1, -1), (9, 99)])
async def test_a_hint_without_a_leader_or_an_address_is_not_followed(
    leader: int, epoch: int
) -> None:
    """Then metadata is requested, and the batch waits for its back-off."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        cluster.move_leader("t", 0, 2)
        async with sending(cluster, retry_backoff=1.0, retry_backoff_max=1.0) as (wire, producer):
            await asyncio.sleep(IDLE)
            asked, began = cluster.requests.count("Metadata"), now()
            mislead(cluster, leader, epoch, 1)
            assert await outcomes(send(producer, 1, 2)) == [1]
            assert 0.5 < now() - began < 2.0
            assert [one.node for one in wire.of(b"1")] == [2, 2]
            assert cluster.requests.count("Metadata") == asked + 1


async def test_a_stale_hint_is_not_followed_and_the_broker_is_tried_again_soon() -> None:
    """It soon learns of its election; if it hasn't after a few times, metadata is requested."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignments=[[1, 2, 3]])
        cluster.move_leader("t", 0, 2)
        async with sending(cluster, retry_backoff=1.0, retry_backoff_max=1.0) as (wire, producer):
            await asyncio.sleep(IDLE)
            asked, began = cluster.requests.count("Metadata"), now()
            mislead(cluster, 3, 0, 2)
            assert await outcomes(send(producer, 1, 2)) == [1]
            assert now() - began < 0.1
            assert cluster.requests.count("Metadata") == asked
            mislead(cluster, 3, 0, 12)
            assert await outcomes(send(producer, 2, 3)) == [2]
            assert 2.0 < now() - began < 8.0
            assert cluster.requests.count("Metadata") > asked
            assert {one.node for one in wire.sent} == {2}


# 18: a record that waits for metadata has a deadline of its own


async def test_a_fresh_record_has_all_of_its_time_behind_one_that_waited_for_metadata() -> None:
    """The acknowledgement comes after the waiting one's time is over, and before the other's."""
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        async with kclient.Producer(
            cluster.bootstrap, linger=0.5, delivery_timeout=10.0
        ) as producer:
            silent = cluster.faults.hold("Metadata", times=None)
            waiting = producer.send("t", b"waiting")
            await asyncio.sleep(4.4)
            held = cluster.faults.hold("Produce", times=None, after=True)
            silent.release()
            await asyncio.sleep(0.1)
            assert waiting.partition == 0  # it is in a batch that would linger
            fresh = producer.send("t", b"fresh")
            await asyncio.sleep(6.0)
            assert isinstance(waiting.exception(), DeliveryTimedOut)
            assert not fresh.done()
            held.release()
            assert (await fresh).offset == 1
        assert values(cluster) == [b"waiting", b"fresh"]
