"""Partitioners that choose partitions as other clients do."""

from __future__ import annotations

import random

import pytest

from kclient.partitioners import ConsistentRandom
from kclient.producer import Producer


@pytest.mark.parametrize(
    ("key", "partition"),
    # The CRC-32 of "123456789" is 0xCBF43926 by definition.
    [(b"123456789", 0xCBF43926 % 7), (b"a", 0xE8B7BE43 % 7)],
)
def test_a_key_goes_by_its_crc(key: bytes, partition: int) -> None:
    assert ConsistentRandom().partition("t", key, 7) == partition


@pytest.mark.parametrize("key", [None, b""])
def test_without_a_key_any_partition_is_chosen(key: bytes | None) -> None:
    partitioner = ConsistentRandom(random.Random(1))
    assert {partitioner.partition("t", key, 5) for _ in range(200)} == set(range(5))


def test_a_producer_takes_it() -> None:
    Producer("localhost:9092", partitioner=ConsistentRandom())
