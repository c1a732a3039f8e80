"""Handles records many at a time, by key in order: ``python -m examples.parallel_by_key``.

The broker is in this process, unless ``--bootstrap host:port`` names another one.
"""

import argparse
import asyncio
import uuid
from collections import Counter

from kclient import Admin, Consumer, ConsumerRecord, NewTopic, Producer
from kclient.testing import Cluster

PLANES = [b"N%d" % number for number in range(40)]
LEGS = 5


class Logbook:
    """Stands for a service that takes a while for each record."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.legs: Counter[bytes | None] = Counter()
        self.complete = asyncio.Event()

    async def enter(self, record: ConsumerRecord[bytes | None, bytes | None]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.02)
        self.running -= 1
        assert record.value == b"%d" % self.legs[record.key], "legs of a plane out of order"
        self.legs[record.key] += 1
        if self.legs.total() == len(PLANES) * LEGS:
            self.complete.set()


async def handle_all(bootstrap: str) -> None:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=3)])
    async with Producer(bootstrap) as producer:
        for leg in range(LEGS):
            await producer.send_many(topic, [(plane, b"%d" % leg) for plane in PLANES])
    logbook = Logbook()
    async with Consumer(bootstrap, topic, group=topic, auto_offset_reset="earliest") as consumer:
        run = asyncio.create_task(consumer.run(logbook.enter, ordering="key", concurrency=32))
        await logbook.complete.wait()
    await run  # it ended as the consumer was closed, having committed what was handled
    print(f"{logbook.legs.total()} legs of {topic}, {logbook.most} at a time at most")


async def main(bootstrap: str | None) -> None:
    if bootstrap is not None:
        await handle_all(bootstrap)
    else:
        async with Cluster(brokers=1) as cluster:
            await handle_all(cluster.bootstrap)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", help="host:port of a broker; default: one in this process")
    asyncio.run(main(options.parse_args().bootstrap))
