"""CommittedOffsets: starts partitions at the offsets that the group has committed.

The engine reports partitions that wait for their offset (``follow``); this requests the offsets
from the coordinator, through ``group.offsets``, and passes them to ``Subscription``. A partition
never begins anywhere while there is no response: ``poll`` raises errors that won't pass, and the
offsets are requested again after all of them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kclient.cluster.wakeups import Broadcast
from kclient.consumer.partition_state import Phase
from kclient.consumer.processed_offsets import offset_and_epoch
from kclient.errors import BackgroundTaskDied, ClientClosed, KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from kclient.cluster.core import ClientCore
    from kclient.config import ConsumerConfig
    from kclient.consumer.partition_state import PartitionState
    from kclient.consumer.subscription import Subscription
    from kclient.group.offsets import GroupOffsets
    from kclient.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger("kclient.consumer")


class CommittedOffsets:
    """Fetches committed offsets.

    Tasks: ``committed-offsets``, while any partition waits for its offset.
    """

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        subscription: Subscription,
        offsets: GroupOffsets,
        learned: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], object],
    ) -> None:
        """``learned`` is called with the committed offsets of partitions that begin there."""
        self._core = core
        self._log = core.hooks.log(logger)
        self._config = config
        self._subscription = subscription
        self._offsets = offsets
        self._learned = learned
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._news = Broadcast()

    def follow(self, states: Iterable[PartitionState]) -> None:
        """React to a change of partitions; starts the task if one waits for its offset."""
        self._news.notify()
        if self._task is None and not self._closing and any(map(_waits, states)):
            self._task = self._core.spawn(self._run(), "committed-offsets")

    def recheck(self) -> None:
        """Make pending ``wait_for`` calls check whether to wait on."""
        self._news.notify()

    async def wait_for(
        self, states: Iterable[PartitionState], deadline: float, go_on: Callable[[], bool]
    ) -> None:
        """Wait until each of these has its outcome or is assigned no more, or until ``deadline``.

        Or until ``go_on`` returns False; it is called again after each ``recheck``. A refusal for
        good is an outcome: ``poll`` raises it as soon as the partition isn't held any more.

        Cancellation: safe.
        """
        while any(map(_may_begin, states)) and go_on():
            left = deadline - self._core.clock.now()
            if left <= 0:
                return
            await self._news.wait(left)

    async def close(self) -> None:
        """Stop requesting offsets.

        Cancellation: it is stopped all the same.
        """
        self._closing = True
        if self._task is not None:
            await self._core.stop(self._task)

    async def _run(self) -> None:
        try:
            while True:
                now = self._core.clock.now()
                waiting = self._subscription.pending(Phase.AWAITING_COMMITTED)
                if not waiting:
                    return
                ready = [state for state in waiting if state.retry_at <= now]
                if ready:
                    await self._ask(ready)
                else:
                    await self._news.wait(min(state.retry_at for state in waiting) - now)
        except (ClientClosed, BackgroundTaskDied):
            pass
        finally:
            # No await since the last check: a partition that waits from now on starts another task.
            self._task = None
            self._news.notify()

    async def _ask(self, states: list[PartitionState]) -> None:
        fences = {state: state.position_version for state in states}
        try:
            outcomes = await self._offsets.fetch(
                [state.topic_partition for state in states], self._config.request_timeout
            )
        except (ClientClosed, BackgroundTaskDied):
            raise
        except KafkaError as error:
            outcomes = dict.fromkeys([state.topic_partition for state in states], error)
        for state, position_version in fences.items():
            outcome = outcomes[state.topic_partition]
            if isinstance(outcome, KafkaError):
                self._failed(state, position_version, outcome)
            else:
                self._take(state, position_version, outcome)
        self._news.notify()

    def _take(
        self, state: PartitionState, position_version: int, answer: OffsetAndMetadata | None
    ) -> None:
        if answer is None:
            self._subscription.nothing_committed(state, position_version)
            return
        if self._subscription.committed_found(state, position_version, *offset_and_epoch(answer)):
            self._learned({state.topic_partition: answer})
            self._log.debug(
                "position from group partition=%s offset=%d", state.topic_partition, answer.offset
            )

    def _failed(self, state: PartitionState, position_version: int, error: KafkaError) -> None:
        if not _waits(state) or state.position_version != position_version:
            return
        level = logging.DEBUG if state.failures else logging.INFO
        self._log.log(
            level, "no committed offset of partition=%s: %s", state.topic_partition, error
        )
        delay = self._core.backoff.delay(state.failures, self._core.rng)
        self._subscription.back_off(state, self._core.clock.now() + delay)
        self._subscription.fail(state, error)


def _waits(state: PartitionState) -> bool:
    return state.phase is Phase.AWAITING_COMMITTED and state.assigned


def _may_begin(state: PartitionState) -> bool:
    return _waits(state) and (state.error is None or state.error.retriable)
