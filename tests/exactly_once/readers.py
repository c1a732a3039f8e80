"""Reading the outcome with ``read_committed``: kclient, librdkafka, and Java's console consumer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing

import kclient
from tests.foreign.clients.java_tools import Tools

_PATIENCE = 60.0


async def by_kclient(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """All committed values, by poll and, in a second run, as columns: both must agree."""
    found: list[list[bytes]] = []
    for arrow in (False, True):
        values: list[bytes] = []
        async with (
            asyncio.timeout(_PATIENCE),
            kclient.Consumer(
                bootstrap, topic, auto_offset_reset="earliest", isolation_level="read_committed"
            ) as consumer,
        ):
            idle = 0
            while len(values) < count or idle < 3:
                if arrow:
                    rows = (await consumer.poll_arrow(timeout=0.5)).column("value").to_pylist()
                else:
                    rows = [record.value for record in await consumer.poll(timeout=0.5)]
                idle = 0 if rows else idle + 1
                if len(values) < count and idle > 20:
                    break
                values += rows
        found.append(sorted(values))
    if found[0] != found[1]:
        raise AssertionError(f"poll gave {len(found[0])} records, poll_arrow {len(found[1])}")
    return found[0]


def by_librdkafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The same by confluent-kafka."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-of-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    with closing(consumer):
        return _until_quiet(
            lambda: [m.value() for m in consumer.consume(1000, 1.0) if m.error() is None],
            values,
            count,
        )


def _until_quiet(more: Callable[[], list[bytes]], values: list[bytes], count: int) -> list[bytes]:
    deadline, idle = time.monotonic() + _PATIENCE, 0
    while (len(values) < count or idle < 3) and time.monotonic() < deadline:
        rows = more()
        idle = 0 if rows else idle + 1
        values += rows
    return sorted(values)


def by_java(bootstrap: str, topic: str, count: int) -> tuple[list[bytes], list[str]]:
    """The same by the console consumer; and the transactions that Java's tool finds hanging.

    By topic, as the tool fails where one of a broker's topics is deleted meanwhile, by other tests.
    """
    with closing(Tools(bootstrap)) as tools:
        said = tools.run(
            "ConsoleConsumer",
            *("--topic", topic, "--from-beginning", "--isolation-level", "read_committed"),
            *("--max-messages", str(count + 1), "--timeout-ms", "8000"),  # one more, in vain
        )
        hanging = [
            line
            for name in (topic, "__consumer_offsets")
            for line in tools.run("TransactionsCommand", "find-hanging", "--topic", name).lines[
                1:
            ]  # behind the table's head
        ]
    return sorted(line.encode() for line in said.lines), hanging
