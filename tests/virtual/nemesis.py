"""What breaks while the workload runs: brokers, connections, the network, and responses.

``simulation`` runs one ``Nemesis`` beside the workload and calls ``heal`` at its end. Each fault is
noted in the history. What is broken heals after a while, and after some faults all is healed for a
moment, so that runs get somewhere; in between, all brokers may be down at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError
from kclient.testing import Cluster, MemoryNet
from tests.history import History

REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
)
"""Error responses to a Produce that was not processed."""
REGRETS = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
"""Error responses to a Produce that was processed all the same."""
DENIALS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""Error responses to an unprocessed Produce, by a broker that has lost its producer state."""
TROUBLES = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
)
"""Error responses to a Fetch."""
SESSION_TROUBLES = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


class Nemesis:
    """Breaks a cluster.

    Args:
        pause: Mean seconds between two faults.

    Attributes:
        crashes: Brokers that it crashed.
    """

    def __init__(
        self,
        cluster: Cluster,
        net: MemoryNet,
        history: History,
        rng: random.Random,
        pause: float,
    ) -> None:
        self._cluster = cluster
        self._net = net
        self._history = history
        self._rng = rng
        self._pause = pause
        self._latency = net.latency
        self._repairs: set[asyncio.Task[None]] = set()
        self.crashes = 0

    async def run(self) -> None:
        """Break things for ever: storms, and calms in which clients may get on."""
        kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._crash: 14,
            self._stop: 5,
            self._cut: 12,
            self._cut_at_a_byte: 14,
            self._freeze: 8,
            self._blackhole: 7,
            self._refuse: 6,
            self._slow_down: 6,
            self._trickle: 3,
            self._move_leaders: 16,
            self._lose_answers: 14,
            self._hold: 8,
            self._refuse_produce: 14,
            self._deny_produce: 5,
            self._regret_produce: 8,
            self._trouble_fetch: 8,
            self._throttle: 3,
            self._add_partition: 1,
        }
        while True:
            faults = self._rng.randrange(5, 30)
            for fault in self._rng.choices(list(kinds), list(kinds.values()), k=faults):
                await asyncio.sleep(self._rng.expovariate(1 / self._pause))
                await fault()
            await self.heal()
            await asyncio.sleep(self._seconds(0.1, 2.0))

    async def heal(self) -> None:
        """Heal everything that was broken on purpose; the run's own network settings stay."""
        for task in list(self._repairs):
            task.cancel()
        await asyncio.gather(*self._repairs, return_exceptions=True)
        self._net.heal()
        self._net.latency = self._latency
        self._cluster.faults.clear()
        for node_id, broker in self._cluster.brokers.items():
            if not broker.running:
                await self._cluster.restart(node_id)
        self._history.note("healed")

    # Brokers.

    async def _crash(self) -> None:
        await self._take_down(self._cluster.crash, "crash")

    async def _stop(self) -> None:
        await self._take_down(self._cluster.stop, "stop")

    async def _take_down(self, end: Callable[[int], Coroutine[Any, Any, None]], what: str) -> None:
        running = [node for node, broker in self._cluster.brokers.items() if broker.running]
        if not running:
            return
        node_id = self._rng.choice(running)
        self.crashes += what == "crash"
        self._history.note(f"{what} broker {node_id}")
        await end(node_id)
        self._later(self._seconds(0.1, 2.0), f"restart broker {node_id}", self._restart, node_id)

    async def _restart(self, node_id: int) -> None:
        if not self._cluster.brokers[node_id].running:
            await self._cluster.restart(node_id)

    async def _move_leaders(self) -> None:
        for _ in range(self._rng.choice((1, 2, 4))):
            topic = self._rng.choice(self._cluster.topics)
            partition = self._rng.randrange(self._cluster.partition_count(topic))
            node_id = self._rng.choice(list(self._cluster.brokers))
            try:
                self._cluster.move_leader(topic, partition, node_id)
            except BrokerError:
                continue  # it is down
            self._history.note(f"broker {node_id} leads {topic}-{partition}")

    async def _add_partition(self) -> None:
        topic = self._rng.choice(self._cluster.topics)
        if all(broker.running for broker in self._cluster.brokers.values()):
            self._cluster.add_partitions(topic, self._cluster.partition_count(topic) + 1)
            self._history.note(f"one more partition of {topic}")

    # The network.

    async def _cut(self) -> None:
        address = self._rng.choice((None, *self._addresses()))
        self._history.note(f"cut {address or 'all'}: {self._net.cut(address)}")

    async def _cut_at_a_byte(self) -> None:
        address = self._rng.choice((None, *self._addresses()))
        direction = self._rng.choice(("to_client", "to_server"))
        passed = [
            (link.to_client if direction == "to_client" else link.to_server).passed
            for link in self._net.links
            if address in (None, link.address)
        ]
        byte = self._rng.choice(passed or [0]) + self._rng.randrange(1, 400)
        self._history.note(f"cut {address or 'any'} {direction} at byte {byte}")
        self._net.cut_at(address, byte=byte, direction=direction)

    async def _freeze(self) -> None:
        direction = self._rng.choice((None, "to_client", "to_server"))
        address = self._address()
        self._net.freeze(address, direction)
        self._break(f"freeze {address} {direction or ''}", address, 2.5)

    async def _blackhole(self) -> None:
        address = self._address()
        self._net.blackhole(address)
        self._break(f"blackhole {address}", address, 2.5)

    async def _refuse(self) -> None:
        address = self._address()
        self._net.refuse(address)
        self._net.cut(address)
        self._break(f"refuse {address}", address, 1.5)

    async def _trickle(self) -> None:
        address = self._address()
        self._net.trickle(address, bytes_per_second=self._rng.choice((300, 3_000)))
        self._break(f"trickle {address}", address, 3.0)

    async def _slow_down(self) -> None:
        longest = self._rng.choice((0.05, 0.3, 1.0))
        self._history.note(f"pieces travel up to {longest} s")
        self._net.latency = (self._latency[0], longest)
        self._later(self._seconds(0.2, 3.0), "pieces travel as before", self._speed_up)

    async def _speed_up(self) -> None:
        self._net.latency = self._latency

    def _break(self, what: str, address: str, longest: float) -> None:
        self._history.note(what)
        self._later(self._seconds(0.1, longest), f"heal {address}", self._heal_address, address)

    async def _heal_address(self, address: str) -> None:
        self._net.heal(address)

    # Responses.

    async def _lose_answers(self) -> None:
        faults, api = self._cluster.faults, self._rng.choice(("Produce", "Produce", "Fetch"))
        times = self._rng.choice((1, 1, 3))
        if self._rng.random() < 0.6:
            faults.close(api, after=True, times=times)
        else:
            faults.drop(api, after=True, times=times)
        self._history.note(f"lose {times} answers to {api}")

    async def _hold(self) -> None:
        api = self._rng.choice(("Produce", "Fetch", "Metadata"))
        after = self._rng.random() < 0.5
        seconds = self._seconds(0.05, 3.0)
        self._cluster.faults.delay(api, seconds, after=after, times=self._rng.choice((1, 3)))
        self._history.note(f"delay {api} {'answers' if after else 'requests'} by {seconds:.3f} s")

    async def _refuse_produce(self) -> None:
        self._answer("Produce", self._rng.choice(REFUSALS), after=False)

    async def _deny_produce(self) -> None:
        self._answer("Produce", self._rng.choice(DENIALS), after=False)

    async def _regret_produce(self) -> None:
        self._answer("Produce", self._rng.choice(REGRETS), after=True)

    async def _trouble_fetch(self) -> None:
        if self._rng.random() < 0.4:
            self._cluster.faults.error("Fetch", self._rng.choice(SESSION_TROUBLES))
            self._history.note("a fetch session is lost")
            return
        topic = self._rng.choice(self._cluster.topics)
        if self._rng.random() < 0.3:
            self._cluster.faults.corrupt_fetch(topic, 0)
            self._history.note(f"corrupt a fetch of {topic}-0")
            return
        self._answer("Fetch", self._rng.choice(TROUBLES), after=False)

    def _answer(self, api: str, code: ErrorCode, *, after: bool) -> None:
        topic = self._rng.choice(self._cluster.topics)
        times = self._rng.choice((1, 1, 2, 4))
        self._cluster.faults.error(api, code, topic=topic, after=after, times=times)
        self._history.note(f"answer {times} x {api} of {topic} with {code.name} {after=}")

    async def _throttle(self) -> None:
        api = self._rng.choice(("Produce", "Fetch"))
        self._cluster.faults.throttle(api, self._seconds(0.05, 1.0))
        self._history.note(f"throttle {api}")

    # Means.

    def _seconds(self, shortest: float, longest: float) -> float:
        return self._rng.uniform(shortest, longest)

    def _addresses(self) -> list[str]:
        return [broker.address for broker in self._cluster.brokers.values()]

    def _address(self) -> str:
        return self._rng.choice(self._addresses())

    def _later(
        self,
        seconds: float,
        what: str,
        repair: Callable[..., Coroutine[Any, Any, None]],
        *args: object,
    ) -> None:
        async def run() -> None:
            await asyncio.sleep(seconds)
            self._history.note(what)
            await repair(*args)

        task = asyncio.get_running_loop().create_task(run(), name=what)
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)
