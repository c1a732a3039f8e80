"""A service that writes as fast as it can: ``tests.support.full_rate SERVER TOPIC BYTES``.

A process of its own, so that its memory is that of a producer and not of a test. It writes with
``send`` and with ``enqueue`` until its standard input ends, then flushes and prints what it took,
the outcomes, and by how many bytes its resident memory grew at most.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import kclient
from kclient.errors import BufferFull

VALUE = b"x" * 200


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Service:
    """Counts what it does."""

    def __init__(self, producer: Any, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.over = False
        self.taken = self.refused = 0
        self.most = 0

    async def send(self) -> None:
        while not self.over:
            try:
                for _ in range(100):
                    self.producer.send(self.topic, VALUE, key=b"%d" % self.taken)
                    self.taken += 1
            except BufferFull:
                self.refused += 1
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)

    async def enqueue(self) -> None:
        while not self.over:
            try:
                await self.producer.enqueue(self.topic, VALUE, key=b"%d" % self.taken)
                self.taken += 1
            except BufferFull:
                self.refused += 1

    async def watch(self) -> None:
        while not self.over:
            self.most = max(self.most, resident())
            await asyncio.sleep(0.02)


async def main(bootstrap: str, topic: str, budget: int) -> None:
    loop = asyncio.get_running_loop()
    settings: Any = {
        "buffer_memory": budget,
        "max_block": 1.0,
        "request_timeout": 2.0,
        "connection_setup_timeout": 1.0,
        "connection_setup_timeout_max": 2.0,
        "max_parked": 5000,
    }
    async with kclient.Producer(bootstrap, **settings) as producer:
        await producer.send(topic, VALUE)
        service = Service(producer, topic)
        before = resident()
        jobs = [asyncio.create_task(job()) for job in (service.send, service.enqueue)]
        watching = asyncio.create_task(service.watch())
        print("writing", flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        service.over = True
        await asyncio.gather(*jobs, watching)
        await producer.flush()
        metrics = producer.metrics()
    print(
        json.dumps(
            {
                "grown": service.most - before,
                "taken": service.taken + 1,
                "refused": service.refused,
                "delivered": metrics["producer.records_delivered"],
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
