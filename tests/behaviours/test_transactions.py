"""Transactions of a producer: all of it is read, or none of it (KIP-98, 447, 890)."""

from __future__ import annotations

import asyncio
import pickle
import secrets
from typing import Any

import pytest

import kclient
from kclient import OffsetAndMetadata, TopicPartition
from tests.behaviours.reading import read, write

COMMITTED = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
FIRST_THAT_RENEWS = (2, 5, 0)
PATIENCE = 90.0
"""Seconds. Old brokers look every 60 s for transactions that are open too long."""


@pytest.fixture
def renewals(broker: Any) -> None:
    if broker.version < FIRST_THAT_RENEWS:
        pytest.skip("before 2.5 brokers can't raise a producer's epoch at its request")


def new_id() -> str:
    return f"tx-{secrets.token_hex(6)}"


def values(records: list[Any]) -> list[bytes]:
    return [record.value for record in records]


async def committed_values(consumer: Any, topic: str, count: int) -> list[bytes]:
    """Read ``count`` committed records from the beginning, and see that there are no more."""
    back = await consumer(topic, **COMMITTED)
    records = await read(back, count)
    assert await back.poll(timeout=0.2) == []
    return sorted(values(records))


async def test_what_a_transaction_wrote_is_read_once_it_commits(
    broker, topic, producer, consumer
) -> None:
    name = await topic(partitions=3)
    out = await producer(transactional_id=new_id())
    back = await consumer(name, **COMMITTED)
    async with out.transaction() as txn:
        for number in range(9):
            txn.send(name, b"%d" % number, partition=number % 3)
        await out.flush()
        assert await back.poll(timeout=0.3) == []
    assert sorted(values(await read(back, 9))) == [b"%d" % number for number in range(9)]


async def test_an_error_in_the_block_aborts(broker, topic, producer, consumer) -> None:
    name = await topic()
    out = await producer(transactional_id=new_id())
    with pytest.raises(ZeroDivisionError):
        async with out.transaction() as txn:
            delivered = txn.send(name, b"aborted")
            await delivered
            pending = txn.send(name, b"never sent")
            raise ZeroDivisionError
    with pytest.raises(kclient.TransactionAborted):
        await pending
    async with out.transaction() as txn:
        txn.send(name, b"committed")
    assert await committed_values(consumer, name, 1) == [b"committed"]


async def test_many_transactions_follow_each_other(broker, topic, producer, consumer) -> None:
    name = await topic(partitions=4)
    out = await producer(transactional_id=new_id(), linger=0.0)
    expected = []
    for number in range(30):
        txn = out.transaction()
        await txn.begin()
        for partition in {number % 4, number * 3 % 4, 1}:
            txn.send(name, b"%d-%d" % (number, partition), partition=partition)
        if number % 5 == 2:
            await txn.abort()
        else:
            expected += [b"%d-%d" % (number, p) for p in {number % 4, number * 3 % 4, 1}]
            await txn.commit()
    assert await committed_values(consumer, name, len(expected)) == sorted(expected)
    found = out.metrics()
    assert (
        found["producer.transactions_committed"],
        found["producer.transactions_aborted"],
    ) == (24, 6)


async def test_a_transaction_without_records_is_ended_without_a_request(
    broker, topic, producer
) -> None:
    out = await producer(transactional_id=new_id())
    before = out.health()
    for _ in range(3):
        async with out.transaction():
            pass
    txn = out.transaction()
    await txn.begin()
    await txn.abort()
    after = out.health()
    assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch)


async def test_what_is_not_allowed_now_is_refused(broker, topic, producer) -> None:
    name = await topic()
    out = await producer(transactional_id=new_id())
    txn = out.transaction()
    with pytest.raises(kclient.WrongTransactionState, match="outside a transaction"):
        out.send(name, b"v")
    for call in (txn.commit, txn.abort):
        with pytest.raises(kclient.WrongTransactionState, match="outside a transaction"):
            await call()
    async with txn:
        txn.send(name, b"v")
        with pytest.raises(kclient.WrongTransactionState, match="open already"):
            await out.transaction().begin()
        with pytest.raises(kclient.InvalidArgument, match="needs offsets"):
            await txn.commit_offsets(kclient.GroupMetadata("g"))
        with pytest.raises(kclient.InvalidArgument, match="a consumer in a group"):
            await txn.commit_offsets(object())
    with pytest.raises(kclient.WrongTransactionState, match="outside a transaction"):
        out.enqueue_nowait(name, b"v")
    plain = await producer()
    with pytest.raises(kclient.InvalidConfig, match="transactional_id"):
        plain.transaction()


async def test_a_new_producer_fences_the_one_before(broker, topic, producer, consumer) -> None:
    name, transactional_id = await topic(), new_id()
    old = await producer(transactional_id=transactional_id, linger=0.0)
    txn = old.transaction()
    await txn.begin()
    await txn.send(name, b"of a zombie")
    new = await producer(transactional_id=transactional_id)
    async with new.transaction() as fresh:
        fresh.send(name, b"of its successor")
    with pytest.raises(kclient.ProducerFenced):
        await txn.commit()
    for call in (txn.commit, txn.abort, txn.begin):
        with pytest.raises(kclient.ProducerFenced):
            await call()
    with pytest.raises(kclient.ProducerFenced):
        old.send(name, b"late")
    assert await committed_values(consumer, name, 1) == [b"of its successor"]


async def test_a_record_that_fails_keeps_all_of_it_from_being_committed(
    broker, topic, producer, consumer
) -> None:
    name = await topic(max_message_bytes=2000)
    out = await producer(transactional_id=new_id())
    txn = out.transaction()
    await txn.begin()
    await txn.send(name, b"small")
    with pytest.raises(kclient.BrokerError):
        await txn.send(name, b"x" * 5000)
    if broker.version < (2, 5, 0):
        with pytest.raises(kclient.TransactionAborted, match="make a new producer"):
            await txn.commit()
        return
    with pytest.raises(kclient.TransactionAborted):
        out.send(name, b"after the failure")
    with pytest.raises(kclient.TransactionAborted) as raised:
        await txn.commit()
    assert isinstance(raised.value.__cause__, kclient.BrokerError)
    await txn.abort()  # as one does in Java: it was aborted already
    async with out.transaction() as txn:
        txn.send(name, b"the next one")
    assert await committed_values(consumer, name, 1) == [b"the next one"]


async def test_offsets_are_committed_with_the_transaction(
    broker, topic, producer, consumer
) -> None:
    source, target, group = await topic(), await topic(), f"g-{new_id()}"
    await write(await producer(), source, [b"%d" % number for number in range(6)])
    partition = TopicPartition(source, 0)
    out = await producer(transactional_id=new_id())
    reader = await consumer(
        source, group=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    records = await read(reader, 3)
    metadata: Any = reader
    if broker.version < (2, 5, 0):
        async with out.transaction() as txn:
            with pytest.raises(kclient.NoCommonVersion, match="generation"):
                await txn.commit_offsets(reader)
            await txn.abort()
            await txn.begin()
            metadata = kclient.GroupMetadata(group)
            await txn.commit_offsets(metadata, {partition: 3})
        async with asyncio.timeout(PATIENCE):  # such brokers don't wait for the markers
            while await reader.committed([partition]) != {  # noqa: ASYNC110
                partition: OffsetAndMetadata(3)
            }:
                await asyncio.sleep(0.05)
        return
    with pytest.raises(ZeroDivisionError):
        async with out.transaction() as txn:
            await txn.commit_offsets(metadata)
            raise ZeroDivisionError
    assert await reader.committed([partition]) == {partition: None}
    async with out.transaction() as txn:
        for record in records:
            txn.send(target, record.value)
        await txn.commit_offsets(metadata)
    found = (await reader.committed([partition]))[partition]
    assert found is not None and found.offset == 3
    assert await committed_values(consumer, target, 3) == [b"0", b"1", b"2"]


async def test_offsets_of_a_member_that_left_are_refused(broker, topic, producer, consumer) -> None:
    if broker.version < (2, 5, 0):
        pytest.skip("before 2.5 brokers can't check a member's generation")
    source, group = await topic(), f"g-{new_id()}"
    await write(await producer(), source, [b"v"])
    out = await producer(transactional_id=new_id())
    reader = await consumer(
        source, group=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await read(reader, 1)
    metadata = reader.group_metadata()
    await reader.close()
    txn = out.transaction()
    await txn.begin()
    with pytest.raises(kclient.BrokerError) as raised:
        await txn.commit_offsets(metadata, {TopicPartition(source, 0): 1})
    assert raised.value.name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
    with pytest.raises(kclient.TransactionAborted):
        await txn.commit()
    async with out.transaction() as txn:
        txn.send(source, b"goes on")


async def test_the_coordinator_aborts_what_stays_open_too_long(
    broker, topic, producer, consumer
) -> None:
    name = await topic()
    out = await producer(transactional_id=new_id(), transaction_timeout=1.0, linger=0.0)
    txn = out.transaction()
    await txn.begin()
    await txn.send(name, b"forgotten")
    await write(await producer(), name, [b"behind it"])
    back = await consumer(name, **COMMITTED)
    async with asyncio.timeout(PATIENCE):
        while not (records := await back.poll(timeout=1.0)):
            pass
    assert values(records) == [b"behind it"]
    with pytest.raises(kclient.KafkaError) as raised:
        await txn.commit()
    assert isinstance(raised.value, (kclient.ProducerFenced, kclient.BrokerError))


async def test_a_commit_goes_on_when_its_caller_is_cancelled(
    broker, topic, producer, consumer
) -> None:
    name = await topic()
    out = await producer(transactional_id=new_id())
    txn = out.transaction()
    await txn.begin()
    txn.send(name, b"v")
    task = asyncio.create_task(txn.commit())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(kclient.WrongTransactionState, match="being committed"):
        await txn.abort()
    await txn.commit()
    assert await committed_values(consumer, name, 1) == [b"v"]
    with pytest.raises(kclient.WrongTransactionState, match="outside"):
        await txn.commit()


async def test_a_block_that_is_cancelled_is_aborted(broker, topic, producer, consumer) -> None:
    name = await topic()
    out = await producer(transactional_id=new_id(), linger=0.0)
    sent = asyncio.Event()

    async def work() -> None:
        async with out.transaction() as txn:
            await txn.send(name, b"cancelled")
            sent.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with out.transaction() as txn:
        txn.send(name, b"later")
    assert await committed_values(consumer, name, 1) == [b"later"]


async def test_close_aborts_what_is_open(broker, topic, producer, consumer) -> None:
    name = await topic()
    out = await producer(transactional_id=new_id(), linger=0.0)
    txn = out.transaction()
    await txn.begin()
    await txn.send(name, b"open")
    await out.close()
    with pytest.raises(kclient.ClientClosed):
        await txn.begin()
    await write(await producer(), name, [b"behind it"])
    assert await committed_values(consumer, name, 1) == [b"behind it"]


async def test_send_many_and_send_arrow_are_parts_of_it(broker, topic, producer, consumer) -> None:
    import pyarrow

    name = await topic()
    out = await producer(transactional_id=new_id())
    async with out.transaction() as txn:
        await txn.send_many(name, [b"a", b"b"])
        await txn.send_arrow(name, pyarrow.record_batch({"value": pyarrow.array([b"c"])}))
    with pytest.raises(kclient.WrongTransactionState):
        await out.send_many(name, [b"outside"])
    with pytest.raises(kclient.WrongTransactionState):
        await out.send_arrow(name, pyarrow.record_batch({"value": pyarrow.array([b"x"])}))
    assert await committed_values(consumer, name, 3) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("commit", [True, False])
async def test_another_process_may_end_what_was_prepared(
    broker, topic, producer, consumer, admin, commit: bool
) -> None:
    name, transactional_id = await topic(), new_id()
    out = await producer(transactional_id=transactional_id)
    txn = out.transaction()
    await txn.begin()
    txn.send(name, b"prepared")
    prepared = pickle.loads(pickle.dumps(await txn.prepare()))
    with pytest.raises(kclient.WrongTransactionState, match="prepared"):
        out.send(name, b"late")
    await out.close()
    other = await admin()
    for _ in range(3):  # the same call again, as after a lost response
        await other.end_transaction(prepared, commit=commit)
    with pytest.raises(kclient.BrokerError):
        await other.end_transaction(prepared, commit=not commit)
    successor = await producer(transactional_id=transactional_id)
    async with successor.transaction() as following:
        following.send(name, b"next")
    expected = [b"next", b"prepared"] if commit else [b"next"]
    assert await committed_values(consumer, name, len(expected)) == expected


async def test_what_was_prepared_may_be_ended_here_or_by_a_successor(
    broker, topic, producer, consumer, admin
) -> None:
    name, transactional_id = await topic(), new_id()
    out = await producer(transactional_id=transactional_id)
    async with out.transaction() as txn:
        await txn.prepare()  # of nothing
    empty = out.transaction()
    await empty.begin()
    await (await admin()).end_transaction(await empty.prepare(), commit=True)
    await empty.commit()
    async with out.transaction() as txn:
        txn.send(name, b"here")
        await txn.prepare()
    await txn.begin()
    txn.send(name, b"left behind")
    prepared = await txn.prepare()
    await producer(transactional_id=transactional_id)
    with pytest.raises(kclient.ProducerFenced):
        await (await admin()).end_transaction(prepared, commit=True)
    with pytest.raises(kclient.InvalidArgument, match="PreparedTransaction"):
        await (await admin()).end_transaction("tx", commit=True)  # type: ignore[arg-type]
    assert await committed_values(consumer, name, 1) == [b"here"]


async def test_a_prepared_end_that_is_repeated_does_not_reach_the_next_transaction(
    broker, topic, producer, consumer, admin, renewals
) -> None:
    name = await topic()
    out = await producer(transactional_id=new_id())
    txn = out.transaction()
    await txn.begin()
    txn.send(name, b"first")
    prepared = await txn.prepare()
    await txn.commit()
    await txn.begin()
    await txn.send(name, b"second")
    with pytest.raises(kclient.BrokerError):
        await (await admin()).end_transaction(prepared, commit=False)
    await txn.commit()
    assert await committed_values(consumer, name, 2) == [b"first", b"second"]
