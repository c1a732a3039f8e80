"""The embedded cluster in a process of its own, for clients that would block the loop of a test.

`target` starts it as `python -m tests.foreign.served --brokers 3`. It prints its bootstrap servers,
with the authority of its certificate if it is secured, and serves until its standard input ends, as
it does when the parent process has ended. A line there asks for the versions of EndTxn that clients
have sent since the last line: they show which version of the transaction protocol a client speaks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

import kclient.testing
from kclient.testing import ClusterSecurity
from tests.foreign.login import PASSWORD, USERNAME
from tests.support.broker_settings import COMMON

_COUNTS = (".replication.factor", ".min.isr")
"""The settings of Apache Kafka's test broker that three brokers don't need."""


async def serve(brokers: int, transaction_version: int, secured: bool) -> None:
    """Serve until standard input ends."""
    security = ClusterSecurity({USERNAME: PASSWORD}, tls=True) if secured else None
    configs = {name: value for name, value in COMMON.items() if not name.endswith(_COUNTS)}
    async with kclient.testing.Cluster(
        brokers=brokers,
        broker_configs=configs,
        transaction_version=transaction_version,
        security=security,
    ) as cluster:
        versions: set[int] = set()
        cluster.faults.on("EndTxn", lambda request: versions.add(request.version))
        _say(json.dumps([cluster.bootstrap, security and security.authority]))
        while await asyncio.to_thread(sys.stdin.readline):
            _say(json.dumps(sorted(versions)))
            versions.clear()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--transaction-version", type=int, default=2)
    parser.add_argument("--secured", action="store_true")
    options = parser.parse_args()
    asyncio.run(serve(options.brokers, options.transaction_version, options.secured))
