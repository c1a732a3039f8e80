"""The embedded cluster in a process of its own, for clients that would block the loop of a test.

`target` starts it as `python -m tests.foreign.served --brokers 3`. It prints its bootstrap servers
and serves until its standard input ends, as it does when the parent process has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import kclient.testing
from tests.support.broker_settings import COMMON

_COUNTS = (".replication.factor", ".min.isr")
"""The settings of Apache Kafka's test broker that three brokers don't need."""


async def serve(brokers: int) -> None:
    """Serve until standard input ends."""
    configs = {name: value for name, value in COMMON.items() if not name.endswith(_COUNTS)}
    async with kclient.testing.Cluster(brokers=brokers, broker_configs=configs) as cluster:
        sys.stdout.write(f"{cluster.bootstrap}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--brokers", type=int, default=3)
    asyncio.run(serve(parser.parse_args().brokers))
