"""The process that is killed: ``kclient.process`` from one topic to another, 10% of it aborted.

python -m tests.exactly_once.worker BOOTSTRAP SOURCE TARGET GROUP INSTANCE SEED
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import kclient

MOST_RECORDS = 100
ABORTED = 0.1
"""Share of the transactions in which the handler raises."""


class Planned(Exception):
    """The handler gives up this transaction."""


async def work(
    bootstrap: str, source: str, target: str, group: str, instance: str, seed: str
) -> None:
    """Process until killed."""
    rng = random.Random(seed)

    async def handle(record: Any, txn: Any) -> None:
        txn.send(target, record.value, key=record.key)
        if rng.random() < 0.05:
            await asyncio.sleep(0.002)
        if rng.random() < ABORTED / MOST_RECORDS:
            raise Planned

    async with (
        kclient.Consumer(
            bootstrap,
            source,
            group=group,
            group_instance_id=instance,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
        kclient.Producer(
            bootstrap, transactional_id=f"{group}-{instance}", transaction_timeout=10.0
        ) as producer,
    ):
        while True:
            try:
                await kclient.process(
                    consumer, producer, handle, max_records=MOST_RECORDS, max_interval=0.02
                )
            except Planned:
                pass


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
