"""Pitfalls of transactions that no other ring names: what errors of single requests come to."""

from __future__ import annotations

from typing import Any

import pytest

import kclient
from kclient import GroupMetadata
from kclient.testing import Cluster, ErrorCode
from tests.virtual.test_transactions import OFFSETS, committed, play


@pytest.mark.parametrize("version", [1, 2])
def test_pitfall_22_a_transaction_whose_records_have_all_failed_is_ended(version: int) -> None:
    """The coordinator may have it: in V2 the leader adds its partition before it appends."""

    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        code = ErrorCode.MESSAGE_TOO_LARGE
        cluster.faults.error("Produce", code, after=True, times=None)
        with pytest.raises(kclient.BrokerError):
            await txn.send("t", b"v")
        cluster.faults.clear()
        await txn.abort()
        assert cluster.requests.count("EndTxn") == 1
        async with producer.transaction():
            txn.send("t", b"next")
        assert await committed(cluster) == [b"next"]

    play(scene, version)


def test_pitfall_24_an_addition_that_fails_leaves_those_before_it_in_the_transaction() -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        cluster.create_topic("second")
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        cluster.faults.error("AddPartitionsToTxn", code)
        with pytest.raises(kclient.KafkaError):
            await txn.send("second", b"v")
        with pytest.raises(kclient.TransactionAborted):
            await txn.commit()
        assert cluster.requests.count("EndTxn") == 1
        assert await committed(cluster) == []

    play(scene, version=1)


@pytest.mark.parametrize("version", [1, 2])
def test_pitfall_26_an_unknown_error_of_a_commit_is_no_success(version: int) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        txn = producer.transaction()
        await txn.begin()
        await txn.send("t", b"v")
        cluster.faults.error("EndTxn", ErrorCode.UNKNOWN_SERVER_ERROR)
        for call in (txn.commit, txn.commit, txn.begin):
            with pytest.raises(kclient.BrokerError, match="UNKNOWN_SERVER_ERROR") as raised:
                await call()
            assert raised.value.fatal
        assert not producer.metrics().get("producer.transactions_committed")

    play(scene, version)


@pytest.mark.parametrize("version", [1, 2])
def test_pitfall_28_a_coordinator_that_moved_gets_the_same_request(version: int) -> None:
    async def scene(cluster: Cluster, producer: Any) -> None:
        for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
            cluster.faults.error(api, ErrorCode.NOT_COORDINATOR, client_id="first")
        for number in range(3):
            cluster.move_transaction_coordinator("x", number % 3 + 1)
            async with producer.transaction() as txn:
                txn.send("t", b"%d" % number)
                await txn.commit_offsets(GroupMetadata("g"), OFFSETS)
        assert await committed(cluster) == [b"0", b"1", b"2"]
        assert producer.metrics()["producer.transactions_begun"] == 3

    play(scene, version)
