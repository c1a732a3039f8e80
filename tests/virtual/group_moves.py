"""What a run of ``group_run.py`` does to its group and cluster: ``GroupMoves`` draws operations.

Members come and go, well or not, freeze and sleep; brokers crash, leaders and coordinators move;
responses are lost, late or wrong; partitions are added, and a producer writes all along. What is
broken heals after a while. ``group_watch`` judges.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import kclient
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, InvalidArgument
from kclient.testing import Cluster, MemoryNet
from tests.virtual.group_member import Plan
from tests.virtual.group_player import Player
from tests.virtual.group_watch import GROUP, GroupWatch

MOST_MEMBERS = 4
MOST_PARTITIONS = 6
PRODUCER_LEARNS = 3.0
"""Seconds within which the producer learns of new partitions from metadata refreshes alone."""
APIS = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "Fetch",
    "Metadata",
)
_AWAY = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
REFUSALS: dict[str, tuple[ErrorCode, ...]] = {
    "JoinGroup": (*_AWAY, _LOADING),
    "SyncGroup": (*_AWAY, ErrorCode.REBALANCE_IN_PROGRESS),
    "Heartbeat": (*_AWAY, ErrorCode.REBALANCE_IN_PROGRESS),
    "OffsetCommit": (*_AWAY, _LOADING, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "OffsetFetch": (ErrorCode.NOT_COORDINATOR, _LOADING, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    "FindCoordinator": (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
    "Fetch": (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR),
}
"""Error responses to requests that are not processed; none of them denies the membership."""


class GroupMoves:
    """Draws the next operation and carries it out.

    Args:
        cluster: Started, with the topics of ``plan``.
        plan: Of the members.
        producer: Started.
        watch: For the members.
        net: The way there.
        rng: Decides.
        say: Called with a line for the trace about what happens.

    Attributes:
        players: The members that are alive.
        counts: How often each operation came.
        apis: Whose responses are lost or late.
        refusals: The error responses to requests that are not processed.
    """

    apis = APIS
    refusals = REFUSALS

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        producer: kclient.Producer[Any, Any],
        watch: GroupWatch,
        net: MemoryNet,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._producer = producer
        self._watch = watch
        self._net = net
        self._rng = rng
        self._say = say
        self._known = {topic: cluster.partition_count(topic) for topic in plan.topics}
        self._named = 0
        self._taken: set[str | None] = set()
        self._written = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.players: list[Player] = []
        self.counts: dict[str, int] = {}
        self._calm: dict[Callable[[], Awaitable[None] | None], int] = {
            self._produce: 20,
            self._pass_time: 14,
            self.join: 5,
            self._leave: 4,
            self._oversleep: 1,
            self._rest: 2,
            self._rejoin: 2,
            self._commit_often: 6,
            self._pause: 2,
            self._add_partitions: 1,
            self._move_coordinator: 2,
            self._move_leader: 2,
            self._freeze_member: 1,  # in a storm, other faults end the session first
        }
        self._storm: dict[Callable[[], Awaitable[None] | None], int] = {
            **self._calm,
            self._crash_member: 3,
            self._freeze_member: 3,
            self._suspend_member: 3,
            self._oversleep: 2,
            self._crash_broker: 3,
            self._restart_broker: 5,
            self._move_coordinator: 4,
            self._lose_answers: 4,
            self._refuse: 5,
            self._delay: 4,
            self._cut: 2,
        }
        self._moves = self._calm

    async def change(self, *, calm: bool) -> None:
        """Let a storm begin; or a calm, for which all is mended."""
        self._moves = self._calm if calm else self._storm
        if not calm:
            self._say("a storm begins")
            return
        self._say("all is healed")
        self._cluster.faults.clear()
        for node_id, broker in self._cluster.brokers.items():
            broker.groups.load_seconds = 0.0
            if not broker.running:
                await self._cluster.restart(node_id, in_sync_within=0)

    async def step(self) -> None:
        """Carry out one operation."""
        move = self._rng.choices(list(self._moves), list(self._moves.values()))[0]
        name = move.__name__.strip("_")  # type: ignore[attr-defined]
        self.counts[name] = self.counts.get(name, 0) + 1
        try:
            done = move()
            if done is not None:
                await done
        except BrokerError as error:
            self._say(f"  {error}")
        await asyncio.sleep(self._rng.random() * 0.04)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for everything that goes on in the background."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    # Records and time

    def _produce(self) -> None:
        for _ in range(self._rng.randint(1, 10)):
            topic = self._rng.choice(self._plan.topics)
            index = self._rng.randrange(self._known[topic])
            self._written += 1
            self._producer.send(topic, b"%d" % self._written, partition=index)

    async def _pass_time(self) -> None:
        seconds = self._rng.choice((0.05, 0.1, 0.2, 0.4, 0.6))
        await asyncio.sleep(seconds)

    # Members

    async def join(self) -> None:
        """Add one more member, below the maximum."""
        if len(self.players) >= MOST_MEMBERS:
            return
        instance_id = None
        if self._plan.static:
            free = [f"s{n}" for n in range(MOST_MEMBERS) if f"s{n}" not in self._taken]
            if not free:
                return  # one of them is about to leave
            instance_id = self._rng.choice(free)
            self._taken.add(instance_id)
        self._named += 1
        player = Player(
            f"m{self._named}",
            instance_id,
            self._cluster,
            self._plan,
            self._watch,
            random.Random(self._rng.random()),
            self._say,
        )
        self._say(f"{player.name} joins and reads by {player.reading} {instance_id or ''}")
        self.players.append(player)
        await player.start()

    def _any_player(self) -> Player | None:
        return self._rng.choice(self.players) if self.players else None

    def _take_player(self) -> Player | None:
        if len(self.players) < 2 and self._rng.random() < 0.7:
            return None
        player = self._any_player()
        if player is not None:
            self.players.remove(player)
        return player

    def _leave(self) -> None:
        player = self._take_player()
        if player is not None:
            self._say(f"{player.name} leaves")
            self._later(self._part(player))

    async def _part(self, player: Player) -> None:
        await player.leave()
        self._taken.discard(player.instance_id)

    async def _crash_member(self) -> None:
        player = self._take_player()
        if player is not None:
            self._say(f"{player.name} crashes")
            await player.crash()
            self._taken.discard(player.instance_id)

    def _freeze_member(self) -> None:
        """Neither side receives anything, and requests sent meanwhile are lost."""
        player = self._any_player()
        if player is not None:
            seconds = self._rng.choice((0.2, 0.6, 2.0, 4.0))
            self._say(f"{player.name} is cut off for {seconds} s")
            fault = self._cluster.faults.hang(client_id=player.name)
            self._later(self._wait(seconds, lambda: self._cluster.faults.remove(fault)))

    def _suspend_member(self) -> None:
        """Its requests arrive much later."""
        player = self._any_player()
        if player is not None:
            seconds = self._rng.choice((0.2, 0.6, 2.0))
            self._say(f"{player.name} is suspended for {seconds} s")
            api = self._rng.choice((None, "OffsetCommit", "JoinGroup", "OffsetFetch"))
            if self._plan.static and api != "OffsetFetch":
                api = "OffsetCommit"  # a JoinGroup that outlives its sender fences the next one
            after = api is not None and self._rng.random() < 0.5
            fault = self._cluster.faults.hold(api, times=None, after=after, client_id=player.name)
            self._later(self._wait(seconds, lambda: self._cluster.faults.remove(fault)))

    async def _wait(self, seconds: float, mend: Callable[[], object]) -> None:
        await asyncio.sleep(seconds)
        mend()

    def _oversleep(self) -> None:
        player = self._any_player()
        if player is not None:
            player.oversleep = self._plan.patience * self._rng.choice((0.3, 0.7, 1.2, 1.8))

    def _rest(self) -> None:
        player = self._any_player()
        if player is not None:
            seconds = self._rng.random()
            self._say(f"{player.name} unsubscribes for {seconds:.1f} s")
            self._later(player.rest(seconds))

    def _rejoin(self) -> None:
        player = self._any_player()
        if player is not None and player.owned:
            self._say(f"{player.name} wants a rebalance")
            with contextlib.suppress(InvalidArgument):  # it is unsubscribing
                player.consumer.rejoin()

    def _commit_often(self) -> None:
        player = self._any_player()
        if player is not None:
            player.commit_often()

    def _pause(self) -> None:
        player = self._any_player()
        if player is not None and player.owned:
            partition = self._rng.choice(list(player.owned))
            if partition in player.consumer.assignment:
                self._say(f"{player.name} pauses {partition}")
                player.consumer.pause(partition)
                self._later(self._wait(self._rng.random() * 2, player.resume))

    # Brokers

    def _up(self) -> list[int]:
        return [one for one, broker in self._cluster.brokers.items() if broker.running]

    async def _crash_broker(self) -> None:
        up = self._up()
        if len(up) > 2 or (up and self._rng.random() < 0.2):
            node_id = self._rng.choice(up)
            if self._rng.random() < 0.5 and self._cluster.coordinator(GROUP) in up:
                node_id = self._cluster.coordinator(GROUP)
            self._say(f"broker {node_id} crashes")
            await self._cluster.crash(node_id)

    async def _restart_broker(self) -> None:
        down = [one for one, broker in self._cluster.brokers.items() if not broker.running]
        if down:
            node_id = self._rng.choice(down)
            self._say(f"broker {node_id} is back")
            await self._cluster.restart(node_id, in_sync_within=0)

    def _move_coordinator(self) -> None:
        up = self._up()
        if up:
            node_id = self._rng.choice(up)
            self._say(f"broker {node_id} is to be coordinator")
            self._cluster.brokers[node_id].groups.load_seconds = self._rng.choice((0, 0, 0.3))
            self._cluster.move_coordinator(GROUP, node_id)

    def _move_leader(self) -> None:
        topic = self._rng.choice(self._plan.topics)
        index = self._rng.randrange(self._cluster.partition_count(topic))
        node_id = self._rng.choice(self._cluster.replicas(topic, index))
        self._say(f"broker {node_id} is to lead {topic}-{index}")
        self._cluster.move_leader(topic, index, node_id)

    def _add_partitions(self) -> None:
        topic = self._rng.choice(self._plan.topics)
        count = self._cluster.partition_count(topic)
        if count < MOST_PARTITIONS:
            self._say(f"{topic} gets {count + 1} partitions")
            self._cluster.add_partitions(topic, count + 1)
            self._later(self._wait(PRODUCER_LEARNS, lambda: self._learn(topic, count + 1)))

    def _learn(self, topic: str, count: int) -> None:
        self._known[topic] = max(self._known[topic], count)

    # Responses and the network

    def _lose_answers(self) -> None:
        api, times = self._rng.choice(self.apis), self._rng.choice((1, 1, 3))
        self._say(f"{times} answers to {api} are lost")
        self._cluster.faults.lose_answers(api, times)

    def _refuse(self) -> None:
        api = self._rng.choice(list(self.refusals))
        code, times = self._rng.choice(self.refusals[api]), self._rng.choice((1, 1, 3))
        self._say(f"{times} x {api} is answered with {code.name}")
        self._cluster.faults.error(api, code, times=times)

    def _delay(self) -> None:
        api, after = self._rng.choice(self.apis), self._rng.random() < 0.5
        after = after or (self._plan.static and api == "JoinGroup")  # as for a suspended process
        seconds = self._rng.choice((0.05, 0.2, 0.6, 1.5))
        self._say(f"{api} takes {seconds} s {after=}")
        self._cluster.faults.delay(api, seconds, after=after, times=self._rng.choice((1, 3)))

    def _cut(self) -> None:
        broker = self._rng.choice(list(self._cluster.brokers.values()))
        self._say(f"connections to {broker.address} are cut: {self._net.cut(broker.address)}")
