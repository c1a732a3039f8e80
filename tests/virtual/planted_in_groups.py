"""Bugs that clients really had in groups, planted into this one, to show that they are seen.

Each is a function that changes the client through a ``MonkeyPatch``. ``test_planted_in_groups``
runs seeds of ``group_run`` with one bug at a time; stalls are to be seen by the consumer itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from kclient.consumer.commit_queue import CommitQueue
from kclient.consumer.committed_offsets import CommittedOffsets
from kclient.consumer.fetch_scheduler import BrokerQueue, FetchScheduler
from kclient.consumer.fetcher import Fetcher
from kclient.consumer.partition_state import PartitionState
from kclient.consumer.processed_offsets import PolledRecords
from kclient.consumer.rebalance import Rebalancer
from kclient.consumer.subscription import Subscription
from kclient.group.heartbeats import Heartbeats
from kclient.group.membership import Membership
from kclient.record import Record
from kclient.types import OffsetAndMetadata, TopicPartition


def what_is_being_worked_on_is_committed(patch: pytest.MonkeyPatch) -> None:
    """Automatic commits wait for no call, and take all that was handed over as finished."""

    def always(self: Rebalancer) -> bool:
        return True

    def planted(
        self: Subscription, state: PartitionState, in_hand: Record | None = None
    ) -> tuple[int, int] | None:
        return None if state.position is None else (state.position, state.position_epoch)

    patch.setattr(Rebalancer, "may_commit", always)
    patch.setattr(Subscription, "finished", planted)


def nobody_waits_for_the_user(patch: pytest.MonkeyPatch) -> None:
    """Partitions are released while their records are being worked on."""

    async def planted(
        self: PolledRecords, partitions: Collection[TopicPartition], deadline: float
    ) -> None:
        self.settle()

    patch.setattr(PolledRecords, "drain", planted)


def records_go_on_while_partitions_are_given_up(patch: pytest.MonkeyPatch) -> None:
    """The user settles, and is handed more in the same moment."""

    def planted(self: Subscription, states: Iterable[PartitionState]) -> None:
        self.recall()

    patch.setattr(Subscription, "hold", planted)


def an_older_commit_overtakes_a_later_one(patch: pytest.MonkeyPatch) -> None:
    """It failed for a passing reason, and is sent again when the later one is due."""
    wait_again = CommitQueue._wait_again

    def planted(self: CommitQueue[Any], partition: TopicPartition, pending_offset: Any) -> None:
        later = self._waiting.get(partition)
        wait_again(self, partition, pending_offset)
        if later is not None:
            later.offset = pending_offset.offset

    patch.setattr(CommitQueue, "_wait_again", planted)


def committed_offsets_are_kept_for_the_next_time(patch: pytest.MonkeyPatch) -> None:
    """A partition that comes back begins where it began before."""
    take = CommittedOffsets._take

    def planted(
        self: Any, state: PartitionState, position_version: int, answer: OffsetAndMetadata | None
    ) -> None:
        known = self.__dict__.setdefault("_planted", {})
        take(self, state, position_version, known.setdefault(state.topic_partition, answer))

    patch.setattr(CommittedOffsets, "_take", planted)


def a_session_never_ends_by_itself(patch: pytest.MonkeyPatch) -> None:
    """A member that reaches no broker goes on with partitions that others own by now."""

    def planted(self: Heartbeats) -> None:
        self.timer.answered(self._core.clock.now())

    patch.setattr(Heartbeats, "_over", planted)


def partitions_are_kept_while_the_group_is_joined(patch: pytest.MonkeyPatch) -> None:
    """An eager member releases what it lost only once it receives its new assignment."""

    async def planted(self: Rebalancer, deadline: float) -> None:
        self._leader_assignment.resign()

    patch.setattr(Rebalancer, "prepare", planted)


def who_gave_partitions_up_does_not_join_again(patch: pytest.MonkeyPatch) -> None:
    """A cooperative rebalance is over when half of it is done: no member gets the partitions."""
    rejoin = Membership.rejoin

    def planted(self: Membership, reason: str) -> None:
        if "given up" not in reason:
            rejoin(self, reason)

    patch.setattr(Membership, "rejoin", planted)


# Stalls: parts that fetch, and forget something.


def a_partition_is_asked_of_nobody(patch: pytest.MonkeyPatch) -> None:
    """The second one finds no broker once it is to be read."""
    node_for, all_follow = FetchScheduler._node_for, FetchScheduler.follow

    def planted(self: FetchScheduler, state: PartitionState, now: float) -> int | None:
        lost = state.topic_partition.partition == 1 and state.position is not None
        return None if lost else node_for(self, state, now)

    def follow(self: FetchScheduler, states: Iterable[PartitionState], now: float) -> None:
        all_follow(self, states, now)
        for state in states:
            if state.topic_partition.partition == 1:
                self.route(state, now)

    patch.setattr(FetchScheduler, "_node_for", planted)
    patch.setattr(FetchScheduler, "follow", follow)


def a_request_is_never_over(patch: pytest.MonkeyPatch) -> None:
    """Fetches from broker 2 wait for something that never comes."""
    fetch = Fetcher._fetch

    async def planted(self: Fetcher, queue: BrokerQueue, now: float) -> None:
        if queue.node_id == 2:
            await asyncio.get_running_loop().create_future()
        await fetch(self, queue, now)

    patch.setattr(Fetcher, "_fetch", planted)


def what_changed_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """The second partition never gets into a request."""
    touch = BrokerQueue.touch

    def planted(self: BrokerQueue, partition: TopicPartition) -> bool:
        return partition.partition != 1 and touch(self, partition)

    patch.setattr(BrokerQueue, "touch", planted)


STALLS = (
    a_partition_is_asked_of_nobody,
    a_request_is_never_over,
    what_changed_is_not_looked_at,
)
BUGS = (
    what_is_being_worked_on_is_committed,
    nobody_waits_for_the_user,
    records_go_on_while_partitions_are_given_up,
    an_older_commit_overtakes_a_later_one,
    committed_offsets_are_kept_for_the_next_time,
    a_session_never_ends_by_itself,
    partitions_are_kept_while_the_group_is_joined,
    who_gave_partitions_up_does_not_join_again,
)
