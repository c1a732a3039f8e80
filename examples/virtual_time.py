"""A day of a service in a blink, with a broker that dies: ``python -m examples.virtual_time``.

The service knows nothing of it: on a loop of virtual time its client finds the network in memory
by itself. Two seeds are two days in which everything happens at other moments.
"""

import asyncio
import logging

from kclient import Producer
from kclient.testing import Cluster, run_virtually


async def report_weather(bootstrap: str, hours: int) -> None:
    """The service under test: one reading a minute."""
    async with Producer(bootstrap) as producer:
        for minute in range(hours * 60):
            await producer.send("weather", b"%d" % minute, key=b"JFK")
            await asyncio.sleep(60)


async def one_day() -> int:
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("weather")
        service = asyncio.create_task(report_weather(cluster.bootstrap, hours=24))
        for broker in cluster.brokers:
            await asyncio.sleep(6 * 3600)
            await cluster.crash(broker)
            await asyncio.sleep(600)
            await cluster.restart(broker)
        await service
        values = [int(record.value or b"-1") for record in cluster.records("weather")]
    assert values == list(range(24 * 60)), "a reading was lost, doubled or out of order"
    return len(values)


if __name__ == "__main__":
    logging.getLogger("kclient").setLevel(logging.ERROR)  # crashes are expected here
    for seed in range(2):
        count = run_virtually(one_day(), seed=seed, limit=100_000)
        print(f"seed {seed}: {count} readings, each once, in order")
