"""Detects partitions that can't be read, sans-IO: poll raises an error instead of staying silent.

``poller`` calls ``StallDetector`` for partitions that get no responses. ``positions`` calls
``unrouted_error`` for those that ``FetchScheduler`` found no broker for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kclient.broker_errors import LeaderNotAvailable, UnknownTopicOrPartition
from kclient.consumer.fetch_scheduler import HASTY_FREE
from kclient.consumer.partition_state import Phase
from kclient.error_codes import TABLE, ErrorCode
from kclient.errors import ConsumerStalled, broker_error, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kclient.cluster.view import Cluster
    from kclient.consumer.fetch_scheduler import BrokerQueue
    from kclient.consumer.partition_state import PartitionState
    from kclient.errors import KafkaError
    from kclient.types import TopicPartition

LOOKS = 10
"""Checks per patience; all partitions are walked in each."""
SUSPICIOUS = 0.8
"""Part of the patience after which a partition is suspected. A single check never raises: where the
loop or the process stood still, there may be responses that were not processed yet."""
UNKNOWN_GRACE: Final = 5.0
"""Seconds that a new topic may take until every broker knows it."""
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_Mark = tuple[Phase, int, int | None]


class StallDetector:
    """Knows since when each partition that is wanted has had no response.

    It doesn't rely on the fetch tasks: it only checks whether each assigned partition that is
    wanted was part of a request that its broker has responded well to lately, whatever the state of
    the other modules; one whose position isn't known yet was not.

    Args:
        patience: Seconds without a response after which a partition is stalled.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[PartitionState, tuple[_Mark, float]] = {}
        self._suspects: dict[PartitionState, tuple[int | None, float]] = {}
        self._reported: dict[PartitionState, tuple[_Mark, float]] = {}
        self.next_look = 0.0
        """When ``check`` runs next."""

    def has_reported(
        self, state: PartitionState, queues: Mapping[int, BrokerQueue], now: Callable[[], float]
    ) -> bool:
        """Whether a stall of ``state`` was raised, and it has had no response since."""
        if state not in self._reported:
            return False
        since = self._waits_since(state, queues, now())
        return self._reported[state] == (_mark(state), since)

    def check(
        self,
        states: Iterable[PartitionState],
        queues: Mapping[int, BrokerQueue],
        now: float,
        *,
        full: bool = False,
        throttled: Collection[int] = (),
    ) -> None:
        """Raise ConsumerStalled where a partition has had no response for too long.

        It is raised again after as long. ``full``: nothing is fetched, for want of memory.
        ``throttled``: Brokers that a quota forbids requests to (KIP-219), which is no stall.
        """
        if now < self.next_look:
            return
        self.next_look = now + self._patience / LOOKS
        waiting, suspects = {}, {}
        stalled = []
        for state in states:
            since = None if full else self._waits_since(state, queues, now)
            if throttled and _is_throttled(state, throttled):
                since = None
            if since is None:
                continue
            waiting[state] = (_mark(state), since)
            if now - since >= self._patience * SUSPICIOUS:
                suspects[state] = node, suspected = self._suspects.get(state, (state.node_id, now))
                if node != state.node_id:
                    suspects[state] = state.node_id, now
                elif now - since >= self._patience and now > suspected:
                    stalled.append(state)
        self._since, self._suspects = waiting, suspects
        self._reported = {
            state: since for state, since in self._reported.items() if waiting.get(state) == since
        }
        if stalled:
            seconds = max(now - waiting[state][1] for state in stalled)
            for state in stalled:
                waiting[state] = self._reported[state] = (_mark(state), now)
                queue = queues.get(state.node_id) if state.node_id is not None else None
                if queue is not None:
                    queue.note_reported(now)
                del suspects[state]
            first = stalled[0].node_id
            raise _error(stalled, seconds, queues.get(first) if first is not None else None)

    def _waits_since(
        self, state: PartitionState, queues: Mapping[int, BrokerQueue], now: float
    ) -> float | None:
        """Since when it has had no response; None where none is expected."""
        if state.paused or state.buffered_bytes or state.phase is Phase.NO_POSITION:
            return None
        mark = _mark(state)
        known, since = self._since.get(state, (mark, now))
        if known != mark or state.error is not None:
            since = now  # poll raises what is known about it
        queue = queues.get(state.node_id) if state.node_id is not None else None
        if queue is None or state.topic_partition not in queue.session.asked:
            return since
        answered = queue.answered_at
        latest = queue.reported_at if answered is None else max(queue.reported_at, answered)
        return since if latest <= since else min(latest, now)


def _is_throttled(state: PartitionState, throttled: Collection[int]) -> bool:
    """Whether it may wait because of a quota: of its broker, or of its group's coordinator."""
    return state.node_id in throttled or state.phase is Phase.AWAITING_COMMITTED


def _mark(state: PartitionState) -> _Mark:
    """Its state: if it differs from that at the previous check, the patience starts over."""
    return state.phase, state.restarts, state.fetch_offset


def _error(
    stalled: list[PartitionState], seconds: float, queue: BrokerQueue | None
) -> ConsumerStalled:
    first = stalled[0]
    named = some_of([state.topic_partition for state in stalled])
    where = "no broker" if first.node_id is None else f"broker {first.node_id}"
    if first.phase is Phase.FETCHING:
        what = f"asked of {where}, at offset {first.fetch_offset}"
        if queue is not None and queue.hasty > HASTY_FREE:
            what += f"; its {queue.hasty} latest responses came at once, with nothing"
    else:
        what = f"{first.phase.name}, {where}"
    return ConsumerStalled(
        f"no fetch of {named} was answered well for {seconds:.1f} s ({what})",
        topic_partition=first.topic_partition,
        hint="it goes on by itself once the broker answers: poll again; see health()",
    )


def unrouted_error(
    view: Cluster, partition: TopicPartition, waited: float, patience: float, *, unknown: bool
) -> KafkaError | None:
    """The error why ``partition`` can't be read; None as long as it may become readable.

    One without a leader is waited for, though not for ever in silence; a topic that doesn't exist,
    or that may not be seen, is an error that poll raises, again and again but with a delay, while
    the others go on.

    Args:
        view: The current view of the cluster.
        partition: One without a broker to fetch from.
        waited: Seconds for which that has been so.
        patience: Seconds after which poll raises even an error that may pass by itself.
        unknown: Brokers have reported for ``UNKNOWN_GRACE`` seconds that they don't know its topic;
            a single response proves nothing, as its broker may lag behind.
    """
    error = _final(view, partition, waited, unknown=unknown)
    if error is None and waited >= patience:
        return LeaderNotAvailable(
            f"{partition} has had no leader that can be asked for {waited:.0f} s",
            topic_partition=partition,
        )
    return error


def _final(
    view: Cluster, partition: TopicPartition, waited: float, *, unknown: bool
) -> KafkaError | None:
    topic = view.topic(partition.topic)
    if topic is None:
        return None  # no response about it yet
    code = view.topic_error(partition.topic)
    if code and code not in _UNKNOWN:
        info = TABLE.get(code)
        if info is not None and info.retriable:
            return None
        return broker_error(code, f"{partition} can't be read", topic_partition=partition)
    if waited < UNKNOWN_GRACE or (code and not unknown):
        return None
    if code:
        return UnknownTopicOrPartition(
            f"{partition} can't be read: the brokers don't know topic {partition.topic}, "
            f"asked for {waited:.1f} s",
            topic_partition=partition,
            hint="create the topic, or check its spelling",
        )
    count = view.partition_count(partition.topic)
    if count is not None and partition.partition >= count:
        return UnknownTopicOrPartition(
            f"{partition} can't be read: topic {partition.topic} has {count} partitions, "
            f"0 to {count - 1}",
            topic_partition=partition,
            hint="assign partitions that exist; see partitions_for()",
        )
    return None
