"""Records that a deserializer refuses wedge nothing: raised, skipped, or sent elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kclient
from kclient.consumer.dead_letters import failure_of
from kclient.errors import DeserializationFailed, InvalidArgument, InvalidConfig
from kclient.serializers import JsonSerializer
from kclient.testing import Cluster
from tests.virtual.consumer_scene import QUICK, T

BAD = {3, 4, 9, 17, 19}
DEAD = "flights.dead"


def number(topic: str, data: bytes | None) -> int:
    if data == b"bad":
        raise ValueError("no number")
    return int(data or b"")


@asynccontextmanager
async def scene(
    how: Any, *, fails: int = 0
) -> AsyncIterator[tuple[Cluster, kclient.Producer, Any]]:
    """Twenty records, some of which are no numbers, and a consumer that wants numbers."""
    async with Cluster() as cluster:
        cluster.create_topic(T, partitions=1)
        cluster.create_topic(DEAD, partitions=1)
        async with kclient.Producer(cluster.bootstrap) as producer:
            for index in range(20):
                value = b"bad" if index in BAD else str(index).encode()
                await producer.send(T, value, key=b"k", headers=[("h", b"x")])
            policy = how if isinstance(how, str) else how(Flaky(producer, fails))
            async with kclient.Consumer(
                cluster.bootstrap, T, value_deserializer=number, bad_records=policy, **QUICK
            ) as consumer:
                yield cluster, producer, consumer


class Flaky:
    """A producer whose first sends fail."""

    def __init__(self, producer: kclient.Producer, fails: int) -> None:
        self.producer = producer
        self.fails = fails

    async def send(self, *args: Any, **settings: Any) -> object:
        if self.fails:
            self.fails -= 1
            raise kclient.errors.DeliveryTimedOut("no broker")
        return await self.producer.send(*args, **settings)


def to_dead(producer: Any) -> kclient.DeadLetters:
    return kclient.DeadLetters(DEAD, producer)


async def collect(consumer: Any, how: str, count: int) -> list[int]:
    """Return ``count`` values, however often the iteration has to begin again."""
    values: list[int] = []
    async with asyncio.timeout(60):
        while len(values) < count:
            if how == "poll":
                values += [record.value for record in await consumer.poll(max_records=7)]
            else:
                async for record in consumer:
                    values.append(record.value)
                    if len(values) == count:
                        break
    return values


GOOD = [index for index in range(20) if index not in BAD]


@pytest.mark.parametrize("how", ["poll", "async for"])
async def test_skipped_ones_leave_no_gap_in_the_others(how: str) -> None:
    async with scene("skip") as (_, _, consumer):
        # The last one is bad: what is behind it must not be waited for in vain.
        assert await collect(consumer, how, len(GOOD)) == GOOD
        assert consumer.metrics()["consumer.bad_records"] >= len(BAD) - 1


@pytest.mark.parametrize("how", ["poll", "async for"])
async def test_a_dead_letter_topic_gets_them_before_they_are_passed_over(how: str) -> None:
    async with scene(to_dead) as (cluster, _, consumer):
        assert await collect(consumer, how, len(GOOD)) == GOOD
        await consumer.poll(timeout=1.0)
        async with kclient.Consumer(cluster.bootstrap, DEAD, **QUICK) as dead:
            found = await dead.poll(timeout=5.0)
        reported = [failure_of(record) for record in found]
        assert [one.offset for one in reported if one is not None] == sorted(BAD)
        assert {(record.key, record.value) for record in found} == {(b"k", b"bad")}
        assert all(("h", b"x") in record.headers for record in found)
        assert reported[0] is not None
        assert (reported[0].topic, reported[0].partition) == (T, 0)
        assert (
            reported[0].exception == "ValueError" or reported[0].exception == "builtins.ValueError"
        )


async def test_where_the_dead_letter_topic_fails_the_record_stays_and_is_tried_again() -> None:
    async with scene(to_dead, fails=2) as (_, _, consumer):
        values: list[int] = []
        failures = 0
        while len(values) < len(GOOD):
            try:
                values += [record.value for record in await consumer.poll(max_records=7)]
            except kclient.errors.DeliveryTimedOut:
                failures += 1
        assert (values, failures) == (GOOD, 2)


@pytest.mark.parametrize("how", ["poll", "async for"])
async def test_by_default_the_error_names_the_offset_and_seeking_passes_it(how: str) -> None:
    async with scene("raise") as (_, _, consumer):
        values, bad = [], []
        while len(values) < len(GOOD):
            try:
                values += await collect(consumer, how, 1)
            except DeserializationFailed as error:
                assert error.offset is not None and error.topic_partition is not None
                bad.append(error.offset)
                consumer.seek(error.topic_partition, error.offset + 1)
        assert bad == sorted(BAD - {19})


@pytest.mark.parametrize("policy", ["drop", None, 5, kclient.DeadLetters("dead", object())])  # type: ignore[arg-type]
def test_a_policy_that_is_none_is_refused(policy: Any) -> None:
    with pytest.raises(InvalidConfig, match="bad_records"):
        kclient.Consumer("localhost", T, bad_records=policy)


async def test_where_it_is_skipped_the_log_does_not_claim_that_the_position_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene("skip") as (_, _, consumer):
        assert await collect(consumer, "poll", len(GOOD)) == GOOD
        await consumer.poll(timeout=1.0)
    lines = [one.getMessage() for one in caplog.records if "passed over" in one.getMessage()]
    assert f"at offset {min(BAD)}" in lines[0]
    assert not any("seek" in line or "stays" in line for line in lines)
    assert sum(int(line.split("count=")[1].split(",")[0]) for line in lines) == len(BAD)


@pytest.mark.parametrize(
    "sources", [{"topics": (T, DEAD)}, {"group": "g", "pattern": r"flights.*"}]
)
def test_a_dead_letter_topic_that_the_consumer_reads_is_refused(sources: dict[str, Any]) -> None:
    topics = sources.get("topics", ())
    settings = {name: value for name, value in sources.items() if name != "topics"}
    policy = to_dead(kclient.Producer("localhost"))
    with pytest.raises(InvalidConfig, match=r"itself reads dead-letter topic 'flights\.dead'"):
        kclient.Consumer("localhost", *topics, bad_records=policy, **settings)


async def test_bad_records_of_the_dead_letter_topic_itself_are_raised() -> None:
    async with scene(to_dead) as (cluster, producer, consumer):
        await producer.send(DEAD, b"bad")
        consumer.assign([kclient.TopicPartition(DEAD, 0)])
        with pytest.raises(DeserializationFailed):
            await consumer.poll(timeout=5.0)
        assert cluster.end_offset(DEAD, 0) == 1


@pytest.mark.parametrize("role", ["key_serializer", "value_serializer"])
def test_dead_letters_by_a_producer_with_serializers_are_refused(role: str) -> None:
    given: Any = {role: JsonSerializer()}
    policy = to_dead(kclient.Producer("localhost", client_id="relay", **given))
    with pytest.raises(InvalidConfig, match=f"bad_records: relay.* has a {role}"):
        kclient.Consumer("localhost", T, bad_records=policy)


async def test_dead_letters_by_a_producer_that_is_not_open_are_refused() -> None:
    async with Cluster() as cluster:
        producer = kclient.Producer(cluster.bootstrap)
        consumer = kclient.Consumer(cluster.bootstrap, bad_records=to_dead(producer))
        with pytest.raises(InvalidArgument, match=r"bad_records: kclient producer-\d+ was not"):
            await consumer.start()
        await consumer.close()
        await producer.close()
        with pytest.raises(InvalidConfig, match=r"bad_records: .* is closed"):
            kclient.Consumer(cluster.bootstrap, bad_records=to_dead(producer))


async def test_a_bad_record_of_a_recreated_topic_is_sent_though_its_offset_was() -> None:
    """What was sent of a deleted topic has no bearing on that offset in its successor."""
    async with Cluster(1) as cluster, kclient.Producer(cluster.bootstrap) as producer:
        for topic in (T, DEAD):
            cluster.create_topic(topic)
        settings = {**QUICK, "value_deserializer": number, "metadata_max_age": 1.0}
        async with kclient.Consumer(
            cluster.bootstrap, T, bad_records=to_dead(producer), **settings
        ) as consumer:
            for key in (b"1", b"2", b"3"):
                if key != b"1":
                    cluster.delete_topic(T)
                    cluster.create_topic(T)
                    await asyncio.sleep(3.0)
                await producer.send(T, b"bad", key=key)
                await producer.send(T, key)
                assert await collect(consumer, "poll", 1) == [int(key)]
        async with kclient.Consumer(cluster.bootstrap, DEAD, **QUICK) as dead:
            found = await dead.poll(timeout=5.0)
        assert [record.key for record in found] == [b"1", b"2", b"3"]


async def test_a_bad_record_that_is_read_again_is_sent_again() -> None:
    """As any other record: a seek back requests it again."""
    async with scene(to_dead) as (cluster, _, consumer):
        assert await collect(consumer, "poll", len(GOOD)) == GOOD
        for _ in range(3):
            assert await consumer.poll(timeout=1.0) == []
            consumer.seek(kclient.TopicPartition(T, 0), max(BAD))
        async with kclient.Consumer(cluster.bootstrap, DEAD, **QUICK) as dead:
            found = await dead.poll(timeout=5.0)
        reported = [failure_of(record) for record in found]
        offsets = [one.offset for one in reported if one is not None]
        assert offsets == sorted(BAD) + [max(BAD)] * 2
