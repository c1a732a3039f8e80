"""Write transactions for the consumer's behaviours, without kclient's producer.

On real Kafka by confluent-kafka's transactional producer; on the embedded cluster, which has no
transaction coordinator, as the batches and markers that one would leave in the log.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

from tests.unit.consumer.log_bytes import batch_of, control

ABORT, COMMIT = 0, 1
_TIMEOUT = 30.0
_producer_ids = itertools.count(5000)


class Transaction(Protocol):
    """One open transaction."""

    async def write(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        """Append ``values``, and wait until they are written."""
        ...

    async def end(self, *, commit: bool) -> None:
        """Commit or abort it; the markers may follow the coordinator's response a moment later."""
        ...


async def begin(broker: Any) -> Transaction:
    """Begin a transaction of a new producer."""
    if broker.kind == "embedded":
        return EmbeddedTransaction(broker.cluster)
    return await asyncio.to_thread(ConfluentTransaction, broker.bootstrap)


async def transact(broker: Any, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    """Write one whole transaction with its marker to partition 0, where none is open."""
    transaction = await begin(broker)
    await transaction.write(topic, values)
    await transaction.end(commit=commit)
    if broker.kind != "embedded":
        await asyncio.to_thread(_await_marker, broker.bootstrap, topic)


def _await_marker(bootstrap: str, topic: str) -> None:
    """Wait until the last stable offset is the high watermark."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin, partition = AdminClient({"bootstrap.servers": bootstrap}), TopicPartition(topic, 0)

    def end(level: IsolationLevel) -> int:
        asked = {partition: OffsetSpec.latest()}
        found = admin.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT)
        return int(found[partition].result().offset)

    deadline = time.monotonic() + _TIMEOUT
    while end(IsolationLevel.READ_COMMITTED) < end(IsolationLevel.READ_UNCOMMITTED):
        if time.monotonic() > deadline:
            raise TimeoutError("the coordinator wrote no marker in time")
        time.sleep(0.01)


class ConfluentTransaction:
    """A transaction by librdkafka, against a real coordinator."""

    def __init__(self, bootstrap: str) -> None:
        import confluent_kafka

        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"behaviour-{secrets.token_hex(4)}",
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(_TIMEOUT)
        self._producer.begin_transaction()

    async def write(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        def run() -> None:
            for value in values:
                self._producer.produce(topic, value, partition=partition)
            if self._producer.flush(_TIMEOUT):
                raise TimeoutError("the broker did not acknowledge in time")

        await asyncio.to_thread(run)

    async def end(self, *, commit: bool) -> None:
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        await asyncio.to_thread(end, _TIMEOUT)


class EmbeddedTransaction:
    """A transaction as a coordinator would have left it in the logs."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._producer_id = next(_producer_ids)
        self._partitions: set[tuple[str, int]] = set()

    async def write(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        self._partitions.add((topic, partition))
        data = batch_of(values, producer_id=self._producer_id, transactional=True)
        self._cluster.append(topic, partition, data)

    async def end(self, *, commit: bool) -> None:
        for topic, partition in self._partitions:
            marker = control(0, self._producer_id, COMMIT if commit else ABORT)
            self._cluster.append(topic, partition, marker)
