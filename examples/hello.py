"""Ten lines that send and read a record, with no broker around: ``python -m examples.hello``."""

import asyncio

from kclient import Admin, Consumer, NewTopic, Producer
from kclient.testing import Cluster


async def main() -> None:
    async with Cluster(brokers=1) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic("flights", partitions=3)])
        async with Producer(cluster.bootstrap) as producer:
            sent = await producer.send("flights", b"EWR-IAH", key=b"N14228")
            print(f"written to {sent.topic_partition} at offset {sent.offset}")
        async with Consumer(cluster.bootstrap, "flights", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                print(f"read {record.key!r} = {record.value!r}")
                break


if __name__ == "__main__":
    asyncio.run(main())
