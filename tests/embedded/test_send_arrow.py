"""``send_arrow``: order, errors by row, memory, cancellation and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

import kclient
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BufferFull,
    ClientClosed,
    DeliveryTimedOut,
    FlushFailed,
    InvalidArgument,
    RecordTooLarge,
    RowsNotDelivered,
    RowsRejected,
    SerializationFailed,
    WrongContext,
)
from kclient.record import partition_of_key
from kclient.testing import Cluster

QUICK: Any = {"retry_backoff": 0.01, "retry_backoff_max": 0.05, "reconnect_backoff": 0.01}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1) as running:
        running.create_topic("t", partitions=4)
        yield running


def numbers(count: int, size: int = 6) -> list[bytes]:
    return [(b"%05d" % i).ljust(size, b".") for i in range(count)]


def written(cluster: Cluster, topic: str = "t") -> list[list[Any]]:
    return [[r.value for r in cluster.records(topic, p)] for p in range(4)]


def everything(cluster: Cluster, topic: str = "t") -> list[Any]:
    return sorted(value for part in written(cluster, topic) for value in part)


async def test_rows_without_a_key_stay_in_order_within_their_partitions(cluster: Cluster) -> None:
    values = numbers(20_000)
    async with kclient.Producer(cluster.bootstrap, batch_size=4000) as out:
        assert await out.send_arrow("t", pa.table({"value": values})) == 20_000
    assert everything(cluster) == values
    parts = written(cluster)
    assert all(part == sorted(part) for part in parts)
    assert sum(bool(part) for part in parts) > 1


async def test_keys_and_partitions_decide_as_in_send(cluster: Cluster) -> None:
    keys = [None if i % 5 == 0 else b"k%d" % (i % 11) for i in range(3000)]
    partitions = [2 if i % 7 == 0 else None for i in range(3000)]
    table = pa.table({"value": numbers(3000), "key": keys, "partition": partitions})
    async with kclient.Producer(cluster.bootstrap, batch_size=3000) as out:
        assert await out.send_arrow("t", table) == 3000
    place = {r.value: (r.partition, r.key) for p in range(4) for r in cluster.records("t", p)}
    for value, key, partition in zip(numbers(3000), keys, partitions, strict=True):
        assert place[value][1] == key
        if partition is not None:
            assert place[value][0] == partition
        elif key is not None:
            assert place[value][0] == partition_of_key(key, 4)
    assert all(part == sorted(part) for part in written(cluster))


class EveryThird:
    """An application's partitioner."""

    def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        return 3 if key == b"third" else 1


async def test_a_partitioner_of_the_users_own_is_asked_per_row(cluster: Cluster) -> None:
    keys = [b"third" if i % 3 == 0 else None for i in range(300)]
    table = pa.table({"value": numbers(300), "key": keys})
    async with kclient.Producer(cluster.bootstrap, partitioner=EveryThird()) as out:
        assert await out.send_arrow("t", table) == 300
        with pytest.raises(InvalidArgument, match="EveryThird"):
            out._admission._partitioner = type("EveryThird", (), {"partition": lambda *_: 9})()
            await out.send_arrow("t", table)
    assert [len(part) for part in written(cluster)] == [0, 200, 0, 100]


async def test_among_other_writers_each_row_is_there_once(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, batch_size=2000) as out:
        await asyncio.gather(
            out.send_arrow("t", pa.table({"value": [b"a" + v for v in numbers(5000)]})),
            out.send_arrow("t", pa.table({"value": [b"b" + v for v in numbers(5000)]})),
            out.send_many("t", [b"c" + v for v in numbers(5000)]),
        )
    assert everything(cluster) == [b"%c" % c + v for c in b"abc" for v in numbers(5000)]


async def test_rows_go_behind_what_waits_for_the_topic(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap) as out:
        early = [out.send("t", b"0%d" % i, partition=1) for i in range(5)]
        table = pa.table({"value": [b"1", b"2"], "partition": [1, 1]})
        assert await out.send_arrow("t", table) == 2
        await asyncio.gather(*early)
    assert written(cluster)[1] == [b"00", b"01", b"02", b"03", b"04", b"1", b"2"]


async def test_more_rows_than_fit_into_memory(cluster: Cluster) -> None:
    values = numbers(5000, 100)
    settings: Any = {"buffer_memory": 20_000, "batch_size": 2000, "linger": 0.0}
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        assert await out.send_arrow("t", pa.table({"value": values})) == 5000
        assert out.health().buffered_bytes == 0
    assert everything(cluster) == values


async def test_nothing_to_send_asks_no_broker(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap) as out:
        assert await out.send_arrow("nowhere", pa.table({"value": pa.array([], pa.binary())})) == 0


async def test_serializers_are_not_applied(cluster: Cluster) -> None:
    def refuse(topic: str, value: Any) -> bytes:
        raise ValueError(value)

    settings: Any = {"key_serializer": refuse, "value_serializer": refuse}
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        assert await out.send_arrow("t", pa.table({"value": ["v"], "key": ["k"]})) == 1
    assert everything(cluster) == [b"v"]


# Rows that can't be sent


async def test_rows_that_cannot_be_sent_are_named_and_nothing_is_sent(cluster: Cluster) -> None:
    table = pa.table(
        {
            "value": [b"ok", b"x" * 2000, b"ok", b"ok", b"ok"],
            "partition": [None, None, -1, 0, None],
            "timestamp": [None, None, None, -7, None],
        }
    )
    async with kclient.Producer(cluster.bootstrap, max_request_size=1000) as out:
        with pytest.raises(
            RowsRejected, match=r"3 of 5 rows .* so none of them was: row 1: "
        ) as reported:
            await out.send_arrow("t", table)
        assert out.health().buffered_bytes == 0
    error = reported.value
    assert (error.count, error.taken, error.maybe_written) == (3, 0, False)
    kinds = [(row, type(why)) for row, why in error.rows]
    assert kinds == [(1, RecordTooLarge), (2, InvalidArgument), (3, InvalidArgument)]
    assert "partition=-1" in str(error.rows[1][1])
    assert "timestamp=-7" in str(error.rows[2][1])
    assert everything(cluster) == []


async def test_a_header_without_a_name_is_named_by_row(cluster: Cluster) -> None:
    kind = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"name": "a", "value": None}], [{"name": None, "value": b""}]], kind)
    async with kclient.Producer(cluster.bootstrap) as out:
        with pytest.raises(RowsRejected) as reported:
            await out.send_arrow("t", pa.table({"value": ["v", "v"], "headers": headers}))
    ((row, why),) = reported.value.rows
    assert (row, type(why)) == (1, SerializationFailed)


@pytest.mark.parametrize("known", [False, True])
async def test_a_partition_that_does_not_exist_is_refused_before_any_row_is_sent(
    cluster: Cluster, known: bool
) -> None:
    chunks = [pa.table({"value": ["v"] * 3, "partition": part}) for part in ([0, 3, 4], [1, 99, 2])]
    async with kclient.Producer(cluster.bootstrap, **QUICK, max_block=1.0) as out:
        if known:
            await out.partitions_for("t")
        with pytest.raises(RowsRejected, match="partition 4 of topic t did not come") as reported:
            await out.send_arrow("t", pa.concat_tables(chunks))
    assert [row for row, _ in reported.value.rows] == [2, 4]
    assert everything(cluster) == []


async def test_a_partition_that_was_added_meanwhile_is_found(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, **QUICK) as out:
        await out.send("t", b"v")
        async with kclient.Admin(cluster.bootstrap) as admin:
            await admin.create_partitions({"t": 6})
        assert await out.send_arrow("t", pa.table({"value": ["new"], "partition": [5]})) == 1
    assert [r.value for r in cluster.records("t", 5)] == [b"new"]


async def test_all_rejected_rows_are_counted_and_the_first_listed(cluster: Cluster) -> None:
    table = pa.table({"value": ["v"] * 30_000, "timestamp": [-5] * 30_000})
    async with kclient.Producer(cluster.bootstrap) as out:
        with pytest.raises(
            RowsRejected, match=r"30,000 of 30,000 rows.*and 29,997 more"
        ) as reported:
            await out.send_arrow("t", table)
    assert reported.value.count == 30_000
    assert [row for row, _ in reported.value.rows] == list(range(100))


async def test_a_reader_is_sent_batch_by_batch_as_far_as_it_is_right(cluster: Cluster) -> None:
    good = pa.table({"value": ["a", "b"], "timestamp": [1, 1]})
    bad = pa.table({"value": ["c", "d"], "timestamp": [1, -9]})
    async with kclient.Producer(cluster.bootstrap) as out:
        assert await out.send_arrow("t", pa.concat_tables([good, good]).to_reader()) == 4
        with pytest.raises(RowsRejected, match="nothing after row 1 was") as reported:
            await out.send_arrow("t", pa.concat_tables([good, bad]).to_reader())
        assert (reported.value.taken, [row for row, _ in reported.value.rows]) == (2, [3])
        await out.flush()
    assert everything(cluster) == [b"a"] * 2 + [b"a"] + [b"b"] * 3


# No memory, no topic, closed


async def test_no_memory_within_max_block_names_the_row(cluster: Cluster) -> None:
    settings: Any = {"buffer_memory": 5000, "batch_size": 1000, "max_block": 0.05}
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.send("t", b"v")
        held = cluster.faults.hold("Produce", times=None)
        with pytest.raises(BufferFull) as reported:
            await out.send_arrow("t", pa.table({"value": numbers(100, 200)}))
        (note,) = reported.value.__notes__
        assert "at row 2" in note
        cluster.faults.clear()
        held.release()
        await out.flush()
    assert 15 < len(everything(cluster)) < 30


async def test_an_unknown_topic_is_waited_for_and_then_named(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, max_block=0.2, **QUICK) as out:
        with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
            await out.send_arrow("nowhere", pa.table({"value": ["v"]}))
        with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
            await out.send_arrow("nowhere", pa.table({"value": ["v"], "partition": [0]}))


async def test_a_closed_producer_and_the_wrong_loop_are_refused(cluster: Cluster) -> None:
    table = pa.table({"value": ["v"]})
    out: Any = kclient.Producer(cluster.bootstrap)
    with pytest.raises(ClientClosed):
        await out.send_arrow("t", table)
    async with out:
        with pytest.raises(WrongContext):
            await asyncio.to_thread(asyncio.run, out.send_arrow("t", table))
    with pytest.raises(ClientClosed):
        await out.send_arrow("t", table)


async def test_closing_meanwhile_ends_it_and_loses_nothing_that_was_taken(
    cluster: Cluster,
) -> None:
    settings: Any = {"buffer_memory": 20_000, "batch_size": 2000}
    out: Any = kclient.Producer(cluster.bootstrap, **settings)
    await out.start()
    await out.partitions_for("t")
    task = asyncio.create_task(out.send_arrow("t", pa.table({"value": numbers(20_000, 100)})))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await out.close()
    with pytest.raises(ClientClosed):
        await task
    got = everything(cluster)
    assert got == numbers(20_000, 100)[: len(got)]


@pytest.mark.parametrize("suspensions", [1, 2, 5, 20])
async def test_a_cancelled_call_sends_a_beginning_of_the_rows(
    cluster: Cluster, suspensions: int
) -> None:
    settings: Any = {"buffer_memory": 10_000, "batch_size": 1000}
    values = numbers(2000, 100)
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.partitions_for("t")
        task = asyncio.create_task(out.send_arrow("t", pa.table({"value": values})))
        for _ in range(suspensions):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await out.flush()
        got = everything(cluster)
        assert got == values[: len(got)]
        assert len(got) < 2000
        assert out.health().buffered_bytes == out.health().parked_records == 0


# Failed batches


async def test_rows_of_failed_batches_are_named(cluster: Cluster) -> None:
    table = pa.table({"value": numbers(900, 100), "partition": [i % 3 for i in range(900)]})
    async with kclient.Producer(cluster.bootstrap, batch_size=5000) as out:
        await out.send_many("t", [b"before"])
        cluster.faults.error(
            "Produce", ErrorCode.INVALID_RECORD, times=None, topic="t", partition=1
        )
        with pytest.raises(RowsNotDelivered, match="not delivered; first: row ") as reported:
            await out.send_arrow("t", table)
        cluster.faults.clear()
        error = reported.value
        assert isinstance(error, FlushFailed)
        lost = error.row_numbers()
        assert error.count == len(lost) > 0
        assert all(row % 3 == 1 and row < error.taken for row in lost)
        assert all(why.maybe_written is False for _, why in error.rows)
        again = pa.concat_tables([table.take(pa.array(lost)), table.slice(error.taken)])
        assert await out.send_arrow("t", again) == len(again)
        await out.flush()  # what failed was raised already
    assert everything(cluster) == sorted([*numbers(900, 100), b"before"])


async def test_rows_in_one_run_are_a_range_and_those_of_others_are_not_named(
    cluster: Cluster,
) -> None:
    async with kclient.Producer(cluster.bootstrap, linger=0.2, batch_size=100_000) as out:
        await out.partitions_for("t")
        stranger = out.send("t", b"stranger", partition=0)
        table = pa.table({"value": numbers(50), "partition": [0] * 50})
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD, times=1)
        with pytest.raises(RowsNotDelivered) as reported:
            await out.send_arrow("t", table)
        ((rows, why),) = reported.value.rows
        assert rows == range(50)
        assert reported.value.count == 50
        assert "INVALID_RECORD" in str(why)
        assert stranger.exception() is not None


async def test_rows_of_an_expired_batch_may_be_written(cluster: Cluster) -> None:
    settings: Any = {"delivery_timeout": 0.4, "request_timeout": 0.2, "linger": 0.1, **QUICK}
    # It lingers, or a slow machine would put the rows into two batches.
    async with kclient.Producer(cluster.bootstrap, **settings) as out:
        await out.send("t", b"v", partition=2)
        held = cluster.faults.hold("Produce", times=None, after=True)
        with pytest.raises(RowsNotDelivered) as reported:
            await out.send_arrow("t", pa.table({"value": ["w"] * 3, "partition": [2] * 3}))
        cluster.faults.clear()
        held.release()
    ((rows, why),) = reported.value.rows
    assert (rows, type(why), why.maybe_written) == (range(3), DeliveryTimedOut, True)


async def test_batches_that_had_to_be_split_are_delivered(cluster: Cluster) -> None:
    cluster.create_topic("small", partitions=1, configs={"max.message.bytes": "2000"})
    values = numbers(300, 100)
    async with kclient.Producer(cluster.bootstrap, batch_size=20_000) as out:
        assert await out.send_arrow("small", pa.table({"value": values})) == 300
    assert [r.value for r in cluster.records("small", 0)] == values
