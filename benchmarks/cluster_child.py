"""The processes that ``cluster.py`` measures: one or a few figures each, as a line of JSON.

Started as ``python -m benchmarks.cluster_child WHAT BEGAN``; nothing of kclient is imported before
the first clock reading.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

FRESH_TOPICS = 30
IDLE_SECONDS = 2.0
SETTLE_SECONDS = 0.3


def emit(found: dict[str, Any]) -> None:
    """Print the figures as a line of JSON."""
    print(json.dumps(found), flush=True)


def memory_mb() -> float:
    """Return the resident memory of this process in megabytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def implementation() -> None:
    """Report which build this is."""
    from kclient.record import IMPLEMENTATION

    emit({"compiled": IMPLEMENTATION == "cython"})


def boot(began: float) -> None:
    """Measure how long three brokers take to start."""
    before = time.monotonic()
    from kclient.testing import Cluster

    imported = time.monotonic()

    async def run() -> None:
        cluster = Cluster(brokers=3)
        started = time.monotonic()
        await cluster.start()
        up = time.monotonic()
        emit(
            {
                "start_ms": (up - started) * 1e3,
                "import_ms": (imported - before) * 1e3,
                "process_to_up_ms": (up - began) * 1e3,
            }
        )
        await cluster.close()

    asyncio.run(run())


def idle() -> None:
    """Measure memory and CPU of an idle cluster."""
    import kclient.testing

    imported = memory_mb()

    async def run() -> None:
        cluster = kclient.testing.Cluster(brokers=3)
        await cluster.start()
        await asyncio.sleep(SETTLE_SECONDS)
        empty = memory_mb()
        cpu = time.process_time()
        await asyncio.sleep(IDLE_SECONDS)
        cpu = time.process_time() - cpu
        cluster.create_topic("flights", partitions=3)
        await asyncio.sleep(SETTLE_SECONDS)
        emit(
            {
                "import_mb": imported,
                "idle_mb": empty - imported,
                "idle_with_topic_mb": memory_mb() - imported,
                "idle_cpu_ms_per_s": cpu / IDLE_SECONDS * 1e3,
            }
        )
        await cluster.close()

    asyncio.run(run())


def fresh() -> None:
    """Measure the time that a topic of its own costs a test, on a running cluster."""
    emit(
        {
            "fresh_kclient_ms": statistics.median(asyncio.run(_fresh_kclient())),
            "fresh_confluent_ms": statistics.median(_fresh_confluent()),
        }
    )


async def _fresh_kclient() -> list[float]:
    import kclient
    from kclient.testing import Cluster

    found = []
    async with Cluster(brokers=3) as cluster, kclient.Producer(cluster.bootstrap) as producer:
        for number in range(FRESH_TOPICS):
            began = time.monotonic()
            topic = f"flights-{number}"
            cluster.create_topic(topic)
            await producer.send(topic, b"UA 1545")
            async with kclient.Consumer(
                cluster.bootstrap, topic, auto_offset_reset="earliest"
            ) as consumer:
                async for _ in consumer:
                    break
            found.append((time.monotonic() - began) * 1e3)
    return found


def _fresh_confluent() -> list[float]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    from kclient.testing import Cluster, ThreadedCluster

    found = []
    with ThreadedCluster(Cluster(brokers=3)) as cluster:
        # librdkafka waits half a backoff between two brokers that it connects to, and a second
        # if a consumer that already reads is assigned a topic that it doesn't know.
        settings = {"bootstrap.servers": cluster.bootstrap, "reconnect.backoff.ms": 10}
        producer = Producer({**settings, "linger.ms": 0})
        for number in range(FRESH_TOPICS):
            began = time.monotonic()
            topic = f"flights-{number}"
            cluster.create_topic(topic)
            producer.produce(topic, b"UA 1545")
            if producer.flush(10):
                raise SystemExit("a record was not acknowledged")
            consumer = Consumer({**settings, "group.id": "readers"})
            consumer.assign([TopicPartition(topic, 0, 0)])
            message = consumer.poll(10)
            if message is None or message.error() is not None:
                raise SystemExit("a record did not come")
            found.append((time.monotonic() - began) * 1e3)
            consumer.close()
    return found


def serve() -> None:
    """Run a cluster with one topic of three replicas; each line on stdin requests the figures."""
    from kclient.testing import Cluster

    async def run() -> None:
        async with Cluster(brokers=3) as cluster:
            cluster.create_topic("flights", partitions=1, replication_factor=3)
            emit({"bootstrap": cluster.bootstrap})
            loop = asyncio.get_running_loop()
            over: asyncio.Future[None] = loop.create_future()

            def asked() -> None:
                if sys.stdin.readline():
                    emit({"cpu": time.process_time(), "mb": memory_mb()})
                else:
                    loop.remove_reader(sys.stdin)
                    over.set_result(None)

            loop.add_reader(sys.stdin, asked)
            await over

    asyncio.run(run())


def main() -> None:
    """Measure what the command line names."""
    what, began = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    if what == "boot":
        boot(began)
    else:
        {"implementation": implementation, "idle": idle, "fresh": fresh, "serve": serve}[what]()


if __name__ == "__main__":
    main()
