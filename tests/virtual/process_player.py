"""One member of the group in a run of ``process_run.py``: ``kclient.process``, again and again.

Its handler writes one record into each target for each of the source; now and then it raises,
waits, or takes longer than the transaction may. After an error that ``process`` doesn't survive it
begins anew with new clients and the same transactional id, as a supervisor would have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import kclient
from kclient.errors import BackgroundTaskDied, ClientClosed
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.virtual.group_member import Member, Plan
from tests.virtual.process_watch import TARGETS, ProcessWatch, place_of


class Planned(Exception):
    """The handler gives a transaction up."""


@dataclass(frozen=True, slots=True)
class ProcessPlan(Plan):
    """What all members of a run have in common.

    Attributes:
        producing: Settings of the producers.
        options: Of ``process``.
        raises: Share of the calls in which the handler raises, at most once for each record.
    """

    producing: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    raises: float = 0.01

    @property
    def transaction_timeout(self) -> float:
        """Seconds after which the coordinator aborts a transaction."""
        return float(self.producing["transaction_timeout"])


class ProcessPlayer(Member):
    """One member. ``start`` it; ``leave`` or ``crash`` ends it.

    Attributes:
        transactional_id: Of its producer.
        retired: Another member has the id by now: once it is fenced, this one leaves.
        over: It has ended.
    """

    _plan: ProcessPlan
    _watch: ProcessWatch

    def __init__(
        self,
        name: str,
        transactional_id: str,
        cluster: Cluster,
        plan: ProcessPlan,
        watch: ProcessWatch,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        instance_id = f"i-{transactional_id}" if plan.static else None
        super().__init__(name, instance_id, cluster, plan, watch, rng, say)
        self.transactional_id = transactional_id
        self.retired = False
        self.producer: Any = None
        self._run: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._task is not None and self._task.done()

    @property
    def good_at(self) -> float:
        """The time when it was last seen to be well: now, as long as it runs."""
        alive = self._run is not None and not self._run.done()
        return asyncio.get_running_loop().time() if alive or self.over else -1.0

    # Life

    def _make(self) -> None:
        super()._make()
        self.producer = kclient.Producer(
            self._cluster.bootstrap,
            transactional_id=self.transactional_id,
            client_id=self.name,
            **self._plan.producing,
        )

    async def _live(self) -> None:
        while not self._leaving:
            try:
                await self.consumer.start()
                await self.producer.start()
                await self._process()
            except kclient.KafkaError as error:
                self._complain(error)
            await self._close(10.0)
            if self.retired:
                return
            await asyncio.sleep(0.1)
            self._make()

    async def _process(self) -> None:
        """Until it is to leave, whatever the handler raises, and however it is interrupted."""
        while not self._leaving:
            work = kclient.process(self.consumer, self.producer, self._handle, **self._plan.options)
            self._run = asyncio.create_task(work, name=f"process {self.name}")
            await asyncio.wait([self._run])
            if self._run.cancelled():
                self._say(f"  {self.name} was interrupted")
                continue
            error = self._run.exception()
            if not isinstance(error, Planned):
                assert error is not None
                raise error
            self._say(f"  {self.name}: the handler gives up")

    def _complain(self, error: kclient.KafkaError) -> None:
        self._say(f"  {self.name}: {type(error).__name__}: {str(error)[:150]}")
        self._watch.ended[type(error).__name__] += 1
        if isinstance(error, BackgroundTaskDied | ClientClosed) and not self.dead:
            self._watch.fail(f"{self.name} can't go on: {error!r} caused by {error.__cause__!r}")

    async def _close(self, timeout: float) -> None:
        for client in (self.consumer, self.producer):
            with contextlib.suppress(kclient.KafkaError):
                await client.close(timeout)
        if not self.dead:
            self._all_reported()

    def interrupt(self) -> None:
        """Cancel ``process``, which begins again with the same clients, or ends if it leaves."""
        if self._run is not None:
            self._run.cancel()

    async def leave(self) -> None:
        """Close both clients well."""
        self._leaving = True
        self.interrupt()
        assert self._task is not None
        await self._task

    async def crash(self) -> None:
        """Vanish: nothing that it still sends is processed."""
        self.dead = True
        self._watch.forget(self.name)
        fault = self._cluster.faults.hang(client_id=self.name)
        for task in (self._task, self._run):
            while task is not None and not task.done():
                task.cancel()
                await asyncio.sleep(0)
        await self._close(0.01)
        self._cluster.faults.remove(fault)

    # Callbacks

    def _begin_at(self, offset: int) -> int:
        return offset

    def _works_on(self, partition: TopicPartition) -> bool:
        return False  # what it gives up in the midst of a transaction is fenced by the generation

    async def _dawdle(self) -> None:
        if self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.random() * 0.2)

    # Handling

    async def _handle(self, record: Any, txn: Any) -> None:
        chance, partition = self._rng, record.topic_partition
        self._watch.begins(partition, record.offset, record.value)
        if not self.quick and chance.random() < 0.1:
            await asyncio.sleep(chance.random() * self._plan.slowness)
        key = place_of(partition.partition, record.offset)
        for topic in TARGETS:
            index = partition.partition % 2 if topic == TARGETS[0] else chance.randrange(2)
            if chance.random() < 0.97:
                txn.send(topic, record.value, key=key, partition=index)
            else:
                await txn.send(topic, record.value, key=key, partition=index)
        if self.oversleep:
            seconds, self.oversleep = self.oversleep, 0.0
            if not self.quick:
                self._say(f"  {self.name} sleeps for {seconds:.1f} s")
                await asyncio.sleep(seconds)
        if not self.quick and chance.random() < self._plan.raises:
            if self._watch.raises(partition, record.offset):
                raise Planned
        self._watch.done(partition, record.offset + 1)
