"""PositionUpdater: looks missing positions up, and validates them after a change of leader.

The consumer notifies it of partitions that wait (``follow``); it looks offsets up through
``cluster.offset_lookup`` and passes the results to ``Subscription``. It also reports to poll which
partitions have no broker (``stall_detection`` decides when that is an error).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kclient.cluster.fanout import fan_out
from kclient.cluster.offset_lookup import list_offsets
from kclient.cluster.wakeups import Wakeup
from kclient.consumer.offset_reset import ends_first, looked_up
from kclient.consumer.partition_state import PartitionState, Phase
from kclient.consumer.stall_detection import UNKNOWN_GRACE, unrouted_error
from kclient.errors import (
    BackgroundTaskDied,
    ClientClosed,
    KafkaError,
    NoCommonVersion,
    RequestTimedOut,
)
from kclient.types import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from kclient.cluster.core import ClientCore
    from kclient.config import ConsumerConfig
    from kclient.consumer.fetch_scheduler import FetchScheduler
    from kclient.consumer.log_truncation import EpochEnd
    from kclient.consumer.offset_reset import Reset
    from kclient.consumer.subscription import Subscription
    from kclient.types import OffsetAndTimestamp, TopicPartition

    Found: TypeAlias = Mapping[TopicPartition, OffsetAndTimestamp | KafkaError]

logger = logging.getLogger("kclient.consumer")

_WAITING = (Phase.AWAITING_RESET, Phase.VALIDATING)
UNROUTED_CHECK = 0.5
"""Seconds between two checks of partitions without a broker."""


class PositionUpdater:
    """The positions of one consumer.

    Tasks: ``offsets``, from ``start`` to ``close``, and one ``offset-lookup`` per broker and round
    of lookups, which ends by itself or with ``close``.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        subscription: Subscription,
        plan: FetchScheduler,
    ) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self._subscription = subscription
        self._plan = plan
        self._isolation = IsolationLevel(int(config.isolation_level == "read_committed"))
        self._wakeup = Wakeup()
        self._busy: dict[PartitionState, int] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        """Start the task."""
        self._tasks[self._core.spawn(self._run(), "offsets", endless=True)] = None

    async def close(self) -> None:
        """Stop the tasks.

        Cancellation: they are stopped all the same.
        """
        await self._core.stop(*self._tasks)

    def follow(self, states: Iterable[PartitionState]) -> None:
        """Follow changes of partitions."""
        if any(state.phase in _WAITING or state.node_id is None for state in states):
            self._wakeup.notify()

    def wake(self) -> None:
        """Check waiting partitions again, as something changed that may help."""
        self._wakeup.notify()

    async def _run(self) -> None:
        while True:
            now = self._core.clock.now()
            due = min(self._start_lookups(now), self._report_unrouted(now))
            await self._wakeup.sleep(due - now)

    def _start_lookups(self, now: float) -> float:
        """Start all lookups that are possible; returns when to check again."""
        if self._subscription.settled:
            return float("inf")
        due = float("inf")
        for phase, look_up in (
            (Phase.AWAITING_RESET, self._reset),
            (Phase.VALIDATING, self._validate),
        ):
            ready: dict[int, list[PartitionState]] = {}
            for state in self._subscription.pending(phase):
                # One without a broker waits for metadata, and one with a lookup in flight for the
                # response; but not where it has another broker by now.
                node_id = state.node_id
                if node_id is None or self._busy.get(state) == node_id:
                    continue
                if state.retry_at > now:
                    due = min(due, state.retry_at)
                else:
                    ready.setdefault(node_id, []).append(state)
            # Broker by broker, so that one that hangs doesn't hold up the others.
            for node_id, states in ready.items():
                self._busy.update(dict.fromkeys(states, node_id))
                task = self._core.spawn(look_up(node_id, states), "offset-lookup")
                self._tasks[task] = None
                task.add_done_callback(self._ended)
        return due

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    # Resets

    async def _reset(self, node_id: int, states: list[PartitionState]) -> None:
        waiting = {state.topic_partition: (state, state.position_version) for state in states}

        def answered(found: Found) -> None:
            # As responses come in: partitions that are retried don't hold the others up.
            results = [
                (*waiting.pop(partition), result)
                for partition, result in found.items()
                if partition in waiting
            ]
            self._done_with(node_id, [state for state, _, _ in results])
            self._place(results)

        resets = {state.topic_partition: state.reset_to for state in states}
        try:
            answered(await self._look_up(resets, answered))
        except (ClientClosed, BackgroundTaskDied):
            return
        finally:
            self._done_with(node_id, [state for state, _ in waiting.values()])

    def _place(
        self, found: Iterable[tuple[PartitionState, int, OffsetAndTimestamp | KafkaError]]
    ) -> None:
        """Apply the results of partitions; ``found`` has each one's version at the request."""
        results = []
        for state, position_version, result in found:
            if not isinstance(result, KafkaError):
                epoch = -1 if result.leader_epoch is None else result.leader_epoch
                results.append((state, position_version, result.offset, epoch))
            elif state.phase is Phase.AWAITING_RESET and state.position_version == position_version:
                self._failed(state, result)
        placed = self._subscription.finish_resets(results)
        if self._log.isEnabledFor(logging.INFO):
            for state in placed:
                self._log.info(
                    "position reset partition=%s to=%s offset=%d",
                    state.topic_partition,
                    state.reset_to.name.lower(),
                    state.position,
                )

    async def _look_up(
        self, resets: Mapping[TopicPartition, Reset], answered: Callable[[Found], object]
    ) -> Found:
        timeout, isolation = self._config.request_timeout, self._isolation
        ends: Found = {}
        wanted = ends_first(resets)
        if wanted:
            ends = await list_offsets(self._core, wanted, isolation=isolation, timeout=timeout)
        wall_ms = self._core.clock.wall_ms()
        specs = {partition: looked_up(reset, wall_ms) for partition, reset in resets.items()}

        def or_ends(found: Found) -> Found:
            return {
                partition: ends[partition] if partition in ends and _is_none(result) else result
                for partition, result in found.items()
            }

        found = await list_offsets(
            self._core,
            specs,
            isolation=isolation,
            timeout=timeout,
            found=lambda some: answered(or_ends(some)),
        )
        return or_ends(found)

    # Validation (KIP-320)

    async def _validate(self, node_id: int, states: list[PartitionState]) -> None:
        from kclient.consumer.log_truncation import EpochQuery, standing_of

        asked = {state: standing_of(state) for state in states}
        epochs = {state.topic_partition: state.position_epoch for state in states}
        query, timeout = EpochQuery(epochs), self._config.request_timeout
        try:
            found = await fan_out(self._core.calls, query, epochs, timeout)
        except (ClientClosed, BackgroundTaskDied):
            return
        finally:
            self._done_with(node_id, states)
        for state, standing in asked.items():
            if not state.assigned or state.phase is not Phase.VALIDATING:
                continue
            if standing_of(state) != standing:
                continue  # yet another leader, or read on in another epoch: validated again
            result = found[state.topic_partition]
            if isinstance(result, NoCommonVersion):
                self._subscription.finish_validation(state, state.leader_epoch)
            elif isinstance(result, KafkaError):
                self._failed(state, result)
            else:
                self._validated(state, result)

    def _validated(self, state: PartitionState, end: EpochEnd) -> None:
        if state.fetch_offset is None or not end.cuts(state.fetch_offset):
            self._subscription.finish_validation(state, state.leader_epoch)
            return
        self._subscription.recall()  # what isn't returned yet lies before the cut or behind it
        position = state.position
        if position is None or not end.cuts(position):
            # Only what is buffered isn't in the log any more.
            self._subscription.fetch_anew(state)
            return
        self._core.counters.add("consumer.truncations")
        self._log.warning(
            "log truncated partition=%s position=%d diverges_at=%d epoch=%d",
            state.topic_partition,
            position,
            end.end_offset,
            end.leader_epoch,
        )
        if self._subscription.default_reset is not None:
            self._subscription.seek(state, end.end_offset, end.leader_epoch, by_user=False)
            return
        self._failed(state, end.truncation_error(state.topic_partition, position))

    # Failures

    def _failed(self, state: PartitionState, error: KafkaError) -> None:
        if not state.assigned:
            return
        if isinstance(error, RequestTimedOut) and state.node_id in self._core.network.throttled():
            self._back_off(state)  # a quota forbade the request for as long (KIP-219)
            return
        level = logging.DEBUG if state.failures else logging.INFO
        self._log.log(level, "offset lookup failed partition=%s: %s", state.topic_partition, error)
        self._back_off(state)
        self._subscription.fail(state, error)

    def _back_off(self, state: PartitionState) -> None:
        delay = self._core.backoff.delay(state.failures, self._core.rng)
        self._subscription.back_off(state, self._core.clock.now() + delay)

    def _report_unrouted(self, now: float) -> float:
        """Report partitions without a broker to poll; returns when to check again."""
        waiting = self._plan.unrouted
        if not waiting:
            return float("inf")
        metadata, patience = self._core.metadata, self._config.api_timeout
        view = metadata.view
        topics: dict[str, None] = {}
        for partition, since in list(waiting.items()):
            if partition.topic in topics and partition.topic not in view.topics.raw:
                if now - since < patience:
                    continue  # nothing is known of its topic, so there is nothing to report
            state = self._subscription.get(partition)
            if state is None or state.error is not None or state.retry_at > now:
                continue
            unknown = metadata.confirmed_unknown(partition.topic, since, UNKNOWN_GRACE)
            error = unrouted_error(view, partition, now - since, patience, unknown=unknown)
            if error is not None:
                if now - since >= patience:
                    waiting[partition] = now  # reported again after as long
                self._back_off(state)
                self._subscription.fail(state, error)
            topics[partition.topic] = None
        for topic in topics:
            metadata.request_update(topic)
        return now + UNROUTED_CHECK

    def _done_with(self, node_id: int, states: Iterable[PartitionState]) -> None:
        for state in states:
            if self._busy.get(state) == node_id:
                del self._busy[state]
        self._wakeup.notify()


def _is_none(answer: OffsetAndTimestamp | KafkaError) -> bool:
    """Whether the lookup found that no record is young enough."""
    return not isinstance(answer, KafkaError) and answer.offset < 0
