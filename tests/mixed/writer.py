"""Writes to every partition steadily, and knows when each record was offered.

``scenario`` and the group storm run one beside their members. Offsets are those of the
acknowledgements: a partition has no others, so the records to read are known without requests.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import kclient
from kclient.errors import KafkaError
from kclient.producer.delivery import Delivery

_DRAIN = 60.0


class Writer:
    """Writes ``rate`` records per second to each partition, from `start` to `stop`.

    Args:
        settings: More settings of its producer.

    Attributes:
        offered: Partition -> offset -> when the record was offered, of those that are written.
        failures: The errors of failed sends.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rate: float, **settings: Any
    ) -> None:
        self.offered: dict[int, dict[int, float]] = {index: {} for index in range(partitions)}
        self.failures: list[str] = []
        self._topic = topic
        self._period = 1.0 / rate
        self._producer = kclient.Producer(bootstrap, client_id="writer", linger=0.0, **settings)
        self._task: asyncio.Task[None] | None = None
        self._over = False

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        self._task = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """End it; returns when all that was offered is written or has failed."""
        self._over = True
        if self._task is not None:
            await self._task
        await self._producer.close(_DRAIN)
        await asyncio.sleep(0)  # the last outcomes are reported in the next loop iteration

    def ends(self) -> dict[int, int]:
        """Partition -> the offset behind its last record."""
        return {index: max(found, default=-1) + 1 for index, found in self.offered.items()}

    def fresh(self, partition: int, offset: int, since: float) -> bool:
        """Whether a record was offered at ``since`` or later; one in doubt was not."""
        return self.offered[partition].get(offset, 0.0) >= since

    async def _write(self) -> None:
        due = time.monotonic()
        while not self._over:
            for partition in self.offered:
                self._send(partition)
            due = max(due + self._period, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _send(self, partition: int) -> None:
        now = time.monotonic()
        try:
            delivery = self._producer.send(self._topic, b"%.6f" % now, partition=partition)
        except KafkaError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        delivery.add_done_callback(partial(self._reported, partition, now))

    def _reported(self, partition: int, offered: float, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self.offered[partition][delivery.result().offset] = offered
        else:
            self.failures.append(f"{type(error).__name__}: {error}")
