"""Pitfalls of idempotent producers, on virtual time: how repeats neither double, lose nor reorder.

Each test provokes what a client once got wrong, and checks what went over the wire as well as what
is in the log: a record that is there once could be so by luck.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kclient.broker_errors import OutOfOrderSequenceNumber
from kclient.error_codes import ErrorCode
from kclient.errors import DeliveryTimedOut
from kclient.testing import Cluster
from tests.virtual.recovering import IMPATIENT, one_broker, only, outcomes, send, sending
from tests.virtual.relay import numbers, refresh, values
from tests.virtual.wire import Fate, Owner, Reported, Wire


def log_epochs(cluster: Cluster, partition: int = 0) -> list[int]:
    """Epochs in a log, in order."""
    return list(dict.fromkeys(one.producer_epoch for one in cluster.log("t", partition).batches))


# 1: a batch in flight expires


@pytest.mark.parametrize(
    ("end", "is_written"),
    [("arrives", True), ("answer lost", True), ("refused", False), ("never arrives", False)],
)
async def test_pitfall_1_an_expired_batch_keeps_its_numbers_until_it_is_known_what_became_of_it(
    end: str, is_written: bool
) -> None:
    """The second of five: the others get their outcomes as if it were not there."""
    async with one_broker() as cluster, sending(cluster, **IMPATIENT) as (wire, producer):
        if end == "answer lost":
            wire.on_reported = only(b"2")
        else:
            wire.on_sent = only(b"2")
        deliveries = send(producer, 1, 3)
        await asyncio.sleep(3.0)
        deliveries += send(producer, 3, 6)
        await asyncio.sleep(2.5)
        expired = deliveries[1].exception()
        assert isinstance(expired, DeliveryTimedOut)
        assert expired.maybe_written is True
        assert [delivery.done() for delivery in deliveries] == [True, True, False, False, False]
        deliveries += send(producer, 6, 8)
        if end == "refused":
            cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS)
            wire.on_reported = only(b"3")
            wire.let_requests_go()
            await asyncio.sleep(1.0)
            assert not wire.of(b"7")  # whether there is a gap isn't known before the next response
            wire.let_answers_go(1)
            await asyncio.sleep(1.0)
            assert wire.owners == [Owner(0, 0)]  # now it is, but three responses are missing
            wire.let_answers_go()
        elif end == "arrives":
            wire.let_requests_go()
        else:
            wire.cut()
        written = [n for n in range(8) if n != 2 or is_written]
        reported = [written.index(n) if n != 2 else True for n in range(1, 8)]
        assert await outcomes(deliveries) == reported
        assert values(cluster) == [b"%d" % n for n in written]
        assert log_epochs(cluster) == ([0] if is_written else [0, 1])
        assert len(wire.of(b"2")) == 1


@pytest.mark.parametrize("is_written", [True, False])
async def test_pitfall_1_the_numbers_of_an_expired_batch_are_not_given_to_the_next_one(
    is_written: bool,
) -> None:
    """Else the broker would take the next one for a repeat, and it would be lost in silence."""
    async with one_broker() as cluster, sending(cluster, **IMPATIENT) as (wire, producer):
        if is_written:
            wire.on_reported = only(b"1")
        else:
            wire.on_sent = only(b"1")
        expired = send(producer, 1, 2)
        assert await outcomes(expired) == [True]
        deliveries = send(producer, 2, 4)
        await asyncio.sleep(1.0)
        assert [one.sequence for one in wire.sent] == [0, 1, 2, 3]
        wire.let_requests_go()
        wire.let_answers_go()
        assert await outcomes(deliveries) == [2, 3]
        assert values(cluster) == numbers(4)


@pytest.mark.parametrize("are_written", [True, False])
async def test_pitfall_1_with_nothing_left_to_learn_from_the_epoch_is_raised(
    are_written: bool,
) -> None:
    """All five expire before their responses, and so do two that never went."""
    async with one_broker() as cluster, sending(cluster, **IMPATIENT) as (wire, producer):
        if are_written:
            wire.on_reported = only(b"1")
        else:
            wire.on_sent = only(b"1")
        deliveries = send(producer, 1, 8)
        assert await outcomes(deliveries) == [True] * 5 + [False] * 2
        last = producer.send("t", b"8")
        await asyncio.sleep(1.0)
        assert not wire.of(b"8")  # its number isn't known yet
        wire.cut()
        there = numbers(6) if are_written else numbers(1)
        assert (await last).offset == len(there)
        assert values(cluster) == [*there, b"8"]
        assert [(one.owner.epoch, one.sequence) for one in wire.of(b"8")] == [(1, 0)]
        assert len(wire.sent) == 7


# 2: a broker that does not know the topic yet


@pytest.mark.parametrize("by_id", [True, False])
async def test_pitfall_2_a_topic_that_vanishes_for_a_while_goes_on_with_its_numbers(
    by_id: bool,
) -> None:
    async with Cluster(brokers=2) as cluster:
        for broker in cluster.brokers.values():
            if not by_id:
                broker.speak("Metadata", 0, 9)
                broker.speak("Produce", 3, 9)
        cluster.create_topic("t", assignments=[[1]])

        def forget(_: Any, response: Any) -> None:
            for topic in response.topics:
                topic.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topic.topic_id = bytes(16)
                topic.partitions = []

        async with sending(cluster) as (wire, producer):
            await outcomes(send(producer, 1, 6))
            stale = cluster.faults.rewrite("Metadata", forget, times=None)
            wire.on_reported = only(b"6")
            doubtful = send(producer, 6, 9)
            assert (await refresh(producer)).topic_error("t")  # it has vanished
            wire.cut()
            await asyncio.sleep(5.0)
            cluster.faults.remove(stale)
            assert not (await refresh(producer)).topic_error("t")
            assert await outcomes(doubtful + send(producer, 9, 12)) == list(range(6, 12))
            assert wire.owners == [Owner(0, 0)]
            assert all(one.sequence == int(one.values[0]) for one in wire.sent)
        assert values(cluster) == numbers(12)


# 3 and 11: errors that come after the append


async def appended_and_refused(code: ErrorCode) -> None:
    """The first of five is refused three times although the log has it."""
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        cluster.faults.error("Produce", code, after=True, times=2)
        deliveries = send(producer, 1, 6)
        await wire.wait_reported(6)
        cluster.faults.error("Produce", code, after=True)
        deliveries += send(producer, 6, 12)
        assert await outcomes(deliveries) == list(range(1, 12))
        assert [reported.code for reported in wire.reported].count(code) == 3
        for number in range(12):
            attempts = wire.of(b"%d" % number)
            assert len({one.data for one in attempts}) == 1  # the same bytes, numbers included
        assert len(wire.of(b"1")) + len(wire.of(b"2")) == 2 + 3
        assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(12)


async def appended_and_given_up(code: ErrorCode, *, after: bool) -> None:
    """It is refused until it expires; what follows is written once, whatever is known."""
    twice = {"delivery_timeout": 5.0, "retry_backoff": 3.6, "retry_backoff_max": 3.6}
    async with one_broker() as cluster, sending(cluster, **twice) as (wire, producer):
        refusal = cluster.faults.error("Produce", code, after=after, times=None)
        deliveries = send(producer, 1, 2)
        assert await outcomes(deliveries) == [after]
        assert len(wire.of(b"1")) == 2
        assert len({one.data for one in wire.of(b"1")}) == 1
        cluster.faults.remove(refusal)
        await outcomes(send(producer, 2, 8))
        assert values(cluster) == [b"%d" % n for n in range(8) if n != 1 or after]


async def test_pitfall_3_what_timed_out_at_the_broker_is_repeated_with_its_numbers() -> None:
    await appended_and_refused(ErrorCode.REQUEST_TIMED_OUT)


async def test_pitfall_3_what_timed_out_at_the_broker_stays_unknown_when_it_expires() -> None:
    await appended_and_given_up(ErrorCode.REQUEST_TIMED_OUT, after=True)


async def test_pitfall_3_what_timed_out_at_the_broker_can_not_be_taken_back() -> None:
    """Cancelling its delivery takes neither the record back nor its numbers."""
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        cluster.faults.error("Produce", ErrorCode.REQUEST_TIMED_OUT, after=True)
        doubtful, *others = send(producer, 1, 4)
        await wire.wait_reported(4)
        assert doubtful.cancel()
        assert await outcomes(others + send(producer, 4, 6)) == [2, 3, 4, 5]
        await producer.flush()
        assert len(wire.of(b"1")) == 2
        assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(6)


async def test_pitfall_11_not_enough_replicas_after_the_append_is_repeated_as_it_was() -> None:
    await appended_and_refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


@pytest.mark.parametrize("after", [True, False])
async def test_pitfall_11_only_after_the_append_may_it_be_written_when_it_expires(
    after: bool,
) -> None:
    code = "NOT_ENOUGH_REPLICAS_AFTER_APPEND" if after else "NOT_ENOUGH_REPLICAS"
    await appended_and_given_up(ErrorCode[code], after=after)


# 9: the ends of sequences and of epochs

LAST = 2**31 - 1


@pytest.mark.parametrize("lost", range(1, 8))
async def test_pitfall_9_sequences_go_on_from_0_after_the_last_one(lost: int) -> None:
    """And repeats are known as such on both sides of it: the response to one of seven is lost."""
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        start_at(wire, cluster, producer, LAST - 2)
        wire.on_reported = only(b"%d" % lost)
        deliveries = send(producer, 1, 8)
        await asyncio.sleep(1.0)
        wire.cut()
        assert await outcomes(deliveries) == list(range(1, 8))
        sequences = dict.fromkeys(one.sequence for one in wire.sent)
        assert sorted(sequences) == [0, 1, 2, 3, LAST - 2, LAST - 1, LAST]
        assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(8)


async def test_pitfall_9_a_batch_may_lie_across_the_last_sequence() -> None:
    settings = {"linger": 0.01, "batch_size": 1000}
    async with one_broker() as cluster, sending(cluster, **settings) as (wire, producer):
        start_at(wire, cluster, producer, LAST - 2)
        cluster.faults.close("Produce", after=True)
        assert await outcomes(send(producer, 1, 6)) == [1, 2, 3, 4, 5]
        assert await outcomes(send(producer, 6, 8)) == [6, 7]
        assert [one.sequence for one in wire.sent] == [LAST - 2, LAST - 2, 2]
        assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(8)


def start_at(wire: Wire, cluster: Cluster, producer: Any, sequence: int) -> None:
    """As if so many records had been written."""
    wire.sent.clear()  # their numbers come again
    queue = producer._accumulator.topics["t"].queues[0]
    queue.sequences.next = queue.sequences.acked_end = sequence
    state = cluster.log("t").producers.get(0)
    assert state is not None
    state.last_sequence = sequence - 1
    state.batches.clear()


async def test_pitfall_9_after_the_last_epoch_there_is_a_new_producer_id() -> None:
    async with one_broker() as cluster:
        cluster.add_partitions("t", 2)

        def nearly_worn(_: Any, response: Any) -> None:
            response.producer_epoch = 32766

        cluster.faults.rewrite("InitProducerId", nearly_worn)
        async with sending(cluster) as (wire, producer):
            await producer.send("t", b"other", partition=1)
            for first in (1, 5, 9):
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                cluster.faults.error("Produce", code, topic="t", partition=0)
                end = first + 4
                assert await outcomes(send(producer, first, end)) == [*range(first, end)]
            await producer.send("t", b"another", partition=1)
            assert wire.owners == [Owner(0, 32766), Owner(0, 32767), Owner(1, 0), Owner(1, 1)]
            assert {one.owner for one in wire.in_partition(1)} == {Owner(0, 32766)}
        assert cluster.requests.count("InitProducerId") == 2
        assert values(cluster) == numbers(13)


# 10: one partition of twelve


@pytest.mark.parametrize("brokers", [1, 3])
async def test_pitfall_10_only_the_partition_concerned_gets_another_epoch_once_it_is_drained(
    brokers: int,
) -> None:
    async with Cluster(brokers=brokers) as cluster:
        cluster.create_topic("t", partitions=12)
        async with sending(cluster) as (wire, producer):
            everywhere, home = range(12), cluster.leader("t", 7)
            await asyncio.gather(
                *(producer.send("t", b"0", partition=p) for p in everywhere if p != 0)
            )
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            cluster.faults.error("Produce", code, topic="t", partition=7)

            def late(reported: Reported) -> Fate:
                mine = reported.batch.partition == 7 and reported.batch.values != (b"1",)
                return Fate.KEEP if mine else Fate.PASS

            wire.on_reported = late
            deliveries = [
                producer.send("t", b"%d" % n, partition=p) for n in range(1, 9) for p in everywhere
            ]
            await asyncio.sleep(2.0)
            assert wire.owners == [Owner(0, 0)]  # four responses are missing
            elsewhere = [d for d in deliveries if cluster.leader("t", d.partition or 0) != home]
            assert all(delivery.done() for delivery in elsewhere)
            wire.let_answers_go()
            assert await outcomes(deliveries) == [n for n in range(1, 9) for _ in everywhere]
            assert wire.owners == [Owner(0, 0), Owner(0, 1)]
            assert [p for p in everywhere if log_epochs(cluster, p) != [0]] == [7]
            assert [one.sequence for one in wire.in_partition(7) if one.owner.epoch] == [*range(8)]
            for partition in everywhere:
                assert values(cluster, "t", partition) == numbers(9)
                if partition != 7:  # nothing of theirs was even sent twice
                    assert [one.sequence for one in wire.in_partition(partition)] == [*range(9)]


# 53: the topic is created again


@pytest.mark.parametrize("refused", [1, 2])
async def test_pitfall_53_a_batch_that_later_ones_overtook_is_failed_and_not_written_behind_them(
    refused: int,
) -> None:
    """It was refused for sure, and the new log took the next one: it takes any number."""
    async with one_broker() as cluster:
        cluster.brokers[1].speak("Produce", 3, 12)  # by name, so that it can come to another topic
        async with sending(cluster) as (wire, producer):
            wire.on_sent = only(b"1")
            under_way = send(producer, 1, 5)
            await asyncio.sleep(0.1)
            assert len(wire.sent) == 5
            cluster.delete_topic("t")
            cluster.create_topic("t")
            cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=refused)
            wire.let_requests_go()
            found = await outcomes(under_way + send(producer, 5, 8))
        assert values(cluster) == numbers(8)[1 + refused :]
        assert found == [False] * refused + list(range(7 - refused))
        error = under_way[0].exception()
        assert isinstance(error, OutOfOrderSequenceNumber)
        assert "took batches that were sent behind it" in str(error)


# The log forgot the producer while it was idle (producer.id.expiration.ms)


def lose_answer(value: bytes) -> Any:
    """Lose the first response about the batch with one record of that value."""
    lost: list[Reported] = []

    def fate(reported: Reported) -> Fate:
        if lost or reported.batch.values != (value,):
            return Fate.PASS
        lost.append(reported)
        return Fate.CUT

    return fate


async def test_behind_a_gap_what_a_forgetful_log_took_is_not_written_again() -> None:
    """The first is refused for good, the second before its append; the third is in the log."""
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        cluster.log("t").producers.forget()
        cluster.faults.error("Produce", ErrorCode.INVALID_TIMESTAMP)
        cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS)
        wire.on_reported = lose_answer(b"3")
        found = await outcomes(send(producer, 1, 4) + send(producer, 4, 6))
        assert found == [False, False, 1, 2, 3]
        assert values(cluster) == [b"0", b"3", b"4", b"5"]


async def test_behind_a_gap_batches_in_doubt_that_no_log_has_are_sent_again_in_order() -> None:
    """The log remembers the producer, and lost nothing but the request of the first."""
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        cluster.faults.error("Produce", ErrorCode.INVALID_TIMESTAMP)
        wire.on_reported = lose_answer(b"2")
        assert await outcomes(send(producer, 1, 8)) == [False, *range(1, 7)]
        assert values(cluster) == [b"%d" % n for n in range(8) if n != 1]


@pytest.mark.parametrize("refused", [1, 2])
@pytest.mark.parametrize("recreated", [False, True])
async def test_a_refused_batch_is_not_written_behind_one_that_a_forgetful_log_may_have(
    recreated: bool, refused: int
) -> None:
    """The next one is in the log, and its response was lost."""
    async with one_broker() as cluster:
        cluster.brokers[1].speak("Produce", 3, 12)  # by name, so that it can come to another topic
        async with sending(cluster) as (wire, producer):
            wire.on_sent = only(b"1")
            under_way = send(producer, 1, 5)
            await asyncio.sleep(0.1)
            if recreated:
                cluster.delete_topic("t")
                cluster.create_topic("t")
            cluster.log("t").producers.forget()
            cluster.faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=refused)
            wire.on_reported = lose_answer(b"%d" % (1 + refused))
            wire.let_requests_go()
            found = await outcomes(under_way + send(producer, 5, 8))
        written = values(cluster)
        assert written == sorted(set(written)), "doubled or reordered"
        sent = dict(zip([b"%d" % n for n in range(1, 8)], found, strict=True))
        for value, fate in sent.items():
            if fate is False:
                assert value not in written
            elif fate is not True:
                assert written[fate] == value
        assert [sent[b"%d" % n] for n in range(1, 2 + refused)] == [False] * refused + [True]
