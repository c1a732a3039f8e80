"""Metadata of 100,000 partitions: CPU of decoding a response, and of decoding and applying it.

No broker takes part: the response is made here, by kclient's encoder, in the version that each
client uses. 10,000 topics of 10 partitions on 30 brokers, 3 replicas. Loaded in workers only.
"""

from __future__ import annotations

import io
import random
import time
from typing import Any

from benchmarks.job import Job, Outcome
from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PARTITIONS_EACH, BROKERS = 10, 30
KCLIENT_VERSION, AIOKAFKA_VERSION = 12, 5


def _topic(rng: random.Random, number: int, epoch: int) -> MetadataResponseTopic:
    partitions = []
    for index in range(PARTITIONS_EACH):
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
    return MetadataResponseTopic(
        name=f"topic-{number:05}",
        topic_id=(number + 1).to_bytes(16, "big"),
        partitions=partitions,
    )


def answer(topics: int, version: int, epoch: int = 1) -> bytes:
    """Return the bytes of a response."""
    rng = random.Random(epoch)
    brokers = [MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in range(BROKERS)]
    response = MetadataResponse(
        brokers=brokers,
        cluster_id="c",
        controller_id=1,
        topics=[_topic(rng, number, epoch) for number in range(topics)],
    )
    return response.encode(version)


def kclient(job: Job) -> Outcome:
    """Measure the second refresh: a client has the first one only once."""
    from kclient.backoff import Backoff
    from kclient.cluster.metadata import MetadataRefresh, MetadataState
    from kclient.config import CommonConfig

    topics = job.records // PARTITIONS_EACH
    data = [answer(topics, KCLIENT_VERSION, epoch) for epoch in (1, 2)]
    began = time.process_time()
    MetadataResponse.decode(data[0], KCLIENT_VERSION)
    decoded = time.process_time() - began
    state = MetadataState(CommonConfig(), Backoff(0.1, 1.0), random.Random(1))
    for number in range(topics):
        state.pin(f"topic-{number:05}")
    spent = longest = 0.0
    for one in data:
        decoding: Any = MetadataResponse.decode_steps(one, KCLIENT_VERSION)
        spent, longest = _drained(
            state.apply_response_steps(MetadataRefresh((), True, 9), decoding, KCLIENT_VERSION, 0.0)
        )
    return {
        "decode_s": decoded,
        "update_s": spent,
        "longest_ms": longest * 1000,
        "records": job.records,
    }


def _drained(steps: Any) -> tuple[float, float]:
    """Return the CPU of all steps, and of the longest one."""
    began = last = time.process_time()
    longest = 0.0
    while True:
        try:
            next(steps)
        except StopIteration:
            now = time.process_time()
            return now - began, max(longest, now - last)
        now = time.process_time()
        longest, last = max(longest, now - last), now


def aiokafka(job: Job) -> Outcome:
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.protocol.metadata import MetadataResponse_v5

    data = answer(job.records // PARTITIONS_EACH, AIOKAFKA_VERSION)
    began = time.process_time()
    response = MetadataResponse_v5.decode(io.BytesIO(data))
    decoded = time.process_time() - began
    cluster = ClusterMetadata()
    began = time.process_time()
    cluster.update_metadata(response)
    spent = decoded + time.process_time() - began
    return {
        "decode_s": decoded,
        "update_s": spent,
        "longest_ms": spent * 1000,
        "records": job.records,
    }
