"""Which broker is sent a fetch request for which partitions, and when, sans-IO.

Driven by ``fetcher``. Each broker has one queue with its fetch session and at most one request in
flight. Nothing here looks at all partitions per request: every change of one calls ``touch``, and
the next request of its broker examines the touched ones only.

A partition with enough data waiting is held back. A long poll for the others would then delay the
next request for it just when its data runs out, so as long as any is held back the broker gets
requests that don't wait there, and not more often than every ``SHORT_POLL`` seconds.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Final

from kclient.consumer.fetch_session import FetchSession, PartitionFetch
from kclient.consumer.partition_state import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kclient.cluster.view import Cluster
    from kclient.consumer.fetch_buffer import FetchBuffer
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.types import TopicPartition

SHORT_POLL: Final = 0.05
"""Seconds between two requests that don't wait at the broker."""
FROM_LEADER: Final = 5.0
"""Seconds for which the leader is read if it prefers a replica that the view has no broker for."""
HASTY_FREE: Final = 3
"""Hasty responses in a row that are no failure."""
SHORTEST: Final = 0.005
"""Seconds between two requests to a broker that keeps responding so, at least."""
HASTY_PACE: Final = 0.1
"""The next request waits for this part of the time since the first hasty response: a new leader
whose high watermark lags for some tenths of a second responds so, too."""
NEVER: Final = math.inf


class BrokerQueue:
    """What is requested from one broker.

    Attributes:
        node_id: The broker.
        session: What it knows of our requested partitions.
        partitions: The partitions that are routed to it, in the order of their routing.
        in_flight: A request is in flight.
        retry_at: No request is sent before this time, after failures.
        failures: Requests in a row that failed as a whole.
        failing_since: When the first of them did, or poll last raised their error.
        reported_at: When poll last raised their error.
        answered_at: When it last responded well; None before the first time.
        waiting_since: When the first request was sent after that; None where there is none.
        hasty: Responses in a row that brought nothing though the broker had time to wait for data.
        hasty_since: When the first of them came.
        unknown_replica, from_leader_until: Preferred replica (KIP-392) that the view lacked, and
            until when the leader is read in its place.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session = FetchSession()
        self.partitions: dict[TopicPartition, None] = {}
        self.in_flight = False
        self.retry_at = 0.0
        self.failures = 0
        self.failing_since = 0.0
        self.reported_at = -NEVER
        self.answered_at: float | None = None
        self.waiting_since: float | None = None
        self.hasty = 0
        self.hasty_since = -NEVER
        self.unknown_replica = -1
        self.from_leader_until = -NEVER
        self._touched: dict[TopicPartition, None] = {}
        self._retries: list[tuple[float, TopicPartition]] = []
        self._held: set[TopicPartition] = set()
        self._last_request = -NEVER

    def touch(self, partition: TopicPartition) -> bool:
        """Mark ``partition`` as changed. True where it is the first one since the last request."""
        touched = self._touched
        first = not touched
        touched[partition] = None
        return first

    def due(
        self, now: float, subscription: Subscription, buffer: FetchBuffer, partition_bytes: int
    ) -> float:
        """When the next request may be sent: ``now`` or before, later, or NEVER until touched."""
        if self.in_flight:
            return NEVER
        while self._retries and self._retries[0][0] <= now:
            self.touch(heapq.heappop(self._retries)[1])
        if self._touched:
            self._look_at_touched(now, subscription, buffer, partition_bytes)
        if not self.session.asked:
            return self._retries[0][0] if self._retries else NEVER
        if not buffer.has_space:
            return NEVER
        if self.holds_back:
            return max(self.retry_at, self._last_request + SHORT_POLL)
        return self.retry_at

    @property
    def holds_back(self) -> bool:
        """Whether a partition isn't fetched only because enough of it waits for poll."""
        return bool(self._held)

    def note_reported(self, now: float) -> None:
        """Record that poll raises its failures, which need not be raised again soon."""
        self.failing_since = self.reported_at = now

    def begin(self, now: float) -> None:
        """Record that a request is being sent."""
        self.in_flight = True
        self._last_request = now
        if self.waiting_since is None:
            self.waiting_since = now

    def answered(self, now: float, *, hasty: bool = False, slowest: float = NEVER) -> None:
        """Record that the request succeeded.

        Several ``hasty`` responses in a row count as none at all, and the next request waits ever
        longer, up to ``slowest`` seconds.
        """
        self.failures = 0
        if not hasty:
            self.hasty = 0
        elif self.hasty == 0:
            self.hasty, self.hasty_since = 1, now
        else:
            self.hasty += 1
        if self.hasty > HASTY_FREE:
            wait = max(SHORTEST, HASTY_PACE * (now - self.hasty_since))
            self.retry_at = now + min(wait, slowest)
            return
        self.answered_at = now
        self.waiting_since = None

    def end(self) -> None:
        """Record that the request has its outcome."""
        self.in_flight = False

    def _look_at_touched(
        self, now: float, subscription: Subscription, buffer: FetchBuffer, partition_bytes: int
    ) -> None:
        session, held, fetching = self.session, self._held, Phase.FETCHING
        asked = session.asked
        for partition in self._touched:
            state = subscription.get(partition)
            if held:
                held.discard(partition)
            if (
                state is None
                or state.node_id != self.node_id
                or state.phase is not fetching
                or state.paused
                or state.fetch_offset is None
            ):
                pass  # there is nothing to fetch, or it isn't wanted
            elif state.retry_at > now:
                heapq.heappush(self._retries, (state.retry_at, partition))
            elif state.buffered_bytes and buffer.is_full(state):
                held.add(partition)
            else:
                session.want(
                    partition,
                    PartitionFetch(
                        state.fetch_offset, partition_bytes, state.leader_epoch, state.topic_id
                    ),
                )
                continue
            if partition in asked:
                session.forget(partition)
        self._touched = {}


class FetchScheduler:
    """The queues of all brokers, and which partition belongs to which.

    Attributes:
        queues: By node id.
        unrouted: Partitions without a broker to fetch from, and since when.
    """

    def __init__(
        self,
        subscription: Subscription,
        buffer: FetchBuffer,
        *,
        partition_bytes: int,
        on_touched: Callable[[BrokerQueue], None],
    ) -> None:
        """``on_touched`` is called with a queue that may have something to request."""
        self._subscription = subscription
        self._buffer = buffer
        self._partition_bytes = partition_bytes
        self._on_touched = on_touched
        self._view: Cluster | None = None
        self._next_expiry = NEVER
        self.queues: dict[int, BrokerQueue] = {}
        self.unrouted: dict[TopicPartition, float] = {}

    def due(self, queue: BrokerQueue, now: float) -> float:
        """When the next request to the broker of ``queue`` may be sent."""
        if now >= self._next_expiry:
            self._end_replicas(now)
        return queue.due(now, self._subscription, self._buffer, self._partition_bytes)

    def follow_view(self, view: Cluster, states: Iterable[PartitionState], now: float) -> None:
        """The cluster changed for ``states``: route each to the broker it can be read from now."""
        self._view = view
        for state in states:
            self.route(state, now)

    def follow(self, states: Iterable[PartitionState], now: float) -> None:
        """Follow changes of partitions: sought, paused, assigned, revoked ..."""
        for state in states:
            if state.node_id is None or not state.assigned:
                self.route(state, now)
            else:
                self.touch(state)

    def route(self, state: PartitionState, now: float) -> None:
        """Find the broker to fetch ``state`` from: its preferred replica, else its leader."""
        partition = state.topic_partition
        node_id = self._node_for(state, now) if state.assigned else None
        if node_id is None and state.assigned:
            self.unrouted.setdefault(partition, now)
        elif self.unrouted:
            self.unrouted.pop(partition, None)
        if node_id != state.node_id:
            if state.node_id is not None:
                self._leave(state, self.queues[state.node_id])
            if node_id is not None:
                queue = self.queues.get(node_id)
                if queue is None:
                    queue = self.queues[node_id] = BrokerQueue(node_id)
                queue.partitions[partition] = None
                state.node_id = node_id
                if state.retry_at:  # the wait was for the former one
                    self._subscription.retry_now(state)  # comes back here by ``follow``
                else:
                    self.touch(state)

    def touch(self, state: PartitionState) -> None:
        """Mark ``state`` as changed in the queue of its broker."""
        if state.node_id is not None:
            queue = self.queues[state.node_id]
            if queue.touch(state.topic_partition):
                self._on_touched(queue)

    def prefer(self, state: PartitionState, replica: int, until: float, now: float) -> bool:
        """Read from ``replica``, which the leader prefers (KIP-392).

        Where the view lacks it, as it may after a restart, the leader is read for ``FROM_LEADER``
        seconds, or until the view has it. True where metadata is to be refreshed: once for each
        such time.
        """
        if self._view is not None and replica not in self._view.brokers:
            queue = self.queues.get(state.node_id) if state.node_id is not None else None
            if queue is None or self.reads_leader(queue, now):
                return False
            queue.unknown_replica, queue.from_leader_until = replica, now + FROM_LEADER
            return True
        state.replica, state.replica_until = replica, until
        self._next_expiry = min(self._next_expiry, until)
        self.route(state, now)
        return False

    def reads_leader(self, queue: BrokerQueue, now: float) -> bool:
        """Whether requests to the broker leave out our rack, so that it sends records itself."""
        if now >= queue.from_leader_until:
            return False
        return self._view is None or queue.unknown_replica not in self._view.brokers

    def _end_replicas(self, now: float) -> None:
        """Preferred replicas are valid for a while; then the leader is used again."""
        preferring = [state for state in self._subscription if state.replica is not None]
        self._next_expiry = min(
            (state.replica_until for state in preferring if state.replica_until > now),
            default=NEVER,
        )
        self.back_to_leader([s for s in preferring if s.replica_until <= now], now)

    def back_to_leader(self, states: Iterable[PartitionState], now: float) -> None:
        """Stop reading from the preferred replica of these partitions, which doesn't serve."""
        for state in states:
            if state.replica is not None:
                state.replica = None
                self.route(state, now)

    def states_of(self, queue: BrokerQueue) -> list[PartitionState]:
        """The partitions that are routed to one broker."""
        found = map(self._subscription.get, queue.partitions)
        return [state for state in found if state is not None]

    def remove(self, queue: BrokerQueue) -> None:
        """Remove ``queue``; a partition that is routed to its broker later gets a new one."""
        if self.queues.get(queue.node_id) is queue:
            del self.queues[queue.node_id]

    def _node_for(self, state: PartitionState, now: float) -> int | None:
        view = self._view
        if view is None:
            return None
        if state.replica is not None:
            if now < state.replica_until and state.replica in view.brokers:
                return state.replica
            state.replica = None  # also an unknown node: it must not strand the partition
        leader = view.leader(*state.topic_partition)
        return leader if leader in view.brokers else None

    def _leave(self, state: PartitionState, queue: BrokerQueue) -> None:
        queue.partitions.pop(state.topic_partition, None)
        if queue.touch(state.topic_partition):
            self._on_touched(queue)
        state.node_id = None
