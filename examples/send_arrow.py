"""A table out and back, without a Python object per row: ``python -m examples.send_arrow``."""

import asyncio

import pyarrow as pa

from kclient import Consumer, Producer
from kclient.errors import RowsRejected
from kclient.testing import Cluster

FLIGHTS = pa.table(
    {
        "key": ["N14228", "N24211", "N14228"],
        "value": ["EWR-IAH", "LGA-IAH", "IAH-EWR"],
        "headers": pa.array([[("carrier", b"UA")]] * 3, pa.map_(pa.string(), pa.binary())),
    }
)


async def main() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("flights", partitions=3)
        async with Producer(cluster.bootstrap) as producer:
            print(f"{await producer.send_arrow('flights', FLIGHTS)} rows written")
            try:
                await producer.send_arrow("flights", pa.table({"value": ["?"], "partition": [7]}))
            except RowsRejected as error:
                print(f"not sent: row {error.rows[0][0]}: {error.rows[0][1]}")
        async with Consumer(cluster.bootstrap, "flights", auto_offset_reset="earliest") as consumer:
            count = 0
            while count < FLIGHTS.num_rows:
                batch = await consumer.poll_arrow(timeout=1.0)
                count += batch.num_rows
                for row in batch.select(["partition", "key", "value"]).to_pylist():
                    print(row)


if __name__ == "__main__":
    asyncio.run(main())
