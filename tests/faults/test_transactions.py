"""Transactions through lost requests and responses, in both protocols: nothing lost or doubled."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

import kclient
from kclient import GroupMetadata, OffsetAndMetadata, TopicPartition
from kclient.producer import transactions
from tests.behaviours.reading import read
from tests.faults import Cut, Drop, Hold

COMMITTED = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
OF_BOTH = ("FindCoordinator", "InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn")
OF_V1 = ("AddPartitionsToTxn", "AddOffsetsToTxn")
CASES = [(2, api) for api in OF_BOTH] + [(1, api) for api in (*OF_BOTH, *OF_V1)]
ROUNDS = 3


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have producers speak one protocol, whatever the cluster has finalized."""

    def choose(protocol: int) -> None:
        if protocol == 1:
            monkeypatch.setattr(transactions, "FIRST_FEATURE_LEVEL_OF_V2", 99)

    return choose


async def committed(consumer: Any, name: str, count: int) -> list[bytes]:
    back = await consumer(name, **COMMITTED)
    records = await read(back, count)
    assert await back.poll(timeout=0.3) == []
    return sorted(record.value for record in records)


async def rounds(out: Any, name: str, group: str, fault: Any) -> list[bytes]:
    """Commit a few transactions of two records and an offset each, the fault in the second."""
    values = []
    for number in range(ROUNDS):
        if number == 1:
            fault()
        async with out.transaction() as txn:
            for partition in (0, 1):
                values.append(b"%d-%d" % (number, partition))
                txn.send(name, values[-1], partition=partition)
            await txn.commit_offsets(GroupMetadata(group), {TopicPartition(name, 0): number + 1})
    return sorted(values)


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize(("protocol", "api"), CASES)
async def test_whatever_is_lost_once_nothing_is_lost_or_doubled(
    broker, proxy, topic, producer, consumer, speak, protocol: int, api: str, lost: str
) -> None:
    speak(protocol)
    name, group = await topic(partitions=2), f"g-{secrets.token_hex(6)}"
    rule = Cut(api, on="request") if lost == "request" else Drop(api, on="answer", then="cut")
    at_start = api in ("FindCoordinator", "InitProducerId")
    if at_start:
        proxy.add(rule)
    out = await producer(
        bootstrap=proxy.bootstrap, transactional_id=f"tx-{secrets.token_hex(6)}", linger=0.0
    )
    values = await rounds(out, name, group, lambda: at_start or proxy.add(rule))
    assert rule.hits == 1
    assert await committed(consumer, name, len(values)) == values
    reader = await consumer(name, group=group, enable_auto_commit=False)
    partition = TopicPartition(name, 0)
    assert await reader.committed([partition]) == {partition: OffsetAndMetadata(ROUNDS)}


@pytest.mark.parametrize("protocol", [1, 2])
async def test_a_commit_without_response_can_only_be_called_again(
    broker, proxy, topic, producer, consumer, speak, protocol: int
) -> None:
    speak(protocol)
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap, transactional_id=f"tx-{secrets.token_hex(6)}")
    txn = out.transaction()
    await txn.begin()
    txn.send(name, b"v")
    hold = proxy.add(Hold("EndTxn"))
    with pytest.raises(kclient.CommitOutcomeUnknown):
        await txn.commit(timeout=0.5)
    for call in (txn.abort, txn.begin):
        with pytest.raises((kclient.WrongTransactionState, kclient.CommitOutcomeUnknown)):
            await call(timeout=0.1)
    again = asyncio.create_task(txn.commit())
    await asyncio.sleep(0)
    hold.release()
    await again
    assert await committed(consumer, name, 1) == [b"v"]


@pytest.mark.parametrize("protocol", [1, 2])
async def test_what_expires_is_aborted_and_the_next_one_is_whole(
    broker, proxy, topic, producer, consumer, speak, protocol: int
) -> None:
    speak(protocol)
    name = await topic()
    out = await producer(
        bootstrap=proxy.bootstrap,
        transactional_id=f"tx-{secrets.token_hex(6)}",
        delivery_timeout=1.0,
        request_timeout=2.0,
        linger=0.0,
    )
    txn = out.transaction()
    await txn.begin()
    await txn.send(name, b"acknowledged")
    hold = proxy.add(Hold("Produce"))
    with pytest.raises(kclient.DeliveryTimedOut):
        await txn.send(name, b"expired")
    task = asyncio.create_task(txn.commit())
    await asyncio.sleep(0)
    hold.release()
    with pytest.raises(kclient.TransactionAborted):
        await task
    async with out.transaction() as txn:
        txn.send(name, b"whole")
    assert await committed(consumer, name, 1) == [b"whole"]


async def test_a_commit_that_close_cuts_off_is_no_success(broker, proxy, topic, producer) -> None:
    name = await topic()
    out = await producer(bootstrap=proxy.bootstrap, transactional_id=f"tx-{secrets.token_hex(6)}")
    txn = out.transaction()
    await txn.begin()
    txn.send(name, b"v")
    hold = proxy.add(Hold("EndTxn"))
    task = asyncio.create_task(txn.commit())
    while not hold.held:  # noqa: ASYNC110 - until the request is there
        await asyncio.sleep(0.01)
    await out.close(timeout=0.3)
    with pytest.raises((kclient.CommitOutcomeUnknown, kclient.ClientClosed)):
        await task
