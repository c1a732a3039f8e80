"""Twenty decompression bombs, met by whole consumers: an error that names the place, no memory.

512 MiB or more in a few bytes to a few MiB; each in a process of its own, whose memory is measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kclient
from kclient.errors import DecompressionFailed
from kclient.record import DEFAULT_CAP, Compression
from kclient.testing import Cluster, run_virtually
from kclient.types import TopicPartition
from tests.fuzz.bombs import AT, PAYLOADS, T, as_batch
from tests.unit.record.bomb import MIB, lz4_zeros

PROJECT = Path(__file__).parents[2]
ALLOWANCE = 32 * MIB
"""What may come on top of the cap."""
MOST_SECONDS = 2.0


@pytest.mark.parametrize(("codec", "kind"), PAYLOADS, ids=lambda part: part.replace(" ", "-"))
def test_a_bomb_is_an_error_that_names_its_place_and_takes_no_memory(codec: str, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bombs", codec, kind],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["error"] == ("CorruptRecord" if kind == "nested" else "DecompressionFailed")
    assert (seen["partition"], seen["offset"]) == (f"{T}-0", AT)
    assert f"{T}-0" in seen["text"]
    assert f"offset {AT}" in seen["text"]
    assert seen["position"] == [AT, AT]
    assert seen["behind"] == [AT + 1]
    assert seen["grown"] <= DEFAULT_CAP + ALLOWANCE
    assert seen["seconds"] <= MOST_SECONDS


def test_there_are_twenty() -> None:
    assert len(PAYLOADS) == 20


def test_a_bomb_at_the_position_is_not_fetched_all_the_time() -> None:
    """Backed off to a fetch a second, however often poll is called."""
    sent, errors = run_virtually(_stay_at(as_batch(Compression.LZ4, lz4_zeros(4 * MIB))))
    assert 30 <= sent <= 60 + 10
    assert errors >= 30


async def _stay_at(bomb: bytes) -> tuple[int, int]:
    """Poll for a minute; how often the bomb is sent, and how many errors that makes."""
    where = TopicPartition(T, 0)
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic(T)
        cluster.append(T, 0, as_batch(Compression.NONE, b"\x0c\x00\x00\x00\x01\x01\x00", 0))

        sent = 0

        def plant(request: Any, response: Any) -> None:
            nonlocal sent
            for topic in response.responses:
                for part in topic.partitions:
                    if part.records:
                        part.records = bomb
                        sent += 1

        cluster.faults.rewrite("Fetch", plant, times=None)
        async with kclient.Consumer(cluster.bootstrap, decompression_cap=MIB) as consumer:
            consumer.assign([where])
            consumer.seek(where, 0)
            errors = await _poll_for_a_minute(consumer)
            return sent, errors


async def _poll_for_a_minute(consumer: Any) -> int:

    loop = asyncio.get_running_loop()
    ends, errors = loop.time() + 60.0, 0
    while loop.time() < ends:
        try:
            await consumer.poll(timeout=0.01)
        except DecompressionFailed:
            errors += 1
    assert set(consumer.positions().values()) == {0}
    return errors
