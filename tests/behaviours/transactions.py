"""Write transactions for the consumer's behaviours, by librdkafka instead of kclient's producer."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any

_TIMEOUT = 30.0


async def begin(broker: Any) -> Transaction:
    """Begin a transaction of a new producer."""
    return await asyncio.to_thread(Transaction, broker.bootstrap)


async def transact(broker: Any, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    """Write one whole transaction with its marker to partition 0, where none is open."""
    transaction = await begin(broker)
    await transaction.write(topic, values)
    await transaction.end(commit=commit)
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


class Transaction:
    """One open transaction."""

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
        """Append ``values``, and wait until they are written."""

        def run() -> None:
            for value in values:
                self._producer.produce(topic, value, partition=partition)
            if self._producer.flush(_TIMEOUT):
                raise TimeoutError("the broker did not acknowledge in time")

        await asyncio.to_thread(run)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort it; the markers may follow the coordinator's response a moment later."""
        end = self._producer.commit_transaction if commit else self._producer.abort_transaction
        await asyncio.to_thread(end, _TIMEOUT)
