"""What the tests of group members on virtual time have in common: recording hosts, and a scene.

``Worker`` is a host of a membership: it records each of its calls with the time. Its leader assigns
every member that member's name. Used by the tests of this folder only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kclient.cluster.coordinator import Coordinator
from kclient.cluster.core import ClientCore
from kclient.config import GroupMemberConfig
from kclient.errors import KafkaError
from kclient.group.member import Generation, JoinedMember, MemberProtocol, MemberState
from kclient.group.membership import Membership
from kclient.testing import Cluster

G = "workers"
SETTINGS: dict[str, Any] = {
    "session_timeout": 10.0,
    "heartbeat_interval": 3.0,
    "retry_backoff": 0.05,
    "retry_backoff_max": 0.2,
}


class Worker:
    """A member of the group, and the calls that it received.

    Attributes:
        reported: (call, detail), in order.
        at: When each call came.
        slow: By call, what to await in it.
        share: The latest assignment; None where there is none.
        wrong: What ``assign`` returns instead.
        useless: What ``assigned`` returns.
        failure: What ``failed`` was given.
        troubles: What ``on_join_refused`` was given.
    """

    protocol_type = "work"

    def __init__(self, cluster: Cluster, name: str, **settings: Any) -> None:
        self.name = name
        self.reported: list[tuple[str, Any]] = []
        self.at: list[float] = []
        self.slow: dict[str, Callable[[], Awaitable[object]]] = {}
        self.share: bytes | None = None
        self.wrong: KafkaError | None = None
        self.failure: KafkaError | None = None
        self.troubles: list[KafkaError] = []
        self.useless: KafkaError | None = None
        self.names = ["even"]
        rebalance_timeout = settings.pop("rebalance_timeout", 20.0)
        config = GroupMemberConfig(
            bootstrap=cluster.bootstrap, client_id=name, **{**SETTINGS, **settings}
        )
        self.core = ClientCore(config)
        self.coordinator = Coordinator(self.core, G)
        self.member = Membership(self.core, self.coordinator, config, G, rebalance_timeout, self)

    async def start(self) -> None:
        """Connect and join."""
        await self.core.start()
        self.member.start()
        self.member.rejoin("started")

    async def stop(self, timeout: float = 5.0, **options: Any) -> None:
        """Leave and close."""
        await self.member.close("stopped", self.core.clock.now() + timeout, **options)
        await self.core.close()

    async def _notify(self, what: str, detail: Any = None) -> None:
        self.reported.append((what, detail))
        self.at.append(self.core.clock.now())
        if what in self.slow:
            await self.slow[what]()

    # As a host

    def protocols(self) -> Sequence[MemberProtocol]:
        return [MemberProtocol(name, self.name.encode()) for name in self.names]

    async def prepare(self, deadline: float) -> None:
        await self._notify("prepare", deadline)

    def interrupt(self) -> None:
        self.reported.append(("interrupt", None))
        self.at.append(self.core.clock.now())

    def shorten_deadline(self, deadline: float) -> None:
        self.reported.append(("shorten_deadline", deadline))
        self.at.append(self.core.clock.now())

    async def assign(
        self, protocol: str, members: Sequence[JoinedMember], generation: Generation
    ) -> Mapping[str, bytes] | KafkaError:
        await self._notify("assign", [one.metadata.decode() for one in members])
        if self.wrong is not None:
            return self.wrong
        return {one.member_id: b"share of " + one.metadata for one in members}

    async def assigned(self, generation: Generation, assignment: bytes) -> KafkaError | None:
        self.share = assignment
        await self._notify("assigned", generation.generation_id)
        return self.useless

    async def leaving(self, deadline: float) -> None:
        await self._notify("leaving", deadline)
        self.share = None

    async def lost(self, error: KafkaError) -> None:
        self.share = None
        await self._notify("lost", error)

    def on_join_refused(self, error: KafkaError) -> None:
        self.troubles.append(error)

    def failed(self, error: KafkaError) -> None:
        self.failure = error
        self.reported.append(("failed", error))
        self.at.append(self.core.clock.now())

    # For checks

    @property
    def calls(self) -> list[str]:
        """The calls that it received, without details."""
        return [what for what, _ in self.reported]

    def count(self, what: str) -> int:
        """How often it received that call."""
        return self.calls.count(what)

    @property
    def state(self) -> MemberState:
        """The state of the membership."""
        return self.member.state

    @property
    def stable(self) -> bool:
        """Whether it is in the group and has received its assignment."""
        return self.state is MemberState.STABLE and self.share is not None


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until ``condition`` holds; check it every ten virtual milliseconds, later less often.

    After half a second the time between checks is a fiftieth of the time passed, 100 ms at most.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it is cheap on virtual time
            await asyncio.sleep(min(max(0.01, (loop.time() - began) / 50), 0.1))


def settled(workers: Sequence[Worker]) -> bool:
    """Wait until all are in the same generation."""
    generations = {w.member.generation.generation_id for w in workers if w.member.generation}
    return all(w.stable for w in workers) and len(generations) == 1


@asynccontextmanager
async def working(
    count: int = 1,
    *,
    brokers: int = 3,
    configs: dict[str, object] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Cluster, list[Worker]]]:
    """A cluster, and so many workers, all of them in one generation."""
    async with Cluster(brokers=brokers, broker_configs=configs) as cluster:
        workers = [Worker(cluster, f"w{n}", **settings) for n in range(count)]
        try:
            for worker in workers:
                await worker.start()
            await until(lambda: settled(workers))
            yield cluster, workers
        finally:
            for worker in workers:
                await worker.stop()
