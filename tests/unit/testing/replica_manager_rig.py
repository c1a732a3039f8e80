"""Three brokers without listeners, with running partitions, for tests of ``replica_manager.py``.

``on`` runs a scene on virtual time. Broker 1 is the controller; broker 2 leads t-0, and the scene
fetches as its followers do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from kclient.testing import VirtualLoop, run_virtually
from kclient.testing.broker_configs import BrokerConfig
from kclient.testing.control_plane import ControlPlane
from kclient.testing.controller import Controller
from kclient.testing.image import BrokerRegistration, MetadataImage
from kclient.testing.replica import Replica
from kclient.testing.replica_manager import ReplicaManager, key_of
from tests.unit.testing.batches import NOW, stored

LAG = 30.0
"""Kafka's ``replica.lag.time.max.ms``."""


class Box:
    """A broker without listeners: its partitions, and its notifications."""

    def __init__(self, node_id: int, control_plane: ControlPlane, rack: str | None) -> None:
        self.node_id = node_id
        self._rack = rack
        self._began = self.now()
        self.replica_manager = ReplicaManager(node_id, control_plane, self)

    def facts(self) -> BrokerRegistration:
        return BrokerRegistration(self.node_id, "127.0.0.1", self._rack, 9092)

    def apply(self, image: MetadataImage) -> None:
        if image.version > self.replica_manager.replicas.image.version:
            self.replica_manager.apply(image)

    def links_changed(self) -> None:
        self.replica_manager.links_changed()

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return NOW + int((self.now() - self._began) * 1000)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


class Realm:
    """Three brokers, the first one the controller; broker 2 leads t-0, and the others follow."""

    def __init__(self, *replicas: int, configs: dict[str, str], racks: tuple[str, ...]) -> None:
        image = MetadataImage("cluster", BrokerConfig(configs))
        self.control_plane = ControlPlane(image, random.Random(1))
        self.control_plane.links.later = self._later
        self._under_way: list[asyncio.TimerHandle] = []
        self.boxes: dict[int, Box] = {}
        for node_id in (1, 2, 3):
            self.up(node_id, racks[node_id - 1] if racks else None)
        self.create("t", replicas)
        self.fetch_all()

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._under_way.append(asyncio.get_running_loop().call_later(seconds, callback))

    def close(self) -> None:
        """Close all brokers, and drop all messages in flight."""
        for box in self.boxes.values():
            box.replica_manager.close()
        self.control_plane.close()
        for one in self._under_way:
            one.cancel()

    def up(self, node_id: int, rack: str | None = None) -> None:
        box = self.boxes[node_id] = Box(node_id, self.control_plane, rack)
        self.control_plane.join(box)

    def down(self, node_id: int) -> None:
        self.control_plane.leave(node_id)
        self.boxes[node_id].replica_manager.close()

    @property
    def reign(self) -> Controller:
        """The active controller."""
        found = self.control_plane.controller
        assert found is not None
        return found

    def create(self, name: str, *assignments: tuple[int, ...]) -> None:
        self.reign.create_topic(name, assignments, self.control_plane.image.topic_config({}))

    def move(self, node_id: int) -> None:
        """Move the leadership to another broker."""
        self.reign.move_leader("t", 0, node_id)

    def part(self, one: int, other: int) -> None:
        self.control_plane.links.part([(one, other)])

    def mend(self) -> None:
        self.control_plane.links.join()

    def delay(self, seconds: float, sender: int = 1) -> None:
        """Delay messages from ``sender`` to other brokers by so many seconds, from now on."""
        self.control_plane.links.delay = lambda one, _: seconds if one == sender else 0.0

    @property
    def leader(self) -> ReplicaManager:
        return self.boxes[2].replica_manager

    def replica(self, node_id: int = 2) -> Replica:
        found = self.boxes[node_id].replica_manager.replicas.get("t", 0)
        assert found is not None
        return found

    def append(self, count: int = 1, *, timestamp: int = NOW) -> None:
        self.leader.append(self.replica(), stored(count, timestamp=timestamp), None)

    def fetch(self, follower: int, offset: int) -> None:
        self.leader.fetched_by(self.replica(), follower, offset, 0)
        self.leader.send_isr_changes()

    def fetch_all(self) -> None:
        """Let all followers fetch up to the leader's log end."""
        for one in self.replica().followers:
            self.fetch(one, self.replica().log.end_offset)

    async def lag(self, node_id: int) -> None:
        """Let a follower lag by one record until it leaves the ISR."""
        self.append()
        for one in self.replica().followers:
            if one != node_id:
                self.fetch(one, self.replica().log.end_offset)
        await asyncio.sleep(LAG + 0.1)
        assert node_id not in self.isr

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR according to the controller."""
        found = self.control_plane.image.partition("t", 0)
        assert found is not None
        return found.isr

    @property
    def committed(self) -> int:
        return self.replica().log.high_watermark

    def news(self, follower: int) -> bool:
        """Return whether the leader has news for a follower."""
        return key_of(self.replica()) in self.leader.follower_state(follower).news

    def reported(self, follower: int) -> None:
        """Mark all news as delivered to the follower."""
        self.leader.follower_state(follower).news.clear()


Scene = Callable[[Realm], Coroutine[Any, Any, None]]


def on(
    *replicas: int, configs: dict[str, str] | None = None, racks: tuple[str, ...] = ()
) -> Callable[[Scene], None]:
    """Return a decorator that runs a scene on virtual time; no timer may be left at its end."""

    def run(act: Scene) -> None:
        async def main() -> None:
            realm = Realm(*(replicas or (2, 3)), configs=configs or {}, racks=racks)
            await act(realm)
            realm.close()
            assert timers() == 0

        run_virtually(main())

    return run


def timers() -> int:
    """Return the number of pending timers."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return sum(not one.cancelled() for one in loop._scheduled)
