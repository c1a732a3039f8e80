"""Topics for the comparison with Spark's connector: codecs, transactions, compacted, deleted."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

from kclient import Admin, Consumer, NewTopic, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START = 1_700_000_000_000
PARTITIONS = 3
RECORDS = 900
_LIMIT = 60.0


@dataclass
class Topics:
    """Names of topics that were filled.

    Attributes:
        codecs: Three partitions, by codec: headers, null keys and values, empty values.
        log_append: The broker sets the timestamps.
        transactions: Committed and aborted ones, and at the end one that stays open.
        compacted: Most offsets have no record any more.
        deleted: The first 100 offsets of each partition are gone.
        empty: Has none.
        open_transaction: Keeps it open.
    """

    codecs: dict[str, str]
    log_append: str
    transactions: str
    compacted: str
    deleted: str
    empty: str
    open_transaction: Any


async def fill(bootstrap: str) -> Topics:
    """Make the topics."""
    tag = secrets.token_hex(3)
    names = {
        one: f"eq-{tag}-{one}" for one in (*CODECS, "append", "txn", "compact", "deleted", "empty")
    }
    async with Admin(bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(names[one], partitions=PARTITIONS) for one in (*CODECS, "deleted", "empty")]
            + [
                NewTopic(names["append"], configs={"message.timestamp.type": "LogAppendTime"}),
                NewTopic(names["txn"], partitions=1),
                NewTopic(
                    names["compact"],
                    partitions=1,
                    configs={
                        "cleanup.policy": "compact",
                        "segment.ms": "100",
                        "min.cleanable.dirty.ratio": "0.01",
                        "max.compaction.lag.ms": "100",
                        "file.delete.delay.ms": "100",
                    },
                ),
            ]
        )
    for codec in CODECS:
        await _write(bootstrap, names[codec], codec)
    await _write(bootstrap, names["deleted"], "none")
    await _write(bootstrap, names["append"], "none", partitions=1)
    await asyncio.to_thread(_delete, bootstrap, names["deleted"])
    open_transaction = await asyncio.to_thread(_transact, bootstrap, names["txn"])
    await _compact(bootstrap, names["compact"])
    return Topics(
        {codec: names[codec] for codec in CODECS},
        names["append"],
        names["txn"],
        names["compact"],
        names["deleted"],
        names["empty"],
        open_transaction,
    )


async def _write(bootstrap: str, topic: str, codec: str, partitions: int = PARTITIONS) -> None:
    async with Producer(bootstrap, compression=codec, linger=0.005, batch_size=4096) as producer:
        for number in range(RECORDS):
            await producer.enqueue(
                topic,
                (None, b"", b"value-%d" % number)[min(2, number % 5)],
                key=(None, b"", b"key-%d" % (number % 7))[min(2, number % 4)],
                headers=_headers(number),
                partition=number % partitions,
                timestamp=START + number * 1000,
            )
        await producer.flush()


def _headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    return ((), (("one", b"1"),), (("same", b"a"), ("same", None), ("", b"")))[number % 3]


def _delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [confluent_kafka.TopicPartition(topic, one, 100) for one in range(PARTITIONS)]
    for future in admin.delete_records(asked).values():
        future.result(_LIMIT)


def _transact(bootstrap: str, topic: str) -> Any:
    def begin() -> Any:
        one = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{topic}-{secrets.token_hex(3)}",
                "transaction.timeout.ms": 600_000,
            }
        )
        one.init_transactions(_LIMIT)
        one.begin_transaction()
        return one

    producer = begin()
    for number in range(10):
        for index in range(20):
            producer.produce(topic, b"%d-%d" % (number, index), timestamp=START + number)
        producer.flush(_LIMIT)
        if number % 3 == 1:
            producer.abort_transaction(_LIMIT)
        else:
            producer.commit_transaction(_LIMIT)
        producer.begin_transaction()
    for index in range(15):
        producer.produce(topic, b"open-%d" % index, timestamp=START + 100)
    producer.flush(_LIMIT)
    return producer


async def _compact(bootstrap: str, topic: str) -> None:
    """Write keys again and again, until the cleaner has taken the earlier values away."""
    key = TopicPartition(topic, 0)
    deadline = time.monotonic() + _LIMIT
    async with Producer(bootstrap, linger=0.0) as producer:
        for number in range(300):
            await producer.enqueue(topic, b"v%d" % number, key=b"k%d" % (number % 11))
        await producer.flush()
        while time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            await producer.send(topic, b"tick", key=b"tick")
            async with Consumer(bootstrap) as consumer:
                consumer.assign([key])
                consumer.seek(key, 0)
                ends = await consumer.end_offsets([key])
                rows = 0
                while (batch := await consumer.poll_arrow(until=ends, timeout=5.0)).num_rows:
                    rows += batch.num_rows
            if rows < ends[key] // 2:
                return
    raise TimeoutError("the cleaner did not compact the topic")
