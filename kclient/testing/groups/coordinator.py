"""``GroupCoordinator``: a broker's groups, in shards of ``__consumer_offsets``.

Made by ``Broker`` and called by the handlers of the group APIs.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from kclient.testing.broker_configs import GroupSettings
from kclient.testing.coordinator import Coordinator
from kclient.testing.groups.classic_group import ClassicGroup
from kclient.testing.groups.shard import Shard
from kclient.testing.image import OFFSETS_TOPIC
from kclient.testing.internal_topic import InternalTopic
from kclient.testing.timers import Moment

if TYPE_CHECKING:
    from kclient.testing.broker import Broker


class GroupCoordinator(Coordinator[Shard]):
    """Groups of one broker.

    Attributes:
        settings: From the broker's configuration.
    """

    def __init__(self, broker: Broker, settings: GroupSettings, rng: random.Random) -> None:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.segment_bytes),
        }
        super().__init__(
            broker,
            InternalTopic(
                broker, OFFSETS_TOPIC, settings.partitions, settings.replication_factor, configs
            ),
        )
        self.settings = settings
        self._rng = rng

    def _new_shard(self, index: int, epoch: int) -> Shard:
        return Shard(self, partial(self.append, index), epoch)

    def known(self) -> list[ClassicGroup]:
        """All groups of this broker. Raises ApiError: COORDINATOR_LOAD_IN_PROGRESS."""
        found: list[ClassicGroup] = []

        def add(moment: Moment) -> None:
            for shard in shards:
                found.extend(shard.known(moment))

        shards = self.led()
        self.run(add)
        return found

    def end_transaction(self, index: int, producer_id: int, committed: bool) -> None:
        """The marker that ends a transaction is committed in a partition's log."""
        shard = self._shards.get(index)
        if shard is not None:
            self.run(lambda _: shard.end_transaction(producer_id, committed))

    # Called by shards

    def new_id(self) -> str:
        """A UUID as text, drawn with the cluster's seed."""
        digits = self._rng.randbytes(16).hex()
        parts = (digits[:8], digits[8:12], f"4{digits[13:16]}", f"a{digits[17:20]}", digits[20:])
        return "-".join(parts)

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, None if it doesn't exist."""
        found = self._broker.image.topics.get(topic)
        return None if found is None else found.topic_id
