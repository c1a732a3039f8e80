"""Health of a consumer and of its ``run``: the values of ``health()`` and ``run_health()``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient.consumer.partition_state import Phase
from kclient.frozen import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kclient.cluster.core import Health
    from kclient.consumer.engine import Engine
    from kclient.consumer.partition_state import PartitionState
    from kclient.group.membership import MembershipHealth
    from kclient.types import TopicPartition

FAILING = 3
"""Failed tries in a row from which on a partition isn't healthy: fewer are an election."""


@dataclass(frozen=True, slots=True)
class PartitionHealth(Snapshot):
    """One assigned partition.

    Attributes:
        phase: ``FETCHING`` where it has a position to read from, else what it waits for:
            ``NO_POSITION``, ``AWAITING_RESET`` or ``VALIDATING``.
        position: Offset of the next record to return; None while unknown.
        lag: Records between the position and the end that this reader can see; None if unknown,
            and where the partition is stalled: what was written meanwhile isn't known then.
        paused: By ``pause``.
        node_id: Broker that it is fetched from; None where there is none.
        buffered_bytes: Fetched and not returned yet.
        failures: Tries in a row that brought nothing but an error, for it alone or for all that
            was requested from its broker.
        last_fetch_age: Seconds since the latest fetch response of its present broker; None before
            the first one.
        stalled: It is to be read, but for ``fetch_max_wait`` + ``request_timeout`` seconds or more
            its broker has responded to no fetch, or to each at once and with nothing, and none of
            its data waits to be returned; or ``poll`` raised ConsumerStalled for it, as where it
            has no leader, and it had no response since. Not while a quota throttles.
        throttled_for: Seconds for which a quota still forbids requests to its broker (KIP-219); 0.0
            where none does.
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
    throttled_for: float = 0.0


@dataclass(frozen=True, slots=True)
class CallbackHealth(Snapshot):
    """A callback of a rebalance that is running.

    Attributes:
        name: Such as ``on_revoked``.
        partitions: Those that it was called with.
        seconds: For how long it has been running.
        stalled: It runs for ``max_poll_interval`` or longer.
    """

    name: str
    partitions: tuple[TopicPartition, ...]
    seconds: float
    stalled: bool


@dataclass(frozen=True, slots=True)
class ConsumerHealth(Snapshot):
    """One consumer.

    Attributes:
        client: Its connections, metadata and internal tasks.
        partitions: The assigned ones.
        lag: Sum over the partitions of which it is known, as of their last fetches; None if it is
            known of none, and while a partition is stalled. In an outage that takes
            ``fetch_max_wait`` + ``request_timeout`` seconds: watch ``ok`` as well.
        last_fetch_age: Seconds since the latest fetch response of any broker; None before one.
        last_error: Why the latest fetch failed as a whole, as text; None after one that didn't.
        buffered_bytes: Memory of the responses whose records wait to be returned.
        group: Health of its membership; None without a group, and where nothing is subscribed to.
        last_poll_age: Seconds since the application last polled, 0.0 during a call; at
            ``max_poll_interval`` the consumer leaves its group. None where ``group`` is.
        last_commit_age: Seconds since a commit last succeeded; None before that.
        last_commit_error: Why the latest commit failed, as text; None after one that didn't.
        callback: The callback of a rebalance that is running; None where none is. Until it ends
            nothing of its partitions is read.
        unknown_topics: Names that are subscribed to in the group and that no topic has, as all
            brokers report.
        ok: Everything that is to be read is read; see the property.
    """

    client: Health
    partitions: dict[TopicPartition, PartitionHealth]
    lag: int | None
    last_fetch_age: float | None
    last_error: str | None
    buffered_bytes: int
    group: MembershipHealth | None
    last_poll_age: float | None
    last_commit_age: float | None
    last_commit_error: str | None
    callback: CallbackHealth | None = None
    unknown_topics: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the client is ok and everything that is to be read is read.

        Fetches succeed, every partition has a position and a broker, none is stalled, and none
        that isn't paused failed three times in a row; in a group, it is a member, all names that it
        subscribes to are of topics, and no callback of a rebalance is stalled.

        After ``seek_to_beginning``, ``seek_to_end`` and a ``seek`` to a time it is False until the
        offset is looked up. Handlers of ``run`` are in ``run_health()``.
        """
        return (
            self.client.ok
            and self.last_error is None
            and (self.group is None or self.group.joined)
            and not (self.callback is not None and self.callback.stalled)
            and not self.unknown_topics
            and all(
                part.phase == "FETCHING"
                and part.node_id is not None
                and not part.stalled
                and (part.paused or part.failures < FAILING)
                for part in self.partitions.values()
            )
        )


@dataclass(frozen=True, slots=True)
class SlowHandler(Snapshot):
    """A handler that has been running for longer than ``max_poll_interval``.

    Attributes:
        topic_partition: Of its record.
        offset: Of its record.
        seconds: Since it was called.
    """

    topic_partition: TopicPartition
    offset: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunHealth(Snapshot):
    """One ``Consumer.run`` that is in progress.

    Attributes:
        running: Handlers that are running.
        in_flight: Records that were taken and aren't finished, or wait for an unfinished one before
            them.
        delayed: Records that wait for a retry, or for the delay of a retry topic.
        paused: Partitions of which no more is taken for now, since enough of them is in flight.
        handled: Records finished by a handler so far.
        failures: Calls of the handler that failed so far.
        sent_on: Records sent to a retry topic or the dead-letter topic so far.
        slow: Handlers running for longer than ``max_poll_interval``, the longest first.
        ok: None is.
    """

    running: int
    in_flight: int
    delayed: int
    paused: int
    handled: int
    failures: int
    sent_on: int
    slow: tuple[SlowHandler, ...]

    @property
    def ok(self) -> bool:
        """No handler is slow."""
        return not self.slow


def health_of(engine: Engine) -> ConsumerHealth:
    """Take a snapshot of a consumer, which may not be started yet."""
    client, now = engine.core.health(), engine.core.clock.now
    throttled = engine.core.network.throttled() if engine.started else {}
    partitions = {
        state.topic_partition: _partition_health(engine, state, now, throttled)
        for state in engine.subscription
    }
    stalled = any(part.stalled for part in partitions.values())
    fetched, error = engine.fetcher.last_fetch, engine.fetcher.last_error
    group = engine.group
    commits = None if group is None else group.commits
    committed = None if commits is None else commits.last_commit
    refused = None if commits is None else commits.last_error
    return ConsumerHealth(
        client=client,
        partitions=partitions,
        lag=None if stalled else engine.lag,
        last_fetch_age=None if fetched is None else now() - fetched,
        last_error=None if error is None else str(error),
        buffered_bytes=engine.fetcher.buffer.frame_bytes,
        group=None if group is None else group.health(),
        last_poll_age=None if group is None else group.poll_age,
        last_commit_age=None if committed is None else now() - committed,
        last_commit_error=None if refused is None else str(refused),
        callback=None if group is None else group.callbacks.health(),
        unknown_topics=() if group is None else group.topic_subscription.unknown,
    )


def _partition_health(
    engine: Engine,
    state: PartitionState,
    now: Callable[[], float],
    throttled: Mapping[int, float],
) -> PartitionHealth:
    """Health of one partition. ``now`` is only called where a fetch was made, so on a loop."""
    node_id, queues = state.node_id, engine.fetcher.plan.queues
    patience = engine.config.fetch_max_wait + engine.config.request_timeout
    queue = queues.get(node_id) if node_id is not None else None
    answered = queue.answered_at if queue is not None else None
    since = queue.waiting_since if queue is not None else None
    wanted = not state.paused and state.phase is Phase.FETCHING and not state.buffered_bytes
    throttled_for = throttled.get(node_id, 0.0) if node_id is not None else 0.0
    stalled = wanted and since is not None and now() - since >= patience and not throttled_for
    stalled = stalled or engine.poller.stall_detector.has_reported(state, queues, now)
    return PartitionHealth(
        phase=state.phase.name,
        position=state.position,
        lag=None if stalled else state.lag(read_committed=engine.read_committed),
        paused=state.kept_back,
        node_id=node_id,
        buffered_bytes=state.buffered_bytes,
        failures=max(state.failures, queue.failures if queue is not None else 0),
        last_fetch_age=None if answered is None else now() - answered,
        stalled=stalled,
        throttled_for=throttled_for,
    )
