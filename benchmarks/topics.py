"""Topics of a session: created, filled, checked and deleted, with kclient's own Admin.

Names begin with a prefix of the session, so that several sessions may share a broker and all topics
can be deleted at the end. Used by the runner only, in its own process, whose CPU isn't counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.job import BATCH_SIZE, Job
from benchmarks.values import rows, values
from kclient import Admin, NewTopic, OffsetSpec, Producer, TopicPartition
from kclient.producer.outgoing import Outgoing


@dataclass
class Topics:
    """The topics of one session on one broker."""

    bootstrap: str
    prefix: str
    alive: set[str] = field(default_factory=set)
    filled: dict[tuple[Any, ...], tuple[str, ...]] = field(default_factory=dict)
    number: int = 0

    def check(self) -> None:
        """Fail at once if no broker responds, rather than once per run.

        Raises:
            KafkaError: There is no usable broker.
        """
        asyncio.run(self._look())

    async def _look(self) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.describe_cluster()

    def make(self, count: int, partitions: int) -> tuple[str, ...]:
        """Create empty topics; return their names."""
        names = []
        for _ in range(count):
            self.number += 1
            names.append(f"{self.prefix}-{self.number:04}")
        asyncio.run(self._make(names, partitions))
        self.alive |= set(names)
        return tuple(names)

    async def _make(self, names: list[str], partitions: int) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.create_topics(
                [NewTopic(name, partitions=partitions, replication_factor=1) for name in names]
            )

    def delete(self, names: Iterable[str]) -> None:
        wanted = [name for name in names if name in self.alive]
        if wanted:
            asyncio.run(self._delete(wanted))
            self.alive -= set(wanted)

    async def _delete(self, names: list[str]) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.delete_topics(names)

    def end_offsets(self, names: Iterable[str], partitions: int) -> int:
        """Return the number of records in all of them."""
        return asyncio.run(self._ends(list(names), partitions))

    async def _ends(self, names: list[str], partitions: int) -> int:
        places = [TopicPartition(name, index) for name in names for index in range(partitions)]
        async with Admin(self.bootstrap) as admin:
            found = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        return sum(one.offset for one in found.values() if one is not None)

    def source(
        self, job: Job, use: str, count: int, records: int, partitions: int
    ) -> tuple[str, ...]:
        """Return topics that hold ``records`` of the job's kind in total, filled on the first call.

        Args:
            use: Each use has topics of its own.
        """
        kind: tuple[Any, ...] = (
            use,
            count,
            records,
            partitions,
            job.size,
            job.codec,
            job.keyed,
            job.headers,
        )
        kind = (*kind, job.linger, job.batch_size)
        if kind not in self.filled:
            names = self.make(count, partitions)
            asyncio.run(self._fill(replace(job, topics=names), records))
            self.filled[kind] = names
        return self.filled[kind]

    async def _fill(self, job: Job, records: int) -> None:
        codec: Any = job.codec
        producer: Any = Producer(
            self.bootstrap,
            linger=max(job.linger, 0.05),
            batch_size=min(job.batch_size, BATCH_SIZE),
            compression=codec,
        )
        source: Any = values(job.size, records)
        async with producer:
            if len(job.topics) > 1:
                for topic, value, key, headers in rows(job, source):
                    await producer.enqueue(topic, value, key=key, headers=headers)
                await producer.flush()
                return
            if job.keyed or job.headers:
                source = (
                    Outgoing(value, key=key, headers=tuple(headers or ()))
                    for _, value, key, headers in rows(job, source)
                )
            await producer.send_many(job.topic, source)
