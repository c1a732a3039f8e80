"""A table out and back, without a Python object per row: ``python -m examples.send_arrow``.

The broker is in this process, unless ``--bootstrap host:port`` names another one.
"""

import argparse
import asyncio
import uuid

import pyarrow as pa

from kclient import Admin, Consumer, NewTopic, Producer, RowsRejected
from kclient.testing import Cluster

FLIGHTS = pa.table(
    {
        "key": ["N14228", "N24211", "N14228"],
        "value": ["EWR-IAH", "LGA-IAH", "IAH-EWR"],
        "headers": pa.array([[("carrier", b"UA")]] * 3, pa.map_(pa.string(), pa.binary())),
    }
)


async def out_and_back(bootstrap: str) -> None:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=3)])
    async with Producer(bootstrap, max_block=2.0) as producer:
        print(f"{await producer.send_arrow(topic, FLIGHTS)} rows written to {topic}")
        try:
            await producer.send_arrow(topic, pa.table({"value": ["?"], "partition": [7]}))
        except RowsRejected as error:
            print(f"not sent: row {error.rows[0][0]}: {error.rows[0][1]}")
    async with Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        count = 0
        while count < FLIGHTS.num_rows:
            batch = await consumer.poll_arrow(timeout=1.0)
            count += batch.num_rows
            for row in batch.select(["partition", "key", "value"]).to_pylist():
                print(row)


async def main(bootstrap: str | None) -> None:
    if bootstrap is not None:
        await out_and_back(bootstrap)
    else:
        async with Cluster(brokers=1) as cluster:
            await out_and_back(cluster.bootstrap)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", help="host:port of a broker; default: one in this process")
    asyncio.run(main(options.parse_args().bootstrap))
