"""Which broker is asked for what, and when."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from kclient.cluster.topic import Partition
from kclient.cluster.view import Broker, Cluster
from kclient.consumer.fetch_scheduler import SHORT_POLL, BrokerQueue, FetchScheduler
from kclient.consumer.fetch_session import PartitionFetch
from kclient.consumer.partition_state import PartitionState
from kclient.types import OffsetSpec, TopicPartition
from tests.support.views import topic_of, view_of
from tests.unit.consumer.buffer_rig import BufferRig
from tests.unit.consumer.log_bytes import batch


def cluster(*leaders: int | None, brokers: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    """Topic ``t`` with these leaders."""
    partitions = [Partition("t", index, leader, 5) for index, leader in enumerate(leaders)]
    topic = topic_of("t", partitions)
    return view_of([Broker(n, "host", 9092) for n in brokers], [topic], version=1)


class PlanRig(BufferRig):
    """A buffer rig with a plan, wired as the fetcher has it."""

    def __init__(self, partitions: int, **options: int) -> None:
        self.plan: FetchScheduler | None = None
        self.touched: list[int] = []
        super().__init__(partitions, **options)
        self.plan = FetchScheduler(
            self.subscription,
            self.buffer,
            partition_bytes=1000,
            on_touched=lambda queue: self.touched.append(queue.node_id),
        )

    def _changed(self, states: Sequence[PartitionState]) -> None:
        super()._changed(states)
        if self.plan is not None:
            self.plan.follow(states, 0.0)

    def follow(self, view: Cluster, now: float = 0.0) -> None:
        assert self.plan is not None
        self.plan.follow_view(view, self.subscription, now)

    def queue(self, node_id: int) -> BrokerQueue:
        assert self.plan is not None
        return self.plan.queues[node_id]

    def due(self, node_id: int, now: float = 0.0) -> float:
        assert self.plan is not None
        return self.plan.due(self.queue(node_id), now)

    def asked(self, node_id: int, now: float = 0.0) -> dict[int, int]:
        """Offset by partition index that the broker is asked for."""
        self.due(node_id, now)
        return {tp.partition: ask.offset for tp, ask in self.queue(node_id).session.asked.items()}


def planned(*leaders: int | None, **options: int) -> PlanRig:
    rig = PlanRig(len(leaders), **options)
    rig.follow(cluster(*leaders))
    return rig


def test_each_leader_is_asked_for_its_partitions() -> None:
    rig = planned(1, 2, 1)
    assert rig.asked(1) == {0: 0, 2: 0}
    assert rig.asked(2) == {1: 0}
    assert rig.due(1) == 0.0


@pytest.mark.parametrize("waits_until", [0.0, 5.0])
def test_a_new_leader_is_asked_at_once_and_looked_at_once(
    waits_until: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = planned(1)
    rig.asked(1)
    rig.state(0).retry_at = waits_until
    touched: list[int] = []
    touch = BrokerQueue.touch

    def note(queue: BrokerQueue, partition: TopicPartition) -> bool:
        touched.append(queue.node_id)
        return touch(queue, partition)

    monkeypatch.setattr(BrokerQueue, "touch", note)
    rig.follow(cluster(2))
    assert touched == [1, 2]
    assert rig.asked(2) == {0: 0}


def test_an_ask_has_offset_size_and_what_the_view_knows() -> None:
    rig = planned(1)
    rig.subscription.update_metadata(rig.state(0), b"i" * 16, 5)
    rig.due(1)
    assert rig.queue(1).session.asked[rig.partition(0)] == PartitionFetch(0, 1000, 5, b"i" * 16)


def test_a_queue_is_reported_once_until_it_is_examined() -> None:
    rig = planned(1, 1)
    rig.due(1)
    rig.touched.clear()
    rig.subscription.seek(rig.state(0), 5)
    rig.subscription.seek(rig.state(1), 6)
    assert rig.touched == [1]
    assert rig.asked(1) == {0: 5, 1: 6}
    rig.subscription.seek(rig.state(1), 7)
    assert rig.touched == [1, 1]
    assert rig.asked(1) == {0: 5, 1: 7}


def test_one_request_at_a_time() -> None:
    rig = planned(1)
    assert rig.due(1) == 0.0
    rig.queue(1).begin(0.0)
    assert rig.due(1) == math.inf
    rig.queue(1).end()
    assert rig.due(1) <= 0.0


def test_a_partition_follows_its_leader() -> None:
    rig = planned(1, 1)
    rig.asked(1)
    rig.follow(cluster(2, 1))
    assert rig.asked(1) == {1: 0}
    assert rig.asked(2) == {0: 0}


def test_a_leader_that_is_not_known_as_a_broker_is_not_asked() -> None:
    rig = planned(1)
    rig.follow(cluster(9), 7.0)
    assert rig.state(0).node_id is None
    assert rig.plan is not None
    assert rig.plan.unrouted == {rig.partition(0): 7.0}
    rig.follow(cluster(1), 8.0)
    assert rig.plan.unrouted == {}


def test_since_when_a_partition_has_no_broker_is_kept_over_views() -> None:
    rig = planned(None)
    rig.follow(cluster(None), 3.0)
    assert rig.plan is not None
    assert rig.plan.unrouted == {rig.partition(0): 0.0}
    rig.subscription.assign([])
    assert rig.plan.unrouted == {}


def test_paused_partitions_are_not_asked_for() -> None:
    rig = planned(1, 1)
    rig.asked(1)
    rig.subscription.pause(rig.state(0))
    assert rig.asked(1) == {1: 0}
    rig.subscription.resume(rig.state(0))
    assert rig.asked(1) == {0: 0, 1: 0}


def test_partitions_without_a_position_are_not_asked_for() -> None:
    rig = planned(1)
    rig.subscription.ask_reset(rig.state(0), OffsetSpec.LATEST)
    assert rig.asked(1) == {}
    assert rig.due(1) == math.inf
    rig.subscription.finish_resets([(rig.state(0), rig.state(0).position_version, 40, -1)])
    assert rig.asked(1) == {0: 40}


def test_a_seek_changes_what_is_asked() -> None:
    rig = planned(1)
    rig.asked(1)
    rig.subscription.seek(rig.state(0), 9)
    assert rig.asked(1) == {0: 9}


def test_a_partition_in_back_off_is_asked_for_when_its_time_has_come() -> None:
    rig = planned(1)
    rig.asked(1)
    rig.subscription.back_off(rig.state(0), 2.0)
    assert rig.asked(1, 1.0) == {}
    assert rig.due(1, 1.0) == 2.0
    assert rig.asked(1, 2.0) == {0: 0}


def test_an_unassigned_partition_is_forgotten_and_back_again_is_asked_for() -> None:
    rig = planned(1, 1)
    rig.asked(1)
    rig.subscription.assign([rig.partition(1)])
    assert rig.asked(1) == {1: 0}
    rig.subscription.assign([rig.partition(0), rig.partition(1)])
    rig.subscription.seek(rig.state(0), 3)
    assert rig.asked(1) == {1: 0, 0: 3}


def test_a_full_partition_is_held_back_and_the_others_are_asked_shortly() -> None:
    rig = planned(1, 1, partition_bytes=10)
    rig.queue(1).begin(1.0)
    rig.queue(1).end()
    rig.add(0, batch(0, 1))
    rig.add(0, batch(1, 1))
    assert rig.asked(1, 1.0) == {1: 0}
    assert rig.queue(1).holds_back
    assert rig.due(1, 1.0) == 1.0 + SHORT_POLL
    rig.take(10)
    assert rig.plan is not None
    rig.plan.touch(rig.state(0))  # as the fetcher does in ``on_space``
    assert rig.asked(1, 1.0) == {1: 0, 0: 2}
    assert not rig.queue(1).holds_back


def test_no_broker_is_asked_while_memory_is_used_up() -> None:
    rig = planned(1, frame_budget=100)
    rig.add(0, batch(0, 1))
    assert rig.due(1) == math.inf
    rig.take(10)
    assert rig.due(1) <= 0.0


def test_a_broker_in_back_off_is_not_asked() -> None:
    rig = planned(1)
    rig.queue(1).retry_at = 5.0
    assert rig.due(1, 1.0) == 5.0


def test_a_preferred_replica_is_asked_instead_of_the_leader() -> None:
    rig = planned(1)
    assert rig.plan is not None
    rig.plan.prefer(rig.state(0), 2, until=100.0, now=0.0)
    assert rig.asked(2) == {0: 0}
    assert rig.asked(1) == {}


def test_a_preferred_replica_expires() -> None:
    rig = planned(1)
    assert rig.plan is not None
    rig.plan.prefer(rig.state(0), 2, until=100.0, now=0.0)
    assert rig.asked(2, 99.0) == {0: 0}
    rig.asked(2, 100.0)
    assert rig.asked(1, 100.0) == {0: 0}


def test_an_unknown_preferred_replica_does_not_strand_the_partition() -> None:
    rig = planned(1)
    assert rig.plan is not None
    rig.plan.prefer(rig.state(0), 77, until=100.0, now=0.0)
    assert rig.state(0).replica is None
    assert rig.asked(1) == {0: 0}


def test_a_preferred_replica_that_leaves_the_cluster_is_abandoned() -> None:
    rig = planned(1)
    assert rig.plan is not None
    rig.plan.prefer(rig.state(0), 2, until=100.0, now=0.0)
    rig.follow(cluster(1, brokers=(1, 3)))
    assert rig.asked(1) == {0: 0}


def test_a_replica_that_does_not_serve_sends_back_to_the_leader() -> None:
    rig = planned(1)
    assert rig.plan is not None
    rig.plan.prefer(rig.state(0), 2, until=100.0, now=0.0)
    rig.plan.back_to_leader(rig.plan.states_of(rig.queue(2)), 1.0)
    assert rig.asked(1) == {0: 0}
    assert rig.plan.states_of(rig.queue(2)) == []


def test_a_removed_queue_is_recreated_when_a_partition_comes_back() -> None:
    rig = planned(1)
    assert rig.plan is not None
    old = rig.queue(1)
    rig.follow(cluster(2))
    rig.plan.remove(old)
    rig.follow(cluster(1))
    assert rig.queue(1) is not old
    assert rig.asked(1) == {0: 0}
    rig.plan.remove(old)  # it doesn't affect the new one
    assert rig.queue(1) is not old


def test_only_touched_partitions_are_looked_at() -> None:
    rig = planned(*[1] * 50)
    rig.due(1)
    rig.queue(1).session.next_request(by_id=False)
    rig.queue(1).session.answered(0, 7, list(rig.queue(1).session.asked))
    rig.subscription.seek(rig.state(7), 3)
    rig.due(1)
    request = rig.queue(1).session.next_request(by_id=False)
    assert list(request.partitions) == [TopicPartition("t", 7)]
