"""Fetcher: requests data from brokers, so that the buffer has some when poll is called.

The consumer notifies it of changes (``follow``, ``follow_view``) and takes from its ``buffer``.
``fetch_scheduler`` and ``fetch_session`` decide what to request, ``fetch_response`` processes the
responses; here are the tasks, the requests, and the yields to the event loop between partitions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kclient.cluster.metadata import LeaderHint
from kclient.cluster.wakeups import Broadcast, Wakeup
from kclient.consumer.fetch_buffer import FetchBuffer
from kclient.consumer.fetch_response import QUIET_FAILURES, FetchFollowUp, FetchResponseReader
from kclient.consumer.fetch_scheduler import BrokerQueue, FetchScheduler
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, ClientClosed, CorruptRecord, KafkaError, broker_error
from kclient.network import Lane
from kclient.record.compression import CHUNK
from kclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kclient.cluster.core import ClientCore
    from kclient.cluster.view import Cluster
    from kclient.config import ConsumerConfig
    from kclient.consumer.completed_fetch import FrameLease
    from kclient.consumer.fetch_session import FetchLimits
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.errors import CodecUnavailable
    from kclient.network import RawResponse
    from kclient.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

logger = logging.getLogger("kclient.consumer")

RESPONSES_IN_BUDGET = 8
"""One response is that part of the budget at most, unless a single partition may be larger. Larger
ones lie in slower memory, and mostly in fresh pages: of 32 MiB a record cost twice as much as of 8.
"""
HALF_READ_SHARE = 8
"""From one such part of ``buffer_memory`` on, held by inflated batches, only these are read.

Threads inflate up to two, and begin with no more than ``INFLATING`` at once; those of paused
partitions may hold another one.
"""
LEAST_HALF_READ = 2 * CHUNK
"""With less, batches inflated on the loop could keep those for threads waiting."""
HASTY = 1.0
"""Seconds, or half of ``fetch_max_wait``, before which a response without records is hasty: the
broker should have waited for some. Long ones in a row are a fault on its side, or a stall."""
TURN = 0.005
"""Seconds of work after which it yields to the loop."""
PARTS_PER_LOOK = 32
"""Parts of a response without records that are processed between two checks of the clock."""
SESSION_CLOSE_TIMEOUT = 1.0
"""Seconds for a broker to end a session that is not needed any more; optional for the broker."""


class Fetcher:
    """The fetch side of one consumer.

    Tasks: ``fetch-N`` for each broker N that partitions are routed to: started when the first one
    is, ended by itself when none is left, or stopped by ``close``.

    Attributes:
        buffer: What was fetched and waits.
        plan: What to request from which broker.
        news: Notifies poll of something to look at: data, an error, a missing position.
        last_fetch: When the latest response came, on the client's clock; None before the first.
        last_error: Of the latest fetch that failed as a whole; None after one that didn't.
    """

    def __init__(
        self, core: ClientCore, config: ConsumerConfig, subscription: Subscription
    ) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self._subscription = subscription
        self._tasks: dict[BrokerQueue, asyncio.Task[None]] = {}
        self._wakeups: dict[BrokerQueue, Wakeup] = {}
        self._closing = False
        self._lacks_space = False
        self.news = Broadcast()
        self.last_fetch: float | None = None
        self.last_error: KafkaError | None = None
        self._isolation = int(config.isolation_level == "read_committed")
        self.buffer = FetchBuffer(
            subscription,
            frame_budget=config.buffer_memory,
            half_read_bytes=max(config.buffer_memory // HALF_READ_SHARE, LEAST_HALF_READ),
            partition_bytes=config.max_partition_fetch_bytes,
            on_space=lambda state: self.plan.touch(state),
            on_released=self._on_released,
            on_corrupt=self._on_corrupt,
        )
        self.plan = FetchScheduler(
            subscription,
            self.buffer,
            partition_bytes=config.max_partition_fetch_bytes,
            on_touched=self._wake,
        )
        self._reader = FetchResponseReader(
            subscription, self.buffer, self.plan, config, self._back_off, self._log
        )

    # Calls of the consumer

    def follow(self, states: Sequence[PartitionState]) -> None:
        """Follow changes of partitions: sought, paused, assigned, revoked ..."""
        self.buffer.follow(states)
        self.plan.follow(states, self._core.clock.now())

    def follow_view(self, view: Cluster, states: Iterable[PartitionState]) -> None:
        """Follow a change of the cluster that concerns ``states``."""
        self.plan.follow_view(view, states, self._core.clock.now())

    # Calls of the buffer and the plan

    def _on_released(self) -> None:
        if self._lacks_space and self.buffer.has_space:
            self._lacks_space = False
            for queue in self.plan.queues.values():
                if not queue.in_flight:
                    self._wake(queue)

    def _on_corrupt(self, state: PartitionState, error: CorruptRecord | CodecUnavailable) -> None:
        if isinstance(error, CorruptRecord):
            self._core.counters.add("consumer.corrupt_batches")
        level = logging.DEBUG if state.failures else logging.WARNING
        self._log.log(level, "a batch can't be read partition=%s: %s", state.topic_partition, error)
        self._subscription.fail(state, error)
        self._back_off(state)

    def _back_off(self, state: PartitionState) -> None:
        delay = self._core.backoff.delay(state.failures, self._core.rng)
        self._subscription.back_off(state, self._core.clock.now() + delay)

    def _wake(self, queue: BrokerQueue) -> None:
        wakeup = self._wakeups.get(queue)
        if wakeup is not None:
            wakeup.notify()
        elif not self._closing:
            wakeup = self._wakeups[queue] = Wakeup()
            task = self._core.spawn(self._run(queue, wakeup), f"fetch-{queue.node_id}")
            self._tasks[queue] = task

    # The tasks

    async def _run(self, queue: BrokerQueue, wakeup: Wakeup) -> None:
        try:
            while queue.partitions:
                now = self._core.clock.now()
                due = self.plan.due(queue, now)
                if due > now:
                    if not self.buffer.has_space:
                        self._lacks_space = True
                        self.buffer.drop_paused()
                    await wakeup.sleep(due - now)
                else:
                    await self._fetch(queue, now)
            # No await until here: a partition that comes back finds a new queue and a new task.
            self.plan.remove(queue)
        finally:
            del self._wakeups[queue], self._tasks[queue]
            self.news.notify()
        await self._end_session(queue)

    async def _fetch(self, queue: BrokerQueue, now: float) -> None:
        """Send one request and process its response."""
        from kclient.consumer.fetch_session import LAST_BY_NAME, fetch_request
        from kclient.protocol.messages.fetch import FetchRequest

        limits = self._limits(queue, now)

        def build(version: int) -> FetchRequest:
            session_request = queue.session.next_request(version > LAST_BY_NAME)
            return fetch_request(version, session_request, limits)

        queue.begin(now)
        try:
            network = self._core.network
            if not network.is_connected(queue.node_id, Lane.FETCH):
                self._core.metadata.suspect_leader(queue.node_id, Lane.FETCH)
            raw = await network.send(
                queue.node_id,
                build,
                api=FetchRequest,
                lane=Lane.FETCH,
                timeout=self._config.request_timeout,
                max_version=None if queue.session.has_all_ids else LAST_BY_NAME,
                raw=True,
                response_bytes=limits.max_bytes,
            )
            await self._take_in(queue, raw, now, limits)
        except KafkaError as error:
            self._failed(queue, error)
        finally:
            queue.end()

    def _limits(self, queue: BrokerQueue, now: float) -> FetchLimits:
        from kclient.consumer.fetch_session import FetchLimits

        config = self._config
        # All brokers together may not send much more than the budget at once.
        share = self.buffer.frame_budget // max(len(self.plan.queues), RESPONSES_IN_BUDGET)
        return FetchLimits(
            max_wait_ms=0 if queue.holds_back else int(config.fetch_max_wait * 1000),
            min_bytes=config.fetch_min_bytes,
            max_bytes=min(config.fetch_max_bytes, max(share, config.max_partition_fetch_bytes)),
            isolation_level=self._isolation,
            rack="" if self.plan.reads_leader(queue, now) else config.client_rack or "",
        )

    async def _take_in(
        self, queue: BrokerQueue, raw: RawResponse, sent_at: float, limits: FetchLimits
    ) -> None:
        from kclient.protocol.messages.fetch import FetchResponse

        lease = self.buffer.lease(len(raw.body), raw.release)
        try:
            response = FetchResponse.decode(raw.body, raw.version)
            parts = self._parts(queue, response) if response.responses else {}
            if not queue.session.answered(response.error_code, response.session_id, parts):
                self._refused(queue, response.error_code)
                return
            self.last_fetch, self.last_error = self._core.clock.now(), None
            self._pace(queue, parts, limits, sent_at, self.last_fetch)
            self._count(queue, len(raw.body), len(parts), sent_at)
            if parts:
                self._act_on(await self._read(queue, parts, lease, self.last_fetch), response)
        finally:
            lease.drop()

    async def _read(
        self,
        queue: BrokerQueue,
        parts: Mapping[TopicPartition, PartitionData],
        lease: FrameLease,
        now: float,
    ) -> FetchFollowUp:
        """Process the parts of a response, with a trip through the loop every ``TURN``."""
        news = FetchFollowUp(queue.node_id)
        turn, unlooked = now + TURN, 0
        for partition, part in parts.items():
            ask = queue.session.asked.get(partition)
            state = self._subscription.get(partition)
            if ask is None or state is None:
                continue
            unlooked += 1
            if part.records:
                unlooked = PARTS_PER_LOOK
                queue.session.move_to_end(partition)
            self._reader.read(state, ask, part, lease, news, now)
            if unlooked >= PARTS_PER_LOOK:
                now, unlooked = self._core.clock.now(), 0
                if now > turn:
                    self.news.notify()
                    await asyncio.sleep(0)
                    now = self._core.clock.now()
                    turn = now + TURN
        return news

    def _pace(
        self,
        queue: BrokerQueue,
        parts: Mapping[TopicPartition, PartitionData],
        limits: FetchLimits,
        sent_at: float,
        now: float,
    ) -> None:
        """Record a good response, and when the next request to the broker may be sent."""
        throttled = self._core.network.throttled_for(queue.node_id, Lane.FETCH)
        wait = limits.max_wait_ms / 1000 if limits.min_bytes else 0.0
        hasty = (
            now - sent_at < min(wait / 2, HASTY)
            and not throttled
            and not any(part.records or part.error_code for part in parts.values())
        )
        queue.answered(now, hasty=hasty, slowest=self._core.backoff.maximum)
        if throttled:
            queue.retry_at = now + throttled  # else its deadline would run while it can't be sent

    def _parts(
        self, queue: BrokerQueue, response: FetchResponse
    ) -> dict[TopicPartition, PartitionData]:
        names = queue.session.topic_names
        parts = {}
        for topic in response.responses:
            # An id that was never requested keeps an empty name, which ends the session.
            name = topic.topic or names.get(topic.topic_id, "")
            for part in topic.partitions:
                parts[TopicPartition(name, part.partition_index)] = part
        return parts

    def _count(self, queue: BrokerQueue, size_bytes: int, partitions: int, sent_at: float) -> None:
        core = self._core
        core.counters.add("consumer.fetches")
        core.counters.add("consumer.fetched_bytes", size_bytes)
        if core.hooks.active:
            from kclient.events import Fetched

            seconds = core.clock.now() - sent_at
            core.hooks.emit(Fetched(queue.node_id, partitions, size_bytes, seconds))

    def _act_on(self, news: FetchFollowUp, response: FetchResponse) -> None:
        metadata = self._core.metadata
        if news.leaders:
            hints = [LeaderHint(*leader) for leader in news.leaders]
            metadata.apply_leader_hints(hints, response.node_endpoints)
            for hint in hints:
                self._follow_hint(hint, news)
        for topic in news.stale_topics:
            metadata.request_update(topic)
        if news.partitions:
            self.news.notify()

    def _follow_hint(self, hint: LeaderHint, news: FetchFollowUp) -> None:
        """Fetch from the reported leader at once; refresh the view where that isn't possible."""
        state = self._subscription.get(TopicPartition(hint.topic, hint.partition))
        if state is not None and state.node_id == hint.leader_id != news.node_id:
            self._subscription.retry_now(state)
        else:
            news.stale_topics[hint.topic] = None

    # Failures

    def _refused(self, queue: BrokerQueue, error_code: int) -> None:
        """Handle an error of the whole response, or a response of a session that is over."""
        if error_code == ErrorCode.NONE:
            return
        self._core.counters.add("consumer.fetch_refusals")
        session_lost = error_code in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        )
        queue.failures += 1
        if session_lost and queue.failures == 1:
            queue.failing_since = self._core.clock.now()
            return  # evicted: a full fetch follows at once
        self.plan.back_to_leader(self.plan.states_of(queue), self._core.clock.now())
        self._core.metadata.request_update()
        self._delay(queue, broker_error(error_code, f"Fetch from broker {queue.node_id} failed"))

    def _failed(self, queue: BrokerQueue, error: KafkaError) -> None:
        """Handle a request that got no usable response."""
        if isinstance(error, ClientClosed):
            return
        queue.session.lost()
        queue.failures += 1
        self._core.counters.add("consumer.fetch_failures")
        self.plan.back_to_leader(self.plan.states_of(queue), self._core.clock.now())
        self._core.metadata.leader_failed(queue.node_id)
        self._delay(queue, error)

    def _delay(self, queue: BrokerQueue, error: KafkaError) -> None:
        core = self._core
        self.last_error = error
        now = core.clock.now()
        delay = self._core.backoff.delay(queue.failures - 1, core.rng)
        queue.retry_at = now + delay
        self._log.log(
            logging.INFO if queue.failures == 1 else logging.DEBUG,
            "fetch failed node=%d lane=fetch failures=%d retry_in=%.2f: %s",
            queue.node_id,
            queue.failures,
            delay,
            error,
        )
        if queue.failures == 1:
            queue.failing_since = now
        if self._concerns_user(queue, error, now):
            queue.reported_at = now
            for state in self.plan.states_of(queue)[:1]:
                self._subscription.fail(state, error)

    def _concerns_user(self, queue: BrokerQueue, error: KafkaError, now: float) -> bool:
        """Whether poll must raise ``error``: it won't pass by itself, or hasn't for long."""
        if now - queue.failing_since >= self._config.api_timeout:
            queue.failing_since = now  # and again after as long
            return True
        if isinstance(error, BrokerError):
            return not error.retriable and queue.failures > QUIET_FAILURES
        return not error.retriable

    # The end

    async def close(self) -> None:
        """Stop the tasks, and have the brokers drop the sessions.

        Cancellation: the tasks are stopped all the same.
        """
        self._closing = True
        queues = list(self.plan.queues.values())
        await self._core.stop(*self._tasks.values())
        self.buffer.clear()
        await asyncio.gather(*(self._end_session(queue) for queue in queues))

    async def _end_session(self, queue: BrokerQueue) -> None:
        from kclient.consumer.fetch_session import FetchLimits, fetch_request
        from kclient.protocol.messages.fetch import FetchRequest

        session_request = queue.session.close()
        lane = self._free_lane(queue.node_id)
        if session_request is None or lane is None:
            return
        config = self._config
        limits = FetchLimits(0, config.fetch_min_bytes, config.fetch_max_bytes, self._isolation)

        def build(version: int) -> FetchRequest:
            return fetch_request(version, session_request, limits)

        try:
            raw = await self._core.network.send(
                queue.node_id,
                build,
                api=FetchRequest,
                lane=lane,
                timeout=SESSION_CLOSE_TIMEOUT,
                raw=True,
            )
            raw.release()
        except KafkaError as error:
            self._log.debug("session not ended node=%d: %s", queue.node_id, error)

    def _free_lane(self, node_id: int) -> Lane | None:
        """A lane on which the request doesn't wait behind a long poll; None without one."""
        network = self._core.network
        if network.is_connected(node_id, Lane.GENERAL):
            return Lane.GENERAL
        idle = not network.in_flight(node_id, Lane.FETCH)
        return Lane.FETCH if idle and network.is_connected(node_id, Lane.FETCH) else None
