"""How a consumer is: the values that ``Consumer.health()`` gives. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient.cluster.core import Health
    from kclient.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """One assigned partition.

    Attributes:
        phase: ``FETCHING`` where all is well, else what it waits for: ``NO_POSITION``,
            ``AWAITING_RESET`` or ``VALIDATING``.
        position: Offset of the next record to hand over; None while unknown.
        lag: Records between the position and the end that this reader can see; None if unknown,
            and where the partition is stalled: nobody knows then what was written meanwhile.
        paused: By ``pause``.
        node_id: Broker that is asked for it; None where there is none.
        buffered_bytes: Fetched and not handed over yet.
        failures: Tries in a row that brought nothing but an error, for it alone or for all that
            its broker was asked for.
        last_fetch_age: Seconds since its present broker last answered a fetch; None before that.
        stalled: It is to be read, but for ``fetch_max_wait`` + ``request_timeout`` seconds or more
            its broker has answered no fetch, and nothing of it waits to be handed over.
    """

    phase: str
    position: int | None
    lag: int | None
    paused: bool
    node_id: int | None
    buffered_bytes: int
    failures: int
    last_fetch_age: float | None
    stalled: bool


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """One consumer.

    Attributes:
        client: Its connections, metadata and internal tasks.
        partitions: The assigned ones.
        lag: Sum over the partitions of which it is known; None if it is known of none, and while
            a partition is stalled.
        last_fetch_age: Seconds since any broker last answered a fetch; None before the first.
        last_error: Why the latest fetch failed as a whole, as text; None after one that didn't.
        buffered_bytes: Memory of the responses that wait to be handed over.
    """

    client: Health
    partitions: dict[TopicPartition, PartitionHealth]
    lag: int | None
    last_fetch_age: float | None
    last_error: str | None
    buffered_bytes: int

    @property
    def ok(self) -> bool:
        """The client runs, fetches succeed, every partition has a position and a broker, and none
        is stalled."""
        return (
            self.client.ok
            and self.last_error is None
            and all(
                part.phase == "FETCHING" and part.node_id is not None and not part.stalled
                for part in self.partitions.values()
            )
        )
