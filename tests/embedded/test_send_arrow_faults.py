"""``send_arrow``: odd cells, a partitioner that raises, and errors of which no part is shared."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument, RowsNotDelivered, RowsRejected, SerializationFailed
from kclient.testing import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1) as running:
        running.create_topic("t", partitions=4)
        yield running


def written(cluster: Cluster) -> list[Any]:
    return sorted(r.value for p in range(4) for r in cluster.records("t", p))


# Rows that can't be sent


@pytest.mark.parametrize(
    ("unit", "zone", "number", "shown"),
    [
        ("s", None, 10**17, "100000000000000000 s"),
        ("s", None, -(10**15), "-1000000000000000 s"),
        ("ms", None, -(10**17), "-100000000000000000 ms"),
        ("us", "No/Where", -5, "-5 us"),
        ("us", None, -5, "1969-12-31 23:59:59.999995"),
    ],
)
@pytest.mark.parametrize("layout", ["plain", "dictionary", "run_end"])
async def test_times_that_python_does_not_know_are_named_by_row(
    cluster: Cluster, unit: str, zone: str | None, number: int, shown: str, layout: str
) -> None:
    times = pa.array([1, number], pa.timestamp(unit, zone))
    if layout == "dictionary":
        times = times.dictionary_encode()
    elif layout == "run_end":
        times = pa.compute.run_end_encode(times)
    async with kclient.Producer(cluster.bootstrap) as out:
        with pytest.raises(RowsRejected, match="1 of 2 rows") as reported:
            await out.send_arrow("t", pa.table({"value": ["v", "w"], "timestamp": times}))
    ((row, why),) = reported.value.rows
    assert (row, type(why)) == (1, InvalidArgument)
    assert f"timestamp={shown} is out of range: " in str(why)
    assert written(cluster) == []


@pytest.mark.parametrize("number", [-1, -5, -(2**63)])
async def test_nanoseconds_before_1970_are_named_by_row(cluster: Cluster, number: int) -> None:
    times = pa.array([number], pa.timestamp("ns"))
    async with kclient.Producer(cluster.bootstrap) as out:
        with pytest.raises(RowsRejected, match=r"row 0: timestamp=.* is out of range"):
            await out.send_arrow("t", pa.table({"value": ["v"], "timestamp": times}))


async def test_a_header_whose_name_is_not_utf8_is_named_by_row(cluster: Cluster) -> None:
    kind = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
    names = [b"ok", b"bad\xff", "\u00fc".encode()]
    headers = pa.array([[{"name": name, "value": b"\xff"}] for name in names], kind)
    table = pa.table({"value": ["a", "b", "c"], "headers": headers})
    async with kclient.Producer(cluster.bootstrap) as out:
        with pytest.raises(RowsRejected, match="1 of 3 rows") as reported:
            await out.send_arrow("t", table)
        ((row, why),) = reported.value.rows
        assert (row, type(why)) == (1, SerializationFailed)
        assert repr(b"bad\xff") in str(why)
        assert await out.send_arrow("t", table.take([0, 2])) == 2
    assert written(cluster) == [b"a", b"c"]


# A partitioner that raises


class Failing:
    """An application's partitioner that fails at one key."""

    def __init__(self, at: bytes) -> None:
        self.at = at
        self.asked: list[bytes | None] = []

    def partition(self, topic: str, key: bytes | None, partition_count: int) -> int:
        self.asked.append(key)
        if key == self.at:
            raise ValueError("no idea")
        return len(self.asked) % partition_count


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("at", [0, 1, 500, 2999])
async def test_rows_before_one_that_the_partitioner_fails_for_are_sent(
    cluster: Cluster, at: int, known: bool
) -> None:
    keys = [b"%04d" % i for i in range(3000)]
    failing = Failing(keys[at])
    async with kclient.Producer(cluster.bootstrap, partitioner=failing) as out:
        if known:
            await out.partitions_for("t")
        with pytest.raises(
            InvalidArgument, match=r"Failing failed for topic t: .*no idea"
        ) as reported:
            await out.send_arrow("t", pa.table({"value": keys, "key": keys}))
        assert reported.value.__notes__ == [
            f"at row {at} of send_arrow; the rows before it were taken"
        ]
        await out.flush()
        assert out.health().buffered_bytes == out.health().parked_records == 0
    assert written(cluster) == keys[:at]
    assert failing.asked == keys[: at + 1]


# Errors as the caller gets them


class Kept(bytearray):
    """A large object of the application that a weak reference can watch."""


@pytest.mark.parametrize("which", ["rows", "errors", "cause"])
async def test_raising_the_error_of_a_row_keeps_nothing_of_the_raiser(
    cluster: Cluster, which: str
) -> None:
    alive: list[weakref.ref[Kept]] = []

    async def user(out: Any) -> None:
        mine = Kept(10)
        alive.append(weakref.ref(mine))
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD, topic="t", times=1)
        deliveries = [out.send("t", b"1", partition=0) for _ in range(10)]
        try:
            await out.send_arrow("t", pa.table({"value": [b"a"] * 5, "partition": [0] * 5}))
        except RowsNotDelivered as failure:
            if which == "cause":
                assert failure.__cause__ is not None
                raise failure.__cause__ from None
            raise (failure.rows[0][1] if which == "rows" else failure.errors[0]) from None
        del deliveries

    async with kclient.Producer(cluster.bootstrap, linger=0.05) as out:
        await out.send("t", b"x")
        for _ in range(3):
            with pytest.raises(kclient.errors.KafkaError):
                await user(out)
            await out.send("t", b"ok")
    gc.collect()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


async def test_rows_of_one_batch_have_one_error_that_no_other_record_has(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap, linger=0.2, batch_size=100_000) as out:
        await out.partitions_for("t")
        stranger = out.send("t", b"stranger", partition=0)
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD, times=1)
        with pytest.raises(RowsNotDelivered) as reported:
            await out.send_arrow("t", pa.table({"value": ["v"] * 50, "partition": [0] * 50}))
    ((rows, why),) = reported.value.rows
    assert rows == range(50)
    kept = stranger._outcome.error
    assert why is not kept
    assert stranger.exception() is not why
    assert kept is not None
    assert (type(why), str(why), why.__cause__) == (type(kept), str(kept), kept.__cause__)
    assert why.__traceback__ is None
