"""Sends a record and reads it back, with no broker around: ``python -m examples.hello``; or on a
broker of yours, with ``--bootstrap localhost:9092``.
"""

import argparse
import asyncio
import uuid

from kclient import Admin, Consumer, NewTopic, Producer
from kclient.testing import Cluster


async def hello(bootstrap: str) -> None:
    topic = f"hello-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=3)])
    async with Producer(bootstrap) as producer:
        sent = await producer.send(topic, b"EWR-IAH", key=b"N14228")
        print(f"written to {sent.topic_partition} at offset {sent.offset}")
    async with Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            print(f"read {record.key!r} = {record.value!r}")
            break


async def main(bootstrap: str | None) -> None:
    if bootstrap is not None:
        await hello(bootstrap)
    else:
        async with Cluster(brokers=1) as cluster:
            await hello(cluster.bootstrap)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", help="host:port of a broker; default: one in this process")
    asyncio.run(main(options.parse_args().bootstrap))
