"""Groups whose members have their records handled by ``Consumer.run``, and everything breaks.

As ``group_run``, whose scene it is, with ``HandlerPlayer`` for members: nothing may be skipped, be
handled again below a commit or out of order, and in the end all is handled and committed.

    python -m tests.virtual.handler_run --seed 12 --trace
"""

from __future__ import annotations

import random
import sys
from typing import Any

from kclient.consumer.handlers.retries import Retries
from kclient.testing import Cluster
from kclient.types import TopicPartition
from tests.virtual.group_moves import MOST_MEMBERS, GroupMoves
from tests.virtual.group_run import PATIENCE, Scene, main
from tests.virtual.handler_player import (
    DEAD,
    ORDERINGS,
    HandlerPlan,
    HandlerPlayer,
    HandlerWatch,
)


class HandlerMoves(GroupMoves):
    """Operations with their weights."""

    def __init__(self, cluster: Cluster, plan: HandlerPlan, *args: Any) -> None:
        super().__init__(cluster, plan, *args)
        cluster.create_topic(DEAD, partitions=1, replication_factor=2)
        for moves in (self._calm, self._storm):
            for move in (self._commit_often, self._rest):
                del moves[move]
            moves[self._oversleep] = 5
            moves[self._interrupt] = 2

    async def join(self) -> None:
        """Add one more member, below the maximum."""
        if len(self.players) >= MOST_MEMBERS:
            return
        self._named += 1
        plan, watch = self._plan, self._watch
        assert isinstance(plan, HandlerPlan)
        assert isinstance(watch, HandlerWatch)
        rng = random.Random(self._rng.random())
        player: Any = HandlerPlayer(
            f"m{self._named}", self._cluster, plan, watch, self._producer, rng, self._say
        )
        self._say(f"{player.name} joins")
        self.players.append(player)
        await player.start()

    def _produce(self) -> None:
        for _ in range(self._rng.randint(1, 10)):
            topic = self._rng.choice(self._plan.topics)
            index = self._rng.randrange(self._known[topic])
            key = self._rng.choice((None, b"a", b"b", b"c", b"d"))
            self._written += 1
            self._producer.send(topic, b"%d" % self._written, key=key, partition=index)

    def _interrupt(self) -> None:
        player: Any = self._any_player()
        if player is not None:
            player.interrupt()


class HandlerScene(Scene):
    """One run while it goes on."""

    moves_type = HandlerMoves
    watch_type = HandlerWatch

    def _plan(self) -> HandlerPlan:
        chance, plan = self._rng, super()._plan()
        sends_on = chance.random() < 0.5
        options: dict[str, Any] = {
            "ordering": chance.choice(ORDERINGS),
            "concurrency": chance.choice((1, 2, 8, 64)),
            "max_in_flight": chance.choice((None, 4, 32)),
            "drain_timeout": chance.choice((0.2, 1.0, 30.0)),
            "retries": Retries(
                max_attempts=chance.choice((1, 2, 5)), backoff=0.05, max_backoff=0.2
            ),
            "dead_letter_topic": DEAD if sends_on else None,
        }
        self._say(f"{options}")
        settings = {**plan.settings, "enable_auto_commit": True}
        return HandlerPlan(
            settings, plan.topics, False, "auto", PATIENCE, plan.slowness, options, sends_on
        )

    async def _settle(self, cluster: Cluster, moves: Any, watch: Any, producer: Any) -> None:
        await super()._settle(cluster, moves, watch, producer)
        for topic in watch.topics:
            for index in range(cluster.partition_count(topic)):
                end = cluster.end_offset(topic, index)
                committed = watch.committed.get(TopicPartition(topic, index), 0)
                if committed != end:
                    watch.fail(f"{topic}-{index}: all have left, and {committed} of {end} is there")


if __name__ == "__main__":
    sys.exit(main(scene=HandlerScene))
