"""Retries a bad record, later once more, then dead-letters it: ``python -m examples.dead_letters``.

The broker is in this process, unless ``--bootstrap host:port`` names another one.
"""

import argparse
import asyncio
import logging
import sys
import uuid

from kclient import (
    Admin,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Producer,
    Retries,
    RetryTopic,
    failure_of,
)
from kclient.testing import Cluster


async def bill(record: ConsumerRecord[bytes | None, bytes | None]) -> None:
    """Stands for work that fails for one record, whatever is tried."""
    print(f"{record.topic_partition} at {record.offset}: {record.value!r}")
    if record.value == b"no amount":
        raise ValueError("an order without an amount")


async def give_up(bootstrap: str) -> None:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    later, dead = f"{name}.later", f"{name}.dead"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=1) for topic in (name, later, dead)])
    async with (
        Producer(bootstrap) as producer,
        Consumer(bootstrap, dead, auto_offset_reset="earliest") as graveyard,
    ):
        await producer.send_many(name, [b"10 EUR", b"no amount", b"30 EUR"])
        async with Consumer(
            bootstrap, name, later, group=name, auto_offset_reset="earliest"
        ) as consumer:
            run = asyncio.create_task(
                consumer.run(
                    bill,
                    retries=Retries(max_attempts=2, backoff=0.1),
                    retry_topics=[RetryTopic(later, delay=0.5)],
                    dead_letter_topic=dead,
                    producer=producer,
                )
            )
            async for letter in graveyard:
                print(f"given up: {letter.value!r}: {failure_of(letter)}")
                break
        await run


async def main(bootstrap: str | None) -> None:
    if bootstrap is not None:
        await give_up(bootstrap)
    else:
        async with Cluster(brokers=1) as cluster:
            await give_up(cluster.bootstrap)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", help="host:port of a broker; default: one in this process")
    logging.basicConfig(stream=sys.stdout)  # the client logs a warning for each dead letter
    asyncio.run(main(options.parse_args().bootstrap))
