"""``send_many`` pulls records in blocks: what is left in an iterator that is used afterwards."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import (
    BufferFull,
    FlushFailed,
    InvalidArgument,
    KafkaError,
    SerializationFailed,
)
from kclient.testing import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=1) as running:
        running.create_topic("t", partitions=2)
        yield running


def all_values(cluster: Cluster) -> list[bytes | None]:
    return [r.value for p in range(2) for r in cluster.records("t", p)]


async def test_nothing_is_lost_behind_a_bad_record_of_an_iterator(cluster: Cluster) -> None:
    values = [b"%03d" % i for i in range(100)]
    records: list[Any] = [*values[:37], "bad", *values[37:60], (b"k", "bad"), *values[60:]]
    source = iter(records)
    async with kclient.Producer(cluster.bootstrap) as producer:
        for _ in range(2):
            with pytest.raises(SerializationFailed):
                await producer.send_many("t", source)
        assert await producer.send_many("t", source) == 40
    assert sorted(map(bytes, filter(None, all_values(cluster)))) == values


async def test_nothing_is_lost_behind_a_failure_of_a_batch(cluster: Cluster) -> None:
    pulled: list[bytes] = []

    def records() -> Iterator[bytes]:
        for i in range(20_000):
            pulled.append(b"%05d" % i)
            yield pulled[-1]

    source = records()
    async with kclient.Producer(cluster.bootstrap, batch_size=2000, linger=0.0) as producer:
        await producer.send_many("t", [b"first"])
        cluster.faults.error("Produce", ErrorCode.INVALID_RECORD)
        with pytest.raises(FlushFailed) as failed:
            await producer.send_many("t", source)
        written = all_values(cluster)
        assert len(written) + failed.value.count == 1 + len(pulled) < 20_001
        await producer.send_many("t", source)
    assert len(set(all_values(cluster))) == 20_001 - failed.value.count


async def test_what_the_iterator_raises_is_raised_though_a_batch_has_failed_meanwhile(
    cluster: Cluster,
) -> None:
    for count in range(2, 34):  # a failure is seen after some 16 records

        def records(count: int = count) -> Iterator[bytes]:
            for _ in range(count):
                yield b"x" * 100
            raise ValueError("the file is torn")

        async with kclient.Producer(cluster.bootstrap, batch_size=500, linger=0.0) as producer:
            await producer.send_many("t", [b"first"])
            cluster.faults.error("Produce", ErrorCode.INVALID_RECORD)
            source = records()
            with pytest.raises((FlushFailed, ValueError)) as first:
                await producer.send_many("t", source)
            if first.type is FlushFailed:
                with pytest.raises(ValueError, match="torn"):
                    await producer.send_many("t", source)
            cluster.faults.clear()
            await asyncio.gather(producer.flush(), return_exceptions=True)


async def test_the_note_counts_what_was_pulled_behind_a_record_that_did_not_fit(
    cluster: Cluster,
) -> None:
    values = iter([b"%0100d" % i for i in range(1000)])
    settings: Any = {"buffer_memory": 20_000, "batch_size": 4000, "linger": 0.01, "max_block": 0.2}
    async with kclient.Producer(cluster.bootstrap, **settings) as producer:
        await producer.send_many("t", [b"first"])
        held = cluster.faults.hold("Produce", times=None)
        with pytest.raises(BufferFull) as full:
            await producer.send_many("t", values)
        left = len(list(values))
        note = full.value.__notes__[0]
        taken = int(note.partition("at record ")[2].partition(",")[0])
        lost = 1000 - left - taken - 1
        assert 0 <= lost < 8
        assert (f", the next {lost} were pulled and not taken" in note) == (lost > 0)
        held.release()


FULL: Any = {"buffer_memory": 20_000, "batch_size": 4000, "linger": 0.01}


class Torn(BaseException):
    """A BaseException that is no Exception, as KeyboardInterrupt."""


def torn(count: int, error: BaseException) -> Generator[bytes, None, None]:
    for i in range(count):
        yield b"%0100d" % i
    raise error


@pytest.mark.parametrize("ending", ["no space", "cancelled", "closed"])
async def test_what_the_iterator_raised_is_noted_when_a_wait_for_memory_ends_the_call(
    cluster: Cluster, ending: str
) -> None:
    noted = 0
    for count in range(160, 176):  # some 165 fit
        max_block = 0.05 if ending == "no space" else 60.0
        producer = kclient.Producer(cluster.bootstrap, max_block=max_block, **FULL)
        await producer.start()
        await producer.send_many("t", [b"first"])
        held = cluster.faults.hold("Produce", times=None)
        source = torn(count, ValueError("the file is torn"))
        call = asyncio.create_task(producer.send_many("t", source))
        await asyncio.wait([call], timeout=0.02)
        if ending == "cancelled":
            call.cancel()
        elif ending == "closed":
            await asyncio.gather(producer.close(timeout=0.0), return_exceptions=True)
        with pytest.raises((KafkaError, ValueError, asyncio.CancelledError)) as caught:
            await call
        error = caught.value
        noted += "is torn" in " ".join(getattr(error, "__notes__", ()))
        if inspect.getgeneratorstate(source) == inspect.GEN_CLOSED:  # it can't be used again
            assert isinstance(error, ValueError) or "is torn" in " ".join(error.__notes__)
        held.release()
        cluster.faults.clear()
        await asyncio.gather(producer.close(timeout=1.0), return_exceptions=True)
    assert noted


async def test_what_is_no_exception_comes_through_whatever_ends_the_call(cluster: Cluster) -> None:
    came = []
    for count in range(160, 176):
        async with kclient.Producer(cluster.bootstrap, max_block=0.05, **FULL) as producer:
            await producer.send_many("t", [b"first"])
            held = cluster.faults.hold("Produce", times=None)
            try:
                await producer.send_many("t", torn(count, Torn()))
            except BufferFull:
                came.append(False)
            except Torn as error:
                came.append(isinstance(error.__cause__, BufferFull))
            held.release()
            cluster.faults.clear()
    assert True in came
    assert False in came  # beyond what was pulled


async def test_keys_go_where_they_belong_on_many_partitions(cluster: Cluster) -> None:
    cluster.create_topic("many", partitions=100)
    keys = [b"%d" % i for i in range(3000)] + [b"", None]
    records = [(key, b"v") for key in keys]
    async with kclient.Producer(cluster.bootstrap) as producer:
        await producer.send_many("many", records)  # in most partitions it is the first record
        assert await producer.send_many("many", iter(records)) == len(records)
        one_by_one = await asyncio.gather(
            *[producer.send("many", b"v", key=key) for key in keys if key is not None]
        )
    for sent, key in zip(one_by_one, keys, strict=False):
        found = [record.key for record in cluster.records("many", sent.partition)]
        assert found.count(key) == 3


async def test_an_async_iterable_is_taken_one_by_one(cluster: Cluster) -> None:
    async def records() -> AsyncIterator[Any]:
        for i in range(50):
            yield b"%02d" % i
        yield (b"k", "bad")
        raise AssertionError("nothing is pulled behind a bad one")

    async with kclient.Producer(cluster.bootstrap) as producer:
        with pytest.raises(SerializationFailed) as bad:
            await producer.send_many("t", records())
    assert bad.value.__notes__ == ["at record 50, counted from 0; the 50 before it were taken"]
    assert len(all_values(cluster)) == 50


async def test_a_cancelled_call_sends_all_that_it_pulled(cluster: Cluster) -> None:
    pulled = 0

    def records() -> Iterator[bytes]:
        nonlocal pulled
        for pulled in range(1, 50_001):
            if pulled == 1003:
                call.cancel()
            yield b"%05d" % pulled

    async with kclient.Producer(cluster.bootstrap) as producer:
        call = asyncio.create_task(producer.send_many("t", records()))
        with pytest.raises(asyncio.CancelledError):
            await call
        await producer.flush()
    assert pulled < 50_000
    assert len(all_values(cluster)) == pulled


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        (kclient.Outgoing(b"v", key=b"k"), "not an Outgoing"),
        (kclient.Outgoing({"a": 1}), "not an Outgoing"),
        ({b"k": b"v"}, "not a dict"),
        (b"v", "not a bytes"),
        (memoryview(b"v"), "not a memoryview"),
        ((b"k", b"v"), "not a tuple that begins with a bytes"),
        ((b"k", b"v", b"w"), "not a tuple that begins with a bytes"),
        (("k", {"a": 1}), "not a tuple that begins with a str"),
        ((None, b"v"), "not a tuple that begins with None"),
    ],
)
async def test_one_record_in_place_of_many_is_refused(
    cluster: Cluster, one: Any, shown: str
) -> None:
    async with kclient.Producer(cluster.bootstrap) as producer:
        with pytest.raises(InvalidArgument, match=rf"{shown}\b.*into a list: .*\[Outgoing\("):
            await producer.send_many("t", one)
    assert all_values(cluster) == []


async def test_memory_below_the_default_size_of_a_batch_is_enough(cluster: Cluster) -> None:
    values = [b"%03d" % number + b"." * 200 for number in range(200)]
    async with kclient.Producer(cluster.bootstrap, buffer_memory=8192) as producer:
        assert await producer.send_many("t", values) == 200
        await asyncio.gather(*(producer.send("t", b"v") for _ in range(10)))
    assert sorted(filter(None, all_values(cluster))) == values + [b"v"] * 10


async def test_tuples_of_records_are_taken(cluster: Cluster) -> None:
    async with kclient.Producer(cluster.bootstrap) as producer:
        assert await producer.send_many("t", ()) == 0
        assert await producer.send_many("t", ((b"k", b"v"), b"v")) == 2
        assert await producer.send_many("t", (kclient.Outgoing(b"v"),)) == 1
    assert all_values(cluster) == [b"v"] * 3
