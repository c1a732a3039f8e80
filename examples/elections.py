"""What happens inside a cluster when its leader is cut off: ``python -m examples.elections``.

Broker 1 is the controller and leads the topic. The others don't reach it any more, a producer does:
what it takes alone is not committed, and it throws that away once it is back. On virtual time.
"""

import asyncio

from kclient import Producer
from kclient.testing import Cluster, ClusterEvent, IsrExpanded, run_virtually


async def cut_off() -> None:
    began = asyncio.get_running_loop().time()

    def emit(event: ClusterEvent) -> None:
        print(f"{event.at - began:6.3f} s  {event}")

    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("flights", assignments=[[1, 2, 3]])
        cluster.events.listen(emit)
        async with Producer(cluster.bootstrap, acks=1, idempotence=False) as producer:
            await producer.send("flights", b"committed")
            await cluster.wait_in_sync()
            cluster.isolate(1)
            print("Broker 1 is cut off, and takes a record.")
            await producer.send("flights", b"acknowledged, and lost")
        await asyncio.sleep(60)
        print(f"Broker {cluster.leader('flights')} leads. The way to broker 1 is mended.")
        cluster.reconnect()
        await cluster.events.wait_for(IsrExpanded)
        cluster.events.remove(emit)
        print("In the log:", [record.value for record in cluster.records("flights")])


if __name__ == "__main__":
    run_virtually(cut_off())
