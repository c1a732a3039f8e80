"""Cancelled flights to their own topic, exactly once: ``python -m examples.cancelled_flights``.

A worker, which is a process of its own, reads the flights and sends on the cancelled ones. It is
killed in the middle of a transaction, with records of it in the log, and a successor goes on. The
brokers are in this process, unless ``--bootstrap host:port`` names another cluster.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import Literal

from examples.flights.events import Event, load
from kclient import Admin, Consumer, ConsumerRecord, NewTopic, Producer, Transaction, process
from kclient.testing import Cluster

KILLED_AT = 20
"""The cancelled flight at which the first worker dies."""


def is_cancelled(value: bytes | None) -> bool:
    return json.loads(value or b"{}").get("departure_delay") is None


async def work(bootstrap: str, topic: str, killed_at: int | None) -> None:
    """The worker: all that a service needs is in ``handle`` and below."""
    sent = 0

    async def handle(
        record: ConsumerRecord[bytes | None, bytes | None], txn: Transaction[bytes, bytes]
    ) -> None:
        nonlocal sent
        if is_cancelled(record.value):
            txn.send(f"{topic}.cancelled", record.value, key=record.key)
            sent += 1
            if sent == killed_at:
                await producer.flush()  # so that it is in the log, of a transaction that is open
                os.kill(os.getpid(), signal.SIGKILL)

    name = f"{topic}-worker-1"  # one per instance; a restart keeps it, and fences what is left
    async with (
        Consumer(
            bootstrap,
            topic,
            group=topic,
            group_instance_id=name,  # takes its predecessor's partitions over at once
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        Producer(bootstrap, transactional_id=name) as producer,
    ):
        await process(consumer, producer, handle)


@contextlib.asynccontextmanager
async def worker(
    bootstrap: str, topic: str, *options: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    command = ("-m", "examples.cancelled_flights", "--bootstrap", bootstrap, "--work", topic)
    started = await asyncio.create_subprocess_exec(
        sys.executable, *command, *options, stdin=asyncio.subprocess.PIPE
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def read(
    bootstrap: str, topic: str, isolation_level: Literal["read_uncommitted", "read_committed"]
) -> Counter[bytes | None]:
    """Count the records that readers of this isolation level get, by value."""
    found: Counter[bytes | None] = Counter()
    async with Consumer(
        bootstrap, topic, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        ends = await consumer.end_offsets(consumer.assignment)
        while any([await consumer.position(one) < end for one, end in ends.items()]):
            found.update(record.value for record in await consumer.poll(timeout=1.0))
    return found


async def all_handled(bootstrap: str, topic: str) -> None:
    """Wait until the workers' group has committed the end of each partition."""
    async with (
        Consumer(bootstrap, topic) as reader,
        Consumer(bootstrap, group=topic) as group,
    ):
        ends = await reader.end_offsets(reader.assignment)
        while True:
            committed = await group.committed(ends)
            if {one: at.offset if at else 0 for one, at in committed.items()} == ends:
                return
            await asyncio.sleep(0.1)


async def run(bootstrap: str, events: list[Event]) -> int:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    cancelled = f"{topic}.cancelled"
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topics([NewTopic(name, partitions=3) for name in (topic, cancelled)])
        await producer.send_many(topic, [(event.key, event.value) for event in events])
    expected = Counter(event.value for event in events if is_cancelled(event.value))
    if expected:
        killed_at = min(KILLED_AT, expected.total())
        async with worker(bootstrap, topic, "--killed-at", str(killed_at)) as first:
            print(f"the worker of {topic} ended by {signal.Signals(-await first.wait()).name}")
    async with worker(bootstrap, topic):
        await all_handled(bootstrap, topic)
    written = await read(bootstrap, cancelled, "read_uncommitted")
    committed = await read(bootstrap, cancelled, "read_committed")
    print(
        f"{len(events):,} flights, {expected.total():,} of them cancelled: {written.total():,} "
        f"records in {cancelled}, {committed.total():,} of them committed"
    )
    print("exactly once" if committed == expected else "NOT exactly once")
    return 0 if committed == expected else 1


async def main(options: argparse.Namespace) -> int:
    if options.work is not None:
        # Its parent has ended when its standard input ends.
        asyncio.get_running_loop().add_reader(sys.stdin, os._exit, 1)
        await work(options.bootstrap, options.work, options.killed_at)
    events = load(options.limit)
    if options.bootstrap is not None:
        return await run(options.bootstrap, events)
    async with Cluster(brokers=3) as cluster:
        return await run(cluster.bootstrap, events)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a cluster; default: one in this process")
    parser.add_argument("--limit", type=int, default=10_000, help="only the first so many flights")
    parser.add_argument("--work", metavar="TOPIC", help="be a worker, as this starts them")
    parser.add_argument(
        "--killed-at", type=int, help="of a worker: the cancelled flight that it dies at"
    )
    sys.exit(asyncio.run(main(parser.parse_args())))
