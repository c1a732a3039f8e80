"""Pitfalls of producers with what brokers respond, on virtual time: each response's consequence.

Forgotten producers, duplicates, batches and records that are refused. Checks what went over the
wire as well as what is in the log: a record that is there once could be so by luck.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kclient.broker_errors import InvalidRecord, MessageTooLarge
from kclient.error_codes import ErrorCode
from kclient.testing import Cluster
from kclient.testing.log_state import ProducerStates
from kclient.testing.responses import ApiError
from kclient.testing.stored_batch import StoredBatch
from tests.virtual.recovering import IMPATIENT, one_broker, only, outcomes, send, sending
from tests.virtual.relay import numbers, values
from tests.virtual.wire import PRODUCE, Fate, Owner

TWENTY: dict[str, Any] = {"linger": 0.01, "batch_size": 1440}
"""Settings with which twenty records of 60 bytes fill a batch."""
LIMIT = 600
"""Bytes of a batch that the broker takes later: with a split in two it isn't done."""
CORRUPT, GAP = ErrorCode.CORRUPT_MESSAGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE


# 5: the broker doesn't know the producer


class Forgetful(ProducerStates):
    """Brokers before 2.5: a producer that isn't known has to begin at 0."""

    def check(self, batch: StoredBatch) -> None:
        if self.get(batch.producer_id) is None and batch.base_sequence:
            raise ApiError(ErrorCode.UNKNOWN_PRODUCER_ID)
        super().check(batch)


async def test_pitfall_5_without_a_log_start_the_same_is_sent_again_until_there_is_one() -> None:
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        cluster.log("t").producers = Forgetful()

        def unknown(_: Any, response: Any) -> None:
            response.responses[0].partition_responses[0].log_start_offset = -1

        cluster.faults.rewrite("Produce", unknown, times=8)
        assert await outcomes(send(producer, 1, 6)) == [1, 2, 3, 4, 5]
        again = [one for one in wire.of(b"1") if one.owner.epoch == 0]
        assert len(again) == 5  # with the response of the fifth there is a log start
        assert len({one.data for one in again}) == 1
        assert wire.owners == [Owner(0, 0), Owner(0, 1)]
        assert values(cluster) == numbers(6)


@pytest.mark.parametrize("are_deleted", [True, False])
async def test_pitfall_5_a_forgotten_producer_starts_over_in_that_partition_and_loses_nothing(
    are_deleted: bool,
) -> None:
    """By retention, what was acknowledged being deleted, or for some other reason."""
    async with one_broker() as cluster:
        cluster.add_partitions("t", 2)
        async with sending(cluster) as (wire, producer):
            await producer.send("t", b"other", partition=1)
            if are_deleted:
                cluster.delete_records("t", 0, cluster.end_offset("t"))
            cluster.log("t").producers = Forgetful()
            deliveries = send(producer, 1, 7)
            await producer.send("t", b"another", partition=1)
            assert await outcomes(deliveries) == [1, 2, 3, 4, 5, 6]
            assert [one.sequence for one in wire.in_partition(0) if one.owner.epoch] == [*range(6)]
            assert {one.owner for one in wire.in_partition(1)} == {Owner(0, 0)}
        assert values(cluster) == numbers(7)[are_deleted:]


@pytest.mark.parametrize("are_deleted", [True, False])
async def test_pitfall_5_what_a_forgetful_broker_may_have_is_not_written_twice(
    are_deleted: bool,
) -> None:
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        wire.on_reported = only(b"1")
        deliveries = send(producer, 1, 2)
        await asyncio.sleep(1.0)
        if are_deleted:
            cluster.delete_records("t", 0, 1)
        cluster.log("t").producers = Forgetful()
        wire.cut()
        await asyncio.sleep(0.01)
        deliveries += send(producer, 2, 4)  # these never went before
        assert await outcomes(deliveries) == [True, 2, 3]
        assert values(cluster) == numbers(4)[are_deleted:]


# 6: the broker responds that it has the batch, but no longer where


async def test_pitfall_6_a_duplicate_is_a_success_whose_offsets_are_not_known() -> None:
    async with one_broker() as cluster:
        settings = {"linger": 0.01, "batch_size": 1000}
        async with sending(cluster, **settings) as (wire, producer):
            wire.on_reported = lambda reported: Fate.KEEP
            doubtful = send(producer, 1, 5)
            await asyncio.sleep(0.1)
            duplicate = cluster.faults.error("Produce", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            wire.cut()
            metas = [await delivery for delivery in doubtful]
            assert duplicate.hits == 1
            assert [meta.offset for meta in metas] == [-1] * 4
            assert [meta.partition for meta in metas] == [0] * 4
            assert all(meta.timestamp > 0 for meta in metas)
            assert await outcomes(send(producer, 5, 8)) == [5, 6, 7]
            assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(8)


async def test_pitfall_6_a_duplicate_behind_a_gap_shows_that_there_is_none() -> None:
    async with one_broker() as cluster, sending(cluster, **IMPATIENT) as (wire, producer):
        wire.on_reported = only(b"1")
        deliveries = send(producer, 1, 2)
        await asyncio.sleep(3.0)
        deliveries += send(producer, 2, 3)
        await asyncio.sleep(2.5)
        cluster.faults.error("Produce", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        wire.cut()
        assert await outcomes(deliveries) == [True, -1]
        assert await outcomes(send(producer, 3, 5)) == [3, 4]
        assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(5)


async def test_pitfall_6_a_repeat_is_never_older_than_what_brokers_remember() -> None:
    """While the first of five is not acknowledged, no sixth goes: it could be forgotten then."""
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        cluster.faults.error("Produce", ErrorCode.REQUEST_TIMED_OUT, after=True)
        deliveries = send(producer, 1, 6)
        await wire.wait_reported(6)
        wire.on_reported = lambda reported: Fate.KEEP
        deliveries += send(producer, 6, 20)
        await asyncio.sleep(1.0)
        wire.cut()
        assert await outcomes(deliveries) == list(range(1, 20))
        assert wire.owners == [Owner(0, 0)]
        assert values(cluster) == numbers(20)


# 7: batches that have become too large


def lower(cluster: Cluster, max_message_bytes: int) -> None:
    """Change the configuration of t while producers write to it."""
    cluster._image.topics["t"].config.max_message_bytes = max_message_bytes


def large(count: int) -> list[bytes]:
    """Values of 60 bytes that can't be compressed much."""
    noise = random.Random(7)
    return [b"%04d" % number + noise.randbytes(56) for number in range(count)]


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_pitfall_7_a_split_batch_keeps_its_numbers_and_its_place_among_others(
    compression: str,
) -> None:
    """Five batches are in flight when the limit falls: three with twenty records, two that fit."""
    settings = {**TWENTY, "compression": compression}
    async with one_broker() as cluster, sending(cluster, **settings) as (wire, producer):
        wire.on_sent = lambda sent: Fate.KEEP
        content = large(150)
        deliveries = []
        for first, end in ((0, 20), (20, 21), (21, 41), (41, 42), (42, 62)):
            deliveries += [producer.send("t", value) for value in content[first:end]]
            await asyncio.sleep(0.02)
        assert [len(one.values) for one in wire.sent[1:]] == [20, 1, 20, 1, 20]
        lower(cluster, LIMIT)
        wire.let_requests_go()
        await asyncio.sleep(0.01)
        deliveries += [producer.send("t", value) for value in content[62:110]]
        assert await outcomes(deliveries) == list(range(1, 111))
        refused = len([reported for reported in wire.reported if reported.code == TOO_LARGE])
        later = [producer.send("t", value) for value in content[110:]]
        assert await outcomes(later) == list(range(111, 151))
        assert (
            [reported.code for reported in wire.reported].count(TOO_LARGE) == refused > 3
        )  # it has learned
        assert wire.owners == [Owner(0, 0)]  # and by ``check_numbers`` each record has one number
        assert values(cluster) == [b"0", *content]


@pytest.mark.parametrize("behind", [0, 2])
@pytest.mark.parametrize("is_written", [True, False])
async def test_pitfall_7_parts_of_a_batch_in_doubt_are_not_written_twice(
    is_written: bool, behind: int
) -> None:
    """Its response was lost; a repeat of a part isn't known as one, so it mustn't be renumbered."""
    async with one_broker() as cluster, sending(cluster, **TWENTY) as (wire, producer):
        content = large(20 + behind)
        if is_written:
            wire.on_reported = lambda reported: Fate.KEEP
        else:
            wire.on_sent = lambda sent: Fate.KEEP
        deliveries = [producer.send("t", value) for value in content[:20]]
        await asyncio.sleep(0.1)
        lower(cluster, LIMIT)
        wire.cut()
        deliveries += [producer.send("t", value) for value in content[20:]]
        reported = await outcomes(deliveries)
        assert reported[20:] == list(range(21, 21 + behind))
        assert is_written or reported == list(range(1, 21 + behind))
        there = values(cluster)[1:]
        assert there == sorted(set(there))
        for value, outcome in zip(content, reported, strict=True):
            assert outcome is not False
            assert outcome is True or values(cluster)[outcome] == value


# 8: records that can't be taken


async def test_pitfall_8_a_record_that_is_too_large_fails_alone() -> None:
    """It is in the middle of a batch, and another batch is in flight behind it."""
    async with one_broker() as cluster, sending(cluster, **TWENTY) as (wire, producer):
        lower(cluster, LIMIT)
        content = large(9)
        content[3] = b"0003" + b"." * 1000
        deliveries = [producer.send("t", value) for value in content]
        await asyncio.sleep(0.02)
        assert [len(one.values) for one in wire.sent[1:3]] == [6, 3]
        assert await outcomes(deliveries) == [1, 2, 3, False, 4, 5, 6, 7, 8]
        error = deliveries[3].exception()
        assert isinstance(error, MessageTooLarge)
        assert "1,074 bytes in 1 records" in str(error)
        assert values(cluster)[1:] == [value for value in content if len(value) < 1000]


async def test_pitfall_8_records_that_are_named_fail_for_that_and_the_others_otherwise() -> None:
    async with one_broker() as cluster, sending(cluster, **TWENTY) as (wire, producer):
        cluster._image.topics["t"].config.compacted = True  # each record needs a key from now on
        keys = [b"k", None, b"k", b"k", None, b"k"]
        deliveries = [producer.send("t", b"%d" % n, key=key) for n, key in enumerate(keys, 1)]
        await asyncio.sleep(0.011)
        assert len(wire.sent) == 2
        behind = [producer.send("t", b"%d" % n, key=b"k") for n in range(7, 9)]
        assert await outcomes(deliveries) == [False] * 6
        errors = [delivery.exception() for delivery in deliveries]
        assert all(isinstance(error, InvalidRecord) for error in errors)
        named = ["has no key" in str(error) for error in errors]
        assert named == [key is None for key in keys]
        others = ["2 other records of the same batch were refused" in str(e) for e in errors]
        assert others == [key is not None for key in keys]
        assert len(wire.of(b"1")) == 1
        again = [producer.send("t", b"%d" % n, key=b"k") for n in (1, 3, 4, 6)]
        assert await outcomes(behind + again) == [1, 2, 3, 4, 5, 6]
        assert values(cluster) == [b"0", b"7", b"8", b"1", b"3", b"4", b"6"]


@pytest.mark.parametrize("refusal", ["a key is needed", "they are too old"])
async def test_pitfall_8_records_that_are_named_when_they_are_repeated_may_be_written(
    refusal: str,
) -> None:
    """The log has them, the response is lost, the repeat is refused: brokers check that first."""
    settings: dict[str, Any] = {"linger": 0.01, "batch_size": 1000}
    async with one_broker() as cluster, sending(cluster, **settings) as (wire, producer):
        wire.on_reported = lambda reported: Fate.KEEP
        deliveries = send(producer, 1, 4)
        await asyncio.sleep(0.1)
        config = cluster._image.topics["t"].config
        if refusal == "a key is needed":
            config.compacted = True
        else:
            config.timestamp_before_max_ms = 50  # which the repeat is older than
        wire.cut()
        assert await outcomes(deliveries) == [True] * 3
        assert values(cluster) == numbers(4)


# 12: bytes that were damaged, with others of their partition behind them


async def test_pitfall_12_what_is_behind_damaged_bytes_waits_for_them_to_be_sent_again() -> None:
    """The relay damages the second of five; the broker then refuses the three behind it."""
    async with one_broker() as cluster, sending(cluster) as (wire, producer):
        wire.on_sent = lambda sent: Fate.SPOIL if sent.values == (b"2",) else Fate.PASS
        deliveries = send(producer, 1, 6)
        await wire.wait_reported(6)
        wire.on_sent = lambda sent: Fate.PASS
        assert await outcomes(deliveries + send(producer, 6, 9)) == list(range(1, 9))
        assert [reported.code for reported in wire.reported[1:6]] == [0, CORRUPT, GAP, GAP, GAP]
        for number in range(2, 6):
            assert len({one.data for one in wire.of(b"%d" % number)}) == 1
        assert wire.owners == [Owner(0, 0)]
        ways = [s for s in wire.relays[1].sessions if any(a.api_key == PRODUCE for a in s.asked)]
        assert len(ways) == 2
        assert values(cluster) == numbers(9)


async def test_pitfall_12_bytes_that_are_damaged_for_ever_are_not_written_and_make_no_storm() -> (
    None
):
    backoff = {"retry_backoff": 0.1, "retry_backoff_max": 3.2}
    async with (
        one_broker() as cluster,
        sending(cluster, **IMPATIENT, **backoff) as (wire, producer),
    ):
        wire.on_sent = lambda sent: Fate.SPOIL
        assert await outcomes(send(producer, 1, 2)) == [False]
        assert len(wire.of(b"1")) == 6  # with the jitter, too, the last after 2.5 to 3.7 of 5 s
        wire.on_sent = lambda sent: Fate.PASS
        assert await outcomes(send(producer, 2, 4)) == [1, 2]
        assert values(cluster) == [b"0", b"2", b"3"]
