"""PositionUpdater: finds the positions that nobody gave, and checks them after a change of leader.

The consumer tells it of partitions that wait (``follow``); it looks offsets up through
``cluster.offset_lookup`` and hands the answers to ``Subscription``. It also tells poll of
partitions that no broker can be asked for (``stall_detection`` says when that is an error).
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
    LogTruncated,
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
"""Seconds between two looks at partitions without a broker."""


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
        """Partitions changed."""
        if any(state.phase in _WAITING or state.node_id is None for state in states):
            self._wakeup.notify()

    def wake(self) -> None:
        """Something changed that may help those who wait."""
        self._wakeup.notify()

    async def _run(self) -> None:
        while True:
            now = self._core.clock.now()
            due = min(self._start_lookups(now), self._report_unrouted(now))
            await self._wakeup.sleep(due - now)

    def _start_lookups(self, now: float) -> float:
        """Look up whatever can be; returns when to look again."""
        if self._subscription.settled:
            return float("inf")
        due = float("inf")
        for phase, look_up in (
            (Phase.AWAITING_RESET, self._reset),
            (Phase.VALIDATING, self._validate),
        ):
            ready: dict[int, list[PartitionState]] = {}
            for state in self._subscription.pending(phase):
                # One without a broker waits for metadata, and one whose broker was asked already
                # for its answer; but not where another broker can be asked by now.
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
            # As it comes: partitions that are asked for again don't hold the others up.
            answers = [
                (*waiting.pop(partition), answer)
                for partition, answer in found.items()
                if partition in waiting
            ]
            self._done_with(node_id, [state for state, _, _ in answers])
            self._place(answers)

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
        """Take what was found of each partition, and its position_version when it was asked for."""
        answers = []
        for state, position_version, answer in found:
            if not isinstance(answer, KafkaError):
                epoch = -1 if answer.leader_epoch is None else answer.leader_epoch
                answers.append((state, position_version, answer.offset, epoch))
            elif state.phase is Phase.AWAITING_RESET and state.position_version == position_version:
                self._failed(state, answer)
        placed = self._subscription.finish_resets(answers)
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
                partition: ends[partition] if partition in ends and _is_none(answer) else answer
                for partition, answer in found.items()
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
        from kclient.consumer.log_truncation import EpochQuery

        asked = {state: _standing(state) for state in states}
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
            if _standing(state) != standing:
                continue  # yet another leader, or read on in another epoch: asked anew
            answer = found[state.topic_partition]
            if isinstance(answer, NoCommonVersion):
                self._subscription.finish_validation(state, state.leader_epoch)
            elif isinstance(answer, KafkaError):
                self._failed(state, answer)
            else:
                self._validated(state, answer)

    def _validated(self, state: PartitionState, end: EpochEnd) -> None:
        if state.fetch_offset is None or not end.cuts(state.fetch_offset):
            self._subscription.finish_validation(state, state.leader_epoch)
            return
        self._subscription.recall()  # what isn't handed over yet lies before the cut or behind it
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
        error = LogTruncated(
            f"the log of {state.topic_partition} was cut at offset {end.end_offset} by an unclean "
            f"election: records up to {position} that were read are no longer in it",
            offset=end.end_offset,
            topic_partition=state.topic_partition,
            hint=f"seek to {end.end_offset}, or set auto_offset_reset",
        )
        self._failed(state, error)

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
        """Tell poll of partitions that can't be had; returns when to look again."""
        waiting = self._plan.unrouted
        if not waiting:
            return float("inf")
        metadata, patience = self._core.metadata, self._config.api_timeout
        view = metadata.view
        topics: dict[str, None] = {}
        for partition, since in list(waiting.items()):
            if partition.topic in topics and partition.topic not in view.topics.raw:
                if now - since < patience:
                    continue  # nothing is known of its topic, so there is nothing to tell
            state = self._subscription.get(partition)
            if state is None or state.error is not None or state.retry_at > now:
                continue
            unknown = metadata.confirmed_unknown(partition.topic, since, UNKNOWN_GRACE)
            error = unrouted_error(view, partition, now - since, patience, unknown=unknown)
            if error is not None:
                if now - since >= patience:
                    waiting[partition] = now  # told again after as long
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
    """No record is young enough."""
    return not isinstance(answer, KafkaError) and answer.offset < 0


def _standing(state: PartitionState) -> tuple[int, int, int]:
    """What a validation asks about; its answer says nothing where this has changed meanwhile."""
    return state.position_version, state.position_epoch, state.leader_epoch
