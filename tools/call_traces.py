"""Counts the frames that calls go through: ``KCLIENT_PURE=1 python -m tools.call_traces``.

Prints JSON: for one awaited send, one polled batch and one group join the frames and files of the
client, for one Produce with acks=all to three replicas those of the embedded cluster. Virtual time
and a fixed seed: the same code gives the same counts on the same Python, as a resumed coroutine is
entered again, and up to 3.11 a comprehension has a frame of its own. ``code_metrics`` runs it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import kclient
from kclient import TopicPartition
from kclient.record import IMPLEMENTATION
from kclient.testing import Cluster, run_virtually

PACKAGE = Path(kclient.__file__).resolve().parent
CLUSTER = "testing/"
SHARED = ("protocol/", "record/")
"""What client and cluster both call: such a frame belongs to the one that called for it."""
LEAVES = (
    "clock.py",
    "events.py",
    "hooks.py",
    "protocol/headers.py",
    "protocol/primitives.py",
    "record/layout.py",
    "testing/clock.py",
)
"""Files whose frames aren't counted: they are called from everywhere, and read no further."""
VALUE = b"x" * 100
WARM = 5
"""Calls before the one that is traced."""
RECORDS = 10
"""Of a batch."""


@cache
def inside(filename: str) -> str | None:
    """The path of a file within ``kclient``; None for others."""
    path = Path(filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def is_of_cluster(frame: FrameType | None) -> bool:
    """Whether the embedded cluster called for a frame, itself or through what both sides call."""
    while frame is not None:
        file = inside(frame.f_code.co_filename)
        if file is not None and not file.startswith(SHARED):
            return file.startswith(CLUSTER)
        frame = frame.f_back
    return False


class Trace:
    """Frames by file of ``kclient``."""

    def __init__(self) -> None:
        self._clients: Counter[str] = Counter()
        self._clusters: Counter[str] = Counter()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count meanwhile."""
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        file = inside(frame.f_code.co_filename) if event == "call" else None
        if file is None or file in LEAVES:
            return
        if not is_of_cluster(frame):
            self._clients[file] += 1
        elif file.startswith(CLUSTER):
            self._clusters[file] += 1

    def counts(self, *, cluster: bool = False) -> dict[str, int]:
        """Frames and files of the client, or of the embedded cluster."""
        found = self._clusters if cluster else self._clients
        return {"frames": found.total(), "files": len(found)}


async def send() -> dict[str, dict[str, int]]:
    """One record that is awaited, alone."""
    trace = Trace()
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", replication_factor=3)
        async with kclient.Producer(cluster.bootstrap) as producer:
            for _ in range(WARM):
                await producer.send("t", VALUE)
            with trace.on():
                await producer.send("t", VALUE)
    return {"awaited send": trace.counts(), "embedded Produce": trace.counts(cluster=True)}


async def poll() -> dict[str, dict[str, int]]:
    """A batch of ten records in the log, until poll returns it."""
    trace = Trace()
    async with Cluster() as cluster:
        cluster.create_topic("t")
        async with (
            kclient.Producer(cluster.bootstrap, linger=0.005) as producer,
            kclient.Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("t", 0)])

            for _ in range(WARM):
                await _write(producer)
                await _take(consumer)
            await _write(producer)
            await asyncio.sleep(0)  # what the producer has left to free is no part of the poll
            with trace.on():
                await _take(consumer)
    return {"polled batch": trace.counts()}


async def _write(producer: kclient.Producer[Any, Any]) -> None:
    await asyncio.gather(*[producer.send("t", VALUE) for _ in range(RECORDS)])


async def _take(consumer: kclient.Consumer[Any, Any]) -> None:
    left = RECORDS
    while left:
        left -= len(await consumer.poll(timeout=None))


async def join() -> dict[str, dict[str, int]]:
    """A consumer that is connected joins a group by itself and is given its first record."""
    trace = Trace()
    async with Cluster() as cluster:
        cluster.create_topic("t", partitions=2)
        async with (
            kclient.Producer(cluster.bootstrap) as producer,
            kclient.Consumer(
                cluster.bootstrap, group="g", auto_offset_reset="earliest"
            ) as consumer,
        ):
            await producer.send("t", VALUE)
            with trace.on():
                consumer.subscribe("t")
                await consumer.poll(timeout=None)
    return {"group join": trace.counts()}


def main() -> int:
    """Print the counts."""
    if IMPLEMENTATION != "pure":
        print("the frames of compiled modules can't be seen: set KCLIENT_PURE=1", file=sys.stderr)
        return 2
    found: dict[str, dict[str, int]] = {}
    for scene in (send, poll, join):
        found.update(run_virtually(scene(), seed=1))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
