"""Metadata of 100,000 partitions: time on the CPU, and decoding in steps."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.yardstick import NOMINAL, yardstick

TOPICS, PARTITIONS, BROKERS = 10_000, 10, 9
MAX_CPU = 0.3 / NOMINAL
MAX_STEP = 0.02 / NOMINAL
"""In yardsticks of CPU time."""
ATTEMPTS = 5
"""The best attempt counts, as other processes load the machine."""


def replicas(first: int) -> list[int]:
    return [(first + more) % BROKERS for more in range(3)]


def large_response(topics: int, partitions: int) -> MetadataResponse:
    """Return the metadata of a healthy cluster with replication factor 3."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(n, f"kafka-{n}.example", 9092) for n in range(BROKERS)],
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{number:05}",
                topic_id=number.to_bytes(16, "big"),
                partitions=[
                    MetadataResponsePartition(0, p, p % BROKERS, 5, replicas(p), replicas(p))
                    for p in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )


@pytest.fixture(scope="module")
def data() -> Iterator[dict[int, bytes]]:
    """The encoded response by version."""
    response = large_response(TOPICS, PARTITIONS)
    yield {version: response.encode(version) for version in (12, 13)}


@pytest.mark.parametrize("version", [12, 13])
def test_100_000_partitions_decode_within_300_ms_of_cpu(version: int) -> None:
    """Runs in an interpreter of its own.

    How often and for how long the garbage collector visits all objects depends on what else is
    alive, and here that is hundreds of tests.
    """
    program = (
        "import time\n"
        "from tests.unit.protocol.test_large_metadata import *\n"
        f"data = large_response(TOPICS, PARTITIONS).encode({version})\n"
        "for attempt in range(ATTEMPTS):\n"
        "    unit = yardstick()\n"
        "    started = time.process_time()\n"
        f"    response = MetadataResponse.decode(data, {version})\n"
        "    print((time.process_time() - started) / unit, len(response.topics))\n"
        "    del response\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, timeout=60
    )
    assert done.returncode == 0, done.stderr
    attempts = [line.split() for line in done.stdout.splitlines()]
    assert [int(topics) for _, topics in attempts] == [TOPICS] * ATTEMPTS
    assert min(float(units) for units, _ in attempts) < MAX_CPU


def test_taken_apart_in_steps_none_of_them_holds_the_thread(data: dict[int, bytes]) -> None:
    """Takes each topic as the client does, so that they don't accumulate."""
    best = worst_step = MAX_CPU * 10
    for _ in range(ATTEMPTS):
        unit = yardstick()
        steps = MetadataResponse.decode_steps(data[13], 13)
        started = before = time.thread_time()
        longest = 0.0
        taken: bool | None = None
        with contextlib.suppress(StopIteration):
            while True:
                steps.send(taken)
                taken = True
                now = time.thread_time()
                longest = max(longest, now - before)
                before = now
        best = min(best, (before - started) / unit)
        worst_step = min(worst_step, longest / unit)
    assert best < MAX_CPU
    assert worst_step < MAX_STEP


def test_steps_give_each_topic_and_then_the_same_message(data: dict[int, bytes]) -> None:
    steps = MetadataResponse.decode_steps(data[12], 12)
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            response = end.value
            break
    assert seen == response.topics
    assert len(seen) == TOPICS
    assert response == MetadataResponse.decode(data[12], 12)


def test_a_topic_of_many_partitions_is_cut_into_steps_too() -> None:
    response = large_response(1, 2500)
    steps = list(MetadataResponse.decode_steps(response.encode(12), 12))
    assert [step is None for step in steps] == [True, True, False]
    assert len(steps[-1].partitions) == 2500


def test_topics_that_were_taken_as_they_passed_are_not_held(data: dict[int, bytes]) -> None:
    steps = MetadataResponse.decode_steps(data[12], 12)
    seen, kept = 0, []
    taken: bool | None = None
    while True:
        try:
            topic = steps.send(taken)
        except StopIteration as end:
            response = end.value
            break
        taken = seen % 3 > 0
        seen += 1
        if not taken:
            kept.append(topic)
    assert seen == TOPICS
    assert response.topics == kept
    assert response.brokers == MetadataResponse.decode(data[12], 12).brokers


@pytest.mark.parametrize("version", [0, 5, 8])
def test_steps_work_in_old_versions(version: int) -> None:
    data = large_response(3, 4).encode(version)
    steps = MetadataResponse.decode_steps(data, version)
    names = []
    while True:
        try:
            names.append(next(steps).name)
        except StopIteration as end:
            assert end.value == MetadataResponse.decode(data, version)
            break
    assert names == ["topic-00000", "topic-00001", "topic-00002"]
