"""100,000 partitions: what a refresh costs, and how long a slice of it blocks the loop."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kclient.backoff import Backoff
from kclient.cluster.metadata import MetadataRefresh, MetadataState
from kclient.cluster.view import Cluster
from kclient.config import CommonConfig
from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.yardstick import NOMINAL, yardstick

TOPICS, PARTITIONS, BROKERS = 10_000, 10, 30
VERSION = 12

CPU_LIMIT = 0.5 / NOMINAL
"""Yardsticks of thread CPU for decoding and merging; measured 0.17 to 0.25 s."""

SLICE_LIMIT = 0.02 / NOMINAL
"""Yardsticks that a single step may take; measured below 0.006 s."""


def encoded(epoch: int) -> bytes:
    rng = random.Random(epoch)
    topics = []
    for number in range(TOPICS):
        partitions = []
        for index in range(PARTITIONS):
            replicas = rng.sample(range(BROKERS), 3)
            partitions.append(
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=replicas[0],
                    leader_epoch=epoch,
                    replica_nodes=replicas,
                    isr_nodes=replicas,
                )
            )
        topics.append(
            MetadataResponseTopic(
                name=f"topic-{number:05}",
                topic_id=(number + 1).to_bytes(16, "big"),
                partitions=partitions,
            )
        )
    brokers = [MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in range(BROKERS)]
    response = MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)
    return response.encode(VERSION)


@pytest.fixture
def quiet_collector() -> Iterator[None]:
    """Keep the garbage of other tests out of the figures."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def refresh(
    state: MetadataState, data: bytes, *, all_topics: bool = False
) -> tuple[Cluster, float, float]:
    """Return the view, the total CPU time, and that of the longest step."""
    decoding: Any = MetadataResponse.decode_steps(data, VERSION)
    ask = MetadataRefresh((), True, 9, all_topics=all_topics)
    steps = state.apply_response_steps(ask, decoding, VERSION, 0.0)
    started = last = time.thread_time()
    longest = 0.0
    try:
        while True:
            next(steps)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    except StopIteration as end:
        now = time.thread_time()
        view: Cluster = end.value
        return view, now - started, max(longest, now - last)


@pytest.mark.usefixtures("quiet_collector")
@pytest.mark.parametrize("all_topics", [False, True])
def test_a_refresh_is_cheap_and_comes_in_slices(all_topics: bool) -> None:
    state = MetadataState(CommonConfig(), Backoff(0.1, 1.0), random.Random(1))
    if all_topics:
        state.watch_all()
    for number in range(0 if all_topics else TOPICS):
        state.pin(f"topic-{number:05}")
    costs = []
    for epoch in (1, 1, 2):
        data = encoded(epoch)
        gc.collect()
        unit = yardstick()
        view, cpu, longest = refresh(state, data, all_topics=all_topics)
        assert view.partition_total == TOPICS * PARTITIONS
        assert view.leader_epoch("topic-09999", 9) == epoch
        costs.append((cpu / unit, longest / unit))
    assert min(cpu for cpu, _ in costs) <= CPU_LIMIT, costs
    assert min(longest for _, longest in costs) <= SLICE_LIMIT, costs


def test_partition_objects_are_built_only_when_looked_at() -> None:
    state = MetadataState(CommonConfig(), Backoff(0.1, 1.0), random.Random(1))
    for number in range(TOPICS):
        state.pin(f"topic-{number:05}")
    view, _, _ = refresh(state, encoded(1))
    gc.collect()
    before = len(gc.get_objects())
    held = view.partitions_of("topic-00000")
    assert len(held) == PARTITIONS
    assert len(gc.get_objects()) - before < 20
    # Per topic: its entry among the wanted ones, and no other object that the collector tracks.
    del view, held, state
    gc.collect()
    assert before - len(gc.get_objects()) < 1.1 * TOPICS
