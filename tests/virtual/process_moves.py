"""What a run of ``process_run.py`` does to members and cluster beside what ``GroupMoves`` does.

Members crash at a request of their choice, or are interrupted; successors take transactional ids
over from members that are alive; coordinators of transactions move; brokers lose touch with each
other; requests of transactions, also those of brokers, are lost, late, or refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, LeaderNotAvailable
from kclient.testing import Cluster
from kclient.testing.log_state import Marker
from tests.unit.testing.batches import batch_bytes
from tests.virtual.group_moves import MOST_MEMBERS, GroupMoves
from tests.virtual.process_player import ProcessPlan, ProcessPlayer
from tests.virtual.process_watch import SOURCE, ProcessWatch

FIRST_FOREIGN_ID = 1_000_000
"""Producer ids of transactions in the source, which no coordinator gives."""
POINTS = ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn", "EndTxn")
APIS = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "TxnOffsetCommit",
    "EndTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "WriteTxnMarkers",
    "FindCoordinator",
    "Fetch",
    "OffsetFetch",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
)
MARKERS = ("WriteTxnMarkers", "WriteTxnMarkers", "WriteTxnMarkers")
_AWAY = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_ENDING = ErrorCode.CONCURRENT_TRANSACTIONS
_ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
REFUSALS: dict[str, tuple[ErrorCode, ...]] = {
    "InitProducerId": (*_AWAY, _ENDING),
    "AddPartitionsToTxn": (*_AWAY, _ENDING),
    "AddOffsetsToTxn": (*_AWAY, _ENDING),
    "EndTxn": (*_AWAY, _ENDING),
    "TxnOffsetCommit": (*_AWAY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "Produce": (_ELSEWHERE, ErrorCode.NOT_ENOUGH_REPLICAS),
    "WriteTxnMarkers": (_ELSEWHERE, ErrorCode.NOT_ENOUGH_REPLICAS),
    "OffsetFetch": (ErrorCode.NOT_COORDINATOR, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    "Heartbeat": (ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS),
}
"""Error responses to requests that are not processed."""


class ProcessMoves(GroupMoves):
    """Operations with their weights."""

    _plan: ProcessPlan
    _watch: ProcessWatch
    players: list[Any]
    apis = APIS
    refusals = REFUSALS

    def __init__(self, cluster: Cluster, *args: Any) -> None:
        super().__init__(cluster, *args)
        self._foreign = FIRST_FOREIGN_ID
        for moves in (self._calm, self._storm):
            for move in (self._commit_often, self._rest, self._pause):
                del moves[move]
            moves[self._oversleep] = 2
        more: dict[Callable[[], Awaitable[None] | None], int] = {
            self._interrupt: 2,
            self._crash_at_request: 3,
            self._succeed: 2,
            self._move_transactions: 3,
            self._append_aborted: 2,
        }
        self._calm |= more
        self._storm |= {
            **more,
            self._disconnect: 3,
            self._move_transactions: 5,
            self._move_at_request: 5,
            self._slow_markers: 5,
        }
        self._storm[self._delay] = self._storm[self._lose_answers] = 8

    async def change(self, *, calm: bool) -> None:
        """Let a storm begin; or a calm, for which all is mended."""
        if calm:
            self._cluster.reconnect()
            for broker in self._cluster.brokers.values():
                broker.transactions.load_seconds = 0.0
        await super().change(calm=calm)

    async def step(self) -> None:
        """Carry out one operation."""
        await super().step()
        self._forget()

    def _forget(self) -> None:
        self.players[:] = [one for one in self.players if not one.over]

    async def keep_one(self) -> None:
        """Have a member join where none is left that goes on once it is fenced."""
        self._forget()
        if all(one.retired for one in self.players):
            await self.join()

    # Records

    def _produce(self) -> None:
        for _ in range(self._rng.randint(1, 10)):
            index = self._rng.randrange(self._known[SOURCE])
            self._written += 1
            self._producer.send(SOURCE, b"%d" % self._written, partition=index)

    def _append_aborted(self) -> None:
        """An aborted transaction of another producer in the source, which must not be handled."""
        wall_ms = self._cluster.brokers[1].wall_ms()
        index, self._foreign = self._rng.randrange(self._known[SOURCE]), self._foreign + 1
        data = batch_bytes(
            self._rng.randint(1, 3),
            timestamp=wall_ms,
            value=b"aborted",
            producer=(self._foreign, 0, 0),
            transactional=True,
        )
        marker = Marker(self._foreign, 0, 0, False, 1)
        with contextlib.suppress(LeaderNotAvailable):
            self._cluster.append(SOURCE, index, data)
            self._cluster.append(SOURCE, index, marker.encode(wall_ms))

    # Members

    async def join(self) -> None:
        """Add one more member, below the maximum."""
        if len(self.players) < MOST_MEMBERS:
            free = [f"t{n}" for n in range(MOST_MEMBERS) if f"t{n}" not in self._taken]
            if free:  # else one of them is about to leave
                await self._begin(self._rng.choice(free))

    async def _begin(self, transactional_id: str) -> None:
        self._named += 1
        self._taken.add(transactional_id)
        player = ProcessPlayer(
            f"m{self._named}",
            transactional_id,
            self._cluster,
            self._plan,
            self._watch,
            random.Random(self._rng.random()),
            self._say,
        )
        self._say(f"{player.name} joins as {transactional_id}")
        self.players.append(player)
        await player.start()

    def _free(self, player: ProcessPlayer) -> None:
        if not player.retired:
            self._taken.discard(player.transactional_id)

    async def _part(self, player: Any) -> None:
        await player.leave()
        self._free(player)

    async def _crash_member(self) -> None:
        player: Any = self._take_player()
        if player is not None:
            await self._crash(player)

    async def _crash(self, player: ProcessPlayer) -> None:
        if player in self.players:
            self.players.remove(player)
        if player.dead or player.over:
            return
        self._say(f"{player.name} crashes")
        await player.crash()
        self._free(player)
        if not player.retired and self._rng.random() < 0.5:
            await self._begin(player.transactional_id)

    def _crash_at_request(self) -> None:
        """It crashes at one of its next requests, before or after that is executed."""
        player: Any = self._any_player()
        if player is None:
            return
        api, at = self._rng.choice(POINTS), self._rng.choice(("before", "after_append"))
        self._say(f"{player.name} is to crash at {api}, {at}")

        def act(_: object) -> None:
            self._later(self._crash(player))

        self._cluster.faults.on(api, act, at=at, times=1, client_id=player.name)

    async def _succeed(self) -> None:
        """Another member gets the transactional id of one that is alive, and may be cut off."""
        player: Any = self._any_player()
        if player is not None and not player.retired and not self._plan.static:
            self._say(f"{player.name} is to be fenced")
            player.retired = True
            await self._begin(player.transactional_id)

    def _interrupt(self) -> None:
        player: Any = self._any_player()
        if player is not None:
            player.interrupt()

    def _oversleep(self) -> None:
        player: Any = self._any_player()
        if player is not None:
            limit = self._rng.choice((self._plan.patience, self._plan.transaction_timeout))
            player.oversleep = limit * self._rng.choice((0.3, 0.9, 1.3))

    # Brokers

    def _move_transactions(self) -> None:
        up = self._up()
        if up:
            node_id = self._rng.choice(up)
            name = f"t{self._rng.randrange(MOST_MEMBERS)}"
            self._say(f"broker {node_id} is to coordinate {name}")
            seconds = self._rng.choice((0, 0, 0.3))
            self._cluster.brokers[node_id].transactions.load_seconds = seconds
            self._cluster.move_transaction_coordinator(name, node_id)

    def _move_at_request(self) -> None:
        """A coordinator moves when a broker has just got a request, which may arrive late."""
        api, late = self._rng.choice(("EndTxn", *MARKERS)), self._rng.choice((0.0, 0.3, 0.9))
        self._say(f"coordinators are to move at {api}, which takes {late} s")

        def act(_: object) -> None:
            up = self._up()
            if up:
                with contextlib.suppress(BrokerError):
                    for n in range(MOST_MEMBERS):
                        self._cluster.move_transaction_coordinator(f"t{n}", self._rng.choice(up))

        self._cluster.faults.on(api, act, times=1)
        self._cluster.faults.delay(api, late, times=1)

    def _slow_markers(self) -> None:
        """Transactions are decided, and take long to end."""
        seconds = self._rng.choice((0.3, 0.9, 2.0))
        self._say(f"markers take {seconds} s")
        fault = self._cluster.faults.delay("WriteTxnMarkers", seconds, times=None)
        self._later(self._wait(2.0, lambda: self._cluster.faults.remove(fault)))

    def _disconnect(self) -> None:
        one, other = self._rng.sample(list(self._cluster.brokers), 2)
        seconds = self._rng.choice((0.1, 0.5, 1.5))
        self._say(f"brokers {one} and {other} lose touch for {seconds} s")
        self._cluster.disconnect(one, other)
        self._later(self._wait(seconds, lambda: self._cluster.reconnect(one, other)))

    async def settle(self) -> None:
        """Wait for everything that goes on in the background."""
        await super().settle()
        await asyncio.gather(*(one.leave() for one in self.players))
        self.players.clear()
