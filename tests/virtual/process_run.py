"""Exactly once on virtual time, while everything breaks, by seed.

``run(seed)`` makes a cluster of three brokers that speaks one of the two versions of the
transaction protocol, a producer of a source, and a group whose members copy it into two targets by
``kclient.process``; lets ``ProcessMoves`` do 500 things to them, heals all, and waits until every
record is there and nothing is open. ``ProcessWatch`` judges. A seed gives the same run every time;
to see one:

    python -m tests.virtual.process_run --seed 12 --trace
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import kclient
from kclient.testing import Cluster, VirtualLoop
from kclient.types import TopicPartition
from tests.virtual import group_run
from tests.virtual.group_run import PATIENCE, PHASE, REQUEST, SESSION, Scene, main
from tests.virtual.process_moves import ProcessMoves
from tests.virtual.process_player import ProcessPlan
from tests.virtual.process_watch import SOURCE, TARGETS, ProcessWatch

CONFIGS = {
    **group_run.CONFIGS,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.min.isr": 1,
}
TIMEOUTS = (1.5, 4.0, 8.0)
"""Seconds of ``transaction_timeout``."""
LATENCIES = ((0.0002, 0.001), (0.001, 0.01), (0.005, 0.03))


class ProcessScene(Scene):
    """One run while it goes on."""

    def _plan(self) -> ProcessPlan:
        chance, plan = self._rng, super()._plan()
        reading: dict[str, Any] = {
            **plan.settings,
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
        }
        producing: dict[str, Any] = {
            "linger": chance.choice((0.0, 0.0, 0.01)),
            "transaction_timeout": chance.choice(TIMEOUTS),
            **{
                name: reading[name]
                for name in (
                    "request_timeout",
                    "connection_setup_timeout",
                    "bootstrap_timeout",
                    "api_timeout",
                    "metadata_max_age",
                    "retry_backoff",
                    "retry_backoff_max",
                    "reconnect_backoff",
                    "reconnect_backoff_max",
                )
            },
        }
        options = {
            "max_records": chance.choice((8, 20, 50, 1000)),
            "max_interval": chance.choice((0.02, 0.1, 0.3)),
        }
        made = ProcessPlan(
            reading,
            (SOURCE,),
            plan.static,
            "process",
            PATIENCE,
            plan.slowness,
            producing,
            options,
            chance.choice((0.0, 0.01, 0.05)),
        )
        self._say(f"{made}")
        return made

    async def play(self) -> None:
        """All of it."""
        loop, outcome, chance = asyncio.get_running_loop(), self._outcome, self._rng
        assert isinstance(loop, VirtualLoop)
        loop.set_exception_handler(
            lambda _, context: outcome.failures.append(f"reached the loop: {context!r}")
        )
        plan, version = self._plan(), chance.choice((1, 2, 2))
        self._say(f"version {version} of the protocol")
        loop.network.latency = chance.choice(LATENCIES)
        self._settling = group_run.SETTLING + 2 * plan.transaction_timeout
        async with Cluster(
            3, broker_configs=CONFIGS, transaction_version=version, seed=outcome.seed
        ) as cluster:
            cluster.create_topic(SOURCE, partitions=chance.randint(1, 4), replication_factor=2)
            for topic in TARGETS:
                cluster.create_topic(topic, partitions=2, replication_factor=2)
            watch = ProcessWatch(cluster, (SOURCE,), SESSION, self._say)
            outcome.failures = watch.failures
            with watch.listening():
                async with kclient.Producer(
                    cluster.bootstrap,
                    linger=0.0,
                    request_timeout=REQUEST,
                    retry_backoff=0.05,
                    metadata_max_age=0.5,
                ) as producer:
                    moves = ProcessMoves(
                        cluster, plan, producer, watch, loop.network, chance, self._say
                    )
                    await self._act(cluster, moves, watch, producer)
            self._count(moves, watch)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not watch.failures:
            outcome.failures += [f"left behind: {task!r}" for task in left]

    async def _act(self, cluster: Cluster, moves: Any, watch: Any, producer: Any) -> None:
        outcome = self._outcome
        for _ in range(2):
            await moves.join()
        while outcome.operations < self._operations and not watch.failures:
            if outcome.operations % PHASE == 0:
                await moves.change(calm=outcome.operations // PHASE % 2 == 0)
            await moves.step()
            watch.look()
            outcome.operations += 1
        if not watch.failures:
            await self._heal(moves)
            await self._settle(cluster, moves, watch, producer)
        if watch.failures:
            for player in moves.players:
                await player.crash()
            moves.players.clear()
        await moves.settle()
        if not watch.failures:
            await self._read(cluster, watch)

    async def _settle(self, cluster: Cluster, moves: Any, watch: Any, producer: Any) -> None:
        """Check that all is copied and committed, and nothing is open any more."""
        loop = asyncio.get_running_loop()
        healed = moved = loop.time()
        commits = watch.commits
        await producer.flush()
        trouble = ["nothing was looked at"]
        while trouble and not watch.failures:
            if watch.commits != commits:  # how much is left depends on the batches and the network
                commits, moved = watch.commits, loop.time()
            if loop.time() - moved > self._settling:
                watch.fail(f"for {self._settling} s nothing goes on: {'; '.join(trouble)}")
                return
            await asyncio.sleep(0.1)
            await moves.keep_one()
            trouble = watch.missing() + [
                f"{player.name} does not go on"
                for player in moves.players
                if player.good_at < healed
            ]
            for index in range(cluster.partition_count(SOURCE)):
                owners = watch.owners(TopicPartition(SOURCE, index))
                if len(owners) != 1:
                    trouble.append(f"{SOURCE}-{index} has the owners {owners}")
        self._outcome.counts["longest settling, ms"] = round(1000 * (loop.time() - healed))
        self._say("all is well")

    async def _read(self, cluster: Cluster, watch: Any) -> None:
        """Judge the logs once all members have left, and what a client reads of them."""
        watch.look_at_end()
        for trouble in watch.missing():
            watch.fail(f"all have left: {trouble}")
        async with kclient.Consumer(
            cluster.bootstrap,
            *TARGETS,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait=0.1,
        ) as consumer:
            read: dict[str, list[bytes | None]] = {topic: [] for topic in TARGETS}
            while records := await consumer.poll(timeout=1.0):
                for record in records:
                    read[record.topic].append(record.key)
        for topic, keys in read.items():
            watch.look_at(topic, keys)

    def _count(self, moves: Any, watch: Any) -> None:
        counts = self._outcome.counts
        counts.update(moves.counts)
        counts["commits seen"] = watch.commits
        counts["records"] = len(watch.values)
        counts["handled again"] = watch.again
        counts["transactions committed"] = watch.count_states("CompleteCommit")
        counts["transactions aborted"] = watch.count_states("CompleteAbort")
        counts.update({f"ended by {name}": count for name, count in watch.ended.items()})
        counts["virtual seconds"] = round(asyncio.get_running_loop().time())


if __name__ == "__main__":
    sys.exit(main(scene=ProcessScene))
