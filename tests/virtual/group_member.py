"""What every member of a group does in ``group_run.py`` and ``handler_run.py``: ``Member``.

It joins, reports to the ``GroupWatch`` what is assigned, revoked and lost, leaves, or vanishes. How
it reads, and what is checked then, is up to the subclass: ``group_player`` reads by itself,
``handler_player`` has its records handled. Only what its callbacks report is judged here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import kclient
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.virtual.group_watch import GROUP, GroupWatch


@dataclass(frozen=True, slots=True)
class Plan:
    """What all members of a run have in common.

    Attributes:
        settings: Of the consumers.
        topics: What they subscribe to.
        static: They have names of their own in the group.
        committing: One of ``group_player.COMMITTING``.
        patience: Seconds of ``max_poll_interval``.
        slowness: Seconds that the work on records takes at most, as a rule.
    """

    settings: Mapping[str, Any]
    topics: tuple[str, ...]
    static: bool
    committing: str
    patience: float
    slowness: float


class Member(ABC):
    """One member. ``start`` it; ``leave`` or ``crash`` ends it.

    Attributes:
        owned: What it owns, by its callbacks, and its progress there.
        quick: Its work takes no time.
        oversleep: Seconds that the next work on records takes.
        dead: It has crashed.
    """

    def __init__(
        self,
        name: str,
        instance_id: str | None,
        cluster: Cluster,
        plan: Plan,
        watch: GroupWatch,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self._cluster = cluster
        self._plan = plan
        self._watch = watch
        self._rng = rng
        self._say = say
        self.owned: dict[TopicPartition, Any] = {}
        self.quick = False
        self.oversleep = 0.0
        self.dead = False
        self._leaving = False
        self._task: asyncio.Task[None] | None = None
        self._commits: set[asyncio.Task[None]] = set()
        self.consumer: Any = None

    # Life

    async def start(self) -> None:
        """Join the group and begin to read."""
        self._make()
        self._task = asyncio.create_task(self._live(), name=f"player {self.name}")

    def _make(self) -> None:
        given: dict[str, Any] = {"group_instance_id": self.instance_id} if self.instance_id else {}
        self.consumer = kclient.Consumer(
            self._cluster.bootstrap,
            *self._plan.topics,
            group=GROUP,
            client_id=self.name,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            **self._plan.settings,
            **given,
        )

    @abstractmethod
    async def _live(self) -> None:
        """Start the consumer and read, until it leaves."""

    @abstractmethod
    async def leave(self) -> None:
        """Close the consumer well."""

    async def crash(self) -> None:
        """Vanish: nothing that it still sends is processed."""
        self.dead = True
        self._watch.forget(self.name)
        fault = self._cluster.faults.hang(client_id=self.name)
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(kclient.KafkaError):
            await self.consumer.close(0.01)
        await asyncio.gather(*self._commits)
        self._cluster.faults.remove(fault)

    def _all_reported(self) -> None:
        """Record a failure for each partition that it still owns after it has left."""
        for partition in list(self.owned):
            self._watch.fail(f"{self.name} has left, and was not told of {partition}")

    def resume(self) -> None:
        """Resume all partitions."""
        with contextlib.suppress(kclient.KafkaError):
            self.consumer.resume()

    # Callbacks

    async def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        if self.dead:
            return
        member_id = self.consumer.group_metadata().member_id
        given = list(partitions)
        self._say(f"  {self.name} has got {_named(given)}")
        for partition in given:
            self._watch.assigned(self.name, member_id, partition)
            self.owned[partition] = self._begin_at(self._watch.start_of(partition))
        await self._dawdle()

    async def _revoked(self, partitions: Iterable[TopicPartition]) -> None:
        if self.dead:
            return
        given = list(partitions)
        self._say(f"  {self.name} gives {_named(given)} up")
        for partition in given:
            if self._works_on(partition):
                self._watch.fail(f"{self.name} gives {partition} up, and works on it still")
        for partition in given:
            self.owned.pop(partition, None)
            self._watch.begins_to_release(self.name, partition)
        try:
            await self._before_release()
        finally:  # also where a close cuts it off
            if not self.dead:
                for partition in given:
                    self._watch.released(self.name, partition)

    def _lost(self, partitions: Iterable[TopicPartition]) -> None:
        if self.dead:
            return
        given = list(partitions)
        self._say(f"  {self.name} has lost {_named(given)}")
        for partition in given:
            self.owned.pop(partition, None)
            self._watch.released(self.name, partition)

    @abstractmethod
    def _begin_at(self, offset: int) -> Any:
        """The entry in ``owned`` for a partition that begins there."""

    @abstractmethod
    def _works_on(self, partition: TopicPartition) -> bool:
        """Whether it must not release this partition yet."""

    @abstractmethod
    async def _dawdle(self) -> None:
        """Take the time of a callback."""

    async def _before_release(self) -> None:
        """What the callback does while it still owns the partitions."""
        await self._dawdle()


def _named(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in partitions) or "nothing"
